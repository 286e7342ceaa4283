"""J08's star schema over a simulated network (figure 14): S is a fact table, R, T and U are dimensions.

S has 25,000 rows, a dimension 1,000, of 100 bytes payload each; every fact refers to one row of each
dimension. The mix of joins is that of `network_multiway.py`. The paper does not say what changes:

    facts     facts enter, the oldest leave: what it says of integrity and join results is about them
    sizes     in proportion to the tables: of 28 changes 25 facts, and an update in each dimension
    equal     facts and updates of the three dimensions equally often

S is a window, and clients know when a fact leaves. An update gives a row of a dimension another value and
payload. Compared are, with bytes between brokers,

    ref-sj-clu+  the greedy decomposition by simulated costs; each form is a space
    rel-sel      every change of a table to all who select it; each table is a space
    ref-j        every joined row of every join to those who select all its parts; each join is a space
    enum-j       the same, from the server to each subscription

Spaces share the brokers by their subscriptions. Clients of a sample are compared with brute force: what they
hold of their semijoins, and the joined rows of theirs that Ref-J sends.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from network_multiway import (
    GRAPH,
    MIX,
    PAST,
    Shape,
    Workload,
    mix_of,
    relaxed_bytes,
    run_checked,
    sampled_costs,
)
from numpy.typing import NDArray

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.simulate.run import ATTRIBUTE, HEADER
from tocsin.model.message import MessageKind, Messages, Regions, quadrant
from tocsin.reformulate.contents import JoinRow
from tocsin.reformulate.decompose import Decomposition, Signature, greedy
from tocsin.reformulate.multiway import TableChange

EVENTS = {"facts": (1, 0), "sizes": (25, 1), "equal": (1, 1)}  # of S, of each dimension
JOINED, PARTED = MessageKind.JOINED, MessageKind.PARTED


def draw_star(options: argparse.Namespace, seed: int, payload: int) -> Workload:
    """Rows and changes; `payload` is that of a fact."""
    if options.rates not in EVENTS:
        raise UsageError(f"there are no rates {options.rates!r}", hint=f"one of {', '.join(EVENTS)}")
    rng = np.random.default_rng(seed)
    signatures = mix_of(options.subscriptions)
    shape = Shape(options.workload, rng, options.rows)
    ranges = {place: shape.ranges(place, len(signatures)) for place in range(4)}
    start: list[TableChange] = [
        (table, key, shape.row(table, (key, key, key))) for table in "RTU" for key in range(options.rows)
    ]
    start += [("S", id, shape.row("S")) for id in range(options.facts)]
    facts, updates = EVENTS[options.rates]
    turn = ["S"] * facts + list("RTU") * updates
    changes: list[TableChange] = []
    oldest, newest = 0, options.facts
    past = PAST if options.zones == "traffic" else 0
    before = 0
    for number in range(past + options.changes):
        before = len(changes) if number == past else before
        table = turn[number % len(turn)]
        if table != "S":
            key = int(rng.integers(options.rows))
            changes.append((table, key, shape.row(table, (key, key, key))))
            continue
        changes += [("S", newest, shape.row("S")), ("S", oldest, None)]
        oldest, newest = oldest + 1, newest + 1
    payloads = {"S": payload, "R": 100, "T": 100, "U": 100}
    return Workload(signatures, ranges, start, changes[before:], payloads, ("S",), changes[:before])


# -- joined rows -------------------------------------------------------------------------------------


class JoinedRow(NamedTuple):
    """A fact with its rows of dimensions: the ids and values of all places; it comes or goes."""

    kind: MessageKind
    ids: tuple[int, ...]
    values: tuple[int, ...]


def joined_rows(work: Workload) -> Iterator[list[JoinedRow]]:
    """What each change, past ones too, adds to the join and takes away; facts leave silently."""
    facts: dict[int, JoinRow] = {}
    dimensions: list[dict[int, JoinRow]] = [{}, {}, {}]
    by_key: list[dict[int, set[int]]] = [{}, {}, {}]

    def joined(kind: MessageKind, id: int) -> JoinedRow:
        row = facts[id]
        partners = [dimensions[edge][row.keys[edge]] for edge in range(3)]  # type: ignore[index]
        values = (row.value, *(partner.value for partner in partners))
        return JoinedRow(kind, (id, *row.keys), values)  # type: ignore[arg-type]

    for number, (table, id, new) in enumerate([*work.start, *work.past, *work.changes]):
        out: list[JoinedRow] = []
        if table == "S":
            row = new or facts.pop(id)
            for edge, key in enumerate(row.keys):
                users = by_key[edge].setdefault(key, set())  # type: ignore[arg-type]
                users.symmetric_difference_update({id})
            if new is not None:
                facts[id] = new
                out.append(joined(JOINED, id))
        else:
            edge = "RTU".index(table)
            users = by_key[edge].get(id, set())
            out += [joined(PARTED, fact) for fact in sorted(users)]
            assert new is not None
            dimensions[edge][id] = new
            out += [joined(JOINED, fact) for fact in sorted(users)]
        if number >= len(work.start):
            yield out


def reformulated(signature: Signature, rows: list[list[JoinedRow]]) -> Messages:
    """Ref-J of one join. An update of a dimension that the join does not have is none of its joined rows."""
    places = GRAPH.places(signature)
    kinds, seqs, boxes = [], [], []
    for seq, some in enumerate(rows):
        mine = Counter(
            (row.kind, tuple(row.ids[p] for p in places), tuple(row.values[p] for p in places))
            for row in some
        )
        for kind, ids, values in mine:
            other = PARTED if kind == JOINED else JOINED
            if (other, ids, values) not in mine:
                kinds.append(kind)
                seqs.append(seq)
                boxes.append([quadrant(value) for value in values])
    count = len(kinds)
    order = np.zeros(count, np.int64)
    regions = Regions(np.arange(count + 1), np.array(boxes, np.int64).reshape(count, len(places), 4))
    none = np.zeros(count, np.int64)
    seq, kind = np.array(seqs, np.int64), np.array(kinds, np.int8)
    return Messages(seq, order, kind, kind * 0, none, none, none, regions)


def join_bytes(work: Workload, brokers: int) -> dict[str, int]:
    """Ref-J and Enum-J."""
    rows = list(joined_rows(work))
    total = Counter({"ref-j": 0, "enum-j": 0})
    signatures = np.array([list(MIX).index(signature) for signature in work.signatures])
    for number, signature in enumerate(MIX):
        users = np.flatnonzero(signatures == number)
        places = GRAPH.places(signature)
        points = np.stack([work.ranges[place][users] for place in places], axis=1)
        messages = reformulated(signature, rows)
        before = messages.seq < len(work.past)
        past = messages.regions.take(np.flatnonzero(before))
        network = work.zones(brokers * len(users) / len(signatures), points, past)
        messages = messages.take(np.flatnonzero(~before))
        row = sum(work.row_bytes(place) for place in places)
        sizes = HEADER + np.where(messages.kind == JOINED, row, len(places) * ATTRIBUTE)
        delivery = network.deliver(messages, sizes)
        total["ref-j"] += int(delivery.links.bytes.sum())
        held = holders(points, messages.regions)
        total["enum-j"] += int((held * sizes).sum())
        first = messages.take(np.arange(min(20, len(messages))))
        if len(network.receivers(first, network.deliver(first, 1)).slot) != int(held[:20].sum()):
            raise TocsinError("Ref-J does not reach those who select all parts")
    return dict(total)


def holders(points: NDArray[np.int64], regions: Regions) -> NDArray[np.int64]:
    """How many subscriptions receive each message; one box each."""
    out = np.zeros(len(regions), np.int64)
    for number, box in enumerate(regions.boxes):
        values = box[:, 1]
        out[number] = int(((points[:, :, 0] <= values) & (values <= points[:, :, 1])).all(axis=1).sum())
    return out


# -- all schemes -------------------------------------------------------------------------------------


def measure_star(options: argparse.Namespace, seed: int, payload: int) -> dict[str, Any]:
    """Bytes per change by scheme, the decomposition, and where the traffic of Ref-SJ-Clu+ goes."""
    work = draw_star(options, seed, payload)
    chosen: list[Decomposition] = greedy(GRAPH, work.signatures, sampled_costs(work, options))
    run = run_checked(work, chosen, options.brokers)
    found = {"ref-sj-clu+": run.total(), "rel-sel": relaxed_bytes(work, options.brokers)}
    found |= join_bytes(work, options.brokers)
    profile = {" ".join(key): count / options.changes for key, count in run.bytes.items()}
    picked = {GRAPH.tables[1 + chosen[work.signatures.index(s)][0]] for s in MIX}
    return {
        "bytes": {name: count / options.changes for name, count in found.items()},
        "profile": profile,
        "s_filtered_by": sorted(picked),
    }
