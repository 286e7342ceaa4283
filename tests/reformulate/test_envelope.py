"""Several selection attributes by envelopes, and semijoins with everything else, against brute force."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Regions
from tocsin.reformulate.contents import JoinRow, is_null
from tocsin.reformulate.decompose import JoinGraph
from tocsin.reformulate.envelope import Ends, EnvelopeSemijoins, Point, PointRow, boxes_without, envelope
from tocsin.reformulate.longer import LongerSemijoins


def random_ends(rnd: random.Random, top: int, count: int) -> Ends:
    out = []
    for _ in range(count):
        low, high = sorted(rnd.randint(0, top) for _ in range(2))
        shapes = [(LEAST, high), (low, GREATEST), (LEAST, GREATEST), (low, high)]
        out.append(rnd.choices(shapes, weights=[10, 10, 5, 75])[0])
    return tuple(out)


def holds(ends: Ends, point: Point) -> bool:
    return all(low <= x <= high for (low, high), x in zip(ends, point, strict=True))


@given(seed=st.integers(0, 2**32))
def test_property_envelopes_stand_for_all_points(seed: int) -> None:
    rnd = random.Random(seed)
    count, top = rnd.choice([1, 2, 2, 3]), rnd.choice([3, 6, 20])
    points = [tuple(rnd.randint(0, top) for _ in range(count)) for _ in range(rnd.randint(0, 10))]
    z = tuple(rnd.randint(0, top) for _ in range(count))
    seen = envelope(points, z)
    assert set(seen) <= set(points)
    boxes = boxes_without(z, seen)
    regions = Regions(np.arange(len(boxes) + 1), np.array(boxes, np.int64).reshape(-1, count, 4))
    regions._check()
    for _ in range(20):
        ends = random_ends(rnd, top, count)
        if holds(ends, z):
            assert any(holds(ends, p) for p in points) == any(holds(ends, p) for p in seen)
        lonely = holds(ends, z) and not any(holds(ends, p) for p in points)
        assert regions.contain(ends).sum() == lonely, "in one box, or in none"


def said(messages: Messages) -> list[tuple[int, int, int]]:
    columns = messages.kind, messages.side, messages.row
    return list(zip(*(column.tolist() for column in columns), strict=True))


class Body(NamedTuple):
    point: Point
    key: int
    payload: int


class World:
    """Two tables of points, and boxes over both."""

    def __init__(self, seed: int) -> None:
        self.random = rnd = random.Random(seed)
        self.attributes = rnd.choice([(1, 1), (2, 1), (2, 2), (1, 3)])
        self.top, self.keys = rnd.choice([3, 8]), rnd.choice([1, 2])
        self.boxes = {
            slot: (
                random_ends(rnd, self.top, self.attributes[0]),
                random_ends(rnd, self.top, self.attributes[1]),
            )
            for slot in range(10)
        }
        self.tables: tuple[dict[int, Body], dict[int, Body]] = {}, {}
        self._next = 0

    def change(self) -> tuple[int, int, PointRow | None]:
        side, what = self.random.randrange(2), self.random.random()
        table = self.tables[side]
        point = tuple(self.random.randint(0, self.top) for _ in range(self.attributes[side]))
        key = self.random.randrange(self.keys)
        if not table or what < 0.5:
            row = self._next
            self._next += 1
        else:
            row = self.random.choice(list(table))
            if what < 0.7:
                del table[row]
                return side, row, None
            point = table[row].point if self.random.random() < 0.3 else point
            key = table[row].key if self.random.random() < 0.6 else key
        table[row] = Body(point, key, self.random.randint(0, 9))
        return side, row, PointRow(point, key)

    def content(self, slot: int) -> Counter[tuple[Body, Body]]:
        one, two = self.boxes[slot]
        pairs = itertools.product(*(table.values() for table in self.tables))
        return Counter(
            (r, s) for r, s in pairs if r.key == s.key and holds(one, r.point) and holds(two, s.point)
        )


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_several_attributes_are_exact(seed: int) -> None:
    """After every change, for clients that come late, and without a needless message."""
    world = World(seed)
    scheme = EnvelopeSemijoins(world.attributes)
    scheme.subscribe(world.boxes)
    clients = {slot: scheme.contents(slot, {0: {}, 1: {}}) for slot in range(9)}
    for number in range(30):
        if number == 15:
            scheme.unsubscribe([0])
            del clients[0]
            clients[9] = scheme.contents(9, dict(enumerate(world.tables)))
        messages = scheme.describe(*world.change(), number)
        messages._check()
        for slot, client in clients.items():
            received = messages.take(messages.received_by(slot, scheme.point(slot)))
            had = {side: set(client.held[side]) for side in (0, 1)}
            client.apply(received, dict(enumerate(world.tables)))
            assert client.content() == world.content(slot)
            for kind, side, row in zip(
                received.kind.tolist(), received.side.tolist(), received.row.tolist(), strict=True
            ):
                if kind == MessageKind.EXPOSE:
                    assert row not in had[side] and row in client.held[side], "needless"
                elif kind == MessageKind.ROW:
                    assert row in client.held[side], "needless"
                else:
                    assert row in had[side], "needless"


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_longer_semijoins_are_exact(seed: int) -> None:
    """A place holds the rows that are in the join of all; nothing is sent twice."""
    rnd = random.Random(seed)
    count, top, keys = rnd.choice([2, 3, 3, 4]), rnd.choice([3, 6]), rnd.choice([1, 2])
    graph = JoinGraph(tuple("rstu"[:count]), tuple((rnd.randrange(i), i) for i in range(1, count)))
    joins = LongerSemijoins(graph)
    boxes = [random_ends(rnd, top, count) for _ in range(8)]
    held: list[list[set[int]]] = [[set() for _ in range(count)] for _ in boxes]
    for number in range(25):
        place = rnd.randrange(count)
        row = rnd.choice(list(joins.rows[place])) if joins.rows[place] and rnd.random() < 0.5 else number
        new: JoinRow | None = JoinRow(
            None if rnd.random() < 0.05 else rnd.randint(0, top),
            tuple(None if rnd.random() < 0.04 else rnd.randrange(keys) for _ in graph.edges),
        )
        inserted = row == number
        new = None if not inserted and rnd.random() < 0.6 else new
        messages = joins.describe(place, row, new, number)
        messages._check()
        for ends, mine in zip(boxes, held, strict=True):
            received = messages.take(messages.received_by(0, ends))
            for kind, side, id in zip(
                received.kind.tolist(), received.side.tolist(), received.row.tolist(), strict=True
            ):
                if kind == MessageKind.GONE:
                    assert id in mine[side], "needless"
                    mine[side].remove(id)
                else:
                    assert id not in mine[side], "sent again"
                    mine[side].add(id)
            assert mine == rows_of_join(graph, joins.rows, ends)


def rows_of_join(graph: JoinGraph, rows: list[dict[int, JoinRow]], ends: Ends) -> list[set[int]]:
    out: list[set[int]] = [set() for _ in rows]
    for ids in itertools.product(*rows):
        bodies = [table[id] for table, id in zip(rows, ids, strict=True)]
        values = [body.value for body in bodies]
        keys = [[bodies[place].keys[edge] for place in graph.edges[edge]] for edge in range(len(graph.edges))]
        if (
            None not in values
            and holds(ends, tuple(values))
            and all(  # type: ignore[arg-type]
                not is_null(one) and one == two for one, two in keys
            )
        ):
            for place, id in enumerate(ids):
                out[place].add(id)
    return out


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="trees of different tables"):
        LongerSemijoins(JoinGraph(("r", "s", "t"), ((0, 1), (1, 2), (0, 2))))
    with pytest.raises(ValueError, match="trees of different tables"):
        LongerSemijoins(JoinGraph(("r", "r"), ((0, 1),)))
