"""How a pipeline scales out: the processor time of each shard as the number of shards grows.

    changes ─ route ─► table shards 0..n-1 ─► query shards 0..n-1 ─► deltas
              1/n each  the slowest counts     the slowest counts

The shards of a pipeline run here one after the other, in this process, with the same messages and states as
in Spark, and the processor time of each is measured. With a core for each of n shards, a batch would take as
long as the slowest task of each stage in turn: the rate that this allows is reported. Left out are Spark's
own cost of a micro-batch (`tocsin bench spark` has it), shuffles, and what sinks do.

Each number of shards is run twice, and the faster run counts: the first one may compile kernels. Before a
rate is reported, the deltas of each run are compared with the engine's: their number, and the contents of a
sample of subscriptions.

    filter     x BETWEEN :l AND :h                  over o(id, x, y, v, k)
    topk       the same ORDER BY y LIMIT 10
    min        SELECT MIN(y) ...                    aggregate   SELECT COUNT(*), SUM(v) ...
    distinct   SELECT DISTINCT k ...
    join       r JOIN s USING (k), and a range of each side
    band       s.p - r.p BETWEEN :b AND :t, likewise

Everything is drawn by the seed. An update of `o` moves one object in ten along x.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.model.json_rows import row_json
from tocsin.spark.hosting.engines import LiveShards
from tocsin.spark.spark_hash import name_of
from tocsin.spark.stages.deliver import DELTA_SCHEMA, open_all
from tocsin.spark.stages.route import route
from tocsin.spark.stages.steps import Layout, PipelinePaths, ShardMessageKind, ShardStep, StateMeta
from tocsin.spark.stages.wire import CHANGES
from tocsin.spark.versions.batch import Pin
from tocsin.spark.versions.blocks import SubscriptionBlock, template_block
from tocsin.spark.versions.store import Versions

__all__ = ["SHAPES", "SHARDS", "ScaleSetting", "measure_scale", "plot_scale", "show_scale"]

Say = Callable[[str], None]
Changes = list[tuple[str, str, dict[str, Any]]]  # table, op, row
Rates = dict[str, dict[str, float]]  # by shape, then by number of shards

SHARDS = (1, 4, 16)
ROWS, KEYS = 10_000, 5000
SAMPLE = 200  # subscriptions whose contents are compared
O = "CREATE TABLE o (id BIGINT, x DOUBLE, y DOUBLE, v BIGINT, k BIGINT, PRIMARY KEY (id))"  # noqa: E741
RS = (
    "CREATE TABLE r (id BIGINT, k BIGINT, p DOUBLE, a DOUBLE, PRIMARY KEY (id)); "
    "CREATE TABLE s (id BIGINT, k BIGINT, p DOUBLE, c DOUBLE, PRIMARY KEY (id))"
)
RANGE = "FROM o WHERE x BETWEEN :l AND :h"
SIDES = "WHERE a BETWEEN :l AND :h AND c BETWEEN :m AND :n"
SHAPES: Mapping[str, str] = {
    "filter": f"SELECT id, y {RANGE}",
    "join": f"SELECT r.id AS i, s.id AS j FROM r JOIN s USING (k) {SIDES}",
    "topk": f"SELECT id, y {RANGE} ORDER BY y LIMIT 10",
    "min": f"SELECT MIN(y) AS least {RANGE}",
    "aggregate": f"SELECT COUNT(*) AS n, SUM(v) AS total {RANGE}",
    "distinct": f"SELECT DISTINCT k {RANGE}",
    "band": f"SELECT r.id AS i, s.id AS j FROM r JOIN s ON s.p - r.p BETWEEN :b AND :t {SIDES}",
}
BARS = {"filter": 10.0, "join": 10.0, "topk": 10.0}
OTHERS = 6.0


@dataclass(frozen=True)
class ScaleSetting:
    """Parameters of the experiment."""

    shapes: tuple[str, ...] = tuple(SHAPES)
    shards: tuple[int, ...] = SHARDS
    subscriptions: int = 100_000
    changes: int = 100_000
    batch: int = 20_000
    seed: int = 0
    repeat: int = 2

    @property
    def batches(self) -> int:
        return max(1, self.changes // self.batch)


@dataclass(frozen=True)
class ScaleWorkload:
    """Definitions, subscriptions, and changes by batch; the first batch loads the tables."""

    ddl: str
    subscriptions: SubscriptionBlock
    batches: list[Changes]


def measure_scale(setting: ScaleSetting, say: Say = lambda _: None) -> Rates:
    """Changes per second by shape and number of shards; raises if answers differ from the engine's."""
    unknown = [shape for shape in setting.shapes if shape not in SHAPES]
    if unknown:
        raise UsageError(f"there is no shape {unknown[0]!r}", hint=f"one of {', '.join(SHAPES)}")
    rates: Rates = {}
    for shape in setting.shapes:
        work = workload(setting, shape)
        say(f"{shape}: the engine")
        number, contents = _expected(setting, work)
        for count in setting.shards:
            say(f"{shape}: {count} shards")
            best = min(_checked(setting, work, shape, count, number, contents) for _ in range(setting.repeat))
            rates.setdefault(shape, {})[str(count)] = setting.batches * setting.batch / best
    return rates


