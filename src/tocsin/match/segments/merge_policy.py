"""When to merge, compact, migrate and rebuild segments.

The rule behind all of it: spend on maintenance once the extra matching cost since the last one equals its
price; the total cost is then at most twice the optimum.

*Merge*: mutable segments are merged once their cumulative lookup cost reaches the build cost, together with
the immutable segments that are not much larger; or with all, once encoding events for one more segment has
cost as much. Immutable segments are merged when there are too many of one size, or the overhead of separate
segments has reached the merge cost.

*Compact*: a segment that has lost many slots is copied without them (`immutable.compacted`).

*Rebuild*: access paths were chosen for the events that were known then. When a segment costs clearly more
than it would if it were built from recent events, it is rebuilt. A segment built from too few sampled events
is re-evaluated early, with a lower rebuild threshold.

*Migrate*: under heavy churn, immutable segments shrink while the mutable segment grows. An immutable segment
then moves into the mutable one (`lifecycle.Migration`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tocsin.match._kernels.verify import Counter
from tocsin.match.build.cost import CostModel
from tocsin.match.segments.base import Review, Segment, SegmentState
from tocsin.match.segments.immutable import ImmutableSegment
from tocsin.match.segments.mutable import MutableSegment
from tocsin.predicate.conjunctions import Conjunctions, has_patterns

__all__ = [
    "AnyState", "ImmutableState", "MergePolicy", "MutableState", "due_for_merge", "due_for_migration",
    "is_expensive", "should_compact", "should_rebuild",
]  # fmt: skip

_TRIED = 20_000  # conjunctions that a trial segment is built of, to estimate what all of them would cost
_WORTH = 5.0  # a segment has cost so many times what the trial costs

AnyState = SegmentState[Segment]
ImmutableState = SegmentState[ImmutableSegment]
MutableState = SegmentState[MutableSegment]
Trial = Callable[[Conjunctions, float], tuple[ImmutableSegment, NDArray[np.float64]]]
"""Builds a segment from half of the sampled events; returns it, and its counters per event on the other half.
Each conjunction stands for so many."""


@dataclass(frozen=True)
class MergePolicy:
    """When segments are merged and rebuilt."""

    segments_per_size: int = 3  # immutable segments of one size before they are merged
    smallest_size: int = 4096  # conjunctions: segments of up to this many count as one size
    batch_share: float = 0.5  # of all conjunctions: a larger batch becomes an immutable segment at once
    mutable_share: float = 4.0  # times the conjunctions of immutable segments: what mutable ones may hold
    cost_factor: float = 1.0  # merge mutable segments once lookups have cost this multiple of the build cost
    early_events: int = 1000  # a batch that would cost that much after so few events is not added to one
    most_mutable: int = 16  # mutable segments, before they are made one
    size_ratio: float = 1.0  # mutable segments are merged with immutable ones so many times as large
    background_size: int = 32_768  # conjunctions: a larger merge runs in the background
    migrate_size: int = 32_768  # conjunctions that migrate at a time
    removed_share: float = 0.2  # of a segment's slots that were removed, before it is compacted
    rebuild_ratio: float = 1.3  # rebuild a segment that costs so many times what it could,
    excess_ratio: float = 1.05  # or so many times, once the excess has cost as much as building will
    min_cost: float = 50.0  # nanoseconds per event that are not worth a rebuild, nor is 2 % of all
    review_events: int = 4096  # events between two reviews of what a segment costs,
    sudden_ratio: float = 2.0  # unless it costs so many times what it did
    sample_size: int = 2048  # recent events kept,
    min_sample: int = 256  # and as many as a segment should be built from
    folder: Path | None = None  # large segments are written here and mapped, not kept in memory
    costs: CostModel = field(default_factory=CostModel)


def due_for_merge(
    immutable: list[ImmutableState],
    mutable: list[MutableState],
    policy: MergePolicy,
    needs_rebuild: Callable[[ImmutableState], bool],
) -> Sequence[AnyState]:
    """The segments to be replaced by one; none, if all is well."""
    if mutable:
        some = _with_smaller(mutable, immutable, policy)
        if _are_too_large(mutable, immutable, policy) or _have_cost_enough(mutable, some, policy):
            return some
        every: list[AnyState] = [*immutable, *mutable]
        if immutable and _have_cost_enough(mutable, every, policy):
            return every
    by_size: dict[int, list[ImmutableState]] = {}
    for state in immutable:
        size = max(0, (max(1, state.alive) // policy.smallest_size).bit_length() // 2)
        by_size.setdefault(size, []).append(state)
    for size in sorted(by_size):
        if len(by_size[size]) >= policy.segments_per_size:
            return by_size[size]
    if several := _costly_together(immutable, policy):
        return several
    for state in immutable:
        if should_compact(state, policy):
            return [state]
    return next(([state] for state in immutable if needs_rebuild(state)), [])


def should_compact(state: ImmutableState, policy: MergePolicy) -> bool:
    """Has a segment lost so many slots that the rest is better copied?"""
    return state.removed > 0 and state.removed > policy.removed_share * len(state.segment.slots)


def is_expensive(cost: float, size: int, policy: MergePolicy) -> bool:
    """Would so many conjunctions, at a cost per event in a mutable segment, soon be due for a merge?"""
    return policy.early_events * cost > policy.cost_factor * policy.costs.build_cost(size)


def due_for_migration(
    immutable: list[ImmutableState], mutable: list[MutableState], policy: MergePolicy
) -> tuple[ImmutableState, MutableState] | None:
    """An immutable segment that should migrate, and the mutable one it should move into."""
    if len(mutable) != 1:
        return None
    target, costs = mutable[0], policy.costs
    for state in sorted(immutable, key=lambda state: state.alive):
        if state.keeps_apart or not _has_numbers_only(state.segment, target.segment):
            continue
        if state.alive > 2 * target.alive:
            break
        if costs.encode * target.events >= policy.cost_factor * costs.migrate * state.alive:
            return state, target
    return None


def _has_numbers_only(segment: ImmutableSegment, target: MutableSegment) -> bool:
    """Texts have their own codes, patterns are matched for every event: both stay in immutable segments."""
    texts = any(len(dims.texts) or len(dims.backwards) for dims in (segment, target.frame))
    return not texts and not has_patterns(segment.key)


def _costly_together(immutable: list[ImmutableState], policy: MergePolicy) -> list[ImmutableState]:
    """The smallest segments, perhaps all, that have cost as much by being several as merging them will."""
    by_size, found, total = sorted(immutable, key=lambda state: state.alive), 0, 0
    for count, largest in enumerate(by_size):
        total += largest.alive
        smaller = by_size[:count]
        spent = sum(_overhead(state, policy.costs) * min(state.events, largest.events) for state in smaller)
        if smaller and spent >= policy.cost_factor * policy.costs.build_cost(total):
            found = count + 1
    return by_size[:found]


def _overhead(state: AnyState, costs: CostModel) -> float:
    """Nanoseconds per event that a segment costs however few conjunctions it has."""
    lookups = float(state.counters[Counter.LOOKUPS]) / max(1, state.events)
    return costs.encode + state.segment.fixed_cost + costs.look_up * lookups


def _are_too_large(mutable: list[MutableState], immutable: list[ImmutableState], policy: MergePolicy) -> bool:
    """Do mutable segments have more than their share, or more unused space than conjunctions?"""
    alive = sum(state.alive for state in mutable)
    spare = sum(state.segment.spare for state in mutable)
    most = policy.mutable_share * sum(state.alive for state in immutable)
    return bool(immutable and alive > most) or spare > 3 * alive + policy.smallest_size


def _have_cost_enough(mutable: list[MutableState], old: Sequence[AnyState], policy: MergePolicy) -> bool:
    """Have lookups cost as much as merging `old` will? If all are merged, encoding counts too."""
    costs, spent = policy.costs, 0.0
    for state in mutable:
        spent += state.segment.lookup_cost(state.counters)
        spent += costs.encode * state.events if len(old) > len(mutable) else 0.0
    return spent >= policy.cost_factor * costs.build_cost(sum(state.alive for state in old))


def _with_smaller(
    mutable: list[MutableState], immutable: list[ImmutableState], policy: MergePolicy
) -> list[AnyState]:
    """Mutable segments and the immutable ones that are not much larger than all merged with them so far."""
    old: list[AnyState] = list(mutable)
    total = sum(state.alive for state in mutable)
    for state in sorted(immutable, key=len):
        if state.alive > policy.size_ratio * total:
            break
        old.append(state)
        total += state.alive
    return old


# -- rebuilding ------------------------------------------------------------------------------------


def should_rebuild(state: ImmutableState, policy: MergePolicy, ns_per_event: float, trial: Trial) -> bool:
    """Does a segment cost clearly more than it would if it were built from recent events?

    `ns_per_event` is what an event costs in all.
    """
    last = state.review = state.review or Review(_without_direct(state.segment.expected))
    events = state.events - last.events
    if events < max(1, min(policy.early_events, policy.review_events)):
        return False
    cost = _cost(state.segment, (state.counters - last.counters) / events, policy.costs)
    is_sudden = cost > policy.sudden_ratio * last.cost + policy.min_cost
    trial_cost = 2 * policy.costs.build_cost(min(len(state), _TRIED))
    is_early = events < policy.review_events * last.patience or events * cost < _WORTH * trial_cost
    if is_early and not is_sudden and not state.is_undersampled:
        return False
    ratio = policy.excess_ratio if state.is_undersampled else policy.rebuild_ratio
    state.is_undersampled = False
    now = Review(cost, state.events, state.counters.copy(), min(64, 2 * last.patience), last.lost)
    state.review = now
    if cost <= max(policy.min_cost, 0.02 * ns_per_event):
        now.patience = last.patience
        return False  # no rebuild could save a noticeable part
    could = _possible_cost(state.segment, trial, policy.costs)
    now.lost += events * max(0.0, cost - policy.excess_ratio * could - policy.min_cost)
    has_cost_enough = now.lost > policy.cost_factor * policy.costs.build_cost(len(state))
    return has_cost_enough or cost > ratio * could + policy.min_cost


def _cost(segment: ImmutableSegment, counters: NDArray[np.float64], costs: CostModel) -> float:
    """What so many candidates per event cost, without those of direct lists."""
    checked = counters[Counter.LISTS] + counters[Counter.UNINDEXED] + counters[Counter.BITS]
    cost = (costs.check + 2 * costs.test) * checked + costs.hit * counters[Counter.PAIRS]
    sieved = (costs.sieve + 0.1 * costs.hit) * counters[Counter.VALUES]
    return float(cost + sieved + segment.expected["bits"]) + _fixed(segment, counters, costs)


def _fixed(segment: ImmutableSegment, counters: NDArray[np.float64], costs: CostModel) -> float:
    """What it costs however few conjunctions there are."""
    return segment.fixed_cost + costs.look_up * float(counters[Counter.LOOKUPS])


def _without_direct(expected: dict[str, Any]) -> float:
    return float(sum(cost for path, cost in expected.items() if path != "direct"))


def _possible_cost(segment: ImmutableSegment, trial: Trial, costs: CostModel) -> float:
    """What it would cost if it were built now, estimated on some of it, without direct lists.

    By candidates that are found, not by those expected: dimensions that exclude each other, or come together,
    make pairs rarer or more frequent than their chances suggest.
    """
    chosen = np.arange(0, segment.size, max(1, segment.size // _TRIED))
    scale = segment.size / max(1, len(chosen))
    built, counters = trial(segment.extract(chosen), scale)
    fixed = _fixed(built, counters, costs)
    return scale * (_cost(built, counters, costs) - fixed) + fixed
