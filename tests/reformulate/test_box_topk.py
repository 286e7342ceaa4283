"""Top-k over several ranges as messages: exact contents after every change, nothing needless, few boxes."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.model.message import GREATEST, LEAST, MessageKind
from tocsin.rank.points import ABSENT
from tocsin.reformulate.boxes import BoxTopk

Point = tuple[int, ...]
Range = tuple[int, int]
Rows = dict[int, tuple[Point, int]]


class World:
    """Rows at points with values that tie; NULLs; boxes with open ends, and with ends on one side only."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.ranges = self.random.choice([1, 2, 2, 2, 3])
        self.k, self.top = self.random.choice([1, 2, 3, 5]), self.random.choice([3, 8, 40])
        self.one_sided = self.random.random() < 0.3  # the last range
        count = self.random.choice([1, 10, 40])
        self.boxes = [self._box() for _ in range(count)]
        self.rows: Rows = {}

    def _box(self) -> tuple[Range, ...]:
        box = [self._range() for _ in range(self.ranges)]
        if self.one_sided:
            box[-1] = box[-1][0], GREATEST
        return tuple(box)

    def _range(self) -> Range:
        low, high = sorted(self.random.randint(0, self.top) for _ in range(2))
        return self.random.choices(
            [(LEAST, high), (low, GREATEST), (LEAST, GREATEST), (low, low), (low, high)], [10, 10, 3, 7, 70]
        )[0]

    def change(self) -> tuple[int, Point, int]:
        """A row, where it is now, and its place in the order: by value, NULLs first, ties by id."""
        id, point = (
            self.random.randrange(12),
            tuple(self.random.randint(0, self.top) for _ in range(self.ranges)),
        )
        if id in self.rows and self.random.random() < 0.6:
            point = self.rows[id][0]
        value = None if self.random.random() < 0.1 else self.random.randint(0, 4)
        y = (-1 if value is None else value) * 1000 + id
        if self.random.random() < 0.3:  # deleted, or NULL where a range is asked for
            y = ABSENT
        self.rows.pop(id, None)
        if y != ABSENT:
            self.rows[id] = point, y
        return id, point, y

    def content(self, box: tuple[Range, ...], rows: Rows) -> list[tuple[int, int]]:
        return sorted(
            (y, id)
            for id, (point, y) in rows.items()
            if all(low <= x <= high for x, (low, high) in zip(point, box, strict=True))
        )[: self.k]


def opened(world: World, *, unicast: bool = False) -> BoxTopk:
    server = BoxTopk(world.k, world.ranges, unicast=unicast)
    ends = np.array(world.boxes, np.int64)
    server.subscribe(np.arange(len(ends)) * 2 + 1, ends[:, :, 0], ends[:, :, 1])
    return server


@settings(deadline=None)
@given(seed=st.integers(0, 2**32), unicast=st.booleans(), size=st.sampled_from([1, 1, 4]))
def test_property_contents_are_exact_after_every_change(seed: int, unicast: bool, size: int) -> None:
    world = World(seed)
    server = opened(world, unicast=unicast)
    clients = {slot: server.contents(slot) for slot in range(1, 2 * len(world.boxes), 2)}
    for _ in range(12):
        before, moved = dict(world.rows), [world.change() for _ in range(size)]
        messages = server.publish(*(list(part) for part in zip(*moved, strict=True)))
        messages._check()
        received = np.zeros(len(messages), np.bool_)
        for slot, client in clients.items():
            box = world.boxes[slot // 2]
            mine = messages.received_by(slot, server.point(slot))
            received[mine] = True
            client.apply(messages.take(mine))
            assert client.content() == world.content(box, world.rows)
            if size == 1:
                had, has = (
                    dict(map(reversed, world.content(box, before))),
                    dict(map(reversed, client.content())),
                )
                for kind, row in zip(messages.kind[mine].tolist(), messages.row[mine].tolist(), strict=True):
                    if kind == MessageKind.GONE:
                        assert row in had and row not in has, "needless GONE"
                    else:
                        assert row in has and (row not in had or row == moved[0][0]), "needless row"
        assert received.all(), "a message that nobody receives"
    server._check()


@settings(deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_subscriptions_come_and_go(seed: int) -> None:
    world = World(seed)
    server = opened(world)
    rows = [world.change() for _ in range(10)]
    last = {id: (point, y) for id, point, y in rows}
    server.load(list(last), [p for p, _ in last.values()], [y for _, y in last.values()])
    alive = set(range(1, 2 * len(world.boxes), 2))
    for _ in range(5):
        some = np.array(sorted(s for s in alive if world.random.random() < 0.2), np.int64)
        server.unsubscribe(some)
        alive -= set(some.tolist())
        clients = {slot: server.contents(slot) for slot in alive}
        back = np.array(sorted(set(range(1, 2 * len(world.boxes), 2)) - alive)[:2], np.int64)
        ends = np.array([world.boxes[s // 2] for s in back], np.int64).reshape(-1, world.ranges, 2)
        server.subscribe(back, ends[:, :, 0], ends[:, :, 1])
        alive |= set(back.tolist())
        clients |= {slot: server.contents(int(slot)) for slot in back.tolist()}
        id, point, y = world.change()
        messages = server.publish([id], [point], [y])
        for slot, client in clients.items():
            client.apply(messages.take(messages.received_by(slot, server.point(slot))))
            assert client.content() == world.content(world.boxes[slot // 2], world.rows)
    server._check()


def test_covers_have_fewer_boxes_than_subscriptions() -> None:
    rng = np.random.default_rng(3)
    server, direct = BoxTopk(5), BoxTopk(5, unicast=True)
    ends = np.sort(rng.integers(0, 1000, (3000, 2, 2)), axis=2)
    for one in (server, direct):
        one.load(np.arange(300), points(300), np.arange(300) * 10)
        one.subscribe(np.arange(3000), ends[:, :, 0], ends[:, :, 1])
    ids = rng.permutation(300)[:100]
    ys = rng.permutation(3000)[:100] * 10 + 5
    described, sent = (one.publish(ids, points(300)[ids], ys) for one in (server, direct))
    assert sent.recipients is not None
    assert np.array_equal(described.row, sent.row) and np.array_equal(described.kind, sent.kind)
    assert len(described.regions.boxes) * 4 < len(sent.recipients.slot)
    for message in range(0, len(described), 7):
        inside = [s for s in range(3000) if described.regions.take([message]).contain(server.point(s))[0]]
        assert inside == sorted(sent.recipients.slot[sent.recipients.message == message].tolist())


def points(count: int) -> np.ndarray:
    return np.random.default_rng(9).integers(0, 1000, (count, 2))


def test_what_is_refused() -> None:
    server = BoxTopk(1)
    with pytest.raises(ValueError, match="two rows have the same y: 5"):
        server.load([1, 2], [[1, 1], [2, 2]], [5, 5])
    server.load([1, 2], [[1, 1], [2, 2]], [5, 6])
    with pytest.raises(ValueError, match="two rows have y = 6"):
        server.publish([1], [[1, 1]], [6])
    assert len(server.publish([1, 2], [[1, 1], [2, 2]], [7, 5])) == 0, "a y that was given up is free"
    with pytest.raises(ValueError, match="a range is empty"):
        server.subscribe(np.array([0]), np.array([[3, 3]]), np.array([[2, 3]]))
    with pytest.raises(ValueError, match="at least 1"):
        BoxTopk(0)
    with pytest.raises(ValueError, match="differ in length"):
        server.publish([1, 2], [[1, 1]], [3])
