"""Chaos: kill processes of a running pipeline at random, then compare its output with an undisturbed engine.

    workload ──► changes/00000.json ...  ─┐
             ──► versions                 ├─► driver (a process) ─► deltas/batch=0 ...
    kills    ──► driver | executor | worker | python | host  ─┘         │
                                                  compared with ◄───────┘  an undisturbed engine

A run is a folder. This process writes files of changes and new versions of the subscriptions into it, a
little ahead of the pipeline; the driver runs the pipeline over it; and at moments drawn by the seed this
process sends SIGKILL. It restarts a driver that died, as a supervisor would, and a worker of the cluster. At
the end every delta must be there exactly once:

    lost      an expected delta that is missing
    doubled   one that is there more often than expected
    wrong     an unexpected delta, a content that differs, a change that was rejected

    driver    the Python driver and its JVM          executor  a JVM that runs tasks
    python    a Python worker of Spark, or the       worker    a worker of the standalone cluster, with
              daemon that forks them                           its executor
    host      a process that keeps live shards

The seed draws which process is killed and roughly when, but not what it is doing at that moment, so two runs
with one seed are similar, not equal.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tocsin.errors import TocsinError
from tocsin.lab.chaos.cluster import Cluster, Process
from tocsin.lab.chaos.object_store import S3
from tocsin.lab.chaos.workload import (
    DDL,
    ChaosWorkload,
    DeltaBag,
    ExpectedDeltas,
    PinnedBatch,
    contents_of,
    delta_bag,
)
from tocsin.spark.pipeline import query_of
from tocsin.spark.sources import TEXTS
from tocsin.spark.storage.store import open_store
from tocsin.spark.versions.batch import Layout, Pins, pinned_versions
from tocsin.spark.versions.store import Versions

__all__ = ["VICTIMS", "ChaosResult", "ChaosRun", "KillPlan", "compare", "kill_plan"]

KillPlan = Sequence[tuple[int, str]]  # (batches done, kind of process)
VICTIMS = {
    "local": ("driver", "python", "host"),
    "cluster": ("driver", "python", "executor", "worker", "host"),
}
VICTIMS["store"] = VICTIMS["local"]
AHEAD = 2  # files written ahead of the pipeline
LATE = 10.0  # seconds to look for a process to kill
PATIENCE = 300.0  # seconds without a finished batch
LAYOUT = Layout(tables=2, joins=2, subscriptions=2)
_FIRST_FILE_TIME = 1_000_000_000  # seconds since 1970: Spark reads files in order of their times
_MARKS = {
    "python": ("-m pyspark.daemon", "-m tocsin.spark.worker_daemon"),
    "executor": ("CoarseGrainedExecutorBackend",),
    "host": ("tocsin.spark.hosting.process",),
}


@dataclass
class ChaosResult:
    """The result of a run."""

    kills: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    deltas: int = 0
    batches: int = 0
    versions: int = 0  # that they ran on
    seconds: float = 0.0
    differences: list[str] = field(default_factory=list)  # in words

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)


def kill_plan(workload: ChaosWorkload, kills: int, place: str) -> KillPlan:
    """Whom to kill after how many batches, drawn by the workload's seed.

    >>> kill_plan(ChaosWorkload(seed=3, files=8), 3, "cluster")
    [(1, 'driver'), (5, 'executor'), (5, 'driver')]
    """
    draw = Random(f"kills {workload.seed}")
    return [
        (done, draw.choice(VICTIMS[place])) for done in sorted(draw.choices(range(workload.files), k=kills))
    ]


class ChaosRun:
    """One run in a folder; on a cluster, or on `local[2,4]`."""

    def __init__(
        self,
        folder: Path,
        workload: ChaosWorkload,
        plan: KillPlan,
        cluster: Cluster | None = None,
        state: str | None = None,
    ) -> None:
        """`state` is an address in an object store; by default it is in the folder."""
        self.folder, self.workload, self.cluster = folder, workload, cluster
        self.state = state or str(folder / "state")
        self.versions = Versions(open_store(self.state) / "subscriptions")
        self.hosts = (0, 2)[workload.seed // 2 % 2]  # live shards in Python workers, or beside them
        self.result = ChaosResult()
        self._draw = Random(f"moments {workload.seed}")
        self._plan = list(plan)
        self._due = 0.0
        self._driver: Process | None = None

    def run(self, say: Callable[[str], object] = lambda text: None) -> ChaosResult:
        """From the first file to the comparison. The folder must be new."""
        began = time.monotonic()
        (self.folder / "changes").mkdir(parents=True)
        try:
            self._feed(say)
        finally:
            if self._driver is not None:
                self._driver.kill()
        self.result.seconds = time.monotonic() - began
        compare(self.folder, self.workload, self.result, self.state)
        return self.result

    def _feed(self, say: Callable[[str], object]) -> None:
        files, versions = self.workload.changes(), self.workload.versions()
        written, published, last = 0, 0, (-1, time.monotonic())
        while not (self.folder / "done").exists():
            done = len(self._finished())
            while written < len(files) and written < done + AHEAD:
                while published < len(versions) and versions[published].at <= written:
                    self._publish(published)
                    published += 1
                self._write(written, "".join(json.dumps(change) + "\n" for change in files[written]))
                written += 1
            if written == len(files):
                (self.folder / "end").touch()
            self._restart_dead()
            self._kill(done, say)
            if done != last[0]:
                last = done, time.monotonic()
                say(f"{done} batches, {written} of {len(files)} files, kills: {_words(self.result.kills)}")
            elif time.monotonic() - last[1] > PATIENCE:
                raise TocsinError(
                    f"no batch was finished for {PATIENCE:.0f} seconds",
                    hint=f"see {self.folder / 'driver.log'}",
                )
            time.sleep(0.02)

    def _publish(self, number: int) -> None:
        _, add, replace, remove, compact = self.workload.versions()[number]
        if number == 0:
            self.versions.publish(DDL, add)
        elif compact:
            self.versions.compact(keep={number, *pinned_versions(self.versions.store)})
        else:
            self.versions.change(add=add, replace=replace, remove=remove)

    def _write(self, number: int, text: str) -> None:
        aside = self.folder / f"{number:05}.json"
        aside.write_text(text)
        os.utime(aside, (_FIRST_FILE_TIME + number,) * 2)
        aside.rename(self.folder / "changes" / aside.name)

    def _finished(self) -> list[str]:
        with suppress(FileNotFoundError):
            return [n for n in os.listdir(self.folder / "state" / "checkpoint" / "commits") if n.isdigit()]
        return []

    # -- processes -------------------------------------------------------------------------------

    def _restart_dead(self) -> None:
        if self.cluster is not None:
            self.cluster.replace_dead()
        if self._driver is None or not self._driver.is_alive():
            if self._driver is not None:
                self._driver.kill()
            master = "local[2,4]" if self.cluster is None else self.cluster.url
            command = [sys.executable, "-m", "tocsin.lab.chaos.run", str(self.folder), master]
            command += [self.state, str(self.hosts)]
            self._driver = Process("the driver", command, self.folder / "driver.log", os.environ)

    def _kill(self, done: int, say: Callable[[str], object]) -> None:
        """Kill the next in the plan, if its batch has come: at a random moment from then on."""
        if not self._plan or done < self._plan[0][0]:
            return
        now = time.monotonic()
        if not self._due:
            self._due = now + self._draw.uniform(0.0, 2.0)
        if now < self._due:
            return
        kind = self._plan[0][1]
        if now > self._due + LATE and kind in _MARKS:
            kind = "python"  # no such process runs, and one of these always does
        if self._hit(kind):
            say(f"SIGKILL: {kind}")
            self.result.kills[kind] += 1
            self._plan.pop(0)
            self._due = 0.0

    def _hit(self, kind: str) -> bool:
        if kind == "driver":
            assert self._driver is not None
            self._driver.kill()
        elif kind == "worker":
            assert self.cluster is not None
            self._draw.choice(self.cluster.workers).kill()
        else:
            victims = sorted(self._victims(_MARKS[kind]))
            if not victims:
                return False
            with suppress(ProcessLookupError):
                os.kill(self._draw.choice(victims), signal.SIGKILL)
        return True

    def _victims(self, marks: Sequence[str]) -> Iterator[int]:
        """Processes of this run with one of these words in their command."""
        assert self._driver is not None
        roots = {self._driver.group} | {w.group for w in (self.cluster.workers if self.cluster else [])}
        there = dict(_processes())
        for process, (parent, command) in there.items():
            if any(mark in command for mark in marks):
                # a host is in its own session; the pid of its JVM is among its arguments
                above = parent if marks != _MARKS["host"] else int(command.split()[-3])
                while above in there and above not in roots:
                    above = there[above][0]
                if above in roots:
                    yield process


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """All processes: their parent and command."""
    if not Path("/proc/self/stat").exists():
        raise TocsinError("chaos finds its victims in /proc, and there is none", hint="run it on Linux")
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            parent = Path("/proc", name, "stat").read_text().rpartition(")")[2].split()[1]
            command = Path("/proc", name, "cmdline").read_bytes().replace(b"\0", b" ")
            yield int(name), (int(parent), command.decode(errors="replace"))


def _words(kills: Counter[str]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in sorted(kills.items())) or "none"


# -- the comparison ----------------------------------------------------------------------------------


def batches_of(folder: Path, state: str | None = None) -> list[PinnedBatch]:
    """The batches of a run, by their pins; each ends where the next begins."""
    inside = state in (None, str(folder / "state"))
    checkpoint = "checkpoint" if inside else str((folder / "state" / "checkpoint").absolute())
    pins = Pins(open_store(state or folder / "state") / "pins", query_of(checkpoint))
    found: list[PinnedBatch] = []
    while (pin := pins.get(len(found))) is not None:
        found.append(PinnedBatch(len(found), pin, max(0, pins.applied(len(found)))))
    return found


def deltas_in(folder: Path) -> DeltaBag:
    """All deltas in the sink."""
    found: DeltaBag = Counter()
    for file in folder.glob("deltas/batch=*/*.json"):
        rows = (json.loads(line) for line in file.read_text().splitlines())
        found.update(delta_bag(int(file.parent.name.partition("=")[2]), rows))
    return found


def compare(folder: Path, workload: ChaosWorkload, result: ChaosResult, state: str | None = None) -> None:
    """Count what is lost, doubled and wrong, and say where."""
    batches, found = batches_of(folder, state), deltas_in(folder)
    expected = ExpectedDeltas.of(workload, batches)
    result.batches, result.deltas = len(batches), found.total()
    result.versions = len({batch.pin.version for batch in batches})
    for delta, count in sorted((expected.deltas - found).items()):
        result.lost += count
        result.differences.append(f"lost: {_place(delta)}")
    for delta, count in sorted((found - expected.deltas).items()):
        kind = "doubled" if delta in expected.deltas else "wrong"
        setattr(result, kind, getattr(result, kind) + count)
        result.differences.append(f"{kind}: {_place(delta)}")
    held = contents_of(found, expected.contents)
    for number, content in expected.contents.items():
        if held[number] != content:
            result.wrong += 1
            result.differences.append(f"wrong: subscription {number} holds {held[number]}, not {content}")
    last = batches[-1] if batches else None
    if (
        last is None
        or last.last != workload.files * workload.size
        or last.pin.version != len(workload.sets())
    ):
        result.wrong += 1
        result.differences.append(f"wrong: the last batch is {last}, and not all that was given")
    for file in (folder / "state").glob("dead_letters*/batch=*/*"):
        if file.suffix in (".json", ".parquet") and file.stat().st_size:
            result.wrong += 1
            result.differences.append(f"wrong: a change was rejected, see {file}")


def _place(delta: Sequence[object]) -> str:
    batch, seq, subscription, row, sign = delta
    return f"batch {batch}, seq {seq}, subscription {subscription}: {'+' if sign == 1 else '-'} {row}"


# -- the driver --------------------------------------------------------------------------------------


def drive(folder: Path, master: str, state: str, hosts: int) -> None:
    """Run the pipeline over the folder until all is done; it has the checkpoint, and dead letters."""
    from tocsin.spark import Pipeline, session

    far: dict[str, Any] = S3(os.environ["AWS_ENDPOINT_URL"]).spark if state.startswith("s3:") else {}
    spark = session("chaos", master, log=folder / "driver.log", **far)
    pipeline = Pipeline(spark, state_dir=state, layout=LAYOUT)
    reader = spark.readStream.schema(TEXTS).option("maxFilesPerTrigger", 1)
    query = pipeline.start(
        reader.json(str(folder / "changes")),
        sink=f"json:{folder / 'deltas'}",
        checkpoint=folder / "state" / "checkpoint",
        dead_letters=f"json:{folder / 'state' / 'dead_letters'}",
        hosts=hosts,
    )
    while not (folder / "end").exists():
        if not query.isActive:
            query.awaitTermination()  # raises what ended it
            raise TocsinError("the query ended too early")
        time.sleep(0.05)
    query.processAllAvailable()
    query.stop()
    (folder / "done").touch()
    spark.stop()


if __name__ == "__main__":
    parser = ArgumentParser("python -m tocsin.lab.chaos.run", description="The driver of a chaos run.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("master")
    parser.add_argument("state")
    parser.add_argument("hosts", type=int)
    given = parser.parse_args()
    drive(given.folder, given.master, given.state, given.hosts)