def _checked(
    setting: ScaleSetting,
    work: ScaleWorkload,
    shape: str,
    count: int,
    number: int,
    contents: dict[int, Counter[str]],
) -> float:
    """The seconds of one run; raises if its answers differ from the engine's."""
    with tempfile.TemporaryDirectory(prefix="tocsin-scale-") as folder:
        seconds, found, deltas = _run(setting, work, Path(folder), count, list(contents))
    if deltas != number or found != contents:
        raise TocsinError(f"{shape} with {count} shards emits {deltas:,} deltas, the engine {number:,}")
    return seconds


# -- workloads -----------------------------------------------------------------------------------------


def workload(setting: ScaleSetting, shape: str) -> ScaleWorkload:
    """Subscriptions and changes of one shape."""
    draw, n = np.random.default_rng(setting.seed), setting.subscriptions
    joined = shape in ("join", "band")
    low = draw.random(n)
    table = {"id": np.arange(n), "l": low}
    if joined:
        width = (5 / (4 * n)) ** 0.5  # two joining rows, before and after: 4 n width^2 deltas
        least = draw.random(n)
        table |= {"h": low + width, "m": least, "n": least + width}
    else:
        table["h"] = low + 16 / n * draw.random(n)
    if shape == "band":
        place = draw.random(n)
        table |= {"b": place / ROWS, "t": (place + 2) / ROWS}  # two rows on average
    make = _pairs if joined else _objects
    block = template_block(SHAPES[shape], pa.table(table))
    return ScaleWorkload(RS if joined else O, block, list(make(setting, draw)))


def _objects(setting: ScaleSetting, draw: Any) -> Iterator[Changes]:
    x = draw.random(ROWS)

    def changes(op: str, ids: Any) -> Changes:
        columns = (
            x[ids],
            draw.random(len(ids)),
            draw.integers(1000, size=len(ids)),
            draw.integers(50, size=len(ids)),
        )
        rows = zip(ids.tolist(), *(column.tolist() for column in columns), strict=True)
        return [("o", op, dict(zip("ixyvk", row, strict=True))) for row in rows]

    def named(found: Changes) -> Changes:
        return [(t, op, {"id": row.pop("i"), **row}) for t, op, row in found]

    yield named(changes("insert", np.arange(ROWS)))
    for _ in range(setting.batches):
        ids = draw.integers(ROWS, size=setting.batch)
        moved = np.unique(ids[::10])
        x[moved] = draw.random(len(moved))
        yield named(changes("update", ids))


