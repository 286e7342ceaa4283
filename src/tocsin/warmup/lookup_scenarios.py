"""Rehearsals of lookups and of the models that caches and bounded joins learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.limits.cache import CACHE_POLICIES
from tocsin.limits.models import Arrivals, Chooser, Steps

__all__ = ["rehearse_lookups"]


def rehearse_lookups() -> None:
    """Caches of texts and numbers under every policy, and a score by every model."""
    for policy in CACHE_POLICIES:
        engine = Engine()
        engine.execute(
            "CREATE STREAM s (k BIGINT, t STRING); CREATE TABLE n (k BIGINT PRIMARY KEY, x DOUBLE)"
        )
        engine.execute("CREATE TABLE u (t STRING PRIMARY KEY, y STRING)")
        engine.lookup("n", _numbers, key="k", memory=50, policy=policy)
        engine.lookup("u", _texts, key="t", memory=50, policy=policy)
        engine.subscribe("SELECT n.x FROM s JOIN n ON s.k = n.k WHERE n.x > 3")
        engine.subscribe("SELECT u.y FROM s JOIN u ON s.t = u.t")
        rng = np.random.default_rng(0)
        for _ in range(6):
            keys = rng.zipf(1.3, 100) % 300
            engine.apply("s", pa.table({"k": keys, "t": [f"text {key}" for key in keys]}))
        engine.publish("s", {"k": 5, "t": "text"})
    _models()


def _numbers(keys: list[int]) -> list[dict[str, Any]]:
    return [{"k": key, "x": float(key)} for key in keys]


def _texts(keys: list[str]) -> Any:
    return pa.table({"t": keys, "y": keys})


def _models() -> None:
    rng = np.random.default_rng(0)
    values = np.rint(np.cumsum(rng.normal(1.0, 3.0, 400)))
    keys = (values - values.min()).astype(np.int64)
    for caching in (False, True):
        chooser = Chooser(caching=caching)
        for begin in range(0, 400, 50):
            some = slice(begin, begin + 50)
            chooser.observe_rows(Arrivals(keys[some], values[some], np.zeros(50)))
            chooser.observe(Arrivals(keys[some], values[some], np.zeros(50)))
        chooser.observe(Arrivals(keys[:1], values[:1], np.zeros(1)))
        for size in (300, 2000):
            near = np.resize(values, size)
            left = np.where(np.arange(size) % 2, np.inf, 50.0)
            rows = Steps(np.resize(keys, size), near, np.arange(size, dtype=np.float64), left)
            for model in chooser.models.values():
                model.score(rows, 0.9, caching)
        chooser.discard(keys[:20])
