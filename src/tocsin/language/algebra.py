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

>>> price = Column("price", Type.DOUBLE)
>>> print(And((Compare(price, "<=", 580.0), Not(In(Column("color", Type.STRING), ("red", "blue"))))))
price <= 580.0 AND NOT color IN ('red', 'blue')
"""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import ParamSpec, TypeVar

from tocsin.language.options import NO_OPTIONS, Options
from tocsin.model.paths import MARK, shown_name
from tocsin.model.schema import Type, quote

__all__ = [
    "MAX_LEVELS",
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
    "literal",
    "with_column",
    "with_deep_stack",
]

Value = int | float | str | bool | date | datetime | None


def literal(value: Value) -> str:
    """A value as SQL text that the parser reads back to the same value.

    >>> literal("it's"), literal(5.0), literal(None), literal(date(2013, 1, 31))
    ("'it\\\\'s'", '5.0', 'NULL', "DATE '2013-01-31'")
    """
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"CAST('{name}' AS DOUBLE)"
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, datetime):  # a datetime is a date too: test it first
        return f"TIMESTAMP '{value.replace(tzinfo=None).isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    return str(value)


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or an attribute of an open stream (then `type` is None: known only per event).

    `relation` is the table's alias in a query over several tables, and empty otherwise.
    """

    name: str
    type: Type | None = None
    relation: str = ""

    def __str__(self) -> str:
        name = shown_name(self.name)
        return f"{quote(self.relation)}.{name}" if self.relation else name


# -- conditions ------------------------------------------------------------------------------------


class _Exactly:
    """Equality by fields and their types: equal conditions print alike.

    In Python TRUE, 1 and 1.0 are equal; in an open stream TRUE and 1 are not, and a cache of normal
    forms must not return `x > 5` for `x > 5.0`.
    """

    __slots__ = ()

    column: Column

    def _compared(self) -> tuple[object, ...]:
        """The fields that equality compares."""
        return (self.column,)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other._compared() == self._compared()

    def __hash__(self) -> int:
        return hash(self._compared())


def _exact(value: Value) -> object:
    return type(value), value


@dataclass(frozen=True, slots=True, eq=False)
class Compare(_Exactly):
    """`column op value`, op one of = != < <= > >=; against NULL it is unknown."""

    column: Column
    op: str
    value: Value

    def _compared(self) -> tuple[object, ...]:
        return self.column, self.op, _exact(self.value)

    def __str__(self) -> str:
        return f"{self.column} {self.op} {literal(self.value)}"


@dataclass(frozen=True, slots=True, eq=False)
class Between(_Exactly):
    """`low <= column AND column <= high`."""

    column: Column
    low: Value
    high: Value

    def _compared(self) -> tuple[object, ...]:
        return self.column, _exact(self.low), _exact(self.high)

    def __str__(self) -> str:
        return f"{self.column} BETWEEN {literal(self.low)} AND {literal(self.high)}"


@dataclass(frozen=True, slots=True, eq=False)
class In(_Exactly):
    """`column = v1 OR column = v2 ...`; a NULL among the values makes a miss unknown."""

    column: Column
    values: tuple[Value, ...]

    def _compared(self) -> tuple[object, ...]:
        return self.column, self.values, tuple(map(type, self.values))

    def __hash__(self) -> int:
        return hash((self.column, self.values))

    def __str__(self) -> str:
        return f"{self.column} IN ({', '.join(map(literal, self.values))})"


@dataclass(frozen=True, slots=True)
class Like:
    """Match the whole text: `%` any characters, `_` any one, a backslash escapes the next character."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} LIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Ilike:
    """LIKE for which letters have no case: text and pattern are folded (`model/folding.py`)."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} ILIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class Rlike:
    """An RE2 pattern found anywhere in the text."""

    column: Column
    pattern: str

    def __str__(self) -> str:
        return f"{self.column} RLIKE {literal(self.pattern)}"


@dataclass(frozen=True, slots=True)
class IsNull:
    """True where the column is NULL or the attribute is missing, false elsewhere; never unknown."""

    column: Column

    def __str__(self) -> str:
        return f"{self.column} IS NULL"


