"""Answers over groups: GROUP BY, HAVING, aggregates and DISTINCT over joins, first rows of groups and joins.

room.py      `GroupRoom`: sources and families, and what becomes of a subscription
needs.py     the columns that a query reads of its table or join
split.py     what of a query is shared: source, family; and what is its own
source.py    rows of a table or join, and how a step changes them
totals.py    accumulators: counts, exact sums; with values.py, sorted values by group
families.py  thresholds of many subscriptions, sorted
ranked.py    first rows after others (pages.py), of groups (firsts.py), and of joins
plain.py     the answer over some rows, computed plainly
scan.py      the room without shared state, which the others are compared with
explain.py   why a row counts, or not
_kernels/    hash table, trees, sums, binary searches
"""
