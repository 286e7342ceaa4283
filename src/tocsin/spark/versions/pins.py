"""Pins: which version of the subscriptions a batch runs on.

A micro-batch must see one version, also when it is replayed after a crash. The first process that needs it,
driver or worker, creates `pins/<query>/<batch>.json` with the newest version, the last applied seq and the
time; every other process, and every replay, reads that file. This is the only agreement between processes,
and a hard link makes it atomic: linking a finished file to its name either succeeds with the whole content
or fails because the name exists.
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
    from tocsin.spark.versions.store import Versions

__all__ = ["Pin", "Pins", "pinned_versions", "write_file"]

KEPT = 200  # pins of a query: Spark can replay the last 100 batches of a checkpoint


@dataclass(frozen=True)
class Pin:
    """What a batch runs on: a version, the last seq applied before it, and its time in microseconds."""

    version: int
    seq: int
    micros: int

    @property
    def start_seq(self) -> int:
        """The seq of deltas that precede the changes of the batch; 0 if nothing is applied yet."""
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
        """The pin of a batch; None if it is not created yet."""
        try:
            return Pin(**json.loads((self.path / f"{batch}.json").read_text()))
        except FileNotFoundError:
            return None

    def pin(self, batch: int, versions: Versions, now: datetime) -> Pin:
        """The pin of a batch; created from the newest version and `now` if there is none."""
        found = self.get(batch)
        if found is not None:
            return found
        numbers = versions.numbers()
        if not numbers:
            raise TocsinError(
                "there is no version of the subscriptions to run on", hint=f"looked in {versions.path}"
            )
        micros = (now - datetime.fromtimestamp(0, UTC)) // datetime.resolution
        created = Pin(numbers[-1], self.applied(batch - 1), micros)
        write_file(self.path / f"{batch}.json", json.dumps(asdict(created)), overwrite=False)
        self.remove_before(batch - KEPT)
        pin = self.get(batch)  # this one, or that of a faster process
        assert pin is not None
        return pin

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; -1 before the first, so that seq 0 is allowed."""
        with suppress(FileNotFoundError):
            return int((self.path / f"{batch}.applied").read_text())
        done = [int(path.stem) for path in self.path.glob("*.applied")]
        before = [number for number in done if number <= batch]
        return self.applied(max(before)) if before else -1

    def set_applied(self, batch: int, seq: int) -> None:
        """Record the last seq of a finished batch; a replay records the same again."""
        write_file(self.path / f"{batch}.applied", str(seq))

    def remove_before(self, batch: int) -> None:
        """Remove the pins of older batches, which Spark cannot replay."""
        for path in self.path.glob("*.*"):
            number = path.name.split(".")[0]
            if number.isdigit() and int(number) < batch:
                path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all pins: the query starts again from batch 0."""
        shutil.rmtree(self.path, ignore_errors=True)


def pinned_versions(versions: Path) -> set[int]:
    """Versions that a replay may need. A pipeline's pins are beside the versions, those of `match` inside."""
    found = set()
    for folder in (versions.parent, versions):
        for pin in folder.glob("pins/*/*.json"):
            with suppress(FileNotFoundError):  # a running pipeline removes old ones
                found.add(int(json.loads(pin.read_text())["version"]))
    return found


def write_file(path: Path, text: str, *, overwrite: bool = True) -> None:
    """Write a file whole or not at all, and flush it; without `overwrite`, an existing file stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}-{uuid.uuid4().hex}")
    with open(aside, "x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    if overwrite:
        os.replace(aside, path)
        return
    try:
        os.link(aside, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(aside)
