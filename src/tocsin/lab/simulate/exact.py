"""Random changes of two joined tables over a network: contents of sampled clients after every event.

    RandomWorld ─► Scheme.describe ─► Network.deliver ─► receivers ─► clients, compared after every event
         └──────► joined rows of each sampled subscription, by brute force ──────────┘

Rows are inserted, deleted, and updated in value, key and payload; keys and values may be NULL; values tie;
ranges have open ends; ids are used again. The body of a row is the number of its version, so a client that
keeps an old payload is wrong. A client that received nothing has not changed: it is compared only if its
expected content has.

>>> world = RandomWorld(seed=1, shape=WorldShape(values=8, keys=2, rows=10, subscriptions=30), events=50)
>>> from tocsin.network.unicast import Unicast
>>> from tocsin.reformulate.joins import SemijoinsMerged
>>> replay(world, SemijoinsMerged, Unicast(4)).compared > 0
True
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import TocsinError
from tocsin.lab.simulate.payload_nodes import PayloadNodes
from tocsin.model.columns import Index
from tocsin.model.message import GREATEST, LEAST, MessageKind, Messages, Recipients
from tocsin.network.base import Delivery, Network, has_bit
from tocsin.reformulate._kernels.joins import RowChanges
from tocsin.reformulate.base import Scheme, row_changes
from tocsin.stab.groups import Ranges

__all__ = ["SHAPES", "RandomWorld", "Replayed", "WorldShape", "replay"]

CHUNK = 250  # events that are described and delivered together
SAMPLE = 12
_ROW, _GONE, _EXPOSE, _JOINED = MessageKind.ROW, MessageKind.GONE, MessageKind.EXPOSE, MessageKind.JOINED
Pairs = dict[tuple[int, int], int]


class WorldShape(NamedTuple):
    """Values are 0..values, keys 0..keys - 1; a table has at most so many rows."""

    values: int
    keys: int
    rows: int
    subscriptions: int = 200


SHAPES = (WorldShape(4, 1, 8), WorldShape(8, 2, 12), WorldShape(30, 3, 20), WorldShape(1000, 6, 40))


class RandomWorld:
    """Subscriptions, changes, and the joined rows of sampled subscriptions after each change."""

    def __init__(self, seed: int, shape: WorldShape, events: int) -> None:
        self.shape, self._rng = shape, np.random.default_rng(seed)
        count = shape.subscriptions
        self.points = np.stack([self._ranges(count), self._ranges(count)], axis=1)
        self.sample: Index = np.sort(self._rng.choice(count, min(SAMPLE, count), replace=False))
        # by side and row: there (0 or 1), key, value, version
        self._tables = np.zeros((2, shape.rows, 4), np.int64)
        self._versions, self._is_null = 0, np.zeros((2, shape.rows), np.bool_)
        self._exists = np.zeros((2, shape.rows), np.bool_)
        self.rows: list[tuple[int, int, int]] = []  # by event: side, row, version
        self.expected: list[dict[int, Pairs]] = []  # by event: contents that have changed, by sampled client
        self.member = np.zeros((events + 1, 2, len(self.sample), shape.rows), np.bool_)  # of semijoins
        before, after, self._last = [], [], np.zeros((len(self.sample), shape.rows, shape.rows), np.bool_)
        while len(self.rows) < events:
            change = self._change()
            if change is not None:
                before.append(change[0])
                after.append(change[1])
                self._expect(len(self.rows))
        side, row, _ = np.array(self.rows, np.int64).reshape(-1, 3).T
        self.changes = row_changes(side, row, before, after)
        self.moved = self.changes.had & self.changes.has & (self.changes.old_key != self.changes.key)

    def _ranges(self, count: int) -> NDArray[np.int64]:
        ends = np.sort(self._rng.integers(0, self.shape.values + 1, (count, 2)), axis=1)
        kind = self._rng.random(count)
        ends[kind < 0.13, 0] = LEAST
        ends[(kind > 0.1) & (kind < 0.23), 1] = GREATEST
        return ends

    def _change(self) -> tuple[list[int], list[int]] | None:
        """(there, key, value) of a row before and after; None if it was not there and is not."""
        rng, (values, keys, rows, _) = self._rng, self.shape
        side, row = int(rng.integers(2)), int(rng.integers(rows))
        old = self._tables[side, row].copy()
        kind, (has_value, has_key) = rng.random(), rng.random(2) > (0.05, 0.04)
        new = old.copy()
        if not self._exists[side, row] or kind < 0.6:
            new[2] = rng.integers(0, values + 1)
        if not self._exists[side, row] or kind > 0.75:
            new[1] = rng.integers(0, keys)
        is_deleted = self._exists[side, row] and 0.4 < kind < 0.65
        self._exists[side, row] = not is_deleted
        self._versions += 1
        new[0], new[3] = has_value and has_key and not is_deleted, self._versions
        self._tables[side, row] = new
        if not old[0] and not new[0]:
            return None
        self.rows.append((side, row, self._versions))
        return old[:3].tolist(), new[:3].tolist()

    def _expect(self, event: int) -> None:
        """Joined rows of each sampled subscription, by brute force over both tables."""
        chosen = []
        for side in (0, 1):
            there, _, value, _ = self._tables[side].T
            low, high = self.points[self.sample, side].T
            chosen.append((there > 0) & (low[:, None] <= value) & (value <= high[:, None]))
        same = self._tables[0, :, 1][:, None] == self._tables[1, :, 1]
        pairs = chosen[0][:, :, None] & chosen[1][:, None, :] & same
        side, row, _ = self.rows[event - 1]
        touched = pairs[:, row].any(axis=1) if side == 0 else pairs[:, :, row].any(axis=1)
        changed = (pairs != self._last).any(axis=(1, 2)) | touched
        versions = self._tables[:, :, 3]
        now: dict[int, Pairs] = {}
        for i in np.flatnonzero(changed).tolist():
            one, two = np.nonzero(pairs[i])
            joined = zip(versions[0, one].tolist(), versions[1, two].tolist(), strict=True)
            now[i] = dict.fromkeys(joined, 1)
        self.expected.append(now)
        self.member[event, 0], self.member[event, 1] = pairs.any(axis=2), pairs.any(axis=1)
        self._last = pairs

    def ranges(self) -> Ranges:
        columns = (*self.points[:, 1].T, *self.points[:, 0].T)
        return Ranges(*(np.ascontiguousarray(column) for column in columns))

    def chunk(self, begin: int, end: int) -> RowChanges:
        return RowChanges._make(column[begin:end] for column in self.changes)


class Replayed(NamedTuple):
    """What a run over a network has shown."""

    events: int
    messages: int
    received: int  # by sampled clients
    compared: int  # contents
    payloads: int  # that nodes of CN+ brought to gateways, each compared


class _OwnMessages(NamedTuple):
    """Messages of one event that a client receives, as `Contents.apply` reads them."""

    kind: NDArray[np.int8]
    side: NDArray[np.int8]
    key: Index
    row: Index
    partner: Index


def replay(
    world: RandomWorld,
    made: type[Scheme],
    network: Network,
    make_nodes: Callable[[Network], PayloadNodes] | None = None,
) -> Replayed:
    """Bring all changes to clients over a network that has no subscriptions yet; an error if one is wrong.

    `make_nodes`: payloads cross nodes of CN+, and those that reach a gateway with a receiver are compared.
    """
    scheme, slots = made(), np.arange(len(world.points))
    scheme.subscribe(slots, world.ranges())
    network.subscribe(slots, world.points)
    nodes = make_nodes(network) if make_nodes is not None else None
    run = _Replay(world, scheme, network, nodes)
    for begin in range(0, len(world.rows), CHUNK):
        end = min(begin + CHUNK, len(world.rows))
        messages = scheme.describe(world.chunk(begin, end), begin)
        delivery = network.deliver(messages, 2000)
        received = network.receivers(messages, delivery)
        if made.name.startswith("ref-sj"):
            run.check_needed(messages, received)
        run.apply(messages, delivery, received, begin, end)
    network._check()
    sent, own, compared = run.counts
    return Replayed(len(world.rows), sent, own, compared, nodes.brought if nodes is not None else 0)


class _Replay:
    """Sampled clients of one run."""

    def __init__(
        self, world: RandomWorld, scheme: Scheme, network: Network, nodes: PayloadNodes | None
    ) -> None:
        self._world, self._network, self._nodes = world, network, nodes
        self._label = f"{scheme.name} over {network.name}"
        self._bodies: dict[int, dict[int, int]] = {0: {}, 1: {}}
        self._clients = [scheme.contents(slot, self._bodies) for slot in world.sample.tolist()]
        self._current: list[Pairs] = [{} for _ in self._clients]
        self._place = np.full(len(world.points), -1)
        self._place[world.sample] = np.arange(len(world.sample))
        self.counts = [0, 0, 0]

    def check_needed(self, messages: Messages, received: Recipients) -> None:
        """Each message is received by somebody, says something new to each sampled client, and once."""
        if len(np.unique(received.message)) < len(messages):
            raise TocsinError(f"{self._label}: a message that nobody receives")
        client = self._place[received.slot]
        message, client = received.message[client >= 0], client[client >= 0]
        event, kind = messages.seq[message], messages.kind[message]
        side, row = messages.side[message].astype(np.int64), messages.row[message]
        had, has = (self._world.member[event + later, side, client, row] for later in (0, 1))
        is_gone = kind == _GONE
        needed = np.where(is_gone, had & (~has | self._world.moved[event]), has)
        needed &= (kind != _EXPOSE) | ~had
        once = np.unique(np.stack([event, client, side, row, is_gone]), axis=1).shape[1] == len(event)
        if not needed.all() or not once:
            raise TocsinError(f"{self._label}: a needless message, or one that comes twice")

    def apply(
        self, messages: Messages, delivery: Delivery, received: Recipients, begin: int, end: int
    ) -> None:
        """Events one by one: the tables change, clients receive, contents are compared."""
        client = self._place[received.slot]
        message, client = received.message[client >= 0], client[client >= 0]
        order = np.lexsort((message, client, messages.seq[message]))
        message, client = message[order], client[order]
        event = messages.seq[message]
        columns = _OwnMessages(*(getattr(messages, name)[message] for name in _OwnMessages._fields))
        fresh = np.flatnonzero(np.diff(event, prepend=-1) | np.diff(client, prepend=-1))
        stops = np.append(fresh, len(message)).tolist()
        owners = list(zip(event[fresh].tolist(), client[fresh].tolist(), strict=True))
        ends, at = np.searchsorted(messages.seq, np.arange(begin, end + 1)), 0
        for number in range(begin, end):
            side, row, version = self._world.rows[number]
            self._bodies[side][row] = version
            if self._nodes is not None:
                for m in range(ends[number - begin], ends[number - begin + 1]):
                    self._bring(messages, delivery, received, m)
            stale = set(self._world.expected[number])
            for i in stale:
                self._current[i] = self._world.expected[number][i]
            while at < len(owners) and owners[at][0] == number:
                i, cut = owners[at][1], slice(stops[at], stops[at + 1])
                own: Any = _OwnMessages._make(column[cut] for column in columns)
                self._clients[i].apply(own, self._bodies)
                stale.add(i)
                at += 1
            self._compare(stale, number)
        for i, more in enumerate((len(messages), len(message))):
            self.counts[i] += more

    def _compare(self, clients: set[int], number: int) -> None:
        for i in clients:
            if dict(self._clients[i].content()) != self._current[i]:
                slot = int(self._world.sample[i])
                raise TocsinError(
                    f"{self._label}: the content of subscription {slot} is wrong after event {number}"
                )
        self.counts[2] += len(clients)

    def _bring(self, messages: Messages, delivery: Delivery, received: Recipients, m: int) -> None:
        """A message through the nodes; gateways with a receiver must get the newest payloads."""
        assert self._nodes is not None
        kind, row = int(messages.kind[m]), int(messages.row[m])
        rows = []
        if kind in (_ROW, _EXPOSE):
            rows = [self._bodies[int(messages.side[m])][row]]
        elif kind == _JOINED:
            rows = [self._bodies[0][row], self._bodies[1][int(messages.partner[m])]]
        brokers = self._network.brokers
        reached = brokers[has_bit(delivery.reached, m, brokers)]
        first, last = np.searchsorted(received.message, [m, m + 1])
        local = set(self._network.placement.broker[received.slot[first:last]].tolist())
        self._nodes.send(rows, set(reached.tolist()), local)
