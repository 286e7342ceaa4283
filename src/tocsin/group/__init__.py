"""Answers over groups: GROUP BY, HAVING, aggregates and DISTINCT over joins, first rows of groups and joins.

needs.py     the columns that such a query reads of its table or join
plain.py     the answer over some rows, computed plainly
source.py    rows of a table or join, and how a step changes them
scan.py      the room without shared state, which the others are compared with
"""
