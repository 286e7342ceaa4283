"""Pins: which version of the subscriptions a batch runs on.

A micro-batch must see one version, also when it is replayed after a crash. The first process that needs it,
driver or worker, creates `pins/<query>/<batch>.json` with the newest version, the last applied seq and the
time; every other process, and every replay, reads that object. This is the only agreement between processes,
and `Store.put_new` makes it atomic: it writes the whole object, or nothing because there is one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from tocsin.errors import TocsinError
from tocsin.spark.storage.store import Store, open_store

if TYPE_CHECKING:
    from tocsin.spark.versions.store import Versions

__all__ = ["Pin", "Pins", "pinned_versions"]

KEPT = 200  # pins of a query: Spark can replay the last 100 batches of a checkpoint
PRUNED_EVERY = 32  # batches


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

    def __init__(self, place: str | Path | Store, query: str) -> None:
        self.store = open_store(place) / query

    def get(self, batch: int) -> Pin | None:
        """The pin of a batch; None if it is not created yet."""
        found = self.store.find(f"{batch}.json")
        return None if found is None else Pin(**json.loads(found))

    def pin(self, batch: int, versions: Versions, now: datetime) -> Pin:
        """The pin of a batch; created from the newest version and `now` if there is none."""
        found = self.get(batch)
        if found is not None:
            return found
        number = versions.latest()
        if number is None:
            raise TocsinError(
                "there is no version of the subscriptions to run on", hint=f"looked in {versions.store}"
            )
        micros = (now - datetime.fromtimestamp(0, UTC)) // datetime.resolution
        created = Pin(number, self.applied(batch - 1), micros)
        if self.store.put_new(f"{batch}.json", json.dumps(asdict(created)).encode()):
            if batch % PRUNED_EVERY == 0:
                self.remove_before(batch - KEPT)
            return created
        pin = self.get(batch)  # that of a faster process
        assert pin is not None
        return pin

    def applied(self, batch: int) -> int:
        """The last seq applied up to the end of a batch; -1 before the first, so that seq 0 is allowed."""
        found = self.store.find(f"{batch}.applied") if batch >= 0 else None
        if found is not None:
            return int(found)
        before = [n for n, kind, _ in self._numbered() if kind == "applied" and n <= batch]
        return int(self.store.get(f"{max(before)}.applied")) if before else -1

    def set_applied(self, batch: int, seq: int) -> None:
        """Record the last seq of a finished batch; a replay records the same again."""
        self.store.put(f"{batch}.applied", str(seq).encode())

    def remove_before(self, batch: int) -> None:
        """Remove the pins of older batches, which Spark cannot replay."""
        self.store.delete([key for number, _, key in self._numbered() if number < batch])

    def clear(self) -> None:
        """Remove all pins: the query starts again from batch 0."""
        self.store.delete([entry.key for entry in self.store.list()])

    def _numbered(self) -> Iterator[tuple[int, str, str]]:
        """The batch, the kind and the key of what is kept for each batch."""
        for entry in self.store.list():
            number, _, kind = entry.key.partition(".")
            if number.isdigit():
                yield int(number), kind, entry.key


def pinned_versions(store: Store) -> set[int]:
    """Versions that a replay may need. A pipeline's pins are beside the versions, those of `match` inside."""
    found = set()
    for pins in (store.parent / "pins", store / "pins"):
        for entry in pins.list():
            if entry.key.endswith(".json"):
                pin = pins.find(entry.key)  # a running pipeline removes old ones
                found |= set() if pin is None else {int(json.loads(pin)["version"])}
    return found
