"""Joins of many tables as semijoins: exact contents after every change; greedy is the best of all choices."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.model.message import GREATEST, LEAST, MessageKind
from tocsin.reformulate.contents import JoinRow, MultiwayContents, is_null, join_rows
from tocsin.reformulate.decompose import (
    Decomposition,
    JoinGraph,
    SemijoinForm,
    Signature,
    TableShape,
    decompositions,
    greedy,
    parametric_costs,
    random_decomposition,
    simulated_costs,
    total_cost,
)
from tocsin.reformulate.joins import DescribedScheme, SemijoinsByTuples, SemijoinsFewest, SemijoinsMerged
from tocsin.reformulate.multiway import MultiwayJoins, TableChange

Range = tuple[int, int]


def random_graph(rnd: random.Random) -> JoinGraph:
    """A tree of places, sometimes with a cycle; some tables are joined with themselves."""
    count = rnd.randint(2, 5)
    edges = [(rnd.randrange(i), i) for i in range(1, count)]
    if count > 2 and rnd.random() < 0.2:
        edges.append((0, count - 1))
    names = [f"t{i}" for i in range(count)]
    if rnd.random() < 0.3:
        names[-1] = names[0]
    return JoinGraph(tuple(names), tuple(edges))


def random_signature(rnd: random.Random, graph: JoinGraph) -> Signature:
    edges = {rnd.randrange(len(graph.edges))}
    for _ in range(rnd.randint(0, len(graph.edges))):
        places = set(graph.places(frozenset(edges)))
        edges.add(rnd.choice([e for e, ends in enumerate(graph.edges) if places & set(ends)]))
    return frozenset(edges)


class World:
    """Tables that change at random, and subscriptions of random joins, decompositions and ranges."""

    def __init__(self, seed: int, scheme: type[DescribedScheme] = SemijoinsMerged) -> None:
        self.random = rnd = random.Random(seed)
        self.graph = random_graph(rnd)
        self.top, self.keys = rnd.choice([4, 10]), rnd.choice([1, 2, 3])
        self.composite = rnd.random() < 0.3
        self.joins = MultiwayJoins(self.graph, scheme)
        self.rows: dict[str, dict[int, JoinRow]] = {table: {} for table in self.graph.tables}
        self.subscriptions: dict[int, tuple[Signature, Decomposition, dict[int, Range]]] = {}
        for slot in range(6):
            self.subscribe(slot)
        self._next = 0

    def subscribe(self, slot: int) -> None:
        signature = random_signature(self.random, self.graph)
        chosen = random_decomposition(self.graph, signature, self.random)
        ranges = {place: self._range() for place in chosen}
        self.subscriptions[slot] = signature, chosen, ranges
        ends = {place: np.array([one], np.int64) for place, one in ranges.items()}
        self.joins.subscribe(np.array([slot]), signature, chosen, ends)

    def _range(self) -> Range:
        low, high = sorted(self.random.randint(0, self.top) for _ in range(2))
        shapes = [(LEAST, high), (low, GREATEST), (LEAST, GREATEST), (low, high)]
        return self.random.choices(shapes, weights=[10, 10, 5, 75])[0]

    def _key(self) -> int | tuple[int | None, ...] | None:
        one, two = (
            None if self.random.random() < 0.04 else self.random.randrange(self.keys) for _ in range(2)
        )
        return (one, two and two % 2) if self.composite else one

    def change(self) -> TableChange:
        """A table, an id, the row as it is now; the tables then have it."""
        table = self.random.choice(self.graph.tables)
        rows, what = self.rows[table], self.random.random()
        value = None if self.random.random() < 0.05 else self.random.randint(0, self.top)
        fresh = JoinRow(value, tuple(self._key() for _ in self.graph.edges), self.random.randint(0, 3))
        if not rows or what < 0.4:
            row, new = self._next, fresh
            self._next += 1
        else:
            row = self.random.choice(list(rows))
            new = rows.pop(row)._replace(payload=self.random.randint(0, 9))
            new = new._replace(value=value) if self.random.random() < 0.6 else new
            new = new._replace(keys=fresh.keys) if self.random.random() < 0.3 else new
            if what < 0.6:
                return table, row, None
        rows[row] = new
        return table, row, new

    def selected(self, place: int, ends: Range) -> list[JoinRow]:
        rows = self.rows[self.graph.tables[place]].values()
        return [row for row in rows if row.value is not None and ends[0] <= row.value <= ends[1]]

    def content(self, slot: int) -> Counter[tuple[JoinRow, ...]]:
        """By trying all combinations of rows."""
        signature, _, ranges = self.subscriptions[slot]
        places = self.graph.places(signature)
        out: Counter[tuple[JoinRow, ...]] = Counter()
        for rows in itertools.product(*(self.selected(place, ranges[place]) for place in places)):
            by = dict(zip(places, rows, strict=True))
            keys = [[by[place].keys[edge] for place in self.graph.edges[edge]] for edge in signature]
            if all(not is_null(one) and one == two for one, two in keys):
                out[rows] += 1
        return out

    def semijoin(self, slot: int, place: int) -> Counter[JoinRow]:
        _, chosen, ranges = self.subscriptions[slot]
        edge = chosen[place]
        other = self.graph.other(SemijoinForm(place, edge))
        keys = {row.keys[edge] for row in self.selected(other, ranges[other]) if not is_null(row.keys[edge])}
        return Counter(row for row in self.selected(place, ranges[place]) if row.keys[edge] in keys)


@pytest.mark.parametrize("scheme", [SemijoinsMerged, SemijoinsByTuples, SemijoinsFewest])
@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_contents_are_exact_after_every_change(scheme: type[DescribedScheme], seed: int) -> None:
    """And each place holds its semijoin; clients come late and subscriptions go."""
    world = World(seed, scheme)
    clients: dict[int, MultiwayContents] = {slot: world.joins.contents(slot) for slot in world.subscriptions}
    for number in range(30):
        if number == 15:
            world.joins.unsubscribe(np.array([0, 1]))
            world.subscribe(1)
            del clients[0]
            clients[1] = world.joins.contents(1)
            clients[2] = world.joins.contents(2)
        messages = world.joins.describe([world.change()], number)
        messages._check()
        for slot, client in clients.items():
            client.apply(world.joins.received_by(slot, messages), world.joins.bodies)
            assert client.content() == world.content(slot), slot
            for place, held in client.held.items():
                assert Counter(body for _, body in held.values()) == world.semijoin(slot, place)
    world.joins._check()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_batches_are_described_like_single_changes(seed: int) -> None:
    one, many = World(seed), World(seed)
    changes = [one.change() for _ in range(20)]
    parts = [one.joins.describe([change], number) for number, change in enumerate(changes)]
    clients = {slot: many.joins.contents(slot) for slot in many.subscriptions}
    whole = many.joins.describe(changes, 0)
    whole._check()
    assert sum(map(len, parts)) == len(whole)
    for slot, client in clients.items():
        mine = many.joins.received_by(slot, whole)
        for seq in np.unique(mine.seq):
            client.apply(mine.take(np.flatnonzero(mine.seq == seq)), many.joins.bodies)
        assert client.content() == one.content(slot), "exact at the end of a batch"
    for part in parts:
        mine = whole.take(np.flatnonzero(whole.seq == part.seq[0])) if len(part) else part
        for name in ("step", "kind", "side", "row"):
            assert np.array_equal(getattr(part, name), getattr(mine, name))
        assert np.array_equal(part.regions.boxes, mine.regions.boxes)


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_residual_conditions_are_for_clients(seed: int) -> None:
    """Rows that fail them are stubs where partners are inferred to be gone."""
    world = World(seed)
    clients = {
        slot: world.joins.contents(slot, lambda place, row: (row.payload + place) % 2 == 0)
        for slot in world.subscriptions
    }
    for number in range(30):
        messages = world.joins.describe([world.change()], number)
        for slot, client in clients.items():
            client.apply(world.joins.received_by(slot, messages), world.joins.bodies)
            places = world.graph.places(world.subscriptions[slot][0])
            expected = Counter()
            for rows, count in world.content(slot).items():
                if all((row.payload + place) % 2 == 0 for place, row in zip(places, rows, strict=True)):
                    expected[rows] += count
            assert client.content() == expected, slot


def test_drop_is_sent_only_where_it_is_needed() -> None:
    graph = JoinGraph(("r", "s", "t"), ((0, 1), (1, 2)))
    both, chain = frozenset([0]), frozenset([0, 1])
    joins = MultiwayJoins(graph)
    wide = {place: np.array([[0, 9]]) for place in range(3)}
    joins.subscribe(np.array([0]), both, {0: 0, 1: 0}, {0: wide[0], 1: wide[1]})
    joins.describe(
        [("r", 1, JoinRow(5, (7, None))), ("s", 2, JoinRow(5, (7, 8))), ("t", 3, JoinRow(5, (None, 8)))], 0
    )
    assert MessageKind.DROP not in joins.describe([("s", 2, None)], 1).kind, "inferred"
    joins.subscribe(np.array([1]), chain, {0: 0, 1: 0, 2: 1}, wide)
    joins.describe([("s", 2, JoinRow(5, (7, 8)))], 2)
    client = joins.contents(1)
    assert sum(client.content().values()) == 1
    messages = joins.describe([("s", 2, None)], 3)
    drops = messages.take(np.flatnonzero(messages.kind == MessageKind.DROP))
    assert [graph.name(graph.forms[side]) for side in drops.side.tolist()] == ["t^s"]
    assert not len(joins.received_by(0, drops)) and len(joins.received_by(1, drops)) == 1
    client.apply(joins.received_by(1, messages), joins.bodies)
    assert client.held == {0: {}, 1: {}, 2: {}}


@given(seed=st.integers(0, 2**32))
def test_property_greedy_is_the_best_of_all_decompositions(seed: int) -> None:
    rnd = random.Random(seed)
    graph = random_graph(rnd)
    costs = {form: rnd.random() for form in graph.forms}
    signatures = [random_signature(rnd, graph) for _ in range(6)]
    chosen = greedy(graph, signatures, costs)
    best = sum(min(total_cost([one], costs) for one in decompositions(graph, s)) for s in signatures)
    assert total_cost(chosen, costs) == pytest.approx(best)
    for one, signature in zip(chosen, signatures, strict=True):
        assert one in list(decompositions(graph, signature))


def test_parametric_costs_are_shares_of_subscriptions() -> None:
    """By drawing ranges and values; and in the order that the paper prints."""
    rng = np.random.default_rng(0)
    count = 40_000
    for j, i in ((1, 1), (5, 2), (10, 4)):
        own, other = (np.sort(rng.random((count, 2)), axis=1) for _ in range(2))
        partners = rng.random((count, j))
        base = rng.random((count, i))
        has = ((other[:, :1] <= partners) & (partners <= other[:, 1:])).any(axis=1)
        holds = (own[:, 0] <= base[:, 0]) & (base[:, 0] <= own[:, 1])
        new = rng.random(count)
        gains = (other[:, 0] <= new) & (new <= other[:, 1]) & ~has
        exposed = ((own[:, :1] <= base) & (base <= own[:, 1:])).sum(axis=1) * gains
        graph = JoinGraph(("r", "s"), ((0, 1),))
        cost = parametric_costs(graph, {"r": TableShape(i), "s": TableShape(j)})[SemijoinForm(0, 0)]
        assert (holds & has).mean() + exposed.mean() == pytest.approx(cost, rel=0.05)
    star = JoinGraph(("s", "r", "t", "u"), ((0, 1), (0, 2), (0, 3)))
    shapes = {name: TableShape(j) for name, j in {"r": 10, "s": 70, "t": 70, "u": 30}.items()}
    by_name = {star.name(form): cost for form, cost in parametric_costs(star, shapes).items()}
    assert by_name["s^r"] > by_name["s^u"] > by_name["s^t"]


def test_simulated_costs_are_those_of_all_who_could_use_a_form() -> None:
    graph = JoinGraph(("r", "s", "t"), ((0, 1), (1, 2)))
    signatures = [frozenset([0]), frozenset([0, 1])]
    costs = simulated_costs(graph, signatures, lambda form, users: 10.0 * form.edge + len(users))
    assert costs == {
        SemijoinForm(0, 0): 1,
        SemijoinForm(1, 0): 1,
        SemijoinForm(1, 1): 11,
        SemijoinForm(2, 1): 11,
    }
    assert simulated_costs(graph, signatures[:1], lambda form, users: 1.0)[SemijoinForm(2, 1)] == float("inf")


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="an edge joins two of 2 places"):
        JoinGraph(("r", "s"), ((0, 0),))
    graph = JoinGraph(("r", "s", "t", "u"), ((0, 1), (2, 3)))
    with pytest.raises(ValueError, match="a join is connected"):
        graph.choices(frozenset([0, 1]))
    joins, wide = MultiwayJoins(graph), np.array([[0, 9]])
    with pytest.raises(ValueError, match="a decomposition has an edge"):
        joins.subscribe(np.array([0]), frozenset([0]), {0: 0, 1: 1}, {0: wide, 1: wide})
    with pytest.raises(ValueError, match="a range over s is empty"):
        joins.subscribe(np.array([0]), frozenset([0]), {0: 0, 1: 0}, {0: wide, 1: wide[:, ::-1]})
    joins.subscribe(np.array([0]), frozenset([0]), {0: 0, 1: 0}, {0: wide, 1: wide})
    with pytest.raises(ValueError, match="slot 0 is in use"):
        joins.subscribe(np.array([0]), frozenset([0]), {0: 0, 1: 0}, {0: wide, 1: wide})
    with pytest.raises(ValueError, match="there is no table 'x'"):
        joins.describe([("x", 1, None)], 0)
    assert join_rows(graph, frozenset([0]), {0: [JoinRow(1, (None, None))], 1: []}) == Counter()
