"""What a query over groups reads: columns of its table, or of the rows that its tables join to.

    query                                                             keys       reads
    SELECT page, MAX(ms) FROM hits GROUP BY page                      page       page, ms
    SELECT DISTINCT page, owner FROM hits JOIN pages USING (page)     both       page, owner
    SELECT COUNT(*) FROM hits JOIN pages USING (page)                 -          a primary key
    SELECT ms FROM hits ORDER BY k LIMIT 3 OFFSET 5                   -          ms, k, the primary key

The rows are those of the *inner query*, in columns c0, c1, ..., which cannot clash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tocsin.language.algebra import Aggregate, Column, Item, OrderKey, Query, Truth
from tocsin.language.options import NO_OPTIONS
from tocsin.language.shape import Plan, shape_of
from tocsin.model.schema import Table

__all__ = ["Needs", "inner_plan", "keys_of", "primary_keys"]


@dataclass(frozen=True)
class Needs:
    """Of a query: the keys of its groups, its aggregates, and the name of each column that it reads."""

    keys: tuple[Column, ...]
    aggregates: tuple[Aggregate, ...]  # of SELECT and HAVING, each once
    name: Mapping[Column, str]
    order: tuple[OrderKey, ...] = ()  # of ranked rows; the primary key breaks ties

    @classmethod
    def of(cls, query: Query, schemas: Mapping[str, Table]) -> Needs:
        keys = keys_of(query)
        aggregates = tuple(dict.fromkeys([*query.aggregates, *query.measures]))
        order = query.order
        columns = [*keys, *(column for aggregate in aggregates for column in aggregate.columns)]
        if order:
            order = (*order, *(OrderKey(column) for column in primary_keys(query, schemas)))
            own = [item.expression for item in query.items if isinstance(item.expression, Column)]
            columns += [*own, *(key.column for key in order)]
        columns = columns or primary_keys(query, schemas)[:1]
        return cls(keys, aggregates, {c: f"c{n}" for n, c in enumerate(dict.fromkeys(columns))}, order)

    def inner(self, plan: Plan) -> Plan:
        """The plan for the rows that the query reads."""
        return inner_plan(plan, self.name)


def inner_plan(plan: Plan, name: Mapping[Column, str]) -> Plan:
    """The plan for the rows that a plan reads, in columns of these names."""
    items = tuple(Item(column, own) for column, own in name.items())
    cleared = replace(plan.query, items=items, distinct=False, order=(), limit=None, options=NO_OPTIONS)
    query = replace(cleared, group=(), having=Truth(True), offset=0, partition=())
    never = any(form.never for form in plan.filters) or (plan.residual is not None and plan.residual.never)
    return replace(plan, query=query, shape=shape_of(query), never=never)


def keys_of(query: Query) -> tuple[Column, ...]:
    """The columns whose values make a group: of GROUP BY, of DISTINCT, or of PARTITION BY."""
    if query.distinct:
        return tuple(dict.fromkeys(i.expression for i in query.items if isinstance(i.expression, Column)))
    return query.group or query.partition


def primary_keys(query: Query, schemas: Mapping[str, Table]) -> list[Column]:
    """The primary keys of the tables, in order of FROM: they identify a joined row."""
    several, found = len(query.tables) > 1, []
    for ref in query.tables:
        table = schemas[ref.name]
        for name in table.key:
            field = table.find(name)
            assert field is not None
            found.append(Column(field.name, field.type, ref.alias if several else ""))
    return found
