"""A pipeline: a stream of changes in, the deltas of every subscription out, on Spark.

    changes ──┐                                                      ┌─► deltas
              ├─ route ─► TableShards ─► QueryShards ─── label ─ foreachBatch
    versions ─┘           (stage 1)      (stage 2)                   └─► dead letters

It is one streaming query with one checkpoint. The log of subscription versions is a second
source of it, so that a new version alone brings about a batch. `steps.py` says what a shard does,
`placement.py` which shard does what, `versions.py` how everyone agrees on the version of a batch.

Delivery is effectively once: a batch that is run again after a crash finds its pin and its
state as they were, comes to the same deltas, and overwrites what it wrote (`deliver.py`, `sinks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import partial, reduce
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
from tocsin.spark.hashing import SPREAD
from tocsin.spark.incoming import changes_of, no_changes, refuse_batch
from tocsin.spark.sessions import ensure_state
from tocsin.spark.sinks.sinks import Sink, Start, as_sinks, begun
from tocsin.spark.stages.deliver import count_changes, deliver, labelled
from tocsin.spark.stages.processors import Place, QueryShards, TableShards
from tocsin.spark.stages.route import Clock, route, utc_now
from tocsin.spark.stages.shard_logic import FIRST_OWN_ID
from tocsin.spark.stages.wire import MESSAGE
from tocsin.spark.versions.changelog import Log, take_rows, tell_refused
from tocsin.spark.versions.lots import Lot, lots_of
from tocsin.spark.versions.placement import Layout, continues, relations_of
from tocsin.spark.versions.versions import Pins, Versions, create, definitions

__all__ = ["Pipeline"]

FILES = "path string, modificationTime timestamp, length bigint, content binary"
_RESERVED = 2**32  # ids from FIRST_OWN_ID on that shards use themselves


class Pipeline:
    """Standing queries over a stream of changes. Everything durable is under `state_dir`.

    `ddl` and `subscriptions` make a new version if they differ from the newest one there; without
    them the newest is used. A running pipeline takes up a new version (`publish`, `change`, `tocsin
    subscriptions`) with its next batch, and so what is dropped into the folder `log` (`changelog.py`). With
    `keep_others`, what came in these ways stays when a pipeline is started again with `subscriptions`.
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
        self.state_dir = Path(state_dir).absolute()
        self.clock = clock
        self.log = None if log is None else Log(Path(log).absolute())
        self.versions = Versions(self.state_dir / "subscriptions")
        self.layout = self._layout(layout)
        if keep_others and subscriptions is not None and ddl is not None:
            self._refuse(ddl, lots_of(subscriptions))
            self.versions.declare(ddl, subscriptions)
        elif subscriptions is not None or ddl is not None:
            self.publish(subscriptions, ddl=ddl)
        if self.versions.latest() is None:
            raise TocsinError(
                "the pipeline has no definitions",
                hint="give ddl= with CREATE TABLE or CREATE STREAM statements",
            )
        (self.state_dir / "layout.json").write_text(json.dumps({**self.layout.as_dict(), "spread": SPREAD}))

    def publish(self, subscriptions: Any = None, *, ddl: str | None = None) -> int:
        """Make a set of subscriptions the newest version; returns its number.

        The set is an engine, an Arrow table, rows of (id, sql), or lots (a template with its values, rows of
        predicates). What is not given stays: the definitions, or the subscriptions. All
        is checked here, so that a bad one is refused and never reaches a shard.
        """
        if ddl is None and isinstance(subscriptions, Engine):
            ddl = definitions(subscriptions)
        if subscriptions is None:
            return self.change(ddl=ddl)
        old = self.versions.newest()
        said = old.ddl if ddl is None else ddl
        lots = lots_of(subscriptions)
        self._refuse(said, lots)
        return self.versions.publish(said, lots)

    def change(
        self, *, add: Any = (), replace: Any = (), remove: Iterable[int] = (), ddl: str | None = None
    ) -> int:
        """Change the newest version by some subscriptions, all or nothing; returns the new number.

        A subscription that is replaced is told -1 for what it held, then +1 for what it holds.
        """
        lots = [*lots_of(add), *lots_of(replace)]
        self._refuse(self.versions.newest().ddl if ddl is None else ddl, lots)
        return self.versions.change(add=add, replace=replace, remove=remove, ddl=ddl)

    def start(
        self,
        changes: DataFrame,
        *,
        sink: str | Path | Sink | Sequence[str | Path | Sink],
        checkpoint: str | Path | None = None,
        dead_letters: str | Path | Sink | Sequence[str | Path | Sink] | None = None,
        trigger: dict[str, Any] | None = None,
        name: str | None = None,
        hosts: int | None = None,
    ) -> StreamingQuery:
        """Start the streaming query.

        `changes` has the columns `table`, `op`, `row` and `seq` (`incoming.py`); `sink` is one sink or a
        list of them (`sinks.py`); `trigger` is what `DataStreamWriter.trigger` takes, as in
        `{"availableNow": True}`. Without `dead_letters` bad rows are written to `<state_dir>/dead_letters`;
        those of a second checkpoint over the same `state_dir` beside it, to `dead_letters-<query>`. The
        session is given the settings of `sessions.STATE` that it lacks. `hosts` is how many processes beside
        an executor keep the live shards (`hosts.py`); by default one per core.
        """
        frame = self._input(changes)
        targets = as_sinks(sink)
        kept = self._checkpoint(checkpoint)
        name_of_query = query_of(kept.removeprefix(f"{self.state_dir}/"))  # a state_dir may be moved
        pins = str(self.state_dir / "pins")
        place = Place(str(self.versions.path), pins, self.layout, name_of_query, hosts)
        if not self._has_begun(kept):
            Pins(place.pins, place.query).clear()  # of a checkpoint that was there before, and is gone
        dead = as_sinks(dead_letters if dead_letters is not None else self._dead_letters(place.query))
        start = Start(self.spark, identity_of(place), self.state_dir / "delivery" / place.query)
        to, refused = begun(targets, start), begun(dead, start, dead=True)
        end = partial(deliver, place=place, query=start.query, sinks=to, dead=refused)
        ensure_state(self.spark)
        frame = (
            frame.mapInArrow(partial(route, place=place, clock=self.clock), MESSAGE)
            .groupBy("shard")
            .transformWithState(TableShards(place), MESSAGE, "Append", "None")
            .groupBy("shard")
            .transformWithState(QueryShards(place), MESSAGE, "Append", "None")
        )
        if self.log is not None:
            end = partial(_after_log, end, self.log, self.versions)
        writer = labelled(frame).writeStream.foreachBatch(end).outputMode("append")
        writer = writer.option("checkpointLocation", kept)
        if name is not None:
            writer = writer.queryName(name)
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def _dead_letters(self, query: str) -> Path:
        """`dead_letters` for the first query here, which then owns it: batches are numbered per query."""
        owner = self.state_dir / "dead_letters.owner"
        create(owner, query)
        return self.state_dir / ("dead_letters" if owner.read_text() == query else f"dead_letters-{query}")

    def _checkpoint(self, path: str | Path | None) -> str:
        """The checkpoint as an absolute path, or as the address it is."""
        if path is None:
            return str(self.state_dir / "checkpoint")
        return str(path) if "://" in str(path) else str(Path(str(path).removeprefix("file:")).absolute())

    def _has_begun(self, checkpoint: str) -> bool:
        """Whether Spark has a query in this checkpoint, wherever it lies."""
        if "://" not in checkpoint:
            return (Path(checkpoint) / "metadata").exists()
        try:
            return len(self.spark.read.text(f"{checkpoint}/metadata").take(1)) > 0
        except AnalysisException:
            return False

    def _input(self, changes: DataFrame) -> DataFrame:
        """The changes, and the log of versions beside them."""
        rows = count_changes(changes_of(changes)).withColumn("wake", F.lit(False))
        news = [self.spark.readStream.schema("version bigint").json(str(self.versions.log))]
        if self.log is not None:
            self.log.path.mkdir(parents=True, exist_ok=True)
            files = self.spark.readStream.format("binaryFile").schema(FILES)
            news.append(files.load(str(self.log.path)))
        wakes = (no_changes(one).withColumn("wake", F.lit(True)) for one in news)
        return reduce(DataFrame.union, wakes, rows)

    def follow(
        self,
        changes: DataFrame,
        *,
        checkpoint: str | Path | None = None,
        trigger: dict[str, Any] | None = None,
    ) -> StreamingQuery:
        """Start a query that takes changes of the subscriptions from a stream: any table that is a log.

        It has the columns of a log's rows (`changelog.py`): op, id, and sql; or template and values (JSON).
        """
        refuse_batch(changes)
        kept = self._checkpoint(checkpoint or self.state_dir / "followed")
        take = partial(_taken, versions=self.versions, key=f"query:{query_of(kept)}")
        writer = changes.writeStream.foreachBatch(take).option("checkpointLocation", kept)
        return writer.trigger(**trigger).start() if trigger else writer.start()

    def _refuse(self, ddl: str, lots: Sequence[Lot]) -> None:
        """Refuse ids that shards use themselves, and other definitions of what there is."""
        for lot in lots:
            if len(lot) and lot.ids.min() < FIRST_OWN_ID + _RESERVED:
                raise SubscriptionError(
                    f"subscription id {lot.ids.min()} is reserved", hint="ids from -2^62 up are free"
                )
        before = relations_of(self.versions.newest().ddl)
        for name, relation in relations_of(ddl).items():
            if name in before and not continues(before[name], relation):
                raise TocsinError(
                    f"{name} is defined differently than before: {before[name]} became {relation}",
                    hint="columns may be added; for anything else give it a new name",
                )

    def _layout(self, wanted: Layout | None) -> Layout:
        try:
            found = json.loads((self.state_dir / "layout.json").read_text())
        except FileNotFoundError:
            return wanted or Layout()
        if found.pop("spread", None) != SPREAD:
            raise TocsinError(
                f"the state in {self.state_dir} is of another Tocsin, which gave rows to other shards",
                hint="start with an empty state_dir, and let the source be read from its beginning",
            )
        kept = Layout(**found)
        if wanted not in (None, kept):
            raise TocsinError(
                f"the state in {self.state_dir} has {kept}, not {wanted}",
                hint="leave layout out, or start with an empty state_dir",
            )
        return kept


def _after_log(end: Callable[..., None], log: Log, versions: Versions, frame: DataFrame, batch: int) -> None:
    """For `foreachBatch`: a batch begins with the changes of the subscriptions that are there by now."""
    log.take(versions)
    end(frame, batch)


def _taken(frame: DataFrame, batch: int, *, versions: Versions, key: str) -> None:
    """For `foreachBatch`: take rows of a log, once."""
    if versions.newest().taken.get(key, -1) < batch:
        rows = [{k: v for k, v in row.items() if v is not None} for row in frame.toArrow().to_pylist()]
        refused = take_rows(versions, rows, {key: batch})
        tell_refused(versions.path / "refused" / f"{key.replace(':', '-')}-{batch}.jsonl", refused)


def query_of(checkpoint: str) -> str:
    """A short name for the query of a checkpoint."""
    return blake2b(checkpoint.encode(), digest_size=8).hexdigest()


def identity_of(place: Place) -> str:
    """The name of a query in what leaves the pipeline, as long as its checkpoint lives.

    A name made of paths alone would be the same for two pipelines, or for a checkpoint that begins anew, and
    a receiver would take their batches for repetitions.
    """
    path = Path(place.pins) / place.query / "identity"
    create(path, uuid4().hex)
    return path.read_text()
