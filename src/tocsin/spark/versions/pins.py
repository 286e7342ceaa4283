"""Pins: which version of the subscriptions a batch uses, for good.

A micro-batch must see one version, also when it is run a second time after a crash. Whoever
first asks, driver or worker, creates `pins/<query>/<batch>` with the newest version, the last
applied seq and the time of the batch; everyone else, and every replay, finds that file. That is
the only agreement between processes here, and linking a finished file to its name makes it: a
link either appears with its whole content or fails because the name is taken.
"""

from __future__ import annotations

import json
import os
import shutil
import uuid
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.errors import TocsinError

if TYPE_CHECKING:
    from tocsin.spark.versions.versions import Versions

__all__ = ["Pin", "Pins", "create", "pinned", "put"]

KEPT = 200  # pins of a query: Spark can replay the last 100 batches of a checkpoint


@dataclass(frozen=True)
class Pin:
    """What a batch runs on: a version, the last seq applied before it, and its time in microseconds.

    What a batch tells before any change is applied is told at seq 0 (`told`).
    """

    version: int
    seq: int
    micros: int

    @property
    def told(self) -> int:
        return max(self.seq, 0)

    @property
    def time(self) -> datetime:
        return datetime.fromtimestamp(self.micros // 1_000_000, UTC).replace(
            microsecond=self.micros % 1_000_000
        )


class Pins:
    """The pins of one query."""

    def __init__(self, path: str | Path, query: str) -> None:
        self.path = Path(path) / query

    def get(self, batch: int) -> Pin | None:
        """The pin of a batch, if someone asked before."""
        try:
            return Pin(**json.loads((self.path / f"{batch}.json").read_text()))
        except FileNotFoundError:
            return None

    def pin(self, batch: int, versions: Versions, now: datetime) -> Pin:
        """The pin of a batch: found, or made of the newest version and `now`."""
        found = self.get(batch)
        if found is not None:
            return found
        newest = versions.latest()
        if newest is None:
            raise TocsinError(
                "there is no version of the subscriptions to run on", hint=f"looked in {versions.path}"
            )
        micros = (now - datetime.fromtimestamp(0, UTC)) // _MICROSECOND
        mine = Pin(newest, self.applied(batch - 1), micros)
        create(self.path / f"{batch}.json", json.dumps(asdict(mine)))
        self.forget(before=batch - KEPT)
        theirs = self.get(batch)  # mine, or that of whoever was faster
        assert theirs is not None
        return theirs

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; -1 before the first, so that 0 may be the first."""
        with suppress(FileNotFoundError):
            return int((self.path / f"{batch}.applied").read_text())
        done = [int(n[:-8]) for n in self._names() if n.endswith(".applied")]
        before = [number for number in done if number <= batch]
        return self.applied(max(before)) if before else -1

    def set_applied(self, batch: int, seq: int) -> None:
        """Record the last seq of a finished batch; a replay records the same again."""
        self.path.mkdir(parents=True, exist_ok=True)
        put(self.path / f"{batch}.applied", str(seq))

    def forget(self, before: int) -> None:
        """Remove what no replay can ask for any more."""
        for name in self._names():
            number = name.split(".")[0]
            if number.isdigit() and int(number) < before:
                with suppress(FileNotFoundError):
                    os.unlink(self.path / name)

    def clear(self) -> None:
        """Forget everything: the query begins anew."""
        shutil.rmtree(self.path, ignore_errors=True)

    def _names(self) -> list[str]:
        try:
            return os.listdir(self.path)
        except FileNotFoundError:
            return []


def pinned(versions: Path) -> set[int]:
    """Versions that a batch may be run again on. Pins are beside the versions; those of `match`, in them."""
    found = set()
    for folder in (versions.parent, versions):
        for pin in folder.glob("pins/*/*.json"):
            with suppress(FileNotFoundError):  # a pipeline that runs removes old ones
                found.add(int(json.loads(pin.read_text())["version"]))
    return found


_MICROSECOND = datetime.resolution


def create(path: Path, text: str) -> None:
    """Create a file with this content unless the name is taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    _write_through(aside, text)
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)


def put(path: Path, text: str) -> None:
    """Give a file this content, whole or not at all."""
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    _write_through(aside, text)
    os.replace(aside, path)


def _write_through(path: Path, text: str) -> None:
    with open(path, "x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