@dataclass(frozen=True, slots=True)
class IsTrue:
    """True where an atom, or NOT of one, is true, and false elsewhere; never unknown. See `is_true`."""

    arg: Atom | Not

    @property
    def column(self) -> Column:
        inner = self.arg.arg if isinstance(self.arg, Not) else self.arg
        return inner.column  # type: ignore[union-attr]  # NOT is above an atom

    def __str__(self) -> str:
        return f"({self.arg}) IS TRUE"


@dataclass(frozen=True, slots=True)
class Truth:
    """A constant condition: True, False or None (unknown)."""

    value: bool | None

    def __str__(self) -> str:
        return literal(self.value)


@dataclass(frozen=True, slots=True)
class Not:
    arg: Predicate

    def __str__(self) -> str:
        inner = f"({self.arg})" if isinstance(self.arg, And | Or) else str(self.arg)
        return f"NOT {inner}"


@dataclass(frozen=True, slots=True)
class And:
    args: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " AND ".join(f"({a})" if isinstance(a, And | Or) else str(a) for a in self.args)


@dataclass(frozen=True, slots=True)
class Or:
    args: tuple[Predicate, ...]

    def __str__(self) -> str:
        return " OR ".join(f"({a})" if isinstance(a, And | Or) else str(a) for a in self.args)


Atom = Compare | Between | In | Like | Ilike | Rlike | IsNull | IsTrue
Predicate = Atom | Truth | Not | And | Or


def atoms(predicate: Predicate) -> Iterator[Atom]:
    """The atoms of a condition, left to right."""
    if isinstance(predicate, And | Or):
        for arg in predicate.args:
            yield from atoms(arg)
    elif isinstance(predicate, Not):
        yield from atoms(predicate.arg)
    elif not isinstance(predicate, Truth):
        yield predicate


def with_column(atom: Atom, column: Column) -> Atom:
    """The same condition on another column."""
    if not isinstance(atom, IsTrue):
        return replace(atom, column=column)
    inner = atom.arg
    if isinstance(inner, Not):
        return IsTrue(Not(with_column(inner.arg, column)))  # type: ignore[arg-type]  # NOT is above an atom
    return IsTrue(with_column(inner, column))


def is_true(predicate: Predicate) -> Predicate:
    """`(predicate) IS TRUE`: the same condition without unknown, which counts as false.

    >>> x, y = Column("x"), Column("y")
    >>> print(is_true(Not(Or((Compare(x, "=", 1), Not(IsNull(y)))))))
    (NOT x = 1) IS TRUE AND y IS NULL
    """
    if isinstance(predicate, And | Or):
        return type(predicate)(tuple(map(is_true, predicate.args)))
    if isinstance(predicate, Truth):
        return Truth(predicate.value is True)
    if not isinstance(predicate, Not):
        return predicate if isinstance(predicate, IsNull | IsTrue) else IsTrue(predicate)
    inner = predicate.arg
    if isinstance(inner, And | Or):
        return (Or if isinstance(inner, And) else And)(tuple(is_true(Not(arg)) for arg in inner.args))
    if isinstance(inner, Not):
        return is_true(inner.arg)
    if isinstance(inner, Truth):
        return Truth(inner.value is False)
    return predicate if isinstance(inner, IsNull | IsTrue) else IsTrue(predicate)


# -- conditions on elements of lists ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Exists:
    """Whether one element of a list meets a condition; `items` and `variable` as in `language/nested.py`.

    As a column it is TRUE, FALSE, or NULL where there is no list.
    """

    items: str
    where: Predicate
    variable: str

    def __str__(self) -> str:
        return f"exists({self.items}, {self.variable} -> {self.where})"

    @property
    def column(self) -> Column:
        """The attribute that stands for it."""
        name = f"{MARK}{self}"
        if len(_known_exists) >= _MOST_EXISTS:
            _known_exists.clear()
        _known_exists[name] = self
        return Column(name)