def _pairs(setting: ScaleSetting, draw: Any) -> Iterator[Changes]:
    def changes(op: str, tables: Any, ids: Any) -> Changes:
        keys = draw.integers(KEYS, size=len(ids)).tolist()
        place, values = draw.random(len(ids)).tolist(), draw.random(len(ids)).tolist()
        rows = zip(tables.tolist(), ids.tolist(), keys, place, values, strict=True)
        return [("rs"[t], op, {"id": i, "k": k, "p": p, "ac"[t]: v}) for t, i, k, p, v in rows]

    yield changes("insert", np.repeat([0, 1], ROWS), np.tile(np.arange(ROWS), 2))
    for _ in range(setting.batches):
        yield changes("update", draw.integers(2, size=setting.batch), draw.integers(ROWS, size=setting.batch))


# -- the engine ----------------------------------------------------------------------------------------


def _expected(setting: ScaleSetting, work: ScaleWorkload) -> tuple[int, dict[int, Counter[str]]]:
    """The number of deltas after the tables are loaded; the contents of a sample at the end."""
    engine = Engine(retain=False)
    engine.execute(work.ddl)
    engine.subscribe_many(work.subscriptions.subject, work.subscriptions.table.drop_columns(["subscriber"]))
    deltas = 0
    for number, changes in enumerate(work.batches):
        parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for seq, (table, op, row) in enumerate(changes, engine.last_seq + 1):
            parts[table].append({**row, "_op": op, "_seq": seq})
        found = engine.apply_all({name: pa.Table.from_pylist(rows) for name, rows in sorted(parts.items())})
        deltas += len(found) if number else 0
    sample = np.unique(np.linspace(0, setting.subscriptions - 1, SAMPLE).astype(int)).tolist()
    return deltas, {one: Counter(row_json(row) for row in engine.content(one)) for one in sample}


# -- the shards ----------------------------------------------------------------------------------------


def _run(
    setting: ScaleSetting, work: ScaleWorkload, folder: Path, count: int, sample: Sequence[int]
) -> tuple[float, dict[int, Counter[str]], int]:
    """Seconds of the slowest tasks, all batches together; the contents of a sample; the number of deltas."""
    layout = Layout(tables=count, joins=count, subscriptions=count)
    paths = PipelinePaths(str(folder / "versions"), str(folder / "pins"), layout, "scale", hosts=0)
    Versions(paths.versions).publish(work.ddl, work.subscriptions)
    shards = _ScaledShards(paths)
    contents: dict[int, Counter[str]] = {one: Counter() for one in sample}
    seconds, deltas, seq = 0.0, 0, 0
    for number, changes in enumerate(work.batches):
        messages, spent = shards.batch(_as_batches(changes, seq, count), seq - 1)
        seq += len(changes)
        payloads = pa.RecordBatch.from_arrays([pa.array(messages, pa.binary())], names=["payload"])
        table = pa.Table.from_batches(open_all(iter([payloads]), paths), DELTA_SCHEMA)
        mine = table.filter(pa.array(np.isin(table["subscription"].to_numpy(), sample)))
        for row in mine.to_pylist():
            contents[row["subscription"]][row["row"]] += row["sign"]
        if number:
            seconds, deltas = seconds + spent, deltas + len(table)
    return seconds, {one: +rows for one, rows in contents.items()}, deltas


def _as_batches(changes: Changes, first: int, count: int) -> list[pa.RecordBatch]:
    """Changes as a source gives them, in so many partitions."""
    schema = pa.schema([*CHANGES, pa.field("wake", pa.bool_())])
    rows = [
        {"table": table, "op": op, "row": json.dumps(row), "seq": seq, "wake": False}
        for seq, (table, op, row) in enumerate(changes, first)
    ]
    return [pa.RecordBatch.from_pylist(rows[n::count], schema=schema) for n in range(count)]


