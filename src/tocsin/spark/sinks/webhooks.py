"""The webhook sink: `tocsin-webhook`, a data source that Spark's tasks write to; senders POST from there.

    deltas ─ by subscriber, in order ─► task ─► senders ─► POST, Idempotency-Key: query/batch/subscriber/part
                                                   └─► <undelivered>/batch=7/*.json, with the reason

All deltas of a subscriber are in one task, in order, cut into requests of at most `deltas_per_request`. A
replayed batch repeats its requests with the same keys, so a receiver that remembers the keys of the last
batch deduplicates them. With a `secret` requests are signed (`delivery/signing.py`). A request that is given
up does not stop the batch: it is kept whole, as a line of JSON in the folder `undelivered`; its `body` can be
posted as it is.

    {"subscriber": "ann", "part": 0, "key": "…", "reason": "answered 410 Gone", "body": {…}}

Each Python worker keeps the rates of its subscribers; when a subscriber's deltas come to another worker, the
limit starts again there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from tocsin.delivery.batches import Undelivered, WebhookRequest, WebhookSender, requests_of
from tocsin.delivery.http import HttpPoster
from tocsin.delivery.webhook_client import TokenBucket, WebhookSettings
from tocsin.errors import TocsinError
from tocsin.spark.sharding import shard_of_text
from tocsin.spark.sinks import QueryStart
from tocsin.spark.storage.store import address_of, open_store

__all__ = ["NAME", "Webhook", "WebhookSource", "send"]

NAME = "tocsin-webhook"
SETTINGS = "secret_settings"  # Spark hides options with such a name: headers may contain a password
GROUP = 1000  # subscribers whose requests a task has in memory at once

_buckets: dict[tuple[str, float, int], dict[str, TokenBucket]] = {}  # by address and rate, in this worker


class Webhook:
    """A sink that POSTs to subscribers. `settings` are those of `WebhookSettings`.

    `undelivered` is the folder for requests that were given up. By default a pipeline makes one under its
    `state_dir`; without a pipeline, the first such request fails the batch.
    """

    only_deltas = True

    def __init__(
        self, url: str, *, undelivered: str | Path | None = None, query: str = "", **settings: Any
    ) -> None:
        try:
            self.settings = WebhookSettings(url, **settings)
        except TypeError as error:
            known = ", ".join(each.name for each in fields(WebhookSettings) if each.name != "url")
            raise TocsinError(
                f"a webhook has no such setting: {error}", hint=f"its settings are {known}"
            ) from None
        self.undelivered = None if undelivered is None else address_of(undelivered)
        self.query = query

    def begin(self, start: QueryStart) -> Webhook:
        """The sink for a query that starts."""
        name = blake2b(self.settings.url.encode(), digest_size=4).hexdigest()
        folder = self.undelivered or (open_store(start.folder) / "undelivered" / name).address
        settings = {each.name: getattr(self.settings, each.name) for each in fields(WebhookSettings)}
        return Webhook(undelivered=folder, query=start.query, **settings)

    def __call__(self, frame: DataFrame, batch: int) -> None:
        frame.sparkSession.dataSource.register(WebhookSource)
        if self.undelivered is not None:
            store = open_store(self.undelivered) / f"batch={batch}"
            store.delete([entry.key for entry in store.list()])  # of the batch's first run
        name = F.coalesce("subscriber", F.concat(F.lit("subscription-"), F.col("subscription")))
        deltas = frame.select("seq", "subscription", name.alias("subscriber"), "sign", "row")
        (
            deltas.repartition("subscriber")
            .sortWithinPartitions("subscriber", "seq", "subscription", "sign", "row")
            .write.format(NAME)
            .option(SETTINGS, json.dumps({"settings": asdict(self.settings), "query": self.query}))
            .option("batch", str(batch))
            .option("undelivered", self.undelivered or "")
            .mode("append")
            .save()
        )


@dataclass
class WriteReport(WriterCommitMessage):
    """How many requests a task sent."""

    requests: int
    undelivered: int


class WebhookSource(DataSource):
    """The write-only data source that Spark knows as `tocsin-webhook`."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:
        return "seq bigint, subscription bigint, subscriber string, sign tinyint, row string"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        given = json.loads(self.options[SETTINGS])
        return _WebhookWriter(
            WebhookSettings(**given["settings"]),
            given["query"],
            int(self.options["batch"]),
            self.options["undelivered"],
        )


class _WebhookWriter(DataSourceArrowWriter):
    def __init__(self, settings: WebhookSettings, query: str, batch: int, undelivered: str) -> None:
        self.settings, self.query, self.batch, self.undelivered = settings, query, batch, undelivered

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: all deltas of some subscribers, sorted by subscriber."""
        requests = failed = 0
        with _UndeliveredFile(self.undelivered, self.batch) as file:
            for group in _groups(iterator):
                sent = requests_of(group, self.query, self.batch, self.settings.deltas_per_request)
                requests += len(sent)
                for lost in send(sent, self.settings):
                    failed += 1
                    file.add(lost)
        return WriteReport(requests, failed)


def send(requests: Sequence[WebhookRequest], settings: WebhookSettings) -> list[Undelivered]:
    """Send by several senders in parallel, each with its own subscribers."""
    shares: list[list[WebhookRequest]] = [[] for _ in range(settings.parallel)]
    for request in requests:
        shares[shard_of_text(request.subscriber, settings.parallel)].append(request)
    buckets = _buckets.setdefault((settings.url, settings.rate, settings.burst), {})
    if not settings.rate:
        buckets = {}  # no rates to keep
    with ThreadPoolExecutor(settings.parallel) as threads:
        found = threads.map(lambda share: _send_share(share, settings, buckets), filter(None, shares))
        return [lost for lost_of_one in found for lost in lost_of_one]


def _send_share(
    requests: list[WebhookRequest], settings: WebhookSettings, buckets: dict[str, TokenBucket]
) -> list[Undelivered]:
    poster = HttpPoster()
    try:
        return WebhookSender(settings, poster, buckets=buckets).deliver(requests)
    finally:
        poster.close()


def _groups(batches: Iterable[pa.RecordBatch]) -> Iterator[list[dict[str, Any]]]:
    """Deltas of up to `GROUP` subscribers at a time; a subscriber is never split."""
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


class _UndeliveredFile:
    """The file of a task's undelivered requests, written whole or not at all."""

    def __init__(self, folder: str, batch: int) -> None:
        self.folder, self.batch = folder, batch
        self._lines: list[str] = []

    def __enter__(self) -> _UndeliveredFile:
        return self

    def add(self, lost: Undelivered) -> None:
        request = lost.request
        if not self.folder:
            raise TocsinError(
                f"could not deliver to {request.subscriber}: {lost.reason}",
                hint="set `undelivered` to a folder for such requests, and the batch goes on",
            )
        head = {
            "subscriber": request.subscriber,
            "part": request.part,
            "key": request.key,
            "reason": lost.reason,
        }
        text = json.dumps(head)[:-1]
        self._lines.append(f'{text}, "body": {request.body.decode()}}}\n')

    def __exit__(self, kind: Any, *_: object) -> None:
        if kind is not None or not self._lines:
            return
        context = TaskContext.get()
        number = context.partitionId() if context is not None else 0
        store = open_store(self.folder) / f"batch={self.batch}"
        store.put(f"part-{number:05d}.json", "".join(self._lines).encode())  # the same if it is retried
