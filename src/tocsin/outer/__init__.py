"""Queries that are composed of others: outer joins and UNION ALL.

parts.py   the queries that one is composed of
room.py    their answers together
"""
