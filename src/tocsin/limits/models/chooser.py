"""The model that predicted best of late: by the mean log-likelihood of the last values, with hysteresis.

Numbers and times have a trend, a walk and an AR(1), each over several windows; all keys have counts and
delays; one of the counts fades. Another model takes over only if it is better by 0.01 nat per value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tocsin.limits.models.base import HISTORY, Arrivals, Doubles, ModelBase, Steps
from tocsin.limits.models.delay import Delay
from tocsin.limits.models.markov import Ar1, Walk
from tocsin.limits.models.numeric import Series, refit_interval
from tocsin.limits.models.stationary import Stationary
from tocsin.limits.models.trend import Trend
from tocsin.model.columns import Index

__all__ = ["HYSTERESIS", "WINDOWS", "Chooser"]

WINDOWS = (30, 60, 120, 365, HISTORY)
FADING = 500  # keys that counts which fade remember
HYSTERESIS = 0.01  # nat per value

Candidate = Stationary | Delay | Trend | Walk | Ar1


class Chooser(ModelBase):
    """Fits all models to a stream and scores with the best.

    >>> import numpy as np
    >>> chooser = Chooser()
    >>> steps = np.arange(400.0)
    >>> chooser.observe(Arrivals(np.arange(400), steps + np.arange(400) % 3, steps))
    >>> chooser.name
    'trend over 365'
    """

    def __init__(self, windows: Sequence[int] = WINDOWS, caching: bool = False) -> None:
        self._series, self._windows = Series(), tuple(windows)
        self._counts, self._delay = (Stationary(), Stationary(FADING)), Delay(caching)
        self.models: dict[str, Candidate] = {
            "stationary": self._counts[0],
            f"stationary over {FADING}": self._counts[1],
            "delay": self._delay,
        }
        self.name = "stationary"
        self.most_bytes = math.inf
        """A model that needs more for its scores is not used again; counts score instead."""
        self._too_large: set[str] = set()
        self._count = self._chosen_at = 0

    @property
    def by_age(self) -> bool:  # type: ignore[override]
        return self.chosen.by_age

    @property
    def by_value(self) -> bool:  # type: ignore[override]
        return self.chosen.by_value

    @property
    def chosen(self) -> Candidate:
        return self.models[self.name]

    def observe(self, arrivals: Arrivals) -> None:
        self._count += len(arrivals.keys)
        if arrivals.values is not None:
            if len(self.models) == 3:
                self._add_numeric()
            self._series.extend(arrivals.values)
            for counts in self._counts:
                counts.cells = self._series.cells
        self._delay.keys = self._counts[0].keys
        for model in self.models.values():
            model.observe(arrivals)
        self._series.discard_sums()
        due = self._count - self._count % refit_interval(self._count)
        if due > self._chosen_at:
            self._chosen_at = due
            self._choose()

    def _add_numeric(self) -> None:
        for kind in (Trend, Walk, Ar1):
            for window in self._windows:
                name = f"{kind.__name__.lower()} over {window}"
                self.models[name] = kind(window, self._series)

    def _choose(self) -> None:
        likely = {n: model.likelihood() for n, model in self.models.items() if n not in self._too_large}
        counts = self._counts[0]
        if "delay" in likely and math.isfinite(counts.likelihood_of_followed()):  # judged by those keys alone
            likely["delay"] += counts.likelihood() - counts.likelihood_of_followed()
        best = max(likely, key=likely.__getitem__)
        bar = likely[self.name]
        if likely[best] > (bar + HYSTERESIS if math.isfinite(bar) else bar):
            self.chosen.release()
            self.name = best

    def observe_rows(self, arrivals: Arrivals) -> None:
        for model in self.models.values():
            model.observe_rows(arrivals)

    def likelihood(self) -> float:
        return self.chosen.likelihood()

    def score(self, rows: Steps, q: float, caching: bool) -> Doubles:
        found = self.chosen.score(rows, q, caching)
        if self.name != "stationary" and self.chosen.nbytes > self.most_bytes:
            self._too_large.add(self.name)
            self.chosen.release()
            self.name = "stationary"
            found = self.chosen.score(rows, q, caching)
        return found

    def discard(self, keys: Index) -> None:
        for model in self.models.values():
            model.discard(keys)

    def renumber(self, before: Index) -> None:
        for model in self.models.values():
            model.renumber(before)

    @property
    def nbytes(self) -> int:
        return self._series.nbytes + sum(model.nbytes for model in self.models.values())

    def _check(self) -> None:
        assert self.name in self.models
        for model in self.models.values():
            model._check()