_MOST_EXISTS = 1 << 17
_known_exists: dict[str, Exists] = {}  # by name of the attribute


def exists_of(name: str) -> Exists:
    """The condition that an attribute stands for."""
    name = MARK + name.lstrip(MARK)
    if name not in _known_exists:
        from tocsin.language.nested import read_exists  # it reads texts, which this module does not

        _known_exists[name] = read_exists(name[1:])
    return _known_exists[name]


# -- queries ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TableRef:
    """A table in FROM, under the name it has in the query; `stream`: a stream that is joined."""

    name: str
    alias: str
    stream: bool = False

    def __str__(self) -> str:
        return quote(self.name) if self.alias == self.name else f"{quote(self.name)} AS {quote(self.alias)}"


@dataclass(frozen=True, slots=True)
class Equal:
    """`left = right` between two tables; NULL joins nothing."""

    left: Column
    right: Column

    def __str__(self) -> str:
        return f"{self.left} = {self.right}"


@dataclass(frozen=True, slots=True)
class Band:
    """`low <= left - right <= high`; an absent end is None, an `open` end is strict.

    Ends are numbers, or microseconds for time columns (days are counted as 24 hours).
    """

    left: Column
    right: Column
    low: int | float | None = None
    high: int | float | None = None
    low_open: bool = False
    high_open: bool = False

    @property
    def timed(self) -> bool:
        return self.left.type is not None and self.left.type.kind == "time"

    @property
    def bounds_time(self) -> bool:
        """Whether a row of event time has partners only for some time."""
        return self.timed and self.low is not None and self.high is not None

    def _end(self, end: int | float) -> str:
        if not self.timed:
            return literal(end)
        return f"INTERVAL '{round(end)}' MICROSECOND"

    def __str__(self) -> str:
        difference = f"{self.left} - {self.right}"
        parts = []
        if self.low is not None:
            parts.append(f"{difference} {'>' if self.low_open else '>='} {self._end(self.low)}")
        if self.high is not None:
            parts.append(f"{difference} {'<' if self.high_open else '<='} {self._end(self.high)}")
        return " AND ".join(parts)


@dataclass(frozen=True, slots=True)
class OuterJoin:
    """A join of two tables that keeps rows without partner, of the tables that `side` names.

    `on`: conditions of ON on one table alone, which decide who is a partner.
    """

    side: str  # LEFT, RIGHT or FULL
    on: Predicate = Truth(True)

    def keeps(self, place: int) -> bool:
        """Whether rows of the first (0) or the second table (1) stay without a partner."""
        return self.side in ("FULL", ("LEFT", "RIGHT")[place])


@dataclass(frozen=True, slots=True)
class Existence:
    """A conjunct of WHERE: rows of another table exist that join and satisfy conditions.

    The table is `alias` in `Query.tables`. `joins` are between it and tables of FROM; `where` concerns one of
    both alone. `member`: of `x IN (SELECT y ...)`, the columns x and y; NOT IN is unknown, and so not true,
    where x or a y is NULL and there are rows.
    """

    alias: str
    joins: tuple[Equal | Band, ...] = ()
    where: Predicate = Truth(True)
    negated: bool = False
    member: tuple[Column, Column] | None = None

    def text(self, table: TableRef) -> str:
        """As SQL."""
        inner = _conjunction([*map(str, self.joins)], self.where)
        where = f" WHERE {inner}" if inner else ""
        no = "NOT " if self.negated else ""
        if self.member is None:
            return f"{no}EXISTS (SELECT 1 FROM {table}{where})"
        return f"{self.member[0]} {no}IN (SELECT {self.member[1]} FROM {table}{where})"


