"""Plans: the shape of a query, and its conditions in normal form, table by table.

The top-level conjuncts of WHERE are assigned to the table whose columns they use. Conjuncts over several
tables form the `residual`, which is checked on joined rows.

>>> from tocsin.language.algebra import Column, Compare, Item, Query, TableRef
>>> from tocsin.model.schema import Type
>>> per = Column("per", Type.DOUBLE)
>>> print(plan(Query((Item(per, "per"),), (TableRef("stocks", "stocks"),), where=Compare(per, ">", 5.0))))
filter: stocks: per > 5.0
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from tocsin.errors import NormalFormError, Position
from tocsin.language.algebra import (
    And,
    Band,
    Existence,
    Not,
    Or,
    Predicate,
    Query,
    Truth,
    atoms,
    with_column,
)
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.held import fitted
from tocsin.language.rewrite import CAP, NormalForm, normalise
from tocsin.language.statements import lexemes

__all__ = [
    "Plan",
    "Shape",
    "conjuncts",
    "inner_conditions",
    "outer_conditions",
    "plan",
    "relations_of",
    "shape_of",
    "without_relation",
]


class Shape(StrEnum):
    """What kind of query it is; each has its room."""

    FILTER = "filter"
    JOIN = "join"
    BAND = "band"
    MULTIWAY = "multiway"
    EXTREME = "extreme"
    AGGREGATE = "aggregate"
    DISTINCT = "distinct"
    TOPK = "topk"
    ENRICH = "enrich"
    STREAMJOIN = "streamjoin"
    DEFERRED = "deferred"
    GROUP = "group"
    RANKED = "ranked"
    SEMIJOIN = "semijoin"
    OUTER = "outer"
    UNION = "union"
    SEQUENCE = "sequence"

    @property
    def code(self) -> int:
        """Its number in arrays, in order of definition."""
        return _CODES[self]


_CODES = {shape: code for code, shape in enumerate(Shape)}


@dataclass(frozen=True, slots=True)
class Plan:
    """A query ready for a room.

    `filters` has one normal form per table of the query, its columns without the table's alias;
    `residual` keeps the aliases and is None if each condition uses one table.
    """

    query: Query
    shape: Shape
    filters: tuple[NormalForm, ...]
    residual: NormalForm | None = None
    never: bool = False
    warnings: tuple[str, ...] = ()

    @property
    def normal(self) -> str:
        """The conditions as text: of each table, between tables, and on joined rows."""
        parts = [
            f"{t.alias}: {f}" for t, f in zip(self.query.tables, self.filters, strict=True) if not f.always
        ]
        query = self.query
        parts += [str(join) for join in query.joins] if query.outer is None else [query.on_text]
        parts += [] if self.residual is None else [str(self.residual)]
        own = query.tables[len(query.from_tables) :]
        parts += [one.text(table) for one, table in zip(query.exists, own, strict=True)]
        parts += [] if query.having == Truth(True) else [f"having {query.having}"]
        return "; ".join(parts) or "every row"

    def __str__(self) -> str:
        return f"{self.shape}: {self.normal}"


def plan(query: Query, cap: int = CAP, text: str | None = None) -> Plan:
    """The shape of a query and its conditions in normal form; errors point into `text`, if given."""
    return with_deep_stack(_plan, query, cap, text)


def _plan(query: Query, cap: int, text: str | None) -> Plan:
    if query.branches:
        return _union_plan(query, [_plan(branch, cap, text) for branch in query.branches])
    own: dict[str, list[Predicate]] = {table.alias: [] for table in query.tables}
    shared: list[Predicate] = []
    for part in conjuncts(query.where):
        relations = relations_of(part)
        if len(relations) > 1:
            shared.append(part)
        else:  # a constant condition goes to the first table
            own[next(iter(relations), "") or query.tables[0].alias].append(without_relation(part))
    for one in query.exists:
        own[one.alias] += [without_relation(part) for part in inner_conditions(one)]
    shape = shape_of(query)
    form_of = normalise if shape is Shape.ENRICH else fitted  # its room puts the conditions together again
    try:
        filters = tuple(form_of(_all(parts), cap) for parts in own.values())
        residual, having = normalise(_all(shared), cap), normalise(query.having, cap)
    except NormalFormError as error:
        raise NormalFormError(error.fact, _where(text), error.hint) from None
    deciding = [True] * len(query.from_tables) + [not one.negated for one in query.exists]
    never = any(form.never for form, decides in zip(filters, deciding, strict=True) if decides)
    never = never or residual.never or having.never or (query.outer is None and _empty_band(query))
    warnings = ("this query can never match: its conditions contradict each other",) if never else ()
    return Plan(query, shape, filters, None if residual.always else residual, never, warnings)


def _union_plan(query: Query, plans: list[Plan]) -> Plan:
    """The plan of a UNION ALL from those of its branches."""
    filters = tuple(form for made in plans for form in made.filters)
    never = all(made.never for made in plans)
    warnings = tuple(
        f"branch {n} of UNION ALL gives nothing: its conditions contradict each other"
        for n, made in enumerate(plans, 1)
        if made.never and not never
    )
    return Plan(query, Shape.UNION, filters, None, never, plans[0].warnings if never else warnings)


def _where(text: str | None) -> Position | None:
    """The position of the word WHERE in a text."""
    for lexeme in lexemes(text or ""):
        if lexeme.text.upper() == "WHERE":
            return Position(text or "", lexeme.start, lexeme.end)
    return None


def shape_of(query: Query) -> Shape:
    """The shape of a query; rooms declare the shapes they accept.

    Groups, and aggregates and DISTINCT over joins, are of the shape `group`; the first rows of each group,
    those after others (OFFSET) and those of joins are `ranked`.

    A stream with a window and without a budget is a table of its events, and no stream here. A query that is
    refreshed on demand is deferred, whatever it asks: its refresh group answers it (`limits/groups.py`).
    """
    if query.options.refresh is not None:
        return Shape.DEFERRED
    if query.is_composed:
        return Shape.UNION if query.branches else Shape.OUTER if query.outer else Shape.SEMIJOIN
    if query.within is not None:
        return Shape.SEQUENCE
    windowed = query.options.window is not None and query.options.memory is None
    streams = 0 if windowed else sum(table.stream for table in query.tables)
    if streams:
        return Shape.ENRICH if streams == 1 else Shape.STREAMJOIN
    joined = len(query.tables) > 1
    if query.grouped or (joined and (query.aggregates or query.distinct)):
        return Shape.GROUP
    if query.partition or query.offset or (joined and query.order):
        return Shape.RANKED
    if len(query.tables) > 2:
        return Shape.MULTIWAY
    if len(query.tables) == 2:
        return Shape.BAND if any(isinstance(join, Band) for join in query.joins) else Shape.JOIN
    if query.aggregates:
        extreme = all(aggregate.function in ("MIN", "MAX") for aggregate in query.aggregates)
        return Shape.EXTREME if extreme else Shape.AGGREGATE
    if query.distinct:
        return Shape.FILTER if query.options.absent is not None else Shape.DISTINCT
    return Shape.TOPK if query.order else Shape.FILTER


def relations_of(part: Predicate) -> set[str]:
    """The aliases of the tables that a condition is about."""
    return {relation for atom in atoms(part) for relation in atom.column.relations}


def inner_conditions(one: Existence) -> tuple[Predicate, ...]:
    """The conditions of a subquery on its own table; with constant ones."""
    parts = conjuncts(one.where)
    return tuple(part for part in parts if {a.column.relation for a in atoms(part)} <= {one.alias})


def outer_conditions(one: Existence) -> tuple[Predicate, ...]:
    """The conditions of a subquery on a table outside."""
    inner = inner_conditions(one)
    return tuple(part for part in conjuncts(one.where) if part not in inner)


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """The parts of a condition that AND combines."""
    if isinstance(predicate, And):
        return tuple(part for arg in predicate.args for part in conjuncts(arg))
    return (predicate,)


def _all(parts: Iterable[Predicate]) -> Predicate:
    found = tuple(parts)
    return Truth(True) if not found else found[0] if len(found) == 1 else And(found)


def without_relation(predicate: Predicate) -> Predicate:
    """A condition on one table as one that does not name it."""
    if isinstance(predicate, And | Or):
        return replace(predicate, args=tuple(map(without_relation, predicate.args)))
    if isinstance(predicate, Not):
        return Not(without_relation(predicate.arg))
    if isinstance(predicate, Truth) or not predicate.column.relation:
        return predicate
    return with_column(predicate, replace(predicate.column, relation=""))


def _empty_band(query: Query) -> bool:
    """Whether a band's low end is above its high end."""
    bands = [join for join in query.joins if isinstance(join, Band)]
    return any(_is_empty(b.low, b.high, b.low_open or b.high_open) for b in bands)


def _is_empty(low: float | None, high: float | None, is_open: bool) -> bool:
    return low is not None and high is not None and (low > high or (low == high and is_open))
