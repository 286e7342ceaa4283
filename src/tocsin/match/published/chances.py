"""How likely an event is to satisfy an equality: nu(p) of F01.

Counted from the events that came by, with a prior for what has been seen too rarely:

    prior(a = v) = P(a is there) / distinct values that filters ask of a
    nu(a = v)    = (hits + weight * prior) / (events since the predicate came + weight)

P(a is there) is counted from events; before there are any, it is the share of conjunctions that name a.
After `window` events all counts are halved, so that old events are forgotten.

F01 leaves this to "an independent tool" (section 4); conjunctions are taken as independent.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tocsin.match.published._kernels.predicates import EQUAL
from tocsin.match.published.predicates import Numbers, Predicates, roomier

__all__ = ["Chance", "ChanceConfig"]


@dataclass(frozen=True)
class ChanceConfig:
    weight: float = 16.0  # events that the prior is worth
    window: int = 2**15  # events after which counts are halved


class Chance:
    """Chances of equality predicates, by number; other predicates have none."""

    def __init__(self, config: ChanceConfig) -> None:
        self._config = config
        self.of = np.zeros(0)  # by predicate
        self.hits = np.zeros(0)  # by predicate: events that satisfied it
        self.present = np.zeros(0)  # by dimension: events that had it
        self.events = 0.0
        self._since = np.zeros(0)  # by predicate: events before it came
        self._values = np.zeros(0)  # by dimension: distinct equalities
        self._named = np.zeros(0)  # by dimension: equalities of conjunctions
        self._conjunctions = 0
        self._fresh_at = 0.0  # events at the last refresh

    def add(self, predicates: Predicates, fresh: Numbers, equalities: Numbers, conjunctions: int) -> None:
        """Conjunctions have come, with these equalities; `fresh` are predicates that are new."""
        room = len(predicates.arrays.group)
        self.of, self.hits, self._since = (roomier(a, room) for a in (self.of, self.hits, self._since))
        dims = 1 + int(predicates.arrays.group[fresh].max(initial=-1)) // 8
        self.present, self._values, self._named = (
            roomier(a, dims) for a in (self.present, self._values, self._named)
        )
        self.hits[fresh], self._since[fresh] = 0.0, self.events
        group = predicates.arrays.group[fresh]
        self._values += np.bincount(group[(group & 7) == EQUAL] >> 3, minlength=len(self._values))
        self._name(predicates, equalities, conjunctions, 1)
        self.of[equalities] = self._chances(predicates, equalities)

    def remove(self, predicates: Predicates, equalities: Numbers, conjunctions: int) -> None:
        self._name(predicates, equalities, conjunctions, -1)

    def saw(self, events: int) -> None:
        """So many events have been counted in `hits` and `present`."""
        self.events += events
        while self.events > self._config.window:
            self.events /= 2
            self._fresh_at /= 2
            for counts in (self.hits, self.present, self._since):
                counts /= 2

    def due(self) -> bool:
        """Are there as many new events as there were at the last refresh, or half a window of them?"""
        enough = min(max(64.0, self._fresh_at), self._config.window / 2)
        return self.events - self._fresh_at >= enough

    def refresh(self, predicates: Predicates) -> None:
        """All chances by what is known now."""
        equalities = np.flatnonzero(
            (predicates.arrays.uses[: predicates.used] > 0)
            & ((predicates.arrays.group[: predicates.used] & 7) == EQUAL)
        ).astype(np.int32)
        dims = predicates.arrays.group[equalities] >> 3
        self._values = np.bincount(dims, minlength=len(self._values)).astype(np.float64)
        self.of[equalities] = self._chances(predicates, equalities)
        self._fresh_at = self.events

    def values(self) -> NDArray[np.float64]:
        """Distinct equalities by dimension."""
        return np.maximum(self._values, 1.0)

    def presence(self) -> NDArray[np.float64]:
        """The probability that a dimension is there."""
        share = np.minimum(self._named / max(1, self._conjunctions), 1.0)
        weight = self._config.weight
        return (self.present + weight * share) / (self.events + weight)

    def _chances(self, predicates: Predicates, equalities: Numbers) -> NDArray[np.float64]:
        weight = self._config.weight
        prior = (self.presence() / self.values())[predicates.arrays.group[equalities] >> 3]
        since = self.events - self._since[equalities]
        return np.minimum((self.hits[equalities] + weight * prior) / (since + weight), 1.0)

    def _name(self, predicates: Predicates, equalities: Numbers, conjunctions: int, sign: int) -> None:
        dims = predicates.arrays.group[equalities] >> 3
        self._named += sign * np.bincount(dims, minlength=len(self._named))
        self._conjunctions += sign * conjunctions
