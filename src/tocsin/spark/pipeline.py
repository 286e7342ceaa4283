"""A pipeline: a stream of changes in, the deltas of every subscription out, on Spark.

    changes ──┐                                                      ┌─► deltas
              ├─ route ─► TableShards ─► QueryShards ───────── deliver
    versions ─┘           (stage 1)      (stage 2)                   └─► dead letters

It is one streaming query with one checkpoint. The log of subscription versions is its second source, so that
a new version alone starts a batch. `stages/shard_logic.py` says what a shard does, `versions/batch.py`
which shard does what, and how all processes agree on the version of a batch (`Pins`).

Delivery is effectively once: a batch that is replayed after a crash finds its pin and its state unchanged,
computes the same deltas, and overwrites what it wrote (`stages/deliver.py`, `sinks/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, TocsinError
from tocsin.spark.delta_frame import settled_layout, shard_messages, versions_log, with_wakes, write_layout
from tocsin.spark.early import start_early
from tocsin.spark.hosting.client import wanted_hosts
from tocsin.spark.sinks import QueryStart, Sink, as_sinks, begin_sinks, require_output
from tocsin.spark.sources import normalised, require_stream
from tocsin.spark.stages.deliver import count_changes, count_messages, deliver
from tocsin.spark.stages.route import Clock, utc_now
from tocsin.spark.stages.shard_logic import FIRST_OWN_ID
from tocsin.spark.stages.steps import PipelinePaths
from tocsin.spark.storage.store import Store, address_of, open_store, spark_address
from tocsin.spark.versions.batch import Layout, Pins, continues, relations_of
from tocsin.spark.versions.blocks import SubscriptionBlock, blocks_of, definitions
from tocsin.spark.versions.changelog import ChangeLog, apply_rows, write_rejected
from tocsin.spark.versions.store import Versions

__all__ = ["Pipeline"]

FILES = "path string, modificationTime timestamp, length bigint, content binary"
OWNER = "dead_letters.owner"
_RESERVED = 2**32  # ids from FIRST_OWN_ID on, for the shards' own subscriptions


class Pipeline:
    """Standing queries over a stream of changes. Everything durable is under `state_dir`: a folder that all
    hosts see, or an address in an object store (`storage/store.py`), as in `s3://bucket/state`.

    `ddl` and `subscriptions` make a new version if they differ from the newest one; without them the newest
    one is used. A running pipeline uses a new version (`publish`, `change`, `tocsin subscriptions`) from its
    next batch on; files in the folder `log` change the subscriptions too (`versions/changelog.py`). With
    `keep_others`, starting a pipeline again with `subscriptions` keeps what was added in these ways.
    """

    def __init__(
        self,
        spark: SparkSession,
        *,
        ddl: str | None = None,
        subscriptions: Any = None,
        state_dir: str | Path,
        layout: Layout | None = None,
        clock: Clock = utc_now,
        log: str | Path | None = None,
        keep_others: bool = False,
    ) -> None:
        self.spark = spark
        self.state = open_store(state_dir)
        _refuse_memory(self.state)
        self.clock = clock
        self.log = None if log is None else ChangeLog(log)
        self.layout = settled_layout(self.state, layout)
        self.versions = Versions(self.state / "subscriptions", self.layout.joins)
        if keep_others and subscriptions is not None and ddl is not None:
            self._check(ddl, blocks_of(subscriptions))
            self.versions.declare(ddl, subscriptions)
        elif subscriptions is not None or ddl is not None:
            self.publish(subscriptions, ddl=ddl)
        if self.versions.latest() is None:
            raise TocsinError(
                "the pipeline has no definitions",
                hint="give ddl= with CREATE TABLE or CREATE STREAM statements",
            )
        write_layout(self.state, self.layout)

    def publish(self, subscriptions: Any = None, *, ddl: str | None = None) -> int:
        """Replace all subscriptions, including those added since; returns the number of the new version.

        The set is an engine, an Arrow table, rows of (id, sql), or blocks (a template with its values, rows
        of predicates). Definitions or subscriptions that are not given stay as they are. A bad subscription
        is rejected here and never reaches a shard.
        """
        if ddl is None and isinstance(subscriptions, Engine):
            ddl = definitions(subscriptions)
        if subscriptions is None:
            return self.change(ddl=ddl)
        ddl = self.versions.newest().ddl if ddl is None else ddl
        blocks = blocks_of(subscriptions)
        self._check(ddl, blocks)
        return self.versions.publish(ddl, blocks)

    def change(
        self, *, add: Any = (), replace: Any = (), remove: Iterable[int] = (), ddl: str | None = None
    ) -> int:
        """Change some subscriptions, all or nothing; returns the new version's number.

        A replaced subscription receives -1 for its old content, then +1 for its new one.
        """
        blocks = [*blocks_of(add), *blocks_of(replace)]
        self._check(self.versions.newest().ddl if ddl is None else ddl, blocks)
        return self.versions.change(add=add, replace=replace, remove=remove, ddl=ddl)

    def refresh(self, ids: Iterable[int]) -> int:
        """Ask for the deltas of deferred subscriptions (`WITH (refresh = ...)`); returns the new version.

        The next batch emits them: the net change since they were refreshed last, as of the end of the batch
        before it.
        """
        return self.versions.change(refresh=ids)

    def start(
        self,
        changes: DataFrame,
        *,
        sink: str | Path | Sink | Sequence[str | Path | Sink],
        checkpoint: str | Path | None = None,
        dead_letters: str | Path | Sink | Sequence[str | Path | Sink] | None = None,
        trigger: dict[str, Any] | None = None,
        name: str | None = None,
        hosts: int | str | None = None,
        output: str = "deltas",
    ) -> StreamingQuery:
        """Start the streaming query.

        `changes` has the columns `table`, `op`, `row` and `seq` (`sources.py`); `sink` is one sink or a list
        of them (`sinks/`); `trigger` has the arguments of `DataStreamWriter.trigger`, as in
        `{"availableNow": True}`. Rejected changes go to the sink `dead_letters`, by default
        `<state_dir>/dead_letters`, and for a second checkpoint over the same `state_dir` to
        `<state_dir>/dead_letters-<query>`. The session gets the settings of `sessions.STATE` that it lacks.
        `hosts` is the number of processes beside an executor that keep the live shards
        (`hosting/client.py`), or "auto" for one per core; by default Spark's Python workers keep them.

        `output="messages"` describes joins of two tables instead of sending their rows to each subscription:
        a message says what changed and whom it concerns, and `MessageReader` keeps contents from it
        (`messages.py`). Other shapes are sent as deltas beside. A checkpoint keeps its output.
        """
        wanted = wanted_hosts(hosts)
        start_early(self.spark, wanted)
        frame = self._input(changes)
        sinks = as_sinks(sink)
        require_output(output, sinks)
        path, pins = self._checkpoint(checkpoint), (self.state / "pins").address
        query = query_of(path.removeprefix(f"{spark_address(self.state.address)}/"))  # it may be moved
        paths = PipelinePaths(self.versions.store.address, pins, self.layout, query, wanted, output)
        if not self._has_started(path):
            Pins(pins, query).clear()  # of an earlier checkpoint at this path that was removed
        keep_output(paths)
        bad = as_sinks(dead_letters if dead_letters is not None else self._dead_letters(query))
        start = QueryStart(self.spark, identity_of(paths), self.state / "delivery" / query)
        each_batch = partial(
            deliver,
            paths=paths,
            query=start.query,
            sinks=begin_sinks(sinks, start),
            dead_letter_sinks=begin_sinks(bad, start, dead_letters=True),
        )
        frame = shard_messages(frame, paths, self.clock)
        if self.log is not None:
            each_batch = partial(_apply_log_first, each_batch, self.log, self.versions)
        writer = count_messages(frame).writeStream.foreachBatch(each_batch).outputMode("append")
        writer = writer.option("checkpointLocation", path)
        if name is not None:
            writer = writer.queryName(name)
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def _dead_letters(self, query: str) -> str:
        """The default sink: the first query owns `dead_letters`, because batches are numbered per query."""
        is_first = self.state.put_new(OWNER, query.encode()) or self.state.get(OWNER) == query.encode()
        folder = self.state / ("dead_letters" if is_first else f"dead_letters-{query}")
        return f"parquet:{folder.address}"

    def _checkpoint(self, path: str | Path | None) -> str:
        """The checkpoint as an absolute path; an address is unchanged."""
        if path is None:
            return spark_address((self.state / "checkpoint").address)
        is_sparks = "://" in str(path) and not str(path).startswith(("s3://", "file://"))  # hdfs://, dbfs://
        return str(path) if is_sparks else spark_address(address_of(path))

    def _has_started(self, checkpoint: str) -> bool:
        """Whether Spark has started a query with this checkpoint."""
        if "://" not in checkpoint or checkpoint.startswith(spark_address(self.state.address)):
            return open_store(checkpoint).find("metadata") is not None
        try:
            return len(self.spark.read.text(f"{checkpoint}/metadata").take(1)) > 0
        except AnalysisException:
            return False

    def _input(self, changes: DataFrame) -> DataFrame:
        """The changes and, to start a batch, the log of versions and the change log, as rows with `wake`."""
        rows = count_changes(normalised(changes)).withColumn("wake", F.lit(False))
        logs = [versions_log(self.spark, self.versions)]
        if self.log is not None:
            if self.log.store.is_local:
                self.log.path.mkdir(parents=True, exist_ok=True)
            files = self.spark.readStream.format("binaryFile").schema(FILES)
            logs.append(files.load(spark_address(self.log.store.address)))
        return with_wakes(rows, logs)

    def follow(
        self,
        changes: DataFrame,
        *,
        checkpoint: str | Path | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start a query that applies changes of the subscriptions from a stream.

        It has the columns of a change log (`versions/changelog.py`): op, id, and sql; or template and values
        (JSON).
        """
        require_stream(changes)
        path = self._checkpoint(checkpoint or (self.state / "followed").address)
        apply = partial(_apply_batch, versions=self.versions, key=f"query:{query_of(path)}")
        writer = changes.writeStream.foreachBatch(apply).option("checkpointLocation", path)
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def _check(self, ddl: str, blocks: Sequence[SubscriptionBlock]) -> None:
        """Reject reserved ids, and definitions that contradict earlier ones."""
        for block in blocks:
            if len(block) and block.ids.min() < FIRST_OWN_ID + _RESERVED:
                raise SubscriptionError(
                    f"subscription id {block.ids.min()} is reserved", hint="ids from -2^62 up are free"
                )
        before = relations_of(self.versions.newest().ddl)
        for name, relation in relations_of(ddl).items():
            if name in before and not continues(before[name], relation):
                raise TocsinError(
                    f"{name} is defined differently than before: {before[name]} became {relation}",
                    hint="columns may be added; for anything else give it a new name",
                )


