"""The caching problem: keys are referenced one after the other; which are cached when the budget is full?

    references ─► hits, misses ─► policy.refer ─► over the budget? policy.victims ─► dropped

The keys that are dropped may be those that just came. Joining in bounded memory contains this problem
(`flow.py`: caching_streams); here a cache is run directly, with any policy of `eviction.py`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tocsin.limits.eviction import CachePolicy
from tocsin.limits.models.base import Arrivals, Doubles
from tocsin.model.columns import Index

__all__ = ["Cache"]


class Cache:
    """Keys (dense codes) with sizes under a budget; without sizes, so many keys.

    `slack`: when it is full it drops so much more than it must, which makes dropping rare and cheap.

    >>> from tocsin.limits.eviction import cache_policy
    >>> cache = Cache(2, cache_policy("lru"))
    >>> for step, key in enumerate([0, 1, 0, 2, 0, 1]):
    ...     _ = cache.refer(Arrivals(np.array([key]), None, np.array([float(step)])))
    >>> cache.hits, cache.misses, cache.keys().tolist()
    (2, 4, [0, 1])
    """

    def __init__(self, budget: int, policy: CachePolicy, slack: float = 0.0) -> None:
        self.budget, self.policy, self._slack = budget, policy, slack
        self.hits = self.misses = self.evictions = 0
        self.size = 0
        self._sizes: NDArray[np.int64] = np.zeros(64, np.int64)  # by key; 0: not cached
        self._expires: Doubles = np.full(64, np.inf)
        self._expire = False  # whether any key ever expires

    def __contains__(self, key: int) -> bool:
        return key < len(self._sizes) and self._sizes[key] > 0

    def __len__(self) -> int:
        return len(self.policy)

    def keys(self) -> Index:
        return np.flatnonzero(self._sizes)

    def sizes(self, keys: Index) -> NDArray[np.int64]:
        return self._sizes[keys]

    def missing(self, keys: Index) -> Index:
        """Distinct keys of these that are not cached, in ascending order."""
        self._grow(keys)
        return np.unique(keys[self._sizes[keys] == 0])

    def refer(
        self, references: Arrivals, sizes: NDArray[np.int64] | None = None, expires: float = np.inf
    ) -> Index:
        """References in order; those not cached enter, each with a size or 1. Returns what was dropped."""
        self.enter(references, sizes, expires)
        return self.shrink(float(references.at[-1])) if len(references.keys) else references.keys

    def enter(
        self, references: Arrivals, sizes: NDArray[np.int64] | None = None, expires: float = np.inf
    ) -> None:
        """As `refer`, but nothing is dropped yet."""
        keys = references.keys
        self._grow(keys)
        absent = self.missing(keys)
        self.misses += len(absent)
        self.hits += len(keys) - len(absent)
        if len(absent):
            last = {key: n for n, key in enumerate(keys.tolist())} if sizes is not None else {}
            found = np.ones(len(absent), np.int64)
            if sizes is not None:
                found = sizes[np.array([last[key] for key in absent.tolist()], np.int64)]
            self._sizes[absent] = found
            self._expires[absent] = expires
            self._expire = self._expire or expires < np.inf
            self.size += int(found.sum())
        self.policy.refer(references, self._expires[keys])

    def shrink(self, now: float) -> Index:
        """Drop keys until the rest is within the budget; returns them."""
        if self.size <= self.budget:
            return np.empty(0, np.int64)
        limit = int(self.budget * (1.0 - self._slack))
        gone = self.policy.victims(now, self._sizes, limit)
        self.evictions += len(gone)
        self._leave(gone)
        return gone

    def due(self, now: float) -> Index:
        """Keys that have expired, which are still cached."""
        if not self._expire:
            return np.empty(0, np.int64)
        return np.flatnonzero((self._sizes > 0) & (self._expires <= now))

    def drop(self, keys: Index) -> None:
        """Drop cached keys for another reason than the budget."""
        self.policy.drop(keys)
        self._leave(keys)

    def _leave(self, keys: Index) -> None:
        self.size -= int(self._sizes[keys].sum())
        self._sizes[keys] = 0

    def _grow(self, keys: Index) -> None:
        most = int(keys.max(initial=-1)) + 1
        if most > len(self._sizes):
            more = max(2 * len(self._sizes), most) - len(self._sizes)
            self._sizes = np.concatenate([self._sizes, np.zeros(more, np.int64)])
            self._expires = np.concatenate([self._expires, np.full(more, np.inf)])

    @property
    def nbytes(self) -> int:
        return self._sizes.nbytes + self._expires.nbytes + self.policy.nbytes

    def _check(self) -> None:
        assert self.size == self._sizes.sum() and len(self.policy) == np.count_nonzero(self._sizes)
        assert np.all(self._sizes >= 0)
        self.policy._check()
