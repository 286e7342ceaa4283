"""Hotspots: the few stabbing groups that hold most of the intervals, followed as intervals come and go.

Interests are skewed: a tenth of the groups may hold three quarters of the intervals. Working group by group
pays off for these and costs too much for the many small ones. So two sets of groups are kept apart:

    insert --> joins a hot group if it fits one ...          hot        size >= alpha/2 * n
           --> ... else a scattered one                      scattered  size <  alpha * n

                       grows to alpha * n: promoted
    scattered  ---------------------------------------->  hot
               <----------------------------------------
                   falls under alpha/2 * n: demoted

The gap between alpha and alpha/2 keeps groups from crossing back and forth. At all times

(I1) every group is on its side as above, so that there are at most 2/alpha hot groups;
(I2) there are at most (1 + eps) * tau + 2/alpha groups in all;
(I3) at most 5 intervals cross the border per update, amortised.

An update costs O(log n / eps + 1/alpha) amortised, and the ids that move. A group that crosses as a whole
keeps its number: its ids cross, but stay together.

>>> hotspots = Hotspots(HotspotConfig(alpha=0.5))
>>> moves = hotspots.insert([0, 1, 2, 3], [1, 2, 3, 9], [5, 5, 5, 9])
>>> moves.is_hot.tolist(), hotspots.coverage
([True, True, True, False], 0.75)
>>> hotspots.hot_points().tolist(), hotspots.points().tolist()
([5], [9])

T07, section 4.2.2. Scattered groups form a `RefinedPartition`; a demoted group returns as a whole if its core
overlaps none of theirs, otherwise interval by interval as in the thesis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.stab._kernels import partition as kernel
from tocsin.stab.dynamic import MaintainedPartition, PartitionConfig
from tocsin.stab.partition import Codes, Groups, canonical

__all__ = ["HotspotConfig", "Hotspots"]


@dataclass(frozen=True)
class HotspotConfig:
    """`alpha`: the share of all intervals that makes a group hot; `eps`: allowed surplus of groups."""

    alpha: float = 0.001
    eps: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.alpha <= 1:
            raise ValueError(f"alpha must be above 0 and at most 1, not {self.alpha}")


class Hotspots(MaintainedPartition):
    """A partition in two parts. `groups()`, `points()` and `sizes()` are of the scattered part."""

    def __init__(self, config: HotspotConfig | None = None) -> None:
        self.config = config or HotspotConfig()
        super().__init__(PartitionConfig(self.config.eps), tree=True, alpha=self.config.alpha)

    # -- queries ---------------------------------------------------------------------------------

    def hot_groups(self) -> Groups:
        """The hot groups by their points, ascending."""
        hot = self._state.hot[: int(self._state.counters[kernel.HOT_COUNT])]
        return hot[np.lexsort((hot, self._points_of(hot)))]

    def hot_points(self) -> Codes:
        """A point of each of `hot_groups()`, ascending; two groups may have the same."""
        return self._points_of(self.hot_groups())

    def hot_sizes(self) -> Groups:
        return self._state.groups["members"][self.hot_groups()]

    def is_hot(self, ids: ArrayLike) -> NDArray[np.bool_]:
        """Whether each id is in a hot group."""
        group = self.group_of(ids)
        return (group >= 0) & (self._state.groups["kind"][group] == kernel.HOT)

    @property
    def coverage(self) -> float:
        """The share of intervals in hot groups."""
        return float(self.hot_sizes().sum()) / max(len(self), 1)

    @property
    def crossings(self) -> int:
        """How many times intervals have crossed the border, without insertions and removals."""
        return int(self._state.counters[kernel.CROSSINGS])

    # -- invariants ------------------------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        s, n = self._state, len(self)
        alpha, eps = self.config.alpha, self.config.eps
        hot, scattered = self.hot_groups(), self.groups()
        assert np.all(s.groups["kind"][hot] == kernel.HOT) and len(set(hot.tolist())) == len(hot)
        assert np.all(self.hot_sizes() >= max(alpha / 2 * n, 1)), "(I1) a hot group is too small"
        assert np.all(self.sizes() < alpha * n), "(I1) a scattered group is hot"
        assert len(hot) <= 2 / alpha
        living = s.items[s.items["group"] >= 0]
        tau = canonical(living["low"], living["high"]).tau
        assert len(hot) + len(scattered) <= (1 + eps) * tau + 2 / alpha + 1e-9, "(I2) too many groups"
        assert self.crossings <= 5 * int(s.counters[kernel.UPDATES]), "(I3) too many crossings"
        assert s.largest[1] == self.sizes().max(initial=0)
