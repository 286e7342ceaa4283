"""A sample of recent events: by it is decided where conjunctions hang."""

from __future__ import annotations

from collections import deque

import numpy as np

from tocsin.match.build.cost import Sample
from tocsin.model.columns import Index, distinct
from tocsin.model.texts import TextNumbers
from tocsin.predicate.events import Events

__all__ = ["Samples"]

_PARTS = 64  # batches that the sample is of, at most


class Samples:
    """About `most` recent events, some of each batch; `attributes` are the numbers of an index's names."""

    def __init__(self, most: int, attributes: TextNumbers) -> None:
        self._most, self._attributes = most, attributes
        self._parts: deque[Sample] = deque()
        self._count = 0
        self._turn = -1

    def __len__(self) -> int:
        return self._count

    def remember(self, events: Events, numbers: Index) -> None:
        """Keep some of the events."""
        self._turn += 1
        if not events.count or (events.count < 8 and self._turn % 16):  # of single events, every 16th
            return
        most = max(1, self._most // 8)
        chosen = distinct(np.linspace(0, events.count - 1, min(most, events.count)).astype(np.int64))
        self._parts.append(Sample(events.take(chosen), numbers))
        self._count += len(chosen)
        while len(self._parts) > 1 and (
            len(self._parts) > _PARTS or self._count - self._parts[0].events.count >= self._most
        ):
            self._count -= self._parts.popleft().events.count

    def now(self) -> list[Sample]:
        """The sample; filters may have named attributes since that they did not name then."""
        for i, sample in enumerate(self._parts):
            unknown = np.flatnonzero(sample.numbers < 0)
            if len(unknown):
                numbers = sample.numbers.copy()  # another thread may build by the one that was
                numbers[unknown] = self._attributes.find([sample.events.names[k] for k in unknown.tolist()])
                self._parts[i] = sample._replace(numbers=numbers)
        return list(self._parts)