def _apply_log_first(
    each_batch: Callable[..., None], log: ChangeLog, versions: Versions, frame: DataFrame, batch: int
) -> None:
    """For `foreachBatch`: apply the new files of the change log, then run the batch."""
    log.apply(versions)
    each_batch(frame, batch)


def _apply_batch(frame: DataFrame, batch: int, *, versions: Versions, key: str) -> None:
    """For `foreachBatch`: apply rows of a change log exactly once."""
    if versions.newest().consumed.get(key, -1) < batch:
        rows = [{k: v for k, v in row.items() if v is not None} for row in frame.toArrow().to_pylist()]
        rejected = apply_rows(versions, rows, {key: batch})
        write_rejected(versions.store / "refused", f"{key.replace(':', '-')}-{batch}.jsonl", rejected)


def query_of(checkpoint: str) -> str:
    """A short name for the query of a checkpoint."""
    return blake2b(checkpoint.encode(), digest_size=8).hexdigest()


def keep_output(paths: PipelinePaths) -> None:
    """Record what leaves a query; raises if it was something else before.

    Subscriptions that began as deltas would never begin as messages.
    """
    store = open_store(paths.pins) / paths.query
    before = (store.find("output") or b"deltas").decode()
    if before != paths.output and any(entry.key.endswith(".json") for entry in store.list()):
        raise TocsinError(
            f"the output of this query is {before}, not {paths.output}",
            hint="give it another checkpoint and another sink",
        )
    store.put("output", paths.output.encode())


def identity_of(paths: PipelinePaths) -> str:
    """The unique name of a query in what leaves the pipeline; it lives as long as the query's pins.

    A name made of paths would be the same for two pipelines, or for a checkpoint that starts again, and a
    receiver would take their batches for redeliveries.
    """
    store, fresh = open_store(paths.pins) / paths.query, uuid4().hex
    return fresh if store.put_new("identity", fresh.encode()) else store.get("identity").decode()


def _refuse_memory(state: Store) -> None:
    if state.address.startswith("memory:"):
        raise TocsinError(f"{state} is in the memory of one process", hint="Spark's workers cannot see it")
