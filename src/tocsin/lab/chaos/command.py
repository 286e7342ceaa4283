"""`tocsin chaos`: run after run, kill processes of a pipeline and check its output; or brokers, or a server.

The folder of a run is removed if its output is correct, and kept if not.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tocsin.errors import UsageError

if TYPE_CHECKING:
    from tocsin.lab.chaos.brokers import BrokerChaosResult
    from tocsin.lab.chaos.run import ChaosResult
    from tocsin.lab.chaos.servers import ServerChaosResult

__all__ = ["PLACES", "ChaosSummary", "run_broker_chaos", "run_chaos", "run_server_chaos"]

PLACES = ("both", "local", "cluster", "store")
_SHOWN = 5  # differences of a run that are printed


@dataclass
class ChaosSummary:
    """The results of all runs together."""

    runs: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    doubled: int = 0
    wrong: int = 0
    deltas: int = 0
    batches: int = 0
    versions: int = 0  # on which batches ran
    seconds: float = 0.0

    def add(self, result: ChaosResult) -> None:
        """Add the result of one run."""
        self.runs += 1
        self.kills += result.kills
        self.lost += result.lost
        self.doubled += result.doubled
        self.wrong += result.wrong
        self.deltas += result.deltas
        self.batches += result.batches
        self.versions += result.versions

    @property
    def ok(self) -> bool:
        return not (self.lost or self.doubled or self.wrong)

    def to_dict(self) -> dict[str, Any]:
        return {
            "runs": self.runs,
            "kills": self.kills.total(),
            "lost": self.lost,
            "doubled": self.doubled,
            "wrong": self.wrong,
        }

    def lines(self) -> list[str]:
        who = ", ".join(f"{count} {kind}" for kind, count in sorted(self.kills.items())) or "none"
        return [
            f"{self.runs} runs in {self.seconds:.0f} s, {self.batches} batches on {self.versions} versions, "
            f"{self.deltas:,} deltas, kills: {who}",
            f"lost {self.lost}, doubled {self.doubled}, wrong {self.wrong}",
        ]


def run_chaos(
    runs: int,
    seed: int,
    *,
    place: str = "both",
    kills: int = 3,
    files: int = 10,
    updates: int | None = None,
    folder: Path | None = None,
    say: Callable[[str], object] = print,
) -> ChaosSummary:
    """Run after run, with seeds from `seed` on; `both` changes between one machine and a cluster,
    `store` is one machine with its state in an object store."""
    from tocsin.lab.chaos.cluster import running
    from tocsin.lab.chaos.object_store import BUCKET, object_store
    from tocsin.lab.chaos.run import ChaosRun, kill_plan
    from tocsin.lab.chaos.workload import ChaosWorkload

    _check_setting(place, kills, files)
    base = folder if folder is not None else Path(tempfile.mkdtemp(prefix="tocsin-chaos-"))
    total, began = ChaosSummary(), time.monotonic()
    with ExitStack() as stack:
        cluster, s3 = None, place == "store"
        if s3:
            stack.enter_context(object_store(base / "s3"))
        elif place != "local":
            cluster = stack.enter_context(running(logs=base / "cluster"))
        for number in range(runs):
            there = cluster if place == "cluster" or number % 2 else None
            where_it_runs = "store" if s3 else "cluster" if there else "local"
            name = f"run {number + 1} of {runs} (seed {seed + number}, {where_it_runs})"
            where = base / f"run-{seed + number}"
            if where.exists():
                raise UsageError(f"{where} is there already", hint="remove it, or choose another --dir")
            workload = ChaosWorkload(seed + number, files=files, updates=updates)
            state = f"s3://{BUCKET}/run-{seed + number}" if s3 else None
            run = ChaosRun(where, workload, kill_plan(workload, kills, where_it_runs), there, state)
            result = run.run(lambda text, name=name: say(f"{name}: {text}"))  # type: ignore[misc]
            total.add(result)
            say(
                f"{name}: {result.deltas:,} deltas of {result.batches} batches in {result.seconds:.0f} s, "
                + ("all right" if result.ok else f"NOT right, kept in {where}")
            )
            for difference in result.differences[:_SHOWN]:
                say(f"{name}: {difference}")
            if result.ok:
                shutil.rmtree(where, ignore_errors=True)
    if total.ok and folder is None:
        shutil.rmtree(base, ignore_errors=True)
    total.seconds = time.monotonic() - began
    return total


def _check_setting(place: str, kills: int, files: int) -> None:
    from tocsin.lab.chaos.object_store import JARS

    if place not in PLACES:
        raise UsageError(f"there is no place {place!r}", hint=f"one of {', '.join(PLACES)}")
    if place == "store" and JARS not in os.environ:
        raise UsageError(
            "Spark needs hadoop-aws and its bundle to read S3",
            hint=f"{JARS}=hadoop-aws.jar,bundle.jar names them",
        )
    if kills >= 4 * files:
        raise UsageError(
            f"{kills} kills in {files} files leave no time to work", hint="fewer --kills, or more --files"
        )


def run_broker_chaos(
    brokers: int, seed: int, seconds: float, repositories: int = 0, *, say: Callable[[str], object] = print
) -> BrokerChaosResult:
    """Kill brokers and cut links for some seconds; the first so many brokers keep a repository."""
    from tocsin.lab.chaos.brokers import BrokerChaos

    if brokers < 3:
        raise UsageError(f"{brokers} brokers have no other way", hint="at least 3")
    repository = range(1, repositories + 1)
    return BrokerChaos(brokers, seed, seconds=seconds, repository=repository, say=say).run()


def run_server_chaos(
    runs: int, seed: int, folder: Path | None = None, *, say: Callable[[str], object] = print
) -> ServerChaosResult:
    """Kill a server so many times under load; what was done in a folder is not done again."""
    from tocsin.lab.chaos.server_parts import ServerChaosParts

    return ServerChaosParts(runs, seed, folder, say).run()
