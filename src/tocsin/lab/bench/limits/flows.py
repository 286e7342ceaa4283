"""FlowExpect on the trend workloads: at each step the flow over the next few steps decides what is kept."""

from __future__ import annotations

from tocsin.lab.bench.limits.workloads import StreamWorkload
from tocsin.limits.flow import flow_expect

__all__ = ["play_flow"]


def play_flow(work: StreamWorkload, slots: int, ahead: int, seed: int, steps: int) -> int:
    """Matches of kept tuples from step 4 · slots on."""
    r, s = work.draw(steps, seed).tolist()
    later = _of_later_tuples(work, ahead)
    kept: list[tuple[int, int]] = []
    found = 0
    for t in range(steps):
        if t >= 4 * slots:
            found += sum(value == (r, s)[1 - side][t] for side, value in kept)
        kept += [(0, r[t]), (1, s[t])]
        if len(kept) <= slots:
            continue

        def gain(x: int | tuple[int, int], d: int, t: int = t, rows: list[tuple[int, int]] = kept) -> float:
            if isinstance(x, tuple):
                return later[x[0], d - x[1]]
            side, value = rows[x]
            return _probability(work, 1 - side, value - (t + d - work.lag_of(1 - side)))

        choice = flow_expect(len(kept), slots, ahead, gain)
        kept = [kept[x] for x in choice.kept]
    return found


def _probability(work: StreamWorkload, side: int, noise: int) -> float:
    pmf, bound = (work.r_noise, work.s_noise)[side], work.bound(side)
    return pmf[noise + bound] if -bound <= noise <= bound else 0.0


def _of_later_tuples(work: StreamWorkload, ahead: int) -> dict[tuple[int, int], float]:
    """By stream and steps since it arrived: the probability that a tuple to come matches."""
    found = {}
    for side in (0, 1):
        own, bound = (work.r_noise, work.s_noise)[side], work.bound(side)
        for gap in range(1, ahead + 1):
            shift = work.lag_of(1 - side) - work.lag_of(side) - gap
            found[side, gap] = sum(
                p * _probability(work, 1 - side, e - bound + shift) for e, p in enumerate(own)
            )
    return found