class _ScaledShards:
    """The shards of one pipeline, in this process."""

    def __init__(self, paths: PipelinePaths) -> None:
        self.paths, self.live = paths, LiveShards()
        self.metas: dict[str, StateMeta] = {}
        self.number = 0

    def batch(self, parts: Sequence[pa.RecordBatch], seq: int) -> tuple[list[bytes], float]:
        """Run a batch; the deltas as messages, and the seconds of the slowest task of each stage."""
        self.number += 1
        micros = int(datetime(2024, 1, 1, tzinfo=UTC).timestamp() * 1e6) + self.number
        pin = Pin(1, seq, micros)
        inboxes: dict[str, dict[str, list[bytes]]] = defaultdict(dict)
        slowest = 0.0
        for part in parts:
            began = time.process_time()
            out = list(route(iter([part]), self.paths, pin=pin))
            slowest = max(slowest, time.process_time() - began)
            for message in (row for batch in out for row in batch.to_pylist()):
                box = inboxes[name_of(message["shard"])]
                box.setdefault(message["kind"], []).append(message["payload"])
        first, table_seconds = self._stage("table", inboxes)
        deltas = first.pop("", {}).get(ShardMessageKind.DELTAS, [])
        second, query_seconds = self._stage("query", first)
        deltas += second.get("", {}).get(ShardMessageKind.DELTAS, [])
        return deltas, slowest + table_seconds + query_seconds

    def _stage(
        self, stage: str, inboxes: Mapping[str, dict[str, list[bytes]]]
    ) -> tuple[dict[str, dict[str, list[bytes]]], float]:
        """What all shards of a stage send on, by receiver and kind; and the seconds of the slowest."""
        out: dict[str, dict[str, list[bytes]]] = defaultdict(dict)
        slowest = 0.0
        for name, messages in sorted(inboxes.items()):
            if not name:
                continue
            began = time.process_time()
            step = ShardStep(self.paths, stage, name, self.metas.get(name), messages)
            result = self.live.run(step, self.live.take(step), lambda _: ())
            slowest = max(slowest, time.process_time() - began)
            self.metas[name] = result.meta
            for message in result.messages:
                to = "" if message.shard.startswith("out|") else message.shard
                out[to].setdefault(message.kind, []).append(message.payload)
        return out, slowest


# -- showing -------------------------------------------------------------------------------------------


def gains(rates: Rates) -> dict[str, float]:
    """By shape, how many times the rate of the fewest shards the most shards allow."""
    found = {}
    for shape, by_count in rates.items():
        counts = sorted(by_count, key=int)
        found[shape] = by_count[counts[-1]] / by_count[counts[0]]
    return found


def show_scale(rates: Rates, console: Any) -> None:
    """Print a table."""
    from rich.table import Table

    counts = sorted({int(count) for by_count in rates.values() for count in by_count})
    table = Table("shape", *(f"{count} shards" for count in counts), "gain", "bar")
    for shape, gain in gains(rates).items():
        cells = [f"{rates[shape][str(count)]:,.0f}/s" for count in counts]
        table.add_row(shape, *cells, f"{gain:.1f}", f"{BARS.get(shape, OTHERS):.0f}")
    console.print(table)


def plot_scale(rates: Rates, path: Path) -> None:
    """Draw the gains over the number of shards."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4.5))
    counts = sorted({int(count) for by_count in rates.values() for count in by_count})
    axes.plot(counts, counts, color="gray", linestyle=":", label="one core more, one times more")
    for shape, by_count in rates.items():
        known = sorted(map(int, by_count))
        base = by_count[str(known[0])] / known[0]
        axes.plot(known, [by_count[str(count)] / base for count in known], marker="o", label=shape)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.set_xticks(counts, [str(count) for count in counts])
    axes.set_yticks(counts, [str(count) for count in counts])
    axes.set_xlabel("shards")
    axes.set_ylabel("changes/s, times one shard")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