def _conjunction(parts: list[str], where: Predicate) -> str:
    """Conditions and a further one, joined by AND."""
    if where != Truth(True):
        parts = [*parts, f"({where})" if isinstance(where, Or) and parts else str(where)]
    return " AND ".join(parts)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """COUNT, SUM, AVG, MIN or MAX of a column; COUNT without one counts rows.

    `distinct`: of each value once; `where`: of the rows for which this is true, FILTER (WHERE ...).
    """

    function: str
    column: Column | None = None
    distinct: bool = False
    where: Predicate | None = None

    @property
    def type(self) -> Type:
        """The type of its value."""
        if self.function == "COUNT":
            return Type.BIGINT
        known = None if self.column is None else self.column.type
        return Type.DOUBLE if self.function == "AVG" or known is None else known

    @property
    def plain(self) -> bool:
        """Whether it aggregates all values of all rows."""
        return not self.distinct and self.where is None

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns that it reads."""
        own = () if self.column is None else (self.column,)
        return own if self.where is None else (*own, *(atom.column for atom in atoms(self.where)))

    def __str__(self) -> str:
        inner = "*" if self.column is None else str(self.column)
        text = f"{self.function}({'DISTINCT ' if self.distinct else ''}{inner})"
        return text if self.where is None else f"{text} FILTER (WHERE {self.where})"


@dataclass(frozen=True, slots=True)
class Measure(Column):
    """An aggregate in a condition of HAVING, as a column of the groups.

    >>> print(Compare(Measure.of(Aggregate("COUNT")), ">", 5))
    COUNT(*) > 5
    """

    aggregate: Aggregate = Aggregate("COUNT")

    @classmethod
    def of(cls, aggregate: Aggregate) -> Measure:
        return cls(str(aggregate), aggregate.type, "", aggregate)

    def __str__(self) -> str:
        return str(self.aggregate)


@dataclass(frozen=True, slots=True)
class Item:
    """One column of the answer and its name."""

    expression: Column | Aggregate
    name: str

    def __str__(self) -> str:
        bare = isinstance(self.expression, Column) and self.expression.name == self.name
        return str(self.expression) if bare else f"{self.expression} AS {quote(self.name)}"


@dataclass(frozen=True, slots=True)
class OrderKey:
    column: Column
    descending: bool = False
    nulls_first: bool = True

    def __str__(self) -> str:
        direction = "DESC" if self.descending else "ASC"
        return f"{self.column} {direction} NULLS {'FIRST' if self.nulls_first else 'LAST'}"


@dataclass(frozen=True, slots=True)
class Query:
    """One subscription. No items means every attribute of an open stream's event.

    `tables` are those of FROM, then those of `exists`; of a UNION ALL, those of its `branches` in turn.
    """

    items: tuple[Item, ...]
    tables: tuple[TableRef, ...]
    joins: tuple[Equal | Band, ...] = ()
    where: Predicate = Truth(True)
    distinct: bool = False
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    options: Options = NO_OPTIONS
    group: tuple[Column, ...] = ()
    having: Predicate = Truth(True)
    offset: int = 0
    partition: tuple[Column, ...] = ()  # `limit` rows of each group of equal values here, in order
    outer: OuterJoin | None = None
    exists: tuple[Existence, ...] = ()
    branches: tuple[Query, ...] = ()

    @property
    def from_tables(self) -> tuple[TableRef, ...]:
        """The tables of FROM."""
        return self.tables[: len(self.tables) - len(self.exists)]

    @property
    def is_composed(self) -> bool:
        """Whether it has parts that are queries, or is one of an outer join."""
        return bool(self.outer or self.exists or self.branches)

    @property
    def aggregates(self) -> tuple[Aggregate, ...]:
        return tuple(i.expression for i in self.items if isinstance(i.expression, Aggregate))

    @property
    def measures(self) -> tuple[Aggregate, ...]:
        """The aggregates of HAVING."""
        found = (atom.column for atom in atoms(self.having))
        return tuple(dict.fromkeys(column.aggregate for column in found if isinstance(column, Measure)))

    @property
    def grouped(self) -> bool:
        """Whether it needs groups: GROUP BY, HAVING, or an aggregate of some values only."""
        special = any(not aggregate.plain for aggregate in self.aggregates)
        return bool(self.group) or self.having != Truth(True) or special

    def alias(self, name: str) -> TableRef:
        """The table with this alias."""
        return next(t for t in self.tables if t.alias == name)

    def _order_key(self, key: OrderKey) -> str:
        """A key as SQL text, qualified where its bare name would refer to another item of the answer."""
        return f"{quote(self.tables[0].alias)}.{key}" if self._is_hidden(key.column) else str(key)

    def _unhidden(self, column: Column) -> str:
        return f"{quote(self.tables[0].alias)}.{column}" if self._is_hidden(column) else str(column)

    def _is_hidden(self, column: Column) -> bool:
        return not column.relation and any(
            i.name.lower() == column.name.lower() and i.expression != column for i in self.items
        )

    def __str__(self) -> str:
        return with_deep_stack(self._sql)

    def _sql(self) -> str:
        if self.branches:
            text = " UNION ALL ".join(branch._select() for branch in self.branches)
        else:
            text = self._select()
        return f"{text} {self.options}" if self.options else text

    @property
    def on_text(self) -> str:
        """An outer join without its tables."""
        return "" if self.outer is None else f"{self.outer.side} JOIN ON {self._on()}"

    def _on(self) -> str:
        assert self.outer is not None
        return _conjunction([str(join) for join in self.joins], self.outer.on)

    def _select(self) -> str:
        distinct = "DISTINCT " if self.distinct else ""
        text = f"SELECT {distinct}{', '.join(map(str, self.items)) or '*'} FROM {self.tables[0]}"
        conditions = [str(join) for join in self.joins]
        if self.outer is not None:
            text += f" {self.outer.side} JOIN {self.tables[1]} ON {self._on()}"
            conditions = []
        else:
            text += "".join(f" CROSS JOIN {table}" for table in self.from_tables[1:])
        own = self.tables[len(self.from_tables) :]
        conditions += [one.text(table) for one, table in zip(self.exists, own, strict=True)]
        if wanted := _conjunction(conditions, self.where):
            text += f" WHERE {wanted}"
        if self.group:
            text += " GROUP BY " + ", ".join(map(self._unhidden, self.group))
        if self.having != Truth(True):
            text += f" HAVING {self.having}"
        order = ", ".join(map(self._order_key, self.order))
        if self.partition:
            of = ", ".join(map(str, self.partition))
            text += f" QUALIFY ROW_NUMBER() OVER (PARTITION BY {of} ORDER BY {order}) <= {self.limit}"
        elif self.order:
            text += f" ORDER BY {order} LIMIT {self.limit}" + (
                f" OFFSET {self.offset}" if self.offset else ""
            )
        return text


# -- deep nesting ----------------------------------------------------------------------------------


MAX_LEVELS = 500
"""How deeply parentheses, or NOTs in a row, may nest in a text."""

_CALLS = 100_000
_STACK = 512 << 20  # bytes of address space; memory is allocated only as deep as the calls go

_P = ParamSpec("_P")
_T = TypeVar("_T")
_process_lock = threading.Lock()  # recursion limit and stack size are process-wide settings
_here = threading.local()


def with_deep_stack(function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
    """Call a function; if it exceeds the recursion limit, call it again in a thread with more stack.

    Parsers and rewrites recurse once per nesting level, some through twenty functions, and Python stops at
    a thousand calls. Few texts come near that; a thread has enough stack for `MAX_LEVELS` levels.

    >>> def levels(n):
    ...     return 0 if n == 0 else 1 + levels(n - 1)
    >>> with_deep_stack(levels, 5000)
    5000
    """
    try:
        return function(*args, **kwargs)
    except RecursionError:
        if getattr(_here, "deep", False):
            raise
    return _call_in_thread(lambda: function(*args, **kwargs))


def _call_in_thread(work: Callable[[], _T]) -> _T:
    def run() -> _T:
        _here.deep = True
        return work()

    with _process_lock:
        limit, size = sys.getrecursionlimit(), threading.stack_size(_STACK)
        sys.setrecursionlimit(max(limit, _CALLS))
        try:
            with ThreadPoolExecutor(1, "tocsin-deep") as thread:
                return thread.submit(run).result()
        finally:
            threading.stack_size(size)
            sys.setrecursionlimit(limit)
