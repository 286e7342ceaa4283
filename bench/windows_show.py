"""What the documents claim about windows, one subcommand at a time.

    law     random changes of all shapes over windows: the engine is the reference at every moment
    speed   COUNT and MAX over ranges and keys, in a window of event time: events per second, memory over time
    shapes  the same stream under top-k, DISTINCT, and a join with a table, one after the other

    python bench/windows_show.py law --changes 10000
    python bench/windows_show.py speed --minutes 2 --subscriptions 20000 --no-bar

`speed` follows what deltas say of a sample of subscriptions and compares it with brute force over the events
of the window before it prints a time. Each prints a JSON object, and exits with 1 if an answer is wrong or a
claim does not hold.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from claims import Claim, Claims, parser_of, say, show_claims

from tocsin import Engine
from tocsin.engine import Rooms
from tocsin.join.scan import JoinScan
from tocsin.lab.memory import keep_freed
from tocsin.lab.window_law import WindowWitness, random_change, random_queries
from tocsin.rank.scan import RankScan

STREAM = "CREATE STREAM hits (page {keys}, ms BIGINT, load DOUBLE, at TIMESTAMP)"
OPTIONS = "WITH (window = '{minutes} minutes', late = '1 second')"
TEMPLATES = (
    "SELECT COUNT(*) AS n FROM hits WHERE page = :p AND ms BETWEEN :lo AND :hi",
    "SELECT MAX(load) AS m FROM hits WHERE page = :p AND ms BETWEEN :lo AND :hi",
)
_WHERE = "WHERE h.page = :p AND h.ms BETWEEN :lo AND :hi"
SHAPES = {
    "top-k": f"SELECT h.ms, h.load FROM hits h {_WHERE} ORDER BY load DESC LIMIT {{k}}",
    "distinct": f"SELECT DISTINCT h.ms FROM hits h {_WHERE}",
    "join": f"SELECT h.ms, h.load, o.owner FROM hits h JOIN owners o ON h.page = o.page {_WHERE}",
}
TOP = 3
LATE = 1_000_000  # microseconds
MS = 10_000  # values of ms
SAMPLE = 200


class Setting(NamedTuple):
    """The workload: sizes as given by options."""

    subscriptions: int
    pages: int
    rate: int  # events per second of event time
    minutes: float
    batch: int
    keys: str  # BIGINT or STRING
    shuffled: float  # seconds that events are out of order


def batch_of(setting: Setting, number: int) -> dict[str, Any]:
    """The number-th batch of events, always the same, as arrays."""
    rng = np.random.default_rng(number)
    count = setting.batch
    at = (np.arange(count) + number * count) * (1_000_000 // setting.rate)
    at = at - rng.integers(0, int(setting.shuffled * 1e6) + 1, count) + 10**15
    page, ms = rng.integers(0, setting.pages, count), rng.integers(0, MS, count)
    return {"page": page, "ms": ms, "load": rng.random(count), "at": at}


def as_table(setting: Setting, events: dict[str, Any], names: Any) -> Any:
    page = pa.array(events["page"]) if setting.keys == "BIGINT" else names.take(pa.array(events["page"]))
    at = pa.array(events["at"]).cast(pa.timestamp("us", tz="UTC"))
    return pa.table({"page": page, "ms": events["ms"], "load": events["load"], "at": at})


def subscribe(
    engine: Engine, setting: Setting, names: Any, templates: Sequence[str] = TEMPLATES
) -> list[dict[str, Any]]:
    """As many of each template; about ten in all contain an event. Returns their parameters."""
    out = []
    each = setting.subscriptions // len(templates)
    per_page = each / setting.pages
    width = int(MS * min(1.0, 10 / len(templates) / per_page))
    for kind, template in enumerate(templates):
        rng = np.random.default_rng(10**9 + kind)
        page = rng.integers(0, setting.pages, each)
        low = rng.integers(-width, MS, each)
        page_column = pa.array(page) if setting.keys == "BIGINT" else names.take(pa.array(page))
        ids = np.arange(each) + 1 + kind * each
        params = pa.table({"id": ids, "p": page_column, "lo": low, "hi": low + width})
        options = OPTIONS.format(minutes=f"{setting.minutes:g}")
        engine.subscribe_many(f"{template} {options}", params)
        out.append({"id": ids, "page": page, "low": low, "high": low + width})
    return out


class Follower:
    """What deltas say of a sample of subscriptions, and what is so."""

    def __init__(self, setting: Setting, params: list[dict[str, Any]]) -> None:
        self.setting, self.params = setting, params
        rng = np.random.default_rng(7)
        each = len(params[0]["id"])
        self.chosen = [np.sort(rng.choice(each, min(SAMPLE // 2, each), replace=False)) for _ in params]
        self.wanted = np.zeros(2 * each + 2, np.bool_)
        for one, some in zip(params, self.chosen, strict=True):
            self.wanted[one["id"][some]] = True
        self.answers: dict[int, Any] = {}

    def see(self, deltas: Any) -> None:
        mine = deltas.take(self.wanted[deltas.subscription] & (deltas.sign > 0))
        for delta in mine:
            self.answers[delta.subscription] = next(iter(delta.row.values()))

    def check(self, batches: int) -> int:
        """Compare with brute force over the last events; returns how many answers were compared."""
        page, ms, load = in_window(self.setting, batches)
        for kind, (one, some) in enumerate(zip(self.params, self.chosen, strict=True)):
            for at in some.tolist():
                first, last = np.searchsorted(page, [one["page"][at], one["page"][at] + 1])
                mine = (ms[first:last] >= one["low"][at]) & (ms[first:last] <= one["high"][at])
                values = load[first:last][mine]
                expected = len(values) if kind == 0 else (values.max() if len(values) else None)
                found = self.answers.get(int(one["id"][at]), 0 if kind == 0 else None)
                if found != expected:
                    raise SystemExit(f"wrong: subscription {one['id'][at]} has {found}, not {expected}")
        return sum(map(len, self.chosen))


def in_window(setting: Setting, batches: int) -> tuple[Any, Any, Any]:
    """Pages, ms and loads of the events that are in the window after so many batches, by page."""
    span = int(setting.minutes * 60e6)
    need = int((span + 2 * LATE) * setting.rate / 1e6 / setting.batch) + 2
    parts = [batch_of(setting, n) for n in range(max(0, batches - need), batches)]
    events = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    inside = events["at"] > events["at"].max() - LATE - span
    order = np.argsort(events["page"][inside], kind="stable")
    page, ms, load = (events[name][inside][order] for name in ("page", "ms", "load"))
    return page, ms, load


def resident() -> float:
    """Megabytes of memory of this process."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def show_speed(args: argparse.Namespace) -> Claims:
    """COUNT and MAX over ranges and keys, in a window of event time: events per second, memory over time."""
    keep_freed()
    setting = Setting(
        args.subscriptions, args.pages, args.rate, args.minutes, args.batch, args.keys, args.shuffled
    )
    names = pa.array([f"/page/{n}" for n in range(setting.pages)])
    engine = Engine()
    engine.execute(STREAM.format(keys=setting.keys))
    follower = Follower(setting, subscribe(engine, setting, names))
    full = int(setting.minutes * 60 * setting.rate / setting.batch) + 1
    total = full + int(setting.minutes * 60 * setting.rate * args.windows / setting.batch)
    spent, deltas, slowest, memory = [0.0, 0.0], [0, 0], 0.0, []
    started = time.perf_counter()
    for number in range(total):
        table = as_table(setting, batch_of(setting, number), names)
        before = time.perf_counter()
        found = engine.apply("hits", table)
        took = time.perf_counter() - before
        steady = number >= full
        if number > 2:  # kernels are compiled
            spent[steady] += took
            slowest = max(slowest, took) if steady else slowest
        deltas[steady] += len(found)
        follower.see(found)
        if number % max(1, total // 20) == 0 or number == total - 1:
            stats = next(iter(engine.stats()["windows"].values()))
            memory.append({"events": (number + 1) * setting.batch, "rows": stats["rows"], "mb": resident()})
            say(f"{time.perf_counter() - started:6.0f} s  {memory[-1]}  {setting.batch / took:,.0f} events/s")
    compared = follower.check(total)
    rate = setting.batch * (total - full) / spent[1]
    resident_mb = [m["mb"] for m in memory if m["events"] > (full + 1) * setting.batch]
    yield Claim("in and out of the window", rate, "events/s", at_least=setting.rate).show(
        args,
        setting=setting._asdict(),
        first_window=round(setting.batch * (full - 3) / spent[0]),
        deltas_per_event=round(deltas[1] / (setting.batch * (total - full)), 2),
        slowest_batch_s=round(slowest, 3),
        memory=memory,
        families=engine.stats()["rank"]["families"],
        windows=engine.stats()["windows"],
        compared=compared,
    )
    growth = max(resident_mb) / min(resident_mb)
    yield Claim("memory after the first window", growth, "times the least", at_most=1.03).show(args)


def show_shapes(args: argparse.Namespace) -> Claims:
    """Top-k, DISTINCT and a join with a table, in a window of event time: events per second."""
    keep_freed()
    setting = Setting(
        args.subscriptions, args.pages, args.rate, args.minutes, args.batch, "STRING", args.shuffled
    )
    for shape in args.shapes.split(","):
        yield _measure_shape(args, setting, shape).show(args)


def _measure_shape(args: argparse.Namespace, setting: Setting, shape: str) -> Claim:
    names = pa.array([f"/page/{n}" for n in range(setting.pages)])
    engine = Engine()
    engine.execute(
        STREAM.format(keys="STRING") + "; CREATE TABLE owners (page STRING PRIMARY KEY, owner BIGINT)"
    )
    engine.apply("owners", pa.table({"page": names, "owner": np.arange(setting.pages)}))
    (params,) = subscribe(engine, setting, names, [SHAPES[shape].format(k=TOP)])
    full = int(setting.minutes * 60 * setting.rate / setting.batch) + 1
    spent, cpu, deltas = 0.0, 0.0, 0
    for number in range(full + args.measured):
        table = as_table(setting, batch_of(setting, number), names)
        before, begun = time.perf_counter(), time.process_time()
        found = engine.apply("hits", table)
        if number >= full:
            spent, cpu = spent + time.perf_counter() - before, cpu + time.process_time() - begun
            deltas += len(found)
        if number % max(1, full // 5) == 0 and number < full:
            say(f"  {shape}: {(number + 1) * setting.batch:,} events, {resident():,.0f} MB")
    compared = _check_shape(engine, setting, params, shape, full + args.measured)
    events = args.measured * setting.batch
    rate = f"{events / cpu:,.0f} events per second of processor time, {deltas / events:.1f} deltas per event"
    say(f"  {shape}: {rate}, {resident():,.0f} MB, {compared} answers are right")
    return Claim(f"in and out of the window: {shape}", events / spent, "events/s", at_least=setting.rate)


def _check_shape(engine: Engine, setting: Setting, params: dict[str, Any], shape: str, batches: int) -> int:
    """Compare contents of a sample with brute force; returns how many."""
    page, ms, load = in_window(setting, batches)
    chosen = np.random.default_rng(7).choice(len(params["id"]), min(SAMPLE, len(params["id"])), replace=False)
    for at in chosen.tolist():
        first, last = np.searchsorted(page, [params["page"][at], params["page"][at] + 1])
        mine = (ms[first:last] >= params["low"][at]) & (ms[first:last] <= params["high"][at])
        rows = list(zip(ms[first:last][mine].tolist(), load[first:last][mine].tolist(), strict=True))
        found = [tuple(row.values()) for row in engine.content(int(params["id"][at]))]
        if shape == "top-k":
            expected: list[Any] = sorted(rows, key=lambda row: -row[1])[:TOP]
        elif shape == "distinct":
            found, expected = sorted(found), sorted({(value,) for value, _ in rows})
        else:
            owner = int(params["page"][at])
            found, expected = sorted(found), sorted((*row, owner) for row in rows)
        if found != expected:
            raise SystemExit(f"wrong: subscription {params['id'][at]} has {found}, not {expected}")
    return len(chosen)


def show_law(args: argparse.Namespace) -> Claims:
    """Random changes of all shapes over windows: the engine is the reference at every moment."""
    changes = moments = subscriptions = 0
    rng = Random(args.seed)
    while changes < args.changes:
        scans = changes // 100 % 5 == 4
        witness = WindowWitness(Rooms(join=JoinScan, rank=RankScan) if scans else None)
        ids = [witness.subscribe(sql) for sql in random_queries(rng, 9)]
        for n in range(100):
            random_change(witness, rng)
            if n % 10 == 9:
                witness.unsubscribe(ids.pop(rng.randrange(len(ids))))
                ids += [witness.subscribe(sql) for sql in random_queries(rng, 1 + n % 2)][:2]
        witness.engine._check()
        changes, moments, subscriptions = changes + 100, moments + witness.moments, subscriptions + len(ids)
        if changes % 1000 == 0:
            say(f"{changes} changes, {moments} moments")
    claim = Claim("changes without a difference", changes, "changes", at_least=args.changes)
    yield claim.show(args, moments=moments, subscriptions=subscriptions)


SPEED: dict[str, Any] = {
    "subscriptions": 100_000, "pages": 1000, "rate": 20_000, "minutes": 10.0, "batch": 10_000,
    "keys": "STRING", "shuffled": 0.5, "windows": 1.0,
}  # fmt: skip


if __name__ == "__main__":
    shapes = {**SPEED, "shapes": ",".join(SHAPES), "measured": 100}  # batches in and out of a full window
    del shapes["windows"], shapes["keys"]
    commands = {show_law: {"changes": 10_000}, show_speed: SPEED, show_shapes: shapes}
    sys.exit(show_claims(parser_of(__doc__, commands, repeat=1).parse_args()))
