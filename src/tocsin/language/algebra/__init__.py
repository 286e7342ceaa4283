"""The query algebra: frozen values that print back as SQL.

The parser (`sql.py`) builds them, with every name resolved and every type checked; the
reference evaluates them directly; `rewrite.py` turns conditions into normal forms.

    Query ── items:  Item(Column | Aggregate, name)
          ├─ tables: TableRef(name, alias)
          ├─ joins:  Equal(left, right) | Band(left, right, low .. high)
          ├─ where:  And | Or | Not | Compare | Between | In | Like | Ilike | Rlike | IsNull | Truth
          ├─ outer:  OuterJoin(LEFT | RIGHT | FULL, on)
          ├─ exists: Existence(alias, joins, where), EXISTS and IN with a subquery
          ├─ group, having: Columns; a condition over them and `Measure`s
          ├─ distinct, order, limit, offset; partition: the first rows of each group (QUALIFY)
          ├─ branches: the queries of UNION ALL
          └─ options: WITH (...), see `options.py`

    conditions.py  columns, constants, conditions
    queries.py     tables, joins, items, Query

>>> from tocsin.model.schema import Type
>>> price = Column("price", Type.DOUBLE)
>>> print(And((Compare(price, "<=", 580.0), Not(In(Column("color", Type.STRING), ("red", "blue"))))))
price <= 580.0 AND NOT color IN ('red', 'blue')
"""

from tocsin.language.algebra.conditions import (
    JOINT,
    And,
    Atom,
    Between,
    Column,
    Compare,
    Exists,
    Ilike,
    In,
    IsNull,
    IsTrue,
    Like,
    Not,
    Or,
    Predicate,
    Rlike,
    Truth,
    Value,
    atoms,
    exists_of,
    is_true,
    joint_name,
    literal,
    with_column,
)
from tocsin.language.algebra.queries import (
    Aggregate,
    Band,
    Equal,
    Existence,
    Item,
    Measure,
    OrderKey,
    OuterJoin,
    Query,
    TableRef,
)

__all__ = [
    "JOINT",
    "Aggregate",
    "And",
    "Atom",
    "Band",
    "Between",
    "Column",
    "Compare",
    "Equal",
    "Existence",
    "Exists",
    "Ilike",
    "In",
    "IsNull",
    "IsTrue",
    "Item",
    "Like",
    "Measure",
    "Not",
    "Or",
    "OrderKey",
    "OuterJoin",
    "Predicate",
    "Query",
    "Rlike",
    "TableRef",
    "Truth",
    "Value",
    "atoms",
    "exists_of",
    "is_true",
    "joint_name",
    "literal",
    "with_column",
]
