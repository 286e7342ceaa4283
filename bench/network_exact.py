"""Every scheme over every network, checked after every event; skylines and decompositions, solved exactly.

`tocsin.lab.simulate.exact` draws the changes and compares contents. CN+ runs its nodes: the bodies of rows
are payloads that cross links, with small caches, plain brokers, restarts and lost acknowledgements.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable
from itertools import combinations

import numpy as np
from claims import Claim, Claims, say

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.simulate.exact import SHAPES, RandomWorld, replay
from tocsin.lab.simulate.payload_nodes import PayloadNodes
from tocsin.lab.simulate.run import SCHEMES
from tocsin.lab.simulate.workload import draw_workload
from tocsin.model.message import LEAST, MessageKind, Messages
from tocsin.network.base import Network
from tocsin.network.can import Can, CanFixed
from tocsin.network.cbn import Cbn
from tocsin.network.cnplus import PayloadNetwork
from tocsin.network.unicast import Unicast
from tocsin.reformulate.base import Scheme, row_changes
from tocsin.reformulate.decompose import JoinGraph, decompositions, greedy, total_cost
from tocsin.reformulate.joins import SemijoinsByClusters, SemijoinsFewest, SemijoinsMerged
from tocsin.stab.groups import Ranges

__all__ = ["show_exact", "show_skylines"]

BROKERS = 40
MAKERS: dict[str, Callable[[], Network]] = {
    "unicast": lambda: Unicast(BROKERS),
    "can": lambda: Can(BROKERS),
    "can-fixed": lambda: CanFixed(BROKERS),
    "cbn": lambda: Cbn(BROKERS, fan_out=4, boxes=4),
    "cn+": lambda: PayloadNetwork(inner=CanFixed(BROKERS // 3), repository=5, directory=30),
}


# -- contents ----------------------------------------------------------------------------------------


class ShakenNodes(PayloadNodes):
    """Nodes of CN+ that are restarted now and then, and lose acknowledgements."""

    def __init__(self, network: Network) -> None:
        self._random = random.Random(len(network.placement))
        plain = {broker for broker in network.brokers.tolist() if self._random.random() < 0.3}
        parents = network.parents()
        assert parents is not None
        super().__init__(parents.tolist(), network.server, (30, 5), plain)

    def send(self, idents, reached, local, acks=None) -> None:  # type: ignore[no-untyped-def]
        if self._random.random() < 0.02:
            self.restart(self._random.randrange(len(self.nodes)))
        super().send(idents, reached, local, self._random)


def replay_all(worlds: list[RandomWorld], scheme: type[Scheme], name: str) -> dict[str, int]:
    """All worlds over a network of this name; counts, added up."""
    total: dict[str, int] = {}
    for world in worlds:
        found = replay(world, scheme, MAKERS[name](), ShakenNodes if name == "cn+" else None)
        for count, value in found._asdict().items():
            total[count] = total.get(count, 0) + value
    return total


def show_exact(options: argparse.Namespace) -> Claims:
    """Every scheme x network x random changes: contents equal brute force after every event."""
    names = list(MAKERS) if options.network == "all" else options.network.split(",")
    if not set(names) <= set(MAKERS):
        raise UsageError(f"there is no network {options.network!r}", hint=f"all, or of {', '.join(MAKERS)}")
    say(
        f"drawing {options.events:,} changes of {len(SHAPES)} worlds, and their contents; seed {options.seed}"
    )
    share = options.events // len(SHAPES)
    worlds = [RandomWorld(options.seed + i, shape, share) for i, shape in enumerate(SHAPES)]
    for name in names:
        events, facts = [], {}
        for scheme in SCHEMES.values():
            facts[scheme.name] = replay_all(worlds, scheme, name)
            events.append(facts[scheme.name]["events"])
            say(f"{scheme.name} over {name}: {facts[scheme.name]}")
        yield Claim(
            f"exact over {name}: schemes right after every event", len(events), "schemes", len(SCHEMES)
        ).show(options, network=name, events_each=min(events), needless_of_ref_sj=0, schemes=facts)


# -- skylines ----------------------------------------------------------------------------------------

_CHAIN = (SemijoinsFewest, SemijoinsMerged, SemijoinsByClusters)


def show_skylines(options: argparse.Namespace) -> Claims:
    """-Min <= -Clu+ <= -Clu <= 2 tau on every event; -Min and greedy are the best of all."""
    share = options.events // len(SHAPES)
    chain = Chain()
    for i, shape in enumerate(SHAPES):
        world = RandomWorld(options.seed + i, shape, share)
        schemes = [made() for made in _CHAIN]
        for scheme in schemes:
            scheme.subscribe(np.arange(len(world.points)), world.ranges())
        chain.add([scheme.describe(world.changes, 0) for scheme in schemes], schemes[0])
    for workload in ("w1", "w2"):
        say(f"{workload}: {options.subscriptions:,} subscriptions, {options.inserts:,} events")
        work = draw_workload(workload, options.subscriptions, options.inserts, options.seed)
        (a, c), count = np.moveaxis(work.points, 1, 0), len(work.event_key)
        columns = (np.ascontiguousarray(column) for column in (*c.T, *a.T))
        first = SemijoinsMerged()
        first.subscribe(np.arange(options.subscriptions), Ranges(*columns))
        first.load(1, np.arange(len(work.s_key)), work.s_key, work.s_value)
        new = np.stack([np.ones(count, np.int64), work.event_key, work.event_value], axis=1)
        inserts = row_changes(np.zeros(count), np.arange(count), np.zeros((count, 3)), new)
        described = []
        for made in _CHAIN:
            scheme = made()
            scheme.storage, scheme.index = first.storage, first.index
            scheme.load(0, [], [], [])
            described.append(scheme.describe(inserts, 0))
        chain.add(described, first)
    yield Claim(
        "skylines: messages that break min <= clu+ <= clu <= 2 tau", chain.broken, "messages", at_most=0
    ).show(options, messages=chain.messages, points=chain.points)
    rng, more, points = random.Random(options.seed), 0, 0
    for _ in range(options.cases):
        found, fewest = small_case(rng)
        more, points = more + (found != fewest), points + found
    yield Claim("skylines: -min differs from exhaustive search", more, "cases", at_most=0).show(
        options, cases=options.cases, points=points
    )
    worse = sum(greedy_excess(rng) > 1e-9 for _ in range(options.cases))
    yield Claim("decompositions: greedy costs more than the best of all", worse, "cases", at_most=0).show(
        options, cases=options.cases
    )


class Chain:
    """Sizes of the skylines of the same changes."""

    def __init__(self) -> None:
        self.broken = self.messages = 0
        self.points = {made.name: 0 for made in _CHAIN}

    def add(self, described: list[Messages], scheme: Scheme) -> None:
        sizes = []
        for made, messages in zip(_CHAIN, described, strict=True):
            about = (messages.kind == MessageKind.ROW) | (messages.kind == MessageKind.GONE)
            sizes.append(np.diff(messages.regions.start)[about])
            self.points[made.name] += int(sizes[-1].sum())
        fewest, merged, clusters = sizes
        if not len(fewest) == len(merged) == len(clusters):
            raise TocsinError("skylines send different messages")
        groups = max(len(sets.index.active) for sets in scheme.index.sets)
        fine = (fewest <= merged) & (merged <= clusters) & (clusters <= 2 * groups)
        self.broken += int((~fine).sum())
        self.messages += len(fewest)


def small_case(rng: random.Random) -> tuple[int, int]:
    """The points of -Min for a row that enters R, and the fewest that are valid, by trying all."""
    count, most = rng.randint(1, 8), rng.randint(2, 7)
    ranges = [sorted((rng.randint(0, most), rng.randint(0, most))) for _ in range(count)]
    values = sorted({rng.randint(0, most) for _ in range(rng.randint(1, 4))})
    scheme = SemijoinsFewest()
    columns = np.array([(low, high, 0, 9) for low, high in ranges], np.int64).T
    scheme.subscribe(np.arange(count), Ranges(*(np.ascontiguousarray(column) for column in columns)))
    scheme.load(1, np.arange(len(values)), np.zeros(len(values)), values)
    messages = scheme.describe(row_changes([0], [0], [[0, 0, 0]], [[1, 0, 5]]), 0)
    rows = messages.take(messages.kind == MessageKind.ROW)
    affected = {i for i, (low, high) in enumerate(ranges) if any(low <= v <= high for v in values)}
    received = {
        i for i, (low, high) in enumerate(ranges) if rows.regions.contain([(0, 9), (low, high)]).any()
    }
    if received != affected:
        raise TocsinError(f"{ranges}, {values}: {received} receive, {affected} are affected")
    hearing = set()
    for x in (LEAST, *range(most + 1)):
        for y in range(most + 2):
            held = frozenset(i for i, (low, high) in enumerate(ranges) if low <= x and y <= high)
            if held <= affected:
                hearing.add(held)
    fewest = next(
        n for n in range(count + 1) for some in combinations(hearing, n) if set().union(*some) == affected
    )
    return len(rows.regions.boxes), fewest


def greedy_excess(rng: random.Random) -> float:
    """How much more the greedy choice costs than the best of all, for some joins over a random graph."""
    count = rng.randint(2, 5)
    edges = [(rng.randrange(i), i) for i in range(1, count)]
    if count > 2 and rng.random() < 0.2:
        edges.append((0, count - 1))
    graph = JoinGraph(tuple(f"t{i}" for i in range(count)), tuple(edges))
    costs = {form: rng.random() for form in graph.forms}
    signatures = []
    for _ in range(6):
        used = {rng.randrange(len(edges))}
        for _ in range(rng.randint(0, len(edges))):
            places = set(graph.places(frozenset(used)))
            used.add(rng.choice([e for e, ends in enumerate(edges) if places & set(ends)]))
        signatures.append(frozenset(used))
    best = sum(min(total_cost([one], costs) for one in decompositions(graph, s)) for s in signatures)
    return total_cost(greedy(graph, signatures, costs), costs) - best
