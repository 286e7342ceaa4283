"""`tocsin demo`: write the changes, replay them, check the contents, summarise.

Without `resume` the demo starts from scratch. With it, it continues from the checkpoint of a run that was
stopped or killed, and ends with the contents, hence the checksum, of an uninterrupted run.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from rich.console import Console
from rich.table import Table

from tocsin.commands.progress import BatchProgress, Display, Interrupted, stop_quietly, watch
from tocsin.engine import Engine
from tocsin.errors import TocsinError, UsageError
from tocsin.lab.demo.check import check, draw_sample, final_tables
from tocsin.lab.demo.flights import DDL, FlightChange
from tocsin.lab.demo.received import Received
from tocsin.lab.demo.replay import LOG, FlightReplay, clear_folder, locked_folder
from tocsin.lab.demo.script import DemoSubscription, Script
from tocsin.lab.demo.sentences import as_sentence, change_contexts, choose_notifications
from tocsin.lab.demo.times import DemoTimes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["EACH", "DemoSummary", "run_demo"]


@dataclass(frozen=True)
class DemoSummary:
    """The result of a run. Times are those of this run, deltas those of the whole replay."""

    folder: str
    days: int
    subscriptions: dict[str, int]  # by shape
    changes: int
    resumed_after: int  # batches that earlier runs finished
    batches: int
    seconds: float  # of all micro-batches
    times: DemoTimes  # start-up, and the steady state
    deltas: dict[str, int]  # by shape
    dead_letters: int
    samples: tuple[str, ...]
    checked: int
    right: int
    wrong: tuple[int, ...]
    checksum: str
    total_seconds: float

    @property
    def ok(self) -> bool:
        return not self.wrong and self.checked > 0 and not self.dead_letters

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"ok": self.ok}

    def show(self, console: Console) -> None:
        table = Table("shape", "subscriptions", "deltas", box=None, pad_edge=False, header_style="bold")
        for column in table.columns[1:]:
            column.justify = "right"
        for shape, count in self.subscriptions.items():
            table.add_row(shape, f"{count:,}", f"{self.deltas.get(shape, 0):,}")
        table.add_row(
            "all", f"{sum(self.subscriptions.values()):,}", f"{sum(self.deltas.values()):,}", style="bold"
        )
        console.print(table)
        console.print()
        for line in self._lines():
            console.print(line, soft_wrap=True, highlight=False, markup=False)

    def _lines(self) -> list[str]:
        lines = []
        if self.resumed_after:
            lines.append(f"resumed after {self.resumed_after} batches of an earlier run")
        lines += self.times.lines()
        if self.dead_letters:
            lines.append(f"{self.dead_letters} changes were rejected: see {self.folder}/dead_letters")
        lines += [
            "",
            "five of the deltas, in plain words:"
            if len(self.samples) == 5
            else "some deltas, in plain words:",
        ]
        lines += [f"  {text}" for text in self.samples]
        lines += ["", f"contents checked against the reference: {self.right} of {self.checked}"]
        if self.wrong:
            lines.append(f"WRONG: subscriptions {', '.join(map(str, self.wrong))}")
        lines += [f"checksum of all contents: {self.checksum}", f"{self.total_seconds:.0f} s in all"]
        return lines


EACH = 20  # checked contents per shape
ORDER = ("filter", "stream", "join", "band", "multiway", "extreme", "aggregate", "distinct", "topk")
DESCRIBED = ("filter", "join", "extreme", "topk", "stream")  # shapes of which one delta becomes a sentence


def run_demo(
    folder: Path, script: Script, *, resume: bool = False, given: Mapping[str, int] | None = None
) -> DemoSummary:
    """Run the demo. Ctrl-C stops it so that it can be resumed.

    `given` has the options from the command line: a resumed script must agree with them.
    """
    try:
        import pyspark  # noqa: F401
    except ImportError as error:
        raise TocsinError(
            f"the demo runs on Spark: {error}", hint="pip install 'tocsin[spark,demo]'"
        ) from None
    began = time.monotonic()
    with locked_folder(folder, resume=resume) as locked:
        print(f"the demo's files are in {locked}", file=sys.stderr, flush=True)
        if resume:
            _refuse_other(FlightReplay.resume(locked).script, given or {})
        else:
            clear_folder(locked)
        with _StartingSpark(locked / LOG) as spark:
            replay = FlightReplay.resume(locked) if resume else None
            changes = (replay.script if replay else script).changes()
            replay = replay or FlightReplay.begin(locked, script, changes)
            wanted = replay.script.draw_subscriptions()
            replay.publish(wanted)
            ran = _replay(replay, changes, wanted, spark)
        return _summary(replay, changes, wanted, ran, began)


def _refuse_other(script: Script, given: Mapping[str, int]) -> None:
    other = {name: value for name, value in given.items() if getattr(script, name) != value}
    if other:
        has = ", ".join(f"--{name} {getattr(script, name)}" for name in other)
        wants = ", ".join(f"--{name} {value}" for name, value in other.items())
        raise UsageError(
            f"the demo to resume has {has}, not {wants}",
            hint="omit these options, or start over without --resume",
        )


class _Ran(NamedTuple):
    """The batches of a run, and its times."""

    batches: list[BatchProgress]
    seconds: float
    times: DemoTimes


class _StartingSpark:
    """Starts Spark in the background, while this process prepares the changes; stops it at the end."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._began = self._ended = 0.0

    def __enter__(self) -> _StartingSpark:
        from tocsin.spark import session

        print(f"starting Spark (log: {self.log})", file=sys.stderr, flush=True)
        self._began = time.monotonic()
        self._thread = ThreadPoolExecutor(1)
        self._session = self._thread.submit(session, "tocsin-demo", log=self.log)
        self._session.add_done_callback(lambda _: setattr(self, "_ended", time.monotonic()))
        return self

    def session(self) -> tuple[SparkSession, float]:
        """Wait for the session; it, and the seconds that it took to start."""
        spark = self._session.result()
        return spark, self._ended - self._began

    def __exit__(self, *_: object) -> None:
        self._thread.shutdown()
        if self._session.exception() is None:
            self._session.result().stop()


