"""The webhook sink: `tocsin-webhook`, a data source that Spark's tasks write to, and couriers carry on.

    deltas ─ by subscriber, in order ─► task ─► couriers ─► POST, Idempotency-Key: query/batch/subscriber/part
                                                   └─► <undelivered>/batch=7/*.json, with the reason

All deltas of a subscriber are in one task, in order, cut into letters of at most `deltas_per_letter`. A batch
that is run again sends the same letters with the same keys, so a receiver that remembers the keys of the last
batch takes each once. A letter that is given up does not stop the batch: it is kept, whole, as a line of JSON
in the folder `undelivered`; its `body` can be posted as it is.

    {"subscriber": "ann", "part": 0, "key": "…", "reason": "answered 410 Gone", "body": {…}}

The rate of a subscriber is kept in each Python worker; where its deltas come to another worker, the limit
starts anew there.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4
from zlib import crc32

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tocsin.errors import TocsinError
from tocsin.spark.sinks.sinks import Start
from tocsin.spark.sinks.webhook_client import Bucket, Courier, Letter, Poster, Terms, Undelivered, letters_of

__all__ = ["NAME", "Webhook", "WebhookSource", "send"]

NAME = "tocsin-webhook"
SETTINGS = "secret_settings"  # Spark hides options with such a name: headers may hold a password
GROUP = 1000  # subscribers whose letters a task holds at once

_buckets: dict[tuple[str, float, int], dict[str, Bucket]] = {}  # by address and rate, in this worker


class Webhook:
    """A sink that POSTs to subscribers. `terms` are those of `courier.Terms`.

    `undelivered` is the folder for letters that were given up. A pipeline that is given none makes one under
    its `state_dir`; without a pipeline, the first such letter fails the batch.
    """

    only_deltas = True

    def __init__(
        self, url: str, *, undelivered: str | Path | None = None, query: str = "", **terms: Any
    ) -> None:
        try:
            self.terms = Terms(url, **terms)
        except TypeError as error:
            known = ", ".join(each.name for each in fields(Terms) if each.name != "url")
            raise TocsinError(f"a webhook does not take that: {error}", hint=f"it takes {known}") from None
        self.undelivered = None if undelivered is None else str(Path(undelivered).absolute())
        self.query = query

    def begin(self, start: Start) -> Webhook:
        """The same for a query that starts."""
        name = blake2b(self.terms.url.encode(), digest_size=4).hexdigest()
        folder = self.undelivered or str(start.folder / "undelivered" / name)
        terms = {each.name: getattr(self.terms, each.name) for each in fields(Terms)}
        return Webhook(undelivered=folder, query=start.query, **terms)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        frame.sparkSession.dataSource.register(WebhookSource)
        if self.undelivered is not None:
            shutil.rmtree(self._folder(batch), ignore_errors=True)  # of the batch's first run
        who = F.coalesce("subscriber", F.concat(F.lit("subscription-"), F.col("subscription")))
        deltas = frame.select("seq", "subscription", who.alias("subscriber"), "sign", "row")
        (
            deltas.repartition("subscriber")
            .sortWithinPartitions("subscriber", "seq", "subscription", "sign", "row")
            .write.format(NAME)
            .option(SETTINGS, json.dumps({"terms": asdict(self.terms), "query": self.query}))
            .option("batch", str(batch))
            .option("undelivered", self.undelivered or "")
            .mode("append")
            .save()
        )

    def _folder(self, batch: int) -> str:
        return f"{self.undelivered}/batch={batch}"


@dataclass
class Sent(WriterCommitMessage):
    """What a task has to report."""

    letters: int
    undelivered: int


class WebhookSource(DataSource):
    """What Spark knows under the name `tocsin-webhook`: something to write to."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "seq bigint, subscription bigint, subscriber string, sign tinyint, row string"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        said = json.loads(self.options[SETTINGS])
        return _Writer(
            Terms(**said["terms"]), said["query"], int(self.options["batch"]), self.options["undelivered"]
        )


class _Writer(DataSourceArrowWriter):
    def __init__(self, terms: Terms, query: str, batch: int, undelivered: str) -> None:
        self.terms, self.query, self.batch, self.undelivered = terms, query, batch, undelivered

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: all deltas of some subscribers, sorted by subscriber."""
        letters = failed = 0
        with _Kept(self.undelivered, self.batch) as kept:
            for group in _groups(iterator):
                sent = letters_of(group, self.query, self.batch, self.terms.deltas_per_letter)
                letters += len(sent)
                for lost in send(sent, self.terms):
                    failed += 1
                    kept.add(lost)
        return Sent(letters, failed)


def send(letters: Sequence[Letter], terms: Terms) -> list[Undelivered]:
    """Send by several couriers, each with subscribers of its own."""
    shares: list[list[Letter]] = [[] for _ in range(terms.parallel)]
    for letter in letters:
        shares[crc32(letter.subscriber.encode()) % terms.parallel].append(letter)
    buckets = _buckets.setdefault((terms.url, terms.rate, terms.burst), {})
    if not terms.rate:
        buckets = {}  # nothing to remember
    with ThreadPoolExecutor(terms.parallel) as threads:
        found = threads.map(lambda share: _carry(share, terms, buckets), filter(None, shares))
        return [lost for lost_of_one in found for lost in lost_of_one]


def _carry(letters: list[Letter], terms: Terms, buckets: dict[str, Bucket]) -> list[Undelivered]:
    poster = Poster()
    try:
        return Courier(terms, poster, buckets=buckets).deliver(letters)
    finally:
        poster.close()


def _groups(batches: Iterator[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Deltas of many subscribers at a time, never half of one's."""
    group: list[dict[str, Any]] = []
    names: set[str] = set()
    for batch in batches:
        for delta in batch.to_pylist():
            if delta["subscriber"] not in names and len(names) == GROUP:
                yield group
                group, names = [], set()
            names.add(delta["subscriber"])
            group.append(delta)
    if group:
        yield group


class _Kept:
    """The file of a task's undelivered letters; there whole or not at all."""

    def __init__(self, folder: str, batch: int) -> None:
        self.folder, self.batch = folder, batch
        self._lines: list[str] = []

    def __enter__(self) -> _Kept:
        return self

    def add(self, lost: Undelivered) -> None:
        letter = lost.letter
        if not self.folder:
            raise TocsinError(
                f"{letter.subscriber} could not be written to: {lost.reason}",
                hint="set `undelivered` to a folder where such letters are kept, and the rest goes on",
            )
        told = {
            "subscriber": letter.subscriber,
            "part": letter.part,
            "key": letter.key,
            "reason": lost.reason,
        }
        text = json.dumps(told)[:-1]
        self._lines.append(f'{text}, "body": {letter.body.decode()}}}\n')

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None or not self._lines:
            return
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        folder = Path(self.folder) / f"batch={self.batch}"
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{uuid4().hex}"
        with open(aside, "x", encoding="utf-8") as file:
            file.writelines(self._lines)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, folder / f"part-{number:05d}.json")  # the same name if the task is tried again
