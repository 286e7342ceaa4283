"""Drift: events have changed; does a segment still hang well?"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tocsin.match.segment import Segment
from tocsin.match.tiers import Held, Policy
from tocsin.predicate.portion import Portion

__all__ = ["hangs_badly"]

_TRIED = 20_000  # conjunctions that are built to know what all of them would cost


def hangs_badly(held: Held, policy: Policy, ns_per_event: float, build: Callable[[Portion], Segment]) -> bool:
    """Does it cost clearly more than it would if built with what is known of events now?

    `ns_per_event` is what an event costs in all; `build` makes a segment by the sample of recent events.
    """
    assert isinstance(held.segment, Segment)
    if held.events < policy.look * held.patience:
        return False
    costs = policy.costs
    seen = held.seen / max(1, held.events)
    cost = (costs.check + 2 * costs.test) * (seen[0] + seen[2] + seen[3]) + costs.hit * seen[1]
    cost += held.segment.expected["bits"]
    held.events, held.seen = 0, np.zeros(4, np.int64)
    if cost <= max(policy.least, 0.02 * ns_per_event):
        return False  # whatever it could cost, it would not be felt
    could = sum(_could(held.segment, build).values()) - held.segment.expected["direct"]
    if cost > policy.worse * could + policy.least:
        held.patience = 1
        return True
    held.patience = min(64, 2 * held.patience)
    return False


def _could(segment: Segment, build: Callable[[Portion], Segment]) -> dict[str, float]:
    """What a part of it would cost if built now, as a measure for the whole."""
    count = segment.size
    chosen = np.arange(0, count, max(1, count // _TRIED))
    part = build(segment.portion(chosen))
    fixed = part.fixed  # what pairs cost for every event, however few conjunctions hang on them
    share = {path: cost for path, cost in part.expected.items() if path != "direct"}
    scale = count / max(1, len(chosen))
    return {**{path: cost * scale for path, cost in share.items()}, "fixed": fixed * (1.0 - scale)}
