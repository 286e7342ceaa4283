"""Joins of many tables over a simulated network: which neighbour should filter which table?

    decompositions   J08, figure 13: traffic of all ways to filter S, and of the greedy choice

    python bench/multiway_show.py decompositions --workload normal --no-bar

S is joined with R, T and U, each over a key of its own; rows of one key: R 10, S 70, T 70, U 30. Of 17
subscriptions 5 join RS, 5 RST, 5 RSTU and 2 STU. R, T and U can only be filtered by S; S by any neighbour
that the join has: twelve ways. All tables change equally often, by inserts and deletes in turn. The paper's
distributions are lost; ours are

    uniform   values and ranges: what the parametric cost assumes
    normal    values N(50,000, 12,000); centres of ranges 20,000 and 80,000, sd 7,500, width N(6,000, 2,000)
    keys      values of R, T and U N(mean of the key, 500); centres 25,000 and 75,000, width N(3,000, 1,000);
              S as R of W2: values N(50,000, 20,000), width N(40,000, 10,000)

Each form is a space of its own, with as many of the brokers as its share of the subscriptions: zones are
split by load, whichever form they are of. Traffic is bytes between brokers. What sampled clients hold is
compared with brute force before anything is printed.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from claims import Claim, Claims, parser_of, say, show_claims
from numpy.typing import NDArray

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.memory import keep_freed
from tocsin.lab.simulate.run import message_bytes
from tocsin.model.message import Messages, Regions
from tocsin.network.can import Can
from tocsin.reformulate.contents import JoinRow, MultiwayContents
from tocsin.reformulate.decompose import (
    Decomposition,
    Form,
    JoinGraph,
    Signature,
    TableShape,
    decompositions,
    greedy,
    parametric_costs,
    simulated_costs,
)
from tocsin.reformulate.multiway import MultiwayJoins, TableChange
from tocsin.reformulate.relaxed import Moves, describe_moves

GRAPH = JoinGraph(("S", "R", "T", "U"), ((0, 1), (0, 2), (0, 3)))
JOINING = {"S": 70, "R": 10, "T": 70, "U": 30}
MIX = {frozenset([0]): 5, frozenset([0, 1]): 5, frozenset([0, 1, 2]): 5, frozenset([1, 2]): 2}
DOMAIN, PAYLOAD, PART = 100_000, 100, 200
SKYLINE = "ref-sj-clu+"
WORKLOADS = ("uniform", "normal", "keys")
Points = dict[int, NDArray[np.int64]]  # by place, the ranges of all subscriptions


class Workload(NamedTuple):
    signatures: list[Signature]  # by subscription
    ranges: Points
    start: list[TableChange]
    changes: list[TableChange]


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
            wide = (30_000, 70_000), 13_000, (40_000, 10_000)
            centres, sd, width = wide if place == 0 else ((25_000, 75_000), 7_500, (3_000, 1_000))
        middle = rng.normal(rng.choice(centres, count), sd)
        half = np.abs(rng.normal(*width, count)) / 2
        return np.stack([middle - half, middle + half], axis=1).clip(0, DOMAIN - 1).astype(np.int64)

    def row(self, table: str) -> JoinRow:
        keys = tuple(int(key) for key in self._rng.integers(0, self._keys, 3))
        value = self._rng.uniform(0, DOMAIN)
        if self._name == "normal":
            value = self._rng.normal(50_000, 12_000)
        elif self._name == "keys":
            edge = "RTU".find(table)
            mean, sd = (self._mean[edge, keys[edge]], 500) if edge >= 0 else (50_000, 20_000)
            value = self._rng.normal(mean, sd)
        return JoinRow(int(np.clip(value, 0, DOMAIN - 1)), keys)


def draw(options: argparse.Namespace) -> Workload:
    """Rows, changes that keep the sizes of tables, subscriptions."""
    rng = np.random.default_rng(options.seed)
    total = sum(MIX.values())
    signatures = [s for s, share in MIX.items() for _ in range(share * options.subscriptions // total)]
    shape = Shape(options.workload, rng, options.keys)
    ranges = {place: shape.ranges(place, len(signatures)) for place in range(4)}
    alive: dict[str, list[int]] = {}
    start: list[TableChange] = []

    for table, joining in JOINING.items():
        alive[table] = list(range(joining * options.keys))
        start += [(table, id, shape.row(table)) for id in alive[table]]
    changes: list[TableChange] = []
    for number in range(options.changes):
        table = GRAPH.tables[(number // 2) % 4]
        if number % 2:
            changes.append((table, alive[table].pop(int(rng.integers(len(alive[table])))), None))
        else:
            alive[table].append(1_000_000 + number)
            changes.append((table, alive[table][-1], shape.row(table)))
    return Workload(signatures, ranges, start, changes)


class Run:
    """Subscriptions with their forms, and a network for each form."""

    def __init__(self, work: Workload, chosen: Sequence[Decomposition], brokers: int) -> None:
        self.joins, self.networks, self._work = MultiwayJoins(GRAPH), {}, work
        self.joins.describe(work.start, 0)
        self.bytes = self.boxes = self.messages = 0
        users: dict[int, list[int]] = {}
        for signature in MIX:
            mine = np.array([i for i, s in enumerate(work.signatures) if s == signature], np.int64)
            if len(mine):
                ranges = {place: work.ranges[place][mine] for place in GRAPH.places(signature)}
                self.joins.subscribe(mine, signature, chosen[mine[0]], ranges)
        for slot, one in enumerate(chosen):
            for place, edge in one.items():
                users.setdefault(GRAPH.number(Form(place, edge)), []).append(slot)
        for number, slots in users.items():
            one, two = GRAPH.edges[number // 2]
            some = np.array(slots)
            points = np.stack([work.ranges[one][some], work.ranges[two][some]], axis=1)
            share = len(slots) / sum(map(len, users.values()))
            self.networks[number] = Can(max(1, round(brokers * share)))
            self.networks[number].subscribe(some, points)

    def publish(self, changes: Sequence[TableChange], seq: int) -> Messages:
        messages = self.joins.describe(changes, seq)
        for number, network in self.networks.items():
            mine = messages.take(np.flatnonzero(messages.side == number))
            sizes, _ = message_bytes(mine, SKYLINE, PAYLOAD)
            self.bytes += int(network.deliver(mine, sizes).links.bytes.sum())
        self.messages, self.boxes = self.messages + len(messages), self.boxes + len(messages.regions.boxes)
        return messages


def run_checked(work: Workload, chosen: Sequence[Decomposition], options: argparse.Namespace) -> Run:
    """Publish all changes; compare what sampled clients hold with brute force."""
    run = Run(work, chosen, options.brokers)
    slots = np.random.default_rng(1).choice(len(chosen), min(12, len(chosen)), replace=False).tolist()
    clients = {slot: run.joins.contents(slot) for slot in slots}
    for begin in range(0, len(work.changes), PART):
        messages = run.publish(work.changes[begin : begin + PART], 1 + begin)
        for slot, client in clients.items():
            mine = run.joins.heard_by(slot, messages)
            for seq in np.unique(mine.seq):
                client.hear(mine.take(np.flatnonzero(mine.seq == seq)), run.joins.bodies)
    for slot, client in clients.items():
        if not _is_exact(client, work, slot, run):
            raise TocsinError(f"subscription {slot} does not hold its semijoins")
    return run


def _is_exact(client: MultiwayContents, work: Workload, slot: int, run: Run) -> bool:
    for place, edge in client.chosen.items():
        other = GRAPH.other(Form(place, edge))
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


def relaxed_bytes(work: Workload, options: argparse.Namespace) -> int:
    """Rel-Sel: every change of a table to all who select it."""
    total = 0
    alive = {(table, id): row for table, id, row in work.start}
    every = sum(len(GRAPH.places(signature)) for signature in work.signatures)
    for place, table in enumerate(GRAPH.tables):
        users = np.array([i for i, s in enumerate(work.signatures) if place in GRAPH.places(s)])
        network = Can(max(1, round(options.brokers * len(users) / every)), 1)
        network.subscribe(users, work.ranges[place][users])
        moves = []
        for name, id, new in work.changes:
            if name == table:
                old = alive.pop((table, id), None)
                alive[table, id] = new
                values = [row.value if row else 0 for row in (old, new)]
                moves.append((old is not None, new is not None, *values))
        columns = np.array(moves, np.int64).T
        number, step, kind, rectangle = describe_moves(Moves(columns[0] > 0, columns[1] > 0, *columns[2:]))
        none = np.zeros(len(number), np.int64)
        regions = Regions(np.arange(len(number) + 1), rectangle[:, None])
        messages = Messages(number, step, kind, none.astype(np.int8), none, none, none, regions)
        sizes, _ = message_bytes(messages, "rel-sel", PAYLOAD)
        total += int(network.deliver(messages, sizes).links.bytes.sum())
    return total


def sampled_costs(work: Workload, options: argparse.Namespace) -> dict[Form, float]:
    """The cost of forms by simulation, on a share of the subscriptions."""
    share = max(1, round(1 / options.sample))
    signatures = work.signatures[::share]
    ranges = {place: ends[::share] for place, ends in work.ranges.items()}

    def measure(form: Form, users: list[int]) -> float:
        pair = frozenset([form.edge])
        mine = work._replace(signatures=[pair] * len(users), ranges={p: e[users] for p, e in ranges.items()})
        run = Run(mine._replace(signatures=[]), [], options.brokers)
        slots = np.arange(len(users))
        both = dict.fromkeys(GRAPH.edges[form.edge], form.edge)
        run.joins.subscribe(slots, pair, both, {place: mine.ranges[place] for place in both})
        points = np.stack([mine.ranges[place] for place in GRAPH.edges[form.edge]], axis=1)
        every = sum(len(GRAPH.places(signature)) for signature in signatures)
        run.networks = {GRAPH.number(form): Can(max(1, round(options.brokers * len(users) / every)))}
        run.networks[GRAPH.number(form)].subscribe(slots, points)
        run.publish(mine.changes, 1)
        return float(run.bytes)

    return simulated_costs(GRAPH, signatures, measure)


def all_ways(signatures: Sequence[Signature]) -> dict[str, list[Decomposition]]:
    """Every choice for S, by name."""
    out = {}
    for chosen in product(*(list(decompositions(GRAPH, signature)) for signature in MIX)):
        by = dict(zip(MIX, chosen, strict=True))
        name = " ".join(GRAPH.tables[1 + one[0]] for one in chosen)
        out[name] = [by[signature] for signature in signatures]
    return out


def show_decompositions(options: argparse.Namespace) -> Claims:
    """Traffic of all ways to filter S: greedy is at least 10 % below the worst."""
    for workload in WORKLOADS if options.workload == "all" else (options.workload,):
        say(f"{workload}: costs by simulation")
        options.workload = workload
        yield from _compare(options, draw(options))


def _compare(options: argparse.Namespace, work: Workload) -> Claims:
    shapes = {table: TableShape(joining) for table, joining in JOINING.items()}
    costs = {"parametric": parametric_costs(GRAPH, shapes), "simulated": sampled_costs(work, options)}
    chosen, traffic = all_ways(work.signatures), {}
    for name, one in chosen.items():
        traffic[name] = run_checked(work, one, options).bytes / len(work.changes)
        say(f"S by {name} in RS, RST, RSTU, STU: {traffic[name]:,.0f} bytes per change")
    picked = {
        way: next(name for name, one in chosen.items() if one == greedy(GRAPH, work.signatures, found))
        for way, found in costs.items()
    }
    worst, best = max(traffic.values()), min(traffic.values())
    relaxed = relaxed_bytes(work, options) / len(work.changes)
    named = {way: {GRAPH.name(form): cost for form, cost in found.items()} for way, found in costs.items()}
    more = {"traffic": traffic, "picked": picked, "rel_sel": relaxed, "costs": named}
    for way, name in picked.items():
        title = f"{options.workload}, greedy by {way} cost"
        share = traffic[name] / worst
        yield Claim(title, share, "of the worst", at_most=0.9).show(options, **more)
        yield Claim(title, traffic[name] / best, "of the best", at_most=1.05).show(options)


COMMANDS: dict[Any, dict[str, Any]] = {
    show_decompositions: {
        "workload": "all",
        "subscriptions": 170_000,
        "changes": 400,
        "keys": 50,
        "brokers": 1000,
        "sample": 0.2,
    },
}


if __name__ == "__main__":
    keep_freed()
    sys.exit(show_claims(parser_of(__doc__, COMMANDS, repeat=1).parse_args()))
