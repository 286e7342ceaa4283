"""Which forms a query needs, and its point in each: how a server describes what a client follows.

    filter                     the rows, or events, that one range selects; the client verifies the rest;
                               of a table with a payload, rows and payloads apart
    join of two tables         the rows of both that ranges select and that have a partner
    join of more               for each table its rows that have a partner in one neighbour, chosen by cost
                               (`reformulate/decompose.py`); the client joins what it holds
    MIN, MAX                   the value itself, over one range; over two, the first row of a box
    ORDER BY .. LIMIT          the first k rows of a range or of a box of two
    DISTINCT                   the values, over one range

Whatever does not fit, three ranges or a range of texts, say, is followed by the rows that one range selects.
So is everything whose subscriber must not read values of rows other than its own (`private`): then messages
show nothing but the row they bring. The answer is the same, and a client holds more rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tocsin.errors import SubscriptionError
from tocsin.join.signature import Edge, Numbering, Signature
from tocsin.join.tables import key_codes
from tocsin.language.algebra import Aggregate, Between, Column, Compare, Not, OrderKey, Query
from tocsin.language.rewrite import NormalForm
from tocsin.language.shape import Plan, Shape
from tocsin.model.message import GREATEST, LEAST
from tocsin.model.schema import Stream, Table, Type
from tocsin.model.texts import TextNumbers
from tocsin.network.forms import WHOLE, Ends, EventsKey, JoinKey, Point, RowsKey
from tocsin.network.ranked_forms import FirstKey, SetKey, ValueKey
from tocsin.predicate.codes import interval, text_hashes
from tocsin.predicate.compile import flatten
from tocsin.predicate.verify import selections
from tocsin.rank.split import conjoined, literals_of, split_filter
from tocsin.reformulate.decompose import (
    Decomposition,
    JoinGraph,
    SemijoinForm,
    TableShape,
    greedy,
    parametric_costs,
)
from tocsin.store.tables import TableStore

__all__ = [
    *("FormKey", "PlacedPart", "Route", "can_be_followed", "decomposition_of", "parts_of", "rows_part"),
]

FormKey = JoinKey | RowsKey | EventsKey | FirstKey | ValueKey | SetKey
MAX_FIRST = 128  # rows of a top-k that are described; more are followed as rows of a range
_AT_ENGINE = "subscribe at the engine and pass its deltas on"
_FOLLOWED = (Shape.FILTER, Shape.EXTREME, Shape.DISTINCT, Shape.TOPK)
_JOINED = (Shape.JOIN, Shape.BAND, Shape.MULTIWAY)  # if equalities connect all tables
_BAND_JOIN = "a band join", f"joins over a network are by equality: {_AT_ENGINE}"
_REJECTED = {
    Shape.AGGREGATE: (
        "an aggregate",
        f"COUNT, SUM and AVG need every row of a range: follow the rows themselves, or {_AT_ENGINE}",
    ),
    Shape.ENRICH: ("a stream joined with tables", f"follow the stream and the tables, or {_AT_ENGINE}"),
    Shape.DEFERRED: ("a refresh", _AT_ENGINE),
    Shape.GROUP: ("groups", f"follow the rows themselves, or {_AT_ENGINE}"),
    Shape.RANKED: ("the first rows of groups or joins", f"follow the rows themselves, or {_AT_ENGINE}"),
    Shape.SEQUENCE: ("a sequence", f"follow each stream, or {_AT_ENGINE}"),
    Shape.SEMIJOIN: ("a condition with a subquery", f"follow both tables, or {_AT_ENGINE}"),
    Shape.OUTER: ("an outer join", f"follow both tables, or {_AT_ENGINE}"),
    Shape.UNION: ("a union", f"follow each of its queries, or {_AT_ENGINE}"),
    Shape.STREAMJOIN: ("a join of streams", f"follow each stream, or {_AT_ENGINE}"),
}


class PlacedPart(NamedTuple):
    """A form and a point in it."""

    key: FormKey
    point: Point


def can_be_followed(plan: Plan) -> None:
    """Raise a SubscriptionError for queries that no form describes."""
    shape, options = plan.shape, plan.query.options
    if options:
        what, hint = "a query WITH options", f"leave out {', '.join(options.given)}; or {_AT_ENGINE}"
    elif shape in _JOINED:
        if len(Signature.of(plan.query).edges) >= len(plan.query.tables) - 1:
            return
        what, hint = _BAND_JOIN
    elif shape not in _FOLLOWED:
        what, hint = _REJECTED[shape]
    else:
        return
    raise SubscriptionError(f"{what} cannot be followed over a network", hint=hint)


def parts_of(
    plan: Plan,
    relations: Callable[[str], Table | Stream],
    decompose: Callable[[Signature], Decomposition],
    *,
    private: bool,
) -> list[PlacedPart]:
    """The forms of a query that can be followed; none if it never has an answer."""
    routes = [_route(form) for form in plan.filters]
    if plan.never or any(route is None for route in routes):
        return []
    known = [route for route in routes if route is not None]
    query = plan.query
    if len(query.tables) > 1:
        return _join_parts(query, known, decompose, private=private)
    relation = relations(query.tables[0].name)
    if isinstance(relation, Stream):
        (attribute, ends) = known[0]
        if attribute is not None and relation.find(attribute, exact=True) is None:
            attribute, ends = None, WHOLE  # not declared: its type differs from event to event
        return [PlacedPart(EventsKey(relation.name, attribute), (ends, WHOLE))]
    ranked = None if private else _ranked_parts(plan, relation)
    return [rows_part(relation, known[0], private=private)] if ranked is None else ranked


class Route(NamedTuple):
    """An attribute, or None, and the range of its codes that a filter selects."""

    attribute: str | None
    ends: Ends


def _route(form: NormalForm) -> Route | None:
    """The range that routes; None if the filter holds for no row.

    A single value is better than two ends, and two better than one; what is no plain conjunction is left to
    `selections`.
    """
    if form.always:
        return Route(None, WHOLE)
    literals = _conjunction(form)
    if literals is None:
        return _chosen_route(form)
    routes = [_literal_route(literals, name) for name in sorted({_name(one) for one in literals})]
    known = [route for route in routes if route is not None]
    if any(route.ends[0] > route.ends[1] for route in known):
        return None
    return max(known, key=lambda route: _worth(route.ends), default=Route(None, WHOLE))


def _chosen_route(form: NormalForm) -> Route | None:
    found = selections(flatten([form]))
    attribute, low, high = int(found.attribute[0]), int(found.low[0]), int(found.high[0])
    if attribute < 0:
        return None if found.never[0] else Route(None, WHOLE)
    return None if found.never[0] or low > high else Route(found.names[attribute], (low, high))


def _conjunction(form: NormalForm) -> tuple[Any, ...] | None:
    """The literals of a filter that ANDs them; None if it is another one."""
    if form.kind == "dnf":
        return form.groups[0] if len(form.groups) == 1 else None
    if any(len(group) != 1 for group in form.groups):
        return None
    return tuple(group[0] for group in form.groups)


def _name(literal: Any) -> str:
    atom: Any = literal.arg if isinstance(literal, Not) else literal
    return str(atom.column.name)


def _literal_route(literals: Sequence[Any], name: str) -> Route | None:
    """The range of an attribute, as far as comparisons say; None if they say nothing."""
    low, high, found = LEAST, GREATEST, False
    for one in literals:
        if _name(one) != name or not isinstance(one, Compare | Between) or one.column.type is None:
            continue  # attributes of open streams that are not declared have no codes
        for op, value in _comparisons(one):
            if one.column.type is Type.STRING:
                if op != "=":
                    continue
                data = value.encode()
                code = int(text_hashes(np.array([0, len(data)]), np.frombuffer(data, np.uint8))[0])
                first = last = code
            elif op == "!=":
                continue
            else:
                first, last = interval(one.column.type, op, value)
            low, high, found = max(low, first), min(high, last), True
    return Route(name, (low, high)) if found else None


def _comparisons(literal: Compare | Between) -> list[tuple[str, Any]]:
    if isinstance(literal, Compare):
        return [(literal.op, literal.value)]
    return [(">=", literal.low), ("<=", literal.high)]


def _worth(ends: Ends) -> int:
    """How selective a range is by the look of it."""
    low, high = ends
    return 3 if low == high else (low != LEAST) + (high != GREATEST)


def rows_part(table: Table, route: Route, *, private: bool = False) -> PlacedPart:
    """The rows of a table that a range selects, their payloads apart if it has some.

    A payload routes nothing: the client verifies what a condition says about it.
    """
    if private or not table.payload:
        return _whole_rows_part(table.name, route)
    if route.attribute in table.payload:
        route = Route(None, WHOLE)
    return PlacedPart(RowsKey(table.name, route.attribute, table.payload), (_whole_if_none(route), WHOLE))


def _whole_rows_part(table: str, route: Route) -> PlacedPart:
    return PlacedPart(RowsKey(table, route.attribute), (_whole_if_none(route), WHOLE))


def _whole_if_none(route: Route) -> Ends:
    return route.ends if route.attribute is not None else WHOLE


# -- joins -------------------------------------------------------------------------------------------


def _join_parts(
    query: Query, routes: list[Route], decompose: Callable[[Signature], Decomposition], *, private: bool
) -> list[PlacedPart]:
    signature = Signature.of(query)
    if private:
        return [
            _whole_rows_part(table.name, route) for table, route in zip(query.tables, routes, strict=True)
        ]
    chosen: Decomposition = {0: 0, 1: 0} if len(query.tables) == 2 else decompose(signature)
    parts = []
    for number, edge in enumerate(signature.edges):
        one, two = edge.places
        bases = [side for side, place in enumerate((one, two)) if chosen[place] == number]
        if not bases:
            continue
        key = JoinKey(
            (signature.tables[one], signature.tables[two]),
            edge.keys,
            (routes[one].attribute, routes[two].attribute),
            None if len(bases) == 2 else bases[0],
        )
        parts.append(PlacedPart(key, (_whole_if_none(routes[one]), _whole_if_none(routes[two]))))
    return parts


def decomposition_of(signature: Signature, stores: Mapping[str, TableStore]) -> Decomposition:
    """The greedy choice, by the rows that a key has in each table as it is now."""
    graph = JoinGraph(signature.tables, tuple(edge.places for edge in signature.edges))
    costs: dict[SemijoinForm, float] = {}
    for number, edge in enumerate(signature.edges):
        shapes = {str(side): _shape(edge, side, signature, stores) for side in (0, 1)}
        alone = parametric_costs(JoinGraph(("0", "1"), ((0, 1),)), shapes)
        for side, place in enumerate(edge.places):
            costs[SemijoinForm(place, number)] = alone[SemijoinForm(side, 0)]
    return greedy(graph, [frozenset(range(len(signature.edges)))], costs)[0]


def _shape(edge: Edge, side: int, signature: Signature, stores: Mapping[str, TableStore]) -> TableShape:
    store = stores[signature.tables[edge.places[side]]]
    rows = store.rows.take(np.flatnonzero(store.present()))
    numbers: dict[Numbering, TextNumbers] = {}
    key, valid = key_codes(edge.keys[side], rows, numbers)
    distinct = len(np.unique(key[valid]))
    return TableShape(joining=max(1.0, int(valid.sum()) / max(1, distinct)))


# -- one table in order --------------------------------------------------------------------------------


def _ranked_parts(plan: Plan, table: Table) -> list[PlacedPart] | None:
    """The forms of a top-k, of extremes or of distinct values; None if rows have to do."""
    query = plan.query
    if plan.shape is Shape.FILTER or (query.limit or 1) > MAX_FIRST:
        return None
    found = _ranges(plan.filters[0], table)
    if found is None:
        return None
    attributes, ends, condition = found
    point: Point = (*ends, WHOLE, WHOLE)[:2]  # type: ignore[assignment]
    if plan.shape is Shape.TOPK:
        key = FirstKey(table.name, attributes, condition, query.order, query.limit or 1)
        return [PlacedPart(key, point)] if query.limit else None
    if plan.shape is Shape.DISTINCT:
        if len(attributes) > 1:
            return None
        items = tuple((i.name, i.expression.name) for i in query.items if isinstance(i.expression, Column))
        return [PlacedPart(SetKey(table.name, attributes, condition, items), point)]
    columns = [(item.name, item.expression) for item in query.items]
    plain = len(attributes) < 2 and all(_column(item).type is not Type.STRING for _, item in columns)
    out: list[PlacedPart] = []
    for name, item in columns:
        column, largest = _column(item), isinstance(item, Aggregate) and item.function == "MAX"
        if plain:
            made: FormKey = ValueKey(table.name, attributes, condition, column.name, largest, name)
        else:
            order = (OrderKey(column, descending=largest),)
            made = FirstKey(table.name, attributes, condition, order, 1, skips_null=True)
        out.append(PlacedPart(made, point))
    return out


def _column(item: Column | Aggregate) -> Column:
    column = item.column if isinstance(item, Aggregate) else item
    assert column is not None
    return column


def _ranges(form: NormalForm, table: Table) -> tuple[tuple[str, ...], list[Ends], NormalForm] | None:
    """At most two attributes with their ranges, and the condition that is left; None if there are more."""
    split = split_filter(form)
    condition, attributes, ends = split.condition, [], []
    types = {field.name: field.type for field in table.fields}
    for name in sorted({*split.ranges, *split.values}):
        literals = literals_of(form, name)
        own = split.ranges.get(name) or NormalForm("dnf", (tuple(literals),))
        if types[name] is Type.STRING or any(not isinstance(one, Compare | Between) for one in own.groups[0]):
            condition = conjoined(condition, own.groups[0])
            continue
        route = _literal_route(own.groups[0], name)
        assert route is not None
        low, high = route.ends
        if low in (LEAST + 1, GREATEST) or high in (LEAST, GREATEST - 1):
            return None  # rows at the ends of int64 would have to be distinguished from those beside them
        attributes.append(name)
        ends.append((low, high))
    return (tuple(attributes), ends, condition) if len(attributes) <= 2 else None
