"""Semi-joins and anti-joins: rows of a table for which rows of others exist, or do not.

conditions.py   EXISTS, NOT EXISTS, IN and NOT IN as conditions of one kind
sweep.py        when a row is in an answer within a step
scan.py         each subscription by itself
partners.py     sets of partners that subscriptions share, and whether a key has one
keyed.py        rows by a join key that is their table's primary key
room.py         all subscriptions together
"""
