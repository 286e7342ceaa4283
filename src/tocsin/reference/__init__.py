"""What every query means, by brute force: the specification the rooms are tested against.

Nothing here is clever. A query over tables is read as it was parsed:

    FROM    every combination of rows, one of each table (nested loops)
    JOIN    keep those for which each `Equal` and `Band` holds; an outer join adds rows without partner
    WHERE   keep those for which the condition is true: not false, not unknown
    GROUP   rows of equal keys, one row of aggregates for each group that HAVING is true for
    SELECT  aggregate to one row, or project; then DISTINCT, or ORDER BY, LIMIT and OFFSET, or QUALIFY

The cost is the product of the table sizes; use it on small ones.

    values.py      comparison of values, NULL, NaN and kinds; rows as values to count by
    conditions.py  a condition over a row: true, false or unknown
    answers.py     a query over tables
    streams.py     events in a window, joins of two streams

>>> import math
>>> from dataclasses import replace
>>> from tocsin.language.algebra import Aggregate, Band, Column, Compare, Item, Not, OrderKey, Query, TableRef
>>> from tocsin.model.schema import Type, read_time
>>> symbol, per = Column("symbol", Type.STRING), Column("per", Type.DOUBLE)
>>> row, tables = (Item(symbol, "symbol"), Item(per, "per")), (TableRef("stocks", "stocks"),)
>>> database = {"stocks": [
...     {"symbol": "A", "per": 50.0}, {"symbol": "B", "per": None},
...     {"symbol": "C", "per": math.nan}, {"symbol": "D", "per": 50.0}]}
>>> keys = {"stocks": ("symbol",)}

A filter keeps what is true. NaN is above all numbers, and NULL is not 50 but not unlike 50 either:

>>> evaluate(Query(row, tables, where=Not(Compare(per, "=", 50.0))), database, keys)
[{'symbol': 'C', 'per': nan}]

Top-k is in order, ties by primary key; an aggregate is one row; DISTINCT is a set:

>>> evaluate(Query(row[:1], tables, order=(OrderKey(per),), limit=3), database, keys)
[{'symbol': 'B'}, {'symbol': 'A'}, {'symbol': 'D'}]
>>> values = (Item(Aggregate("COUNT"), "n"), Item(Aggregate("MIN", per), "low"))
>>> evaluate(Query(values, tables), database, keys)
[{'n': 4, 'low': 50.0}]
>>> evaluate(Query(row[1:], tables, distinct=True), database, keys)
[{'per': 50.0}, {'per': None}, {'per': nan}]

Groups are of equal keys, NULL equal to NULL; one row for each that passes HAVING:

>>> from tocsin.language.algebra import Measure
>>> many = Compare(Measure.of(Aggregate("COUNT")), ">", 1)
>>> evaluate(Query((row[1], values[0]), tables, group=(per,), having=many), database, keys)
[{'per': 50.0, 'n': 2}]

A join pairs rows; here each row with those at most 5 above it, in a table joined with itself:

>>> twice = (TableRef("stocks", "l"), TableRef("stocks", "h"))
>>> near = Band(replace(per, relation="h"), replace(per, relation="l"), low=0, high=5)
>>> pair = tuple(Item(replace(symbol, relation=alias), alias) for alias in "lh")
>>> evaluate(Query(pair, twice, (near,), Compare(pair[0].expression, "=", "A")), database, keys)
[{'l': 'A', 'h': 'A'}, {'l': 'A', 'h': 'D'}]
"""

from tocsin.reference.answers import evaluate
from tocsin.reference.conditions import holds
from tocsin.reference.streams import absent_in, events_in, follow_steps, join_streams
from tocsin.reference.values import as_bag, compare, difference, row_key

__all__ = [
    "absent_in",
    "as_bag",
    "compare",
    "difference",
    "evaluate",
    "events_in",
    "follow_steps",
    "holds",
    "join_streams",
    "row_key",
]
