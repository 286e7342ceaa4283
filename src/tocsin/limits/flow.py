"""The most that bounded memory can give, by min-cost flow: OPT-offline and FlowExpect.

Both need `ortools` (`pip install 'tocsin[limits]'`), which is loaded at first use. A unit of flow is a
slot of the buffer. OPT-offline has one node per time and one per match, however many slots there are:

    time 0 ──► time 1 ──► time 2 ──► ...        capacity k, no gain: slots that hold nothing of use
       └──► (x, 1) ──► (x, 2) ──► ...           capacity 1, gain 1: tuple x is kept until its next match
               └──► time of that match          the slot is free again
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError

__all__ = ["FlowChoice", "caching_streams", "flow_expect", "lfd_hits", "opt_offline"]

Value = Hashable | None  # None matches nothing
_SCALE = 10**6  # gains become integers
Candidate = int | tuple[int, int]
_Arc = tuple[int, int, int, int]  # tail, head, capacity, cost


def _min_cost_flow() -> Any:
    try:
        from ortools.graph.python import min_cost_flow
    except ImportError as error:
        hint = "pip install 'tocsin[limits]'"
        raise UsageError("flows of bounded joins need ortools, which is not installed", hint=hint) from error
    return min_cost_flow.SimpleMinCostFlow()


def _solve(arcs: list[_Arc], source: int, sink: int, amount: int) -> tuple[int, NDArray[np.int64]]:
    """The least cost of sending an amount, and the flow over each arc."""
    flow = _min_cost_flow()
    table = np.array(arcs, np.int64)
    numbers = flow.add_arcs_with_capacity_and_unit_cost(table[:, 0], table[:, 1], table[:, 2], table[:, 3])
    flow.set_node_supply(source, amount)
    flow.set_node_supply(sink, -amount)
    status = flow.solve()
    if status != flow.OPTIMAL:
        raise UsageError(f"this flow has no solution (status {status})", hint="gains must be finite numbers")
    return int(flow.optimal_cost()), flow.flows(numbers)


def opt_offline(
    first: Sequence[Value],
    second: Sequence[Value],
    slots: int,
    window: int | None = None,
    count_from: int = 0,
) -> int:
    """The most matches that any policy gets from two streams, one tuple of each per step, in so many slots.

    Matches within a step are not counted: they need no memory. `window`: steps a tuple may be kept.
    `count_from`: matches before this step count nothing.

    >>> opt_offline([1, 2, None, 2], [None, 1, 2, 1], slots=1)
    3
    """
    if len(first) != len(second) or slots < 1:
        raise UsageError("OPT-offline takes two streams of one length and at least one slot")
    if not len(first):
        return 0
    streams, last = (first, second), len(first) - 1
    times: tuple[dict[Value, list[int]], ...] = (defaultdict(list), defaultdict(list))
    for stream, found in zip(streams, times, strict=True):
        for time, value in enumerate(stream):
            if value is not None:
                found[value].append(time)
    arcs: list[_Arc] = [(time, time + 1, slots, 0) for time in range(last)] or [(0, 1, slots, 0)]
    node = max(2, len(first))
    for stream, partner in ((first, times[1]), (second, times[0])):
        for arrival, value in enumerate(stream):
            previous, end = arrival, math.inf if window is None else arrival + window
            for time in partner.get(value, ()) if value is not None else ():
                if arrival < time <= end:
                    arcs.append((previous, node, 1, -1 if time >= count_from else 0))
                    arcs.append((node, time, 1, 0))
                    previous, node = node, node + 1
    return -_solve(arcs, 0, max(1, last), slots)[0]


class FlowChoice(NamedTuple):
    """What FlowExpect expects, and which candidates it keeps now (their numbers)."""

    benefit: float
    kept: tuple[int, ...]


def flow_expect(
    candidates: int, slots: int, ahead: int, gain: Callable[[Candidate, int], float]
) -> FlowChoice:
    """The best sequence of decisions that looks at no later value, `ahead` steps deep (FlowExpect).

    `gain(x, d)`: the probability that x matches at step d from now. x is the number of a candidate, or
    (stream, a) for the tuple that a stream will bring at step a < d. Slots that the flow leaves free go to
    the candidates of the largest gain at the next step. Not optimal: an adaptive policy may be better.

    >>> flow_expect(3, 1, 2, lambda x, d: {0: 0.5, 1: 0.2, 2: 0.9}.get(x, 0.0))
    FlowChoice(benefit=1.8, kept=(2,))
    """
    sink, node = ahead + 1, ahead + 2
    arcs: list[_Arc] = [(0, 1, slots, 0), *((d, d + 1, slots, 0) for d in range(1, ahead + 1))]

    def chain(start: int, x: Candidate, begin: int) -> int:
        """Arcs that keep x from `begin` on; the number of the first."""
        nonlocal node
        number, previous = len(arcs), node
        arcs.append((start, node, 1, 0))
        node += 1
        for d in range(begin, ahead + 1):
            arcs.append((previous, node, 1, -round(_SCALE * gain(x, d))))
            arcs.append((node, d if d < ahead else sink, 1, 0))
            previous, node = node, node + 1
        return number

    entries = [chain(0, x, 1) for x in range(candidates)]
    for arrival in range(1, ahead):
        for stream in (0, 1):
            chain(arrival, (stream, arrival), arrival + 1)
    cost, flows = _solve(arcs, 0, sink, slots)
    kept = [x for x, number in enumerate(entries) if flows[number]]
    rest = sorted(set(range(candidates)) - set(kept), key=lambda x: -gain(x, 1))
    return FlowChoice(-cost / _SCALE, tuple(sorted(kept + rest[: slots - len(kept)])))


def caching_streams(references: Sequence[Hashable]) -> tuple[list[Value], list[Value]]:
    """Two streams whose join is caching: a reference matches the tuple that the one before it left.

    >>> caching_streams("aba")
    ([('a', 0), ('b', 0), ('a', 1)], [('a', 1), ('b', 1), ('a', 2)])
    """
    seen: dict[Hashable, int] = defaultdict(int)
    first: list[Value] = []
    second: list[Value] = []
    for value in references:
        first.append((value, seen[value]))
        seen[value] += 1
        second.append((value, seen[value]))
    return first, second


def lfd_hits(references: Sequence[Hashable], slots: int) -> int:
    """The hits of LFD, which knows the future: it drops what is referenced the farthest from now, or never.

    >>> lfd_hits("abcab", 2)
    2
    """
    following: list[float] = [math.inf] * len(references)
    latest: dict[Hashable, int] = {}
    for time in range(len(references) - 1, -1, -1):
        following[time] = latest.get(references[time], math.inf)
        latest[references[time]] = time
    cache: dict[Hashable, float] = {}
    hits = 0
    for value, after in zip(references, following, strict=True):
        hits += value in cache
        cache[value] = after
        if len(cache) > slots:
            del cache[max(cache, key=cache.__getitem__)]  # the newcomer may be the one
    return hits
