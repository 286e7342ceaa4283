"""REAL: the daily maximum temperatures of Melbourne, 1981-1990, as references to a cache of values."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from tocsin.errors import UsageError
from tocsin.limits.cache import Cache, CachePolicy, Lfd, Scored, cache_policy
from tocsin.limits.models import Ar1, Ar1Law, Arrivals
from tocsin.limits.models.base import Doubles
from tocsin.limits.scores import Heeb
from tocsin.model.columns import Index

__all__ = ["REAL_POLICIES", "cache_hits", "fitted", "keys_of", "read_temperatures"]

_DEGREE = 10  # values are tenths of a degree


def read_temperatures(path: Path) -> Doubles:
    """A header, then one number per line; of several columns, the last."""
    try:
        lines = path.read_text("utf-8").split()[1:]
        values = np.array([float(line.split(",")[-1].strip('"')) for line in lines])
    except ValueError as error:
        raise UsageError(f"{path} has a line that is no number: {error}", hint="one per line") from None
    if len(values) < 100:
        raise UsageError(f"{path} has {len(values)} values", hint="3650 daily temperatures, below a header")
    return values


def keys_of(values: Doubles) -> Index:
    found = np.rint(values * _DEGREE).astype(np.int64)
    return found - found.min()


def fitted(values: Doubles) -> Ar1Law:
    """AR(1) on the whole series, as in the thesis: it knows what is to come.

    >>> fitted(np.array([1.0, 2.0, 1.0, 2.0, 1.5, 1.0])).width
    0.1
    """
    z, y = values[:-1], values[1:]
    phi = float(np.cov(z, y, bias=True)[0, 1] / z.var())
    level = float(y.mean() - phi * z.mean())
    return Ar1Law(level / (1.0 - phi), phi, float((y - level - phi * z).std()), 1.0 / _DEGREE)


def _fixed(values: Doubles) -> CachePolicy:
    law = fitted(values)
    return Scored(Heeb(caching=True, model=lambda side: Ar1(law=law)))


REAL_POLICIES: dict[str, Callable[[Doubles], CachePolicy]] = {
    "LFD": lambda values: Lfd(keys_of(values).tolist()),
    "HEEB": lambda values: cache_policy("heeb"),
    "HEEB, fixed fit": _fixed,
    "LRU": lambda values: cache_policy("lru"),
    "LFU": lambda values: cache_policy("lfu"),
    "RAND": lambda values: cache_policy("rand"),
    "ARC": lambda values: cache_policy("arc"),
    "S3-FIFO": lambda values: cache_policy("s3-fifo"),
}


def cache_hits(values: Doubles, slots: int, policy: CachePolicy) -> int:
    """Hits of a cache of so many values, reference by reference."""
    cache, keys = Cache(slots, policy), keys_of(values)
    for step in range(len(keys)):
        one = slice(step, step + 1)
        cache.refer(Arrivals(keys[one], values[one], np.full(1, float(step))))
    return cache.hits