def _replay(
    replay: FlightReplay,
    changes: list[FlightChange],
    wanted: list[DemoSubscription],
    starting: _StartingSpark,
) -> _Ran:
    """Run the pipeline to the end of the changes."""
    spark, seconds = starting.session()
    started = time.monotonic()
    with Display("replay", len(changes)) as display:
        display.say(f"{len(wanted):,} subscriptions, {len(changes):,} changes")
        query = replay.start(spark)
        batches, deltas, first = list[BatchProgress](), dict[int, int](), None
        display.say("the first micro-batch registers the subscriptions")
        with Interrupted() as interrupted:
            try:
                for fresh in watch(query, interrupted):
                    for batch in fresh:
                        batches.append(batch)
                        deltas[batch.number] = replay.count(batch.number)
                        first = first or time.monotonic() - started
                    if batches:
                        done = _done(replay, changes, batches[-1].number)
                        emitted = f"{sum(deltas.values()):,} deltas"
                        display.show(done, emitted, f"last batch {batches[-1].seconds:.1f} s")
            finally:
                stop_quietly(query)
        if interrupted:
            raise TocsinError("stopped", hint=f"resume with: tocsin demo --resume --dir {replay.folder}")
        times = DemoTimes.of(batches, deltas, spark=seconds, first=first, subscriptions=len(wanted))
        return _Ran(batches, time.monotonic() - started, times)


def _done(replay: FlightReplay, changes: list[FlightChange], batch: int) -> int:
    """Changes up to the end of a batch; each batch reads one file."""
    return min(len(changes), (batch + 1) * -(-len(changes) // replay.script.batches))


def _summary(
    replay: FlightReplay,
    changes: list[FlightChange],
    wanted: list[DemoSubscription],
    ran: _Ran,
    began: float,
) -> DemoSummary:
    print("checking the contents against the reference ...", file=sys.stderr, flush=True)
    labels = {w.id: w.shape for w in wanted}
    received = Received.of(replay.deltas())
    contents = received.contents()
    chosen = choose_notifications(received, labels, DESCRIBED, replay.script.seed)
    sample = draw_sample(labels, each=EACH, seed=replay.script.seed)
    engine = Engine()
    engine.execute(DDL)
    by_id = {w.id: w for w in wanted}
    needed = {*sample, *(event.subscription for event in chosen)}
    queries = {n: engine.query(engine.subscribe(by_id[n].sql, id=n)) for n in needed}
    keys = {schema.name: schema.key for schema in engine.schemas()}
    rows = final_tables(changes, engine.schemas())
    checked = check(contents, {n: queries[n] for n in sample}, rows, keys)
    contexts = change_contexts(changes, keys, {event.seq for event in chosen})
    sentences = tuple(
        as_sentence(e, queries[e.subscription], by_id[e.subscription].subscriber, contexts[e.seq])
        for e in chosen
    )
    by_shape, counts = Counter(labels.values()), _by_shape(received, labels)
    return DemoSummary(
        folder=str(replay.folder),
        days=replay.script.days,
        subscriptions={shape: by_shape[shape] for shape in ORDER},
        changes=sum(batch.rows for batch in ran.batches),
        resumed_after=ran.batches[0].number if ran.batches else replay.script.batches,
        batches=len(ran.batches),
        seconds=round(ran.seconds, 3),
        times=ran.times,
        deltas={shape: counts[shape] for shape in ORDER},
        dead_letters=len(replay.dead_letters()),
        samples=sentences,
        checked=checked.total,
        right=checked.right,
        wrong=checked.wrong,
        checksum=contents.checksum(labels),
        total_seconds=round(time.monotonic() - began, 1),
    )


def _by_shape(received: Received, labels: Mapping[int, str]) -> Counter[str]:
    """Number of deltas by shape."""
    ids, counts = np.unique(received.subscription, return_counts=True)
    out: Counter[str] = Counter()
    for number, count in zip(ids.tolist(), counts.tolist(), strict=True):
        out[labels[number]] += count
    return out
