"""Cost of a change under subscriptions with several ranges: what varies, and the order of writing.

For each shape (MIN, COUNT, top-k, DISTINCT) the same changes under

    one range     a BETWEEN :p AND :q                                   the measure
    of texts      e BETWEEN :p AND :q                                   the same ranges, written as texts
    one varies    a BETWEEN :p AND :q, b BETWEEN 200 AND 800, c = 'x'   in every order of writing
    both vary     a BETWEEN :p AND :q, b BETWEEN :r AND :s, c = 'x'     in every order of writing

Before a time counts, contents of a few subscriptions, accumulated from deltas, are compared with the
reference. `ratio` is the time per change, divided by that of one range.

>>> [case.where for case in cases()][:2]
['a BETWEEN :p AND :q', 'e BETWEEN :p AND :q']
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from tocsin.client import Client
from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.reference import as_bag, evaluate

__all__ = ["SHAPES", "Case", "RangeResult", "RangeSetting", "cases", "measure_ranges", "show_results"]

DDL = """CREATE TABLE t (k BIGINT, a DOUBLE, b DOUBLE, c STRING, d DOUBLE, e STRING, v BIGINT,
                         PRIMARY KEY (k))"""
SHAPES = {
    "min": "SELECT MIN(d) AS m FROM t WHERE {}",
    "count": "SELECT COUNT(*) AS n FROM t WHERE {}",
    "topk": "SELECT k, d FROM t WHERE {} ORDER BY d LIMIT 5",
    "distinct": "SELECT DISTINCT v FROM t WHERE {}",
}
SPAN, WIDTH = 1000.0, 100.0  # of attributes; the widest range of a subscription
SAMPLE = 5  # subscriptions whose contents are compared
ONE, OF_TEXTS, ONE_OF_TWO, BOTH = "one range", "of texts", "one varies", "both vary"

Say = Callable[[str], None]


class Case(NamedTuple):
    """What varies, and the condition as it is written."""

    varies: str
    where: str


@dataclass(frozen=True)
class RangeSetting:
    """Sizes; `texts`: subscribe to SQL texts instead of a template."""

    subscriptions: int = 100_000
    rows: int = 20_000
    changes: int = 1000
    batch: int = 100
    repeat: int = 3
    texts: bool = False
    seed: int = 0


@dataclass(frozen=True)
class RangeResult:
    """One case of one shape; times are per change."""

    shape: str
    varies: str
    where: str
    family: str
    us_per_change: float
    ratio: float
    deltas_per_change: float
    checked: int


def cases() -> Iterator[Case]:
    """One range, of numbers and of texts; then two and an equality in every order."""
    yield Case(ONE, "a BETWEEN :p AND :q")
    yield Case(OF_TEXTS, "e BETWEEN :p AND :q")
    for varies, other in ((ONE_OF_TWO, "b BETWEEN 200 AND 800"), (BOTH, "b BETWEEN :r AND :s")):
        for order in permutations(["a BETWEEN :p AND :q", other, "c = 'x'"]):
            yield Case(varies, " AND ".join(order))


def measure_ranges(
    shapes: Sequence[str], setting: RangeSetting, say: Say = lambda _: None
) -> list[RangeResult]:
    """Measure the named shapes, or all."""
    for shape in shapes:
        if shape not in SHAPES:
            raise UsageError(f"there is no shape {shape!r}", hint=f"one of {', '.join(SHAPES)}")
    results = []
    for shape in shapes or SHAPES:
        measure = 0.0
        for case in cases():
            say(f"{shape}: {case.where}")
            found = _measure(shape, case, setting)
            measure = measure or found.us_per_change
            results.append(RangeResult(**asdict(found) | {"ratio": found.us_per_change / measure}))
    return results


def _measure(shape: str, case: Case, setting: RangeSetting) -> RangeResult:
    """Subscribe, check a sample over one batch, then time the others; the best of `repeat` counts."""
    draw = np.random.default_rng(setting.seed)
    engine = Engine()
    engine.execute(DDL)
    engine.apply("t", _rows(draw, np.arange(setting.rows)))
    ids = _subscribe(engine, SHAPES[shape].format(case.where), draw, setting)
    batches = max(2, -(-setting.changes // setting.batch))
    _apply(engine, draw, setting)  # compiles
    _check(engine, draw, setting, ids)
    best, deltas = np.inf, 0
    for _ in range(setting.repeat):
        found = [_apply(engine, draw, setting) for _ in range(batches)]
        best = min(best, sum(seconds for _, seconds in found))
        deltas += sum(count for count, _ in found)
    changes = batches * setting.batch
    (family, *_) = engine.stats()["rank"]["families"] or [{"family": "scan"}]
    us, per_change = best / changes * 1e6, deltas / changes / setting.repeat
    return RangeResult(
        shape, case.varies, case.where, family["family"], us, 1.0, per_change, min(SAMPLE, len(ids))
    )


def _rows(draw: np.random.Generator, keys: Any) -> pa.Table:
    count = len(keys)
    a = draw.random(count) * SPAN
    return pa.table(
        {
            "k": keys,
            "a": a,
            "b": draw.random(count) * SPAN,
            "c": np.array(["x", "y"])[draw.integers(0, 2, count)],
            "d": draw.random(count) * 1e6,
            "e": _as_texts(a),
            "v": draw.integers(0, 50, count),
        }
    )


def _as_texts(numbers: Any) -> list[str]:
    """Texts in the order of the numbers."""
    return [f"{number:010.5f}" for number in numbers.tolist()]


def _subscribe(engine: Engine, text: str, draw: np.random.Generator, setting: RangeSetting) -> list[int]:
    count = setting.subscriptions
    begin, width = draw.random((2, count)) * SPAN, draw.random((2, count)) * WIDTH
    params = {"p": begin[0], "q": begin[0] + width[0], "r": begin[1], "s": begin[1] + width[1]}
    used: dict[str, Any] = {name: values for name, values in params.items() if f":{name}" in text}
    if "e BETWEEN" in text:
        used = {name: np.array(_as_texts(values), object) for name, values in used.items()}
    if not setting.texts:
        return engine.subscribe_many(text, pa.table({"id": np.arange(1, count + 1), **used})).tolist()
    for name in used:
        text = text.replace(f":{name}", f"{{{name}}}")
    rows = zip(*(values.tolist() for values in used.values()), strict=True)
    written = ([f"'{value}'" if isinstance(value, str) else value for value in row] for row in rows)
    return engine.subscribe_texts(
        [text.format(**dict(zip(used, row, strict=True))) for row in written]
    ).tolist()


def _apply(engine: Engine, draw: np.random.Generator, setting: RangeSetting) -> tuple[int, float]:
    """Update one batch of rows: how many deltas, and how long it took."""
    changes = _changes(draw, setting)
    began = time.perf_counter()
    deltas = engine.apply("t", changes)
    return len(deltas), time.perf_counter() - began


def _changes(draw: np.random.Generator, setting: RangeSetting) -> pa.Table:
    keys = draw.choice(setting.rows, min(setting.batch, setting.rows), replace=False)
    return _rows(draw, keys).append_column("_op", pa.array(["update"] * len(keys)))


def _check(engine: Engine, draw: np.random.Generator, setting: RangeSetting, ids: list[int]) -> None:
    """Compare contents accumulated from the deltas of a batch with the reference."""
    sample = draw.choice(ids, min(SAMPLE, len(ids)), replace=False)
    client = Client()
    for number in sample.tolist():
        client.start(number, engine.content(number))
    deltas = engine.apply("t", _changes(draw, setting))
    client.receive(deltas.take(np.isin(deltas.subscription, sample)))
    database = {"t": engine.rows("t").to_pylist()}
    for number in sample.tolist():
        answer = evaluate(engine.query(number), database, {"t": ("k",)})
        if as_bag(client.content(number)) != as_bag(answer):
            raise TocsinError(f"subscription {number} has wrong contents: {engine.query(number)}")


def show_results(results: Sequence[RangeResult], console: Console) -> None:
    """Print a table: per change, the fastest and the slowest order of writing."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("shape", "varies", "family", "µs", "slowest", "ratio", "deltas", "checked"):
        left = name in ("shape", "varies", "family")
        table.add_column(name, justify="left" if left else "right", no_wrap=True)
    for shape, varies in dict.fromkeys((r.shape, r.varies) for r in results):
        mine = [r for r in results if (r.shape, r.varies) == (shape, varies)]
        worst = max(mine, key=lambda r: r.us_per_change)
        families = ", ".join(dict.fromkeys(r.family for r in mine))
        table.add_row(
            shape, varies, families, f"{min(r.us_per_change for r in mine):,.1f}",
            f"{worst.us_per_change:,.1f}", f"{worst.ratio:.2f}", f"{worst.deltas_per_change:,.1f}",
            f"{min(r.checked for r in mine)}",
        )  # fmt: skip
    console.print(table)
