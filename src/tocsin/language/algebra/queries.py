"""Queries, as frozen values that print back as SQL."""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.language.algebra.conditions import (
    TRUE,
    Column,
    Or,
    Predicate,
    Truth,
    atoms,
    literal,
)
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.options import NO_OPTIONS, Options, print_span
from tocsin.model.schema import Type, average_type, quote, sum_type

__all__ = [
    "Aggregate",
    "Band",
    "Equal",
    "Existence",
    "Item",
    "Measure",
    "OrderKey",
    "OuterJoin",
    "Query",
    "TableRef",
]


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
    on: Predicate = TRUE

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
    where: Predicate = TRUE
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
        if known is not None and known.is_decimal and self.function in ("SUM", "AVG"):
            return sum_type(known) if self.function == "SUM" else average_type(known)
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

    >>> from tocsin.language.algebra import Compare
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
    where: Predicate = TRUE
    distinct: bool = False
    order: tuple[OrderKey, ...] = ()
    limit: int | None = None
    options: Options = NO_OPTIONS
    group: tuple[Column, ...] = ()
    having: Predicate = TRUE
    offset: int = 0
    partition: tuple[Column, ...] = ()  # `limit` rows of each group of equal values here, in order
    outer: OuterJoin | None = None
    exists: tuple[Existence, ...] = ()
    branches: tuple[Query, ...] = ()
    within: int | None = None  # microseconds in which events of `tables` follow one another: a sequence

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
        elif self.within is not None:
            steps = "".join(f" FOLLOWED BY {table}" for table in self.tables[1:])
            text += f"{steps} WITHIN '{print_span(self.within)}'"
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
