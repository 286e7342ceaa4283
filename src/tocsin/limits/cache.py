"""The caching problem: keys are referenced one after the other; which are cached when the budget is full?

    references ─► hits, misses ─► policy.refer ─► over the budget? policy.victims ─► dropped

A policy is any score (`scores/`), S3-FIFO, ARC, or LFD, which knows the future. The keys that are dropped may
be those that just came. Joining in bounded memory contains this problem (`flow.py`: caching_streams); here a
cache is run directly. Keys are dense codes.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator, Sequence
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from tocsin.errors import UsageError
from tocsin.limits.models.base import Arrivals, Doubles, KeptRows
from tocsin.limits.models.stationary import grown
from tocsin.limits.scores import JOIN_POLICIES, Score, score_of
from tocsin.model.columns import Index

__all__ = ["CACHE_POLICIES", "Arc", "Cache", "CachePolicy", "Lfd", "S3Fifo", "Scored", "cache_policy"]

_FRESH = 2**40  # larger than any number of entries


class CachePolicy(Protocol):
    """Keys that are cached, in the order in which they would leave."""

    name: ClassVar[str]

    def refer(self, references: Arrivals, expires: Doubles) -> None:
        """References in order; keys that were not cached are from now on. `expires`: when each does."""
        ...

    def victims(self, now: float, sizes: NDArray[np.int64], limit: int) -> Index:
        """Drops keys until the sizes (by code) of those that stay are within the limit; returns them."""
        ...

    def drop(self, keys: Index) -> None:
        """These keys left for another reason (they expired)."""
        ...

    def __len__(self) -> int: ...

    @property
    def nbytes(self) -> int: ...

    def _check(self) -> None: ...


class Scored:
    """Drops the keys with the lowest scores; a score that is a benefit counts per byte.

    >>> policy = Scored(score_of("lru", caching=True))
    >>> policy.refer(Arrivals(np.array([0, 1, 0]), None, np.arange(3.0)), np.full(3, np.inf))
    >>> policy.victims(3.0, np.ones(2, np.int64), 1)
    array([1])
    """

    name: ClassVar[str] = "scored"

    def __init__(self, score: Score) -> None:
        self.score = score
        self._at: Doubles = np.full(64, -np.inf)  # last reference, by code; -inf: not cached
        self._expires: Doubles = np.full(64, np.inf)
        self._values: Doubles | None = None
        self._count = 0

    def refer(self, references: Arrivals, expires: Doubles) -> None:
        keys = references.keys
        self._at = grown(self._at, keys, -np.inf)
        self._expires = grown(self._expires, keys, np.inf)
        new = np.unique(keys[np.isneginf(self._at[keys])])
        self._count += len(new)
        self._at[keys] = references.at
        self._expires[keys] = expires
        if references.values is not None:
            self._values = grown(np.zeros(64) if self._values is None else self._values, keys)
            self._values[keys] = references.values
        self.score.seen(0, references)

    def victims(self, now: float, sizes: NDArray[np.int64], limit: int) -> Index:
        keys = np.flatnonzero(~np.isneginf(self._at))
        total = int(sizes[keys].sum())
        if total <= limit:
            return keys[:0]
        values = None if self._values is None else self._values[keys]
        rows = KeptRows(keys, values, self._at[keys], self._expires[keys] - now)
        found = self.score(0, rows, now, self._count)
        if self.score.is_benefit:
            found = found / sizes[keys]
        order = np.argsort(found, kind="stable")
        freed = np.cumsum(sizes[keys[order]])
        out = keys[order[: int(np.searchsorted(freed, total - limit)) + 1]]
        self.drop(out)
        return out

    def drop(self, keys: Index) -> None:
        self._count -= int(np.count_nonzero(~np.isneginf(self._at[keys])))
        self._at[keys] = -np.inf

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        values = 0 if self._values is None else self._values.nbytes
        return self._at.nbytes + self._expires.nbytes + values + self.score.nbytes

    def _check(self) -> None:
        assert self._count == np.count_nonzero(~np.isneginf(self._at))
        self.score._check()


class _Queued:
    """Policies that keep queues of keys."""

    name: ClassVar[str] = ""

    def refer(self, references: Arrivals, expires: Doubles) -> None:
        for key in references.keys.tolist():
            self._refer(key)

    def victims(self, now: float, sizes: NDArray[np.int64], limit: int) -> Index:
        keys = np.fromiter(self._cached(), np.int64, len(self))
        excess = int(sizes[keys].sum()) - limit
        out: list[int] = []
        if excess > 0:
            self._expect(limit, float(sizes[keys].mean()))
        while excess > 0 and len(self):
            out.append(self._victim())
            excess -= int(sizes[out[-1]])
        return np.array(out, np.int64)

    def _refer(self, key: int) -> None:
        raise AssertionError

    def _cached(self) -> Iterator[int]:
        raise AssertionError

    def _victim(self) -> int:
        raise AssertionError

    def _expect(self, limit: int, mean: float) -> None:
        """About so many entries of this mean size fit."""

    def __len__(self) -> int:
        raise AssertionError


class S3Fifo(_Queued):
    """S3-FIFO: a small queue on probation, a main one, and a ghost of what left the small one.

    >>> policy = S3Fifo()
    >>> policy.refer(Arrivals(np.array([0, 1, 0, 0, 2]), None, np.zeros(5)), np.full(5, np.inf))
    >>> policy.victims(0.0, np.ones(3, np.int64), 2)
    array([1])
    """

    name: ClassVar[str] = "s3-fifo"

    def __init__(self) -> None:
        self._small: deque[int] = deque()
        self._main: deque[int] = deque()
        self._uses: dict[int, int] = {}  # by cached key
        self._ghost: OrderedDict[int, None] = OrderedDict()
        self._capacity, self._target = _FRESH, 1

    def _expect(self, limit: int, mean: float) -> None:
        self._capacity = max(1, int(limit / max(1.0, mean)))
        self._target = max(1, self._capacity // 10)

    def _refer(self, key: int) -> None:
        if key in self._uses:
            self._uses[key] = min(3, self._uses[key] + 1)
            return
        self._uses[key] = 0
        if key in self._ghost:
            del self._ghost[key]
            self._main.append(key)
        else:
            self._small.append(key)

    def _victim(self) -> int:
        while True:
            if self._small and (len(self._small) > self._target or not self._main):
                key = self._small.popleft()
                if key not in self._uses:
                    continue
                if self._uses[key] > 1:
                    self._uses[key] = 0
                    self._main.append(key)
                    continue
                del self._uses[key]
                self._ghost[key] = None
                while len(self._ghost) > self._capacity:
                    self._ghost.popitem(last=False)
                return key
            key = self._main.popleft()
            if key not in self._uses:
                continue
            if self._uses[key] > 0:
                self._uses[key] -= 1
                self._main.append(key)
                continue
            del self._uses[key]
            return key

    def _cached(self) -> Iterator[int]:
        return iter(self._uses)

    def drop(self, keys: Index) -> None:
        gone = {key for key in keys.tolist() if self._uses.pop(key, None) is not None}
        self._small = deque(key for key in self._small if key not in gone)
        self._main = deque(key for key in self._main if key not in gone)

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def nbytes(self) -> int:
        return 150 * len(self._uses) + 120 * len(self._ghost)

    def _check(self) -> None:
        assert sorted([*self._small, *self._main]) == sorted(self._uses)
        assert not self._uses.keys() & self._ghost.keys()


class Arc(_Queued):
    """ARC: what came once, what came more often, a ghost of each; the ghosts' hits move the border.

    >>> policy = Arc()
    >>> policy.refer(Arrivals(np.array([0, 1, 0, 2]), None, np.zeros(4)), np.full(4, np.inf))
    >>> policy.victims(0.0, np.ones(3, np.int64), 2)
    array([1])
    """

    name: ClassVar[str] = "arc"

    def __init__(self) -> None:
        self._once: OrderedDict[int, None] = OrderedDict()
        self._often: OrderedDict[int, None] = OrderedDict()
        self._ghost_once: OrderedDict[int, None] = OrderedDict()
        self._ghost_often: OrderedDict[int, None] = OrderedDict()
        self._border, self._capacity = 0, _FRESH
        self._new, self._from_ghost = 0, False  # about the last reference that was no hit

    def _expect(self, limit: int, mean: float) -> None:
        self._capacity = max(1, int(limit / max(1.0, mean)))
        self._border = min(self._border, self._capacity)

    def _refer(self, key: int) -> None:
        if key in self._once:
            del self._once[key]
            self._often[key] = None
        elif key in self._often:
            self._often.move_to_end(key)
        elif key in self._ghost_once:
            step = max(1, len(self._ghost_often) // len(self._ghost_once))
            self._border = min(self._capacity, self._border + step)
            del self._ghost_once[key]
            self._often[key] = None
            self._new, self._from_ghost = 0, False
        elif key in self._ghost_often:
            self._border = max(0, self._border - max(1, len(self._ghost_once) // len(self._ghost_often)))
            del self._ghost_often[key]
            self._often[key] = None
            self._new, self._from_ghost = 0, True
        else:
            self._once[key] = None
            self._new, self._from_ghost = 1, False

    def _victim(self) -> int:
        once = len(self._once) - self._new  # as it was before the newcomer
        if once > 0 and (
            once > self._border or (self._from_ghost and once == self._border) or not self._often
        ):
            queue, ghost = self._once, self._ghost_once
        elif len(self._often):
            queue, ghost = self._often, self._ghost_often
        else:
            queue, ghost = self._once, self._ghost_once
        key, _ = queue.popitem(last=False)
        ghost[key] = None
        while len(self._once) + len(self._ghost_once) > self._capacity and self._ghost_once:
            self._ghost_once.popitem(last=False)
        most = 2 * self._capacity - len(self) - len(self._ghost_once)
        while self._ghost_often and len(self._ghost_often) > most:
            self._ghost_often.popitem(last=False)
        return key

    def _cached(self) -> Iterator[int]:
        yield from self._once
        yield from self._often

    def drop(self, keys: Index) -> None:
        for key in keys.tolist():
            self._once.pop(key, None)
            self._often.pop(key, None)

    def __len__(self) -> int:
        return len(self._once) + len(self._often)

    @property
    def nbytes(self) -> int:
        return 120 * (len(self) + len(self._ghost_once) + len(self._ghost_often))

    def _check(self) -> None:
        queues = (self._once, self._often, self._ghost_once, self._ghost_often)
        assert len(set().union(*queues)) == sum(len(queue) for queue in queues)
        assert 0 <= self._border <= self._capacity


class Lfd(_Queued):
    """LFD knows the references to come: it drops the key that is referenced the farthest from now, or never.

    >>> policy = Lfd([0, 1, 2, 0])
    >>> policy.refer(Arrivals(np.array([0, 1, 2]), None, np.zeros(3)), np.full(3, np.inf))
    >>> policy.victims(0.0, np.ones(3, np.int64), 1)
    array([1, 2])
    """

    name: ClassVar[str] = "lfd"

    def __init__(self, references: Sequence[int]) -> None:
        self._following: list[float] = [math.inf] * len(references)
        latest: dict[Hashable, int] = {}
        for time in range(len(references) - 1, -1, -1):
            self._following[time] = latest.get(references[time], math.inf)
            latest[references[time]] = time
        self._next: dict[int, float] = {}
        self._count = 0

    def _refer(self, key: int) -> None:
        self._next[key] = self._following[self._count]
        self._count += 1

    def _victim(self) -> int:
        key = max(self._next, key=self._next.__getitem__)
        del self._next[key]
        return key

    def _cached(self) -> Iterator[int]:
        return iter(self._next)

    def drop(self, keys: Index) -> None:
        for key in keys.tolist():
            self._next.pop(key, None)

    def __len__(self) -> int:
        return len(self._next)

    @property
    def nbytes(self) -> int:
        return 120 * len(self._next)

    def _check(self) -> None:
        assert self._count <= len(self._following)


CACHE_POLICIES = (*(name for name in JOIN_POLICIES if name != "life"), "s3-fifo", "arc")
"""Policies of caches by name: LIFE needs rows that expire, LFD the future."""


def cache_policy(policy: str, seed: int = 0) -> CachePolicy:
    """The policy of a name.

    >>> cache_policy("arc").name, cache_policy("heeb").score.name
    ('arc', 'heeb')
    >>> cache_policy("lfd")
    Traceback (most recent call last):
    ...
    tocsin.errors.UsageError: the policy 'lfd' is not for caches: it knows the future
    hint: one of heeb, prob, rand, lru, lfu, fifo, s3-fifo, arc
    """
    if policy in CACHE_POLICIES:
        queued: dict[str, type[_Queued]] = {S3Fifo.name: S3Fifo, Arc.name: Arc}
        if policy in queued:
            return queued[policy]()  # type: ignore[return-value]
        return Scored(score_of(policy, caching=True, seed=seed))
    fact = f"there is no policy {policy!r}"
    if policy == Lfd.name:
        fact = "the policy 'lfd' is not for caches: it knows the future"
    elif policy == "life":
        fact = "the policy 'life' is for joins: it needs rows that expire"
    raise UsageError(fact, hint=f"one of {', '.join(CACHE_POLICIES)}")


class Cache:
    """Keys (dense codes) with sizes under a budget; without sizes, so many keys.

    `slack`: when it is full it drops so much more than it must, which makes dropping rare and cheap.

    >>> from tocsin.limits.cache import cache_policy
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
