"""Joins of many tables over a simulated network: J08's mix of joins, decomposed in every way (figure 13).

S is joined with R, T and U, each over a key of its own; rows of one key: R 10, S 70, T 70, U 30. Of 17
subscriptions 5 join RS, 5 RST, 5 RSTU and 2 STU. R, T and U can only be filtered by S; S by any neighbour
that the join has: twelve ways. All tables change equally often, by inserts and deletes in turn. The paper's
distributions are lost ("normal distributions as before"); ours are

    normal    values N(50,000, 12,000); centres of ranges 20,000 and 80,000, sd 7,500, width N(6,000, 2,000)
    w1        the same for R, T and U; S as R of W1: values N(50,000, 20,000), centres 30,000 and 70,000,
              sd 13,000, width N(15,000, 5,000)
    keys      values of R, T and U N(mean of the key, 500), centres 25,000 and 75,000, width N(3,000, 1,000);
              S as R of W2: values N(50,000, 20,000), width N(40,000, 10,000)
    uniform   values and ranges: what the parametric cost assumes

Each form is a space of its own, with as many of the brokers as its share of the subscriptions. Zones are
split by load, or (`--zones traffic`) so that few messages of earlier changes cross. Traffic is bytes between
brokers; a row has 8 bytes for its value, 8 for each of its keys, and its payload. What clients hold is
compared with brute force before anything is printed. `network_figures.py decompositions` has the bars,
`network_star.py` the star schema.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.simulate.run import ATTRIBUTE, HEADER, NEIGHBOURS
from tocsin.model.columns import Index
from tocsin.model.message import MessageKind, Messages, Regions
from tocsin.network.can import Can
from tocsin.reformulate.contents import JoinRow, MultiwayContents
from tocsin.reformulate.decompose import (
    Decomposition,
    JoinGraph,
    SemijoinForm,
    Signature,
    decompositions,
    simulated_costs,
)
from tocsin.reformulate.multiway import MultiwayJoins, TableChange
from tocsin.reformulate.relaxed import Moves, describe_moves

GRAPH = JoinGraph(("S", "R", "T", "U"), ((0, 1), (0, 2), (0, 3)))
JOINING = {"S": 70, "R": 10, "T": 70, "U": 30}
MIX = {frozenset([0]): 5, frozenset([0, 1]): 5, frozenset([0, 1, 2]): 5, frozenset([1, 2]): 2}
DOMAIN, PART, POINT = 100_000, 200, 16  # values; changes per batch; bytes of a point of a skyline
PAST = 400  # changes of which zones by traffic are made
WORKLOADS = ("normal", "w1", "keys", "uniform")
PAYLOADS = dict.fromkeys(GRAPH.tables, 100)
Points = dict[int, NDArray[np.int64]]  # by place, the ranges of all subscriptions


class Workload(NamedTuple):
    signatures: list[Signature]  # by subscription
    ranges: Points
    start: list[TableChange]
    changes: list[TableChange]
    payloads: Mapping[str, int] = PAYLOADS  # bytes by table
    windows: tuple[str, ...] = ()  # tables of the newest rows: clients know when one leaves, no GONE is sent
    past: Sequence[TableChange] = ()  # changes before: zones are split so that few of their messages cross

    def zones(self, brokers: float, points: NDArray[np.int64], past: Regions) -> Can:
        """A space for subscriptions, split by load, or by traffic if there is a past."""
        sample = past if self.past and len(past) else None
        network = Can(max(1, round(brokers)), points.shape[1], sample)
        network.subscribe(np.arange(len(points)), points)
        return network

    def row_bytes(self, place: int) -> int:
        """Bytes of a row: its value, its keys, its payload."""
        edges = sum(place in ends for ends in GRAPH.edges)
        return ATTRIBUTE * (1 + edges) + self.payloads[GRAPH.tables[place]]

    def sizes(self, messages: Messages, places: int | Index) -> Index:
        """Bytes of messages about rows of places."""
        row = np.array([self.row_bytes(place) for place in range(len(GRAPH.tables))])[places]
        has_row = (messages.kind == MessageKind.ROW) | (messages.kind == MessageKind.EXPOSE)
        points = POINT * np.diff(messages.regions.start)
        described = np.where(messages.kind == MessageKind.EXPOSE, NEIGHBOURS, points)
        return HEADER + np.where(has_row, row, 2 * ATTRIBUTE) + described

    def sent(self, messages: Messages, place: int) -> Messages:
        """Messages about rows of a place, without what clients know."""
        if GRAPH.tables[place] not in self.windows:
            return messages
        return messages.take(np.flatnonzero(messages.kind != MessageKind.GONE))


class Shape:
    """How values and ranges are distributed."""

    def __init__(self, name: str, rng: np.random.Generator, keys: int) -> None:
        if name not in WORKLOADS:
            raise UsageError(f"there is no workload {name!r}", hint=f"one of {', '.join(WORKLOADS)}, or all")
        self._name, self._rng, self._keys = name, rng, keys
        self._mean = rng.uniform(0, DOMAIN, (3, keys))

    def ranges(self, place: int, count: int) -> NDArray[np.int64]:
        rng = self._rng
        if self._name == "uniform":
            return np.sort(rng.integers(0, DOMAIN, (count, 2)), axis=1)
        centres, sd, width = (20_000, 80_000), 7_500, (6_000, 2_000)
        if self._name == "keys":
            centres, width = (25_000, 75_000), (3_000, 1_000)
        if self._name in ("keys", "w1") and place == 0:
            centres, sd = (30_000, 70_000), 13_000
            width = (15_000, 5_000) if self._name == "w1" else (40_000, 10_000)
        middle = rng.normal(rng.choice(centres, count), sd)
        half = np.abs(rng.normal(*width, count)) / 2
        return np.stack([middle - half, middle + half], axis=1).clip(0, DOMAIN - 1).astype(np.int64)

    def row(self, table: str, keys: tuple[int, ...] | None = None) -> JoinRow:
        """A row of random keys, or of given ones."""
        keys = keys or tuple(int(key) for key in self._rng.integers(0, self._keys, 3))
        edge, value = "RTU".find(table), self._rng.uniform(0, DOMAIN)
        if self._name == "normal" or (self._name == "w1" and edge >= 0):
            value = self._rng.normal(50_000, 12_000)
        elif self._name != "uniform":
            mean, sd = (self._mean[edge, keys[edge]], 500) if edge >= 0 else (50_000, 20_000)
            value = self._rng.normal(mean, sd)
        return JoinRow(int(np.clip(value, 0, DOMAIN - 1)), keys)


def mix_of(subscriptions: int) -> list[Signature]:
    """The joins of so many subscriptions."""
    total = sum(MIX.values())
    return [signature for signature, share in MIX.items() for _ in range(share * subscriptions // total)]


def draw(options: argparse.Namespace, seed: int) -> Workload:
    """Rows, changes that keep the sizes of tables, subscriptions."""
    rng = np.random.default_rng(seed)
    signatures = mix_of(options.subscriptions)
    shape = Shape(options.workload, rng, options.keys)
    ranges = {place: shape.ranges(place, len(signatures)) for place in range(4)}
    alive: dict[str, list[int]] = {}
    start: list[TableChange] = []

    for table, joining in JOINING.items():
        alive[table] = list(range(joining * options.keys))
        start += [(table, id, shape.row(table)) for id in alive[table]]
    changes: list[TableChange] = []
    past = PAST if options.zones == "traffic" else 0
    for number in range(past + options.changes):
        table = GRAPH.tables[(number // 2) % 4]
        if number % 2:
            changes.append((table, alive[table].pop(int(rng.integers(len(alive[table])))), None))
        else:
            alive[table].append(1_000_000 + number)
            changes.append((table, alive[table][-1], shape.row(table)))
    return Workload(signatures, ranges, start, changes[past:], past=changes[:past])


class Run:
    """Subscriptions with their forms, and a network for each form."""

    def __init__(self, work: Workload, chosen: Sequence[Decomposition], brokers: int) -> None:
        self.joins, self.networks, self._work = MultiwayJoins(GRAPH), {}, work
        self.joins.describe(work.start, 0)
        self.bytes: Counter[tuple[str, str]] = Counter()  # by form and kind
        users: dict[int, list[int]] = {}
        for signature in MIX:
            mine = np.array([i for i, s in enumerate(work.signatures) if s == signature], np.int64)
            if len(mine):
                ranges = {place: work.ranges[place][mine] for place in GRAPH.places(signature)}
                self.joins.subscribe(mine, signature, chosen[mine[0]], ranges)
        for slot, one in enumerate(chosen):
            for place, edge in one.items():
                users.setdefault(GRAPH.number(SemijoinForm(place, edge)), []).append(slot)
        past = self.joins.describe(work.past, 0)
        for number, slots in users.items():
            some = np.array(slots)
            points = np.stack([work.ranges[place][some] for place in GRAPH.edges[number // 2]], axis=1)
            share = len(slots) / sum(map(len, users.values()))
            self.networks[number] = work.zones(brokers * share, points, self.regions(past, number))

    def regions(self, messages: Messages, number: int) -> Regions:
        """Of the messages of a form that are sent."""
        mine = messages.take(np.flatnonzero(messages.side == number))
        return self._work.sent(mine, GRAPH.forms[number].base).regions

    def publish(self, changes: Sequence[TableChange], seq: int) -> Messages:
        messages = self.joins.describe(changes, seq)
        for number, network in self.networks.items():
            form = GRAPH.forms[number]
            mine = self._work.sent(messages.take(np.flatnonzero(messages.side == number)), form.base)
            sizes = self._work.sizes(mine, form.base)
            crossed = network.deliver(mine, sizes).hops * sizes
            for kind in np.unique(mine.kind):
                self.bytes[GRAPH.name(form), MessageKind(kind).name] += int(crossed[mine.kind == kind].sum())
        return messages

    def total(self, *kinds: str) -> int:
        """Bytes of all messages, or of some kinds."""
        return sum(count for (_, kind), count in self.bytes.items() if not kinds or kind in kinds)


def run_checked(work: Workload, chosen: Sequence[Decomposition], brokers: int) -> Run:
    """Publish all changes; compare what sampled clients hold with brute force."""
    run = Run(work, chosen, brokers)
    slots = np.random.default_rng(1).choice(len(chosen), min(12, len(chosen)), replace=False).tolist()
    clients = {slot: run.joins.contents(slot) for slot in slots}
    for begin in range(0, len(work.changes), PART):
        messages = run.publish(work.changes[begin : begin + PART], 1 + begin)
        for slot, client in clients.items():
            mine = run.joins.received_by(slot, messages)
            for seq in np.unique(mine.seq):
                client.apply(mine.take(np.flatnonzero(mine.seq == seq)), run.joins.bodies)
    for slot, client in clients.items():
        if not _is_exact(client, work, slot, run):
            raise TocsinError(f"subscription {slot} does not hold its semijoins")
    return run


def _is_exact(client: MultiwayContents, work: Workload, slot: int, run: Run) -> bool:
    for place, edge in client.chosen.items():
        other = GRAPH.other(SemijoinForm(place, edge))
        rows = {
            at: {
                id: row
                for id, row in run.joins.bodies[at].items()
                if work.ranges[at][slot][0] <= (row.value or 0) <= work.ranges[at][slot][1]
            }
            for at in (place, other)
        }
        keys = {row.keys[edge] for row in rows[other].values()}
        expected = {id for id, row in rows[place].items() if row.keys[edge] in keys}
        if set(client.held[place]) != expected:
            return False
    return True


def relaxed_bytes(work: Workload, brokers: int) -> int:
    """Rel-Sel: every change of a table to all who select it."""
    total, past = 0, len(work.past)
    alive = {(table, id): row for table, id, row in work.start}
    every = sum(len(GRAPH.places(signature)) for signature in work.signatures)
    for place, table in enumerate(GRAPH.tables):
        users = np.array([i for i, s in enumerate(work.signatures) if place in GRAPH.places(s)])
        moves = []
        for at, (name, id, new) in enumerate([*work.past, *work.changes]):
            if name == table:
                old = alive.pop((table, id), None)
                alive[table, id] = new
                values = [row.value if row else 0 for row in (old, new)]
                moves.append((at, old is not None, new is not None, *values))
        at, *columns = np.array(moves, np.int64).reshape(-1, 5).T
        number, step, kind, rectangle = describe_moves(Moves(columns[0] > 0, columns[1] > 0, *columns[2:]))
        none = np.zeros(len(number), np.int64)
        regions = Regions(np.arange(len(number) + 1), rectangle[:, None])
        messages = Messages(at[number], step, kind, none.astype(np.int8), none, none, none, regions)
        messages = work.sent(messages, place)
        before = messages.seq < past
        points = work.ranges[place][users][:, None]
        network = work.zones(
            brokers * len(users) / every, points, messages.regions.take(np.flatnonzero(before))
        )
        messages = messages.take(np.flatnonzero(~before))
        sizes = work.sizes(messages, place) - POINT  # a rectangle follows from the value: not described
        total += int(network.deliver(messages, sizes).links.bytes.sum())
    return total


def sampled_costs(work: Workload, options: argparse.Namespace) -> dict[SemijoinForm, float]:
    """The cost of forms by simulation, on a share of the subscriptions."""
    share = max(1, round(1 / options.sample))
    signatures = work.signatures[::share]
    ranges = {place: ends[::share] for place, ends in work.ranges.items()}

    def measure(form: SemijoinForm, users: list[int]) -> float:
        pair = frozenset([form.edge])
        mine = work._replace(signatures=[pair] * len(users), ranges={p: e[users] for p, e in ranges.items()})
        run = Run(mine._replace(signatures=[], past=()), [], options.brokers)
        slots, number = np.arange(len(users)), GRAPH.number(form)
        both = dict.fromkeys(GRAPH.edges[form.edge], form.edge)
        run.joins.subscribe(slots, pair, both, {place: mine.ranges[place] for place in both})
        points = np.stack([mine.ranges[place] for place in GRAPH.edges[form.edge]], axis=1)
        every = sum(len(GRAPH.places(signature)) for signature in signatures)
        past = run.regions(run.joins.describe(work.past, 0), number)
        run.networks = {number: work.zones(options.brokers * len(users) / every, points, past)}
        run.publish(mine.changes, 1)
        return float(run.total())

    return simulated_costs(GRAPH, signatures, measure)


def all_ways(signatures: Sequence[Signature]) -> dict[str, list[Decomposition]]:
    """Every choice for S, by name."""
    out = {}
    for chosen in product(*(list(decompositions(GRAPH, signature)) for signature in MIX)):
        by = dict(zip(MIX, chosen, strict=True))
        name = " ".join(GRAPH.tables[1 + one[0]] for one in chosen)
        out[name] = [by[signature] for signature in signatures]
    return out
