"""The whole demo: lay it out, replay it, check it, tell.

A plain start begins afresh. `resume` goes on from the checkpoint of a run that was stopped or killed,
and ends with the same contents, hence the same checksum, as a run that nobody disturbed.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tocsin.commands.progress import Batch, Display, Interrupted, percentile, stop_quietly, watch
from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.demo.check import check, draw_sample, final_tables
from tocsin.lab.demo.flights import DDL, Change
from tocsin.lab.demo.folder import alone
from tocsin.lab.demo.received import Received
from tocsin.lab.demo.script import Script
from tocsin.lab.demo.subscriptions import Wanted
from tocsin.lab.demo.summary import Summary
from tocsin.lab.demo.words import choose, moments, tell

if TYPE_CHECKING:
    from tocsin.lab.demo.replay import Replay

__all__ = ["EACH", "run_demo"]

EACH = 20  # contents of each shape that are checked
ORDER = ("filter", "stream", "join", "band", "multiway", "extreme", "aggregate", "distinct", "topk")
TOLD = ("filter", "join", "extreme", "topk", "stream")  # shapes of which a delta is told in words


def run_demo(
    folder: Path, script: Script, *, resume: bool = False, given: Mapping[str, int] | None = None
) -> Summary:
    """Run it; Ctrl-C stops it so that it can be resumed.

    `given` is what of the script was asked for by name: a run that is resumed must have it so.
    """
    try:
        from tocsin.lab.demo.replay import Replay
    except ImportError as error:
        raise TocsinError(
            f"the demo runs on Spark: {error}", hint="pip install 'tocsin[spark,demo]'"
        ) from None
    began = time.monotonic()
    with alone(folder, resume=resume) as held:
        print(f"the demo's files are in {held}", file=sys.stderr, flush=True)
        if resume:
            replay = Replay.resume(held)
            _refuse_other(replay.script, given or {})
            changes = replay.script.changes()
        else:
            changes = script.changes()
            replay = Replay.begin(held, script, changes)
        wanted = replay.script.wanted()
        batches, seconds = _replay(replay, changes, wanted)
        return _summary(replay, changes, wanted, batches, seconds, began)


def _refuse_other(script: Script, given: Mapping[str, int]) -> None:
    other = {name: value for name, value in given.items() if getattr(script, name) != value}
    if other:
        has = ", ".join(f"--{name} {getattr(script, name)}" for name in other)
        asked = ", ".join(f"--{name} {value}" for name, value in other.items())
        raise UsageError(
            f"the demo to resume has {has}, not {asked}",
            hint="leave that out, or begin anew without --resume",
        )


def _replay(replay: Replay, changes: list[Change], wanted: list[Wanted]) -> tuple[list[Batch], float]:
    """Run the pipeline to the end of the changes; the batches of this run, and how long they took."""
    from tocsin.spark import session

    what = f"{len(wanted):,} subscriptions, {len(changes):,} changes"
    with Display("replay", len(changes)) as display:
        display.say(f"{what}; starting Spark (log: {replay.log})")
        spark = session("tocsin-demo", log=replay.log)
        query = replay.start(spark, wanted)
        began, batches, deltas = time.monotonic(), [], 0
        done = 0
        display.say("the first batch takes the subscriptions in")
        with Interrupted() as interrupted:
            try:
                for fresh in watch(query, interrupted):
                    for batch in fresh:
                        batches.append(batch)
                        deltas += replay.count(batch.number)
                        done = _done(replay, changes, batch.number)
                    if batches:
                        display.show(done, f"{deltas:,} deltas", f"last batch {batches[-1].seconds:.1f} s")
            finally:
                stop_quietly(query)
                spark.stop()
        if interrupted:
            raise TocsinError("stopped", hint=f"go on with: tocsin demo --resume --dir {replay.folder}")
        return batches, time.monotonic() - began


def _done(replay: Replay, changes: list[Change], batch: int) -> int:
    """Changes up to the end of a batch: a file each."""
    return min(len(changes), (batch + 1) * -(-len(changes) // replay.script.batches))


def _rate(batches: list[Batch]) -> float | None:
    return round(sum(b.rows for b in batches) / sum(b.seconds for b in batches), 1) if batches else None


def _summary(
    replay: Replay,
    changes: list[Change],
    wanted: list[Wanted],
    batches: list[Batch],
    seconds: float,
    began: float,
) -> Summary:
    print("checking the contents against the reference ...", file=sys.stderr, flush=True)
    labels = {w.id: w.shape for w in wanted}
    received = Received.of(replay.deltas())
    contents = received.contents()
    chosen = choose(received, labels, TOLD, replay.script.seed)
    sample = draw_sample(labels, each=EACH, seed=replay.script.seed)
    engine = Engine()
    engine.execute(DDL)
    by_id = {w.id: w for w in wanted}
    asked = {*sample, *(event.subscription for event in chosen)}
    queries = {n: engine.query(engine.subscribe(by_id[n].sql, id=n)) for n in asked}
    keys = {schema.name: schema.key for schema in engine.schemas()}
    rows = final_tables(changes, engine.schemas())
    checked = check(contents, {n: queries[n] for n in sample}, rows, keys)
    around = moments(changes, keys, {event.seq for event in chosen})
    told = tuple(
        tell(e, queries[e.subscription], by_id[e.subscription].subscriber, around[e.seq]) for e in chosen
    )
    latencies = [batch.seconds for batch in batches]
    rows_in = sum(batch.rows for batch in batches)
    by_shape, counts = Counter(labels.values()), _by_shape(received, labels)
    return Summary(
        folder=str(replay.folder),
        days=replay.script.days,
        subscriptions={shape: by_shape[shape] for shape in ORDER},
        changes=rows_in,
        resumed_after=batches[0].number if batches else replay.script.batches,
        batches=len(batches),
        seconds=round(seconds, 3),
        changes_per_second=round(rows_in / seconds, 1) if batches else None,
        changes_per_second_later=_rate(batches[1:]),
        latency_p50=percentile(latencies, 50),
        latency_p99=percentile(latencies, 99),
        deltas={shape: counts[shape] for shape in ORDER},
        dead_letters=len(replay.dead_letters()),
        samples=told,
        checked=checked.total,
        right=checked.right,
        wrong=checked.wrong,
        checksum=contents.checksum(labels),
        total_seconds=round(time.monotonic() - began, 1),
    )


def _by_shape(received: Received, labels: Mapping[int, str]) -> Counter[str]:
    """How many deltas went to each shape."""
    ids, counts = np.unique(received.subscription, return_counts=True)
    out: Counter[str] = Counter()
    for number, count in zip(ids.tolist(), counts.tolist(), strict=True):
        out[labels[number]] += count
    return out
