"""Joins of tables: which joined rows do subscriptions gain or lose with a change?

room.py         JoinRoom: subscriptions by signature, a step through families to deltas
family.py       subscriptions of one signature; verifies what ranges do not express
groups.py       subscriptions that select by the same attributes; candidates and joins of two tables
multiway.py     joins of three tables and more
plan_choice.py  the cheapest strategy for each changed row;  costs.py  its cost model, fitted to the machine
strategies/     ways to find the queries that a row affects, for equality and for band joins
tables.py       tables as joins see them: codes of rows, ordered rows
signature.py    what subscriptions have in common;  matches.py  joined rows and who matches them
scan.py         the plain way, subscription by subscription: the oracle, and contents of one subscription
_kernels/       compiled loops over arrays
"""
