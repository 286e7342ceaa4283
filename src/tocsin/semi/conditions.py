"""Subqueries as conditions of one kind: a row has a partner in another table, or has none.

EXISTS and IN say that a row has one. NOT IN is three conditions, since a NULL makes it unknown:

    x NOT IN (SELECT y FROM t WHERE c)     no row of t with c and y = x
                                           no row of t with c and y IS NULL
                                           no row of t with c, if x IS NULL
"""

from __future__ import annotations

from dataclasses import dataclass

from tocsin.join.signature import KeySpec, common_type
from tocsin.language.algebra import And, Band, Column, Existence, IsNull, Predicate, Query, Truth
from tocsin.language.held import fitted
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan, inner_conditions, outer_conditions, without_relation

__all__ = ["Partnership", "partnerships"]


@dataclass(frozen=True, slots=True)
class Partnership:
    """Rows of the first table have a partner in the table at `place`, or, `negated`, have none.

    Partners have an equal key (None: every row does), are in the bands, and satisfy `filter`; only rows that
    satisfy `own` have some.
    """

    place: int
    negated: bool
    outer: tuple[Column, ...]
    inner: tuple[Column, ...]
    bands: tuple[Band, ...]
    filter: NormalForm
    own: NormalForm

    @property
    def keys(self) -> tuple[KeySpec | None, KeySpec | None]:
        """The keys of both sides."""
        if not self.outer:
            return None, None
        types = tuple(common_type(a, b) for a, b in zip(self.outer, self.inner, strict=True))
        return KeySpec(_names(self.outer), types), KeySpec(_names(self.inner), types)

    def __str__(self) -> str:
        equal = [f"{b.name} = {a.name}" for a, b in zip(self.outer, self.inner, strict=True)]
        return " AND ".join([*equal, *map(str, self.bands)]) or "any row"


def partnerships(plan: Plan) -> tuple[Partnership, ...]:
    """The conditions of a plan on rows of its first table."""
    query = plan.query
    first = len(query.from_tables)
    if query.outer is not None:
        raise ValueError("an outer join is composed of other queries")
    return tuple(found for n, one in enumerate(query.exists) for found in _of(one, first + n, query))


def _of(one: Existence, place: int, query: Query) -> list[Partnership]:
    equal: list[tuple[Column, Column]] = []
    bands = tuple(join for join in one.joins if isinstance(join, Band))
    for join in one.joins:
        if not isinstance(join, Band):
            left, right = join.left, join.right
            equal.append((right, left) if left.relation == one.alias else (left, right))
    inner, own = inner_conditions(one), outer_conditions(one)

    def made(
        pairs: list[tuple[Column, Column]], *, more: Predicate | None = None, outside: Predicate | None = None
    ) -> Partnership:
        wanted = inner if more is None else (*inner, more)
        needed = own if outside is None else (*own, outside)
        pairs = sorted(dict.fromkeys(pairs), key=lambda pair: (pair[1].name, pair[0].name))
        return Partnership(
            place,
            one.negated,
            tuple(a for a, _ in pairs),
            tuple(b for _, b in pairs),
            bands,
            _form(wanted),
            _form(needed),
        )

    if one.member is None:
        return [made(equal)]
    operand, listed = one.member
    found = [made([*equal, (operand, listed)])]
    if one.negated:
        found += [made(equal, more=IsNull(listed)), made(equal, outside=IsNull(operand))]
    return found


def _form(parts: tuple[Predicate, ...]) -> NormalForm:
    own = tuple(map(without_relation, parts))
    return fitted(Truth(True) if not own else own[0] if len(own) == 1 else And(own))


def _names(columns: tuple[Column, ...]) -> tuple[str, ...]:
    return tuple(column.name for column in columns)
