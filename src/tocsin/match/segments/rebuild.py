"""Drift: events have changed; does a segment still hang well?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tocsin.match.build.cost import Costs
from tocsin.match.segments.immutable import Segment
from tocsin.match.segments.merge_policy import Held, Look, Policy
from tocsin.predicate.conjunctions import Conjunctions

__all__ = ["hangs_badly"]

_TRIED = 20_000  # conjunctions that are built to know what all of them would cost
_WORTH = 5.0  # a segment has cost so many times what it costs to know that


Trial = Callable[[Conjunctions, float], tuple[Segment, NDArray[np.float64]]]
"""A segment built by a sample of recent events, and the candidates per event that others find in it; each
conjunction stands for so many."""


def hangs_badly(held: Held, policy: Policy, ns_per_event: float, trial: Trial) -> bool:
    """Does it cost clearly more than it would if built with what is known of events now?

    `ns_per_event` is what an event costs in all. What was built when few events were known is looked at
    soon, and built anew for less.
    """
    assert isinstance(held.segment, Segment)
    look = held.look = held.look or Look(_without_direct(held.segment.expected))
    events = held.events - look.events
    if events < max(1, min(policy.soon, policy.look)):
        return False
    cost = _cost(held.segment, (held.seen - look.seen) / events, policy.costs)
    sudden = cost > policy.sudden * look.cost + policy.least
    looking = 2 * policy.costs.building(min(len(held), _TRIED))
    early = events < policy.look * look.patience or events * cost < _WORTH * looking
    if early and not sudden and not held.is_blind:
        return False
    worse = policy.felt_worse if held.is_blind else policy.worse
    held.is_blind = False
    held.look = Look(cost, held.events, held.seen.copy(), min(64, 2 * look.patience), look.lost)
    if cost <= max(policy.least, 0.02 * ns_per_event):
        held.look.patience = look.patience
        return False  # whatever it could cost, it would not be felt
    could = _could(held.segment, trial, policy.costs)
    held.look.lost += events * max(0.0, cost - policy.felt_worse * could - policy.least)
    felt = held.look.lost > policy.felt * policy.costs.building(len(held))
    return felt or cost > worse * could + policy.least


def _cost(segment: Segment, seen: NDArray[np.float64], costs: Costs) -> float:
    """What so many candidates per event cost, without what is direct."""
    checked = (costs.check + 2 * costs.test) * (seen[0] + seen[2] + seen[3]) + costs.hit * seen[1]
    sifted = (costs.sift + 0.1 * costs.hit) * seen[4]
    return float(checked + sifted + segment.expected["bits"]) + _fixed(segment, seen, costs)


def _fixed(segment: Segment, seen: NDArray[np.float64], costs: Costs) -> float:
    """What it costs however few conjunctions there are."""
    return segment.fixed.get("pairs", 0.0) + costs.find * float(seen[5])


def _without_direct(expected: dict[str, float]) -> float:
    return sum(cost for path, cost in expected.items() if path != "direct")


def _could(segment: Segment, trial: Trial, costs: Costs) -> float:
    """What it would cost if built now, by a part of it, without what is direct.

    By candidates that are found, not by those expected: dimensions that exclude each other, or come together,
    make pairs rarer or more frequent than chances say.
    """
    chosen = np.arange(0, segment.size, max(1, segment.size // _TRIED))
    scale = segment.size / max(1, len(chosen))
    part, seen = trial(segment.portion(chosen), scale)
    fixed = _fixed(part, seen, costs)
    return scale * (_cost(part, seen, costs) - fixed) + fixed
