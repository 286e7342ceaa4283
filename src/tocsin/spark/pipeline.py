"""A pipeline: a stream of changes in, the deltas of every subscription out, on Spark.

    changes ──┐                                                      ┌─► deltas
              ├─ route ─► TableShards ─► QueryShards ─ flatten ─ foreachBatch
    versions ─┘           (stage 1)      (stage 2)                   └─► dead letters

It is one streaming query with one checkpoint. The log of subscription versions is a second
source of it, so that a new version alone brings about a batch. `steps.py` says what a shard does,
`placement.py` which shard does what, `versions.py` how everyone agrees on the version of a batch.

Delivery is effectively once: a batch that is run again after a crash finds its pin and its
state as they were, comes to the same deltas, and overwrites what it wrote (`deliver.py`, `sinks.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StringType, StructType

from tocsin.engine import Engine
from tocsin.errors import SubscriptionError, TocsinError
from tocsin.spark.deliver import deliver
from tocsin.spark.lots import Lot, lots_of
from tocsin.spark.placement import Layout, continues, relations_of
from tocsin.spark.route import OUTPUT, Clock, flatten, route, utc_now
from tocsin.spark.sessions import ensure_state
from tocsin.spark.shards import Place, QueryShards, TableShards
from tocsin.spark.sinks import Sink, as_sink
from tocsin.spark.steps import FIRST_OWN_ID
from tocsin.spark.versions import Pins, Versions, create, definitions
from tocsin.spark.wire import MESSAGE

__all__ = ["Pipeline"]

COLUMNS = {"table": "string", "op": "string", "seq": "bigint"}
TIMES = {  # to the microsecond
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_RESERVED = 2**32  # ids from FIRST_OWN_ID on that shards use themselves


class Pipeline:
    """Standing queries over a stream of changes. Everything durable is under `state_dir`.

    `ddl` and `subscriptions` make a new version if they differ from the newest one there; without
    them the newest is used. A running pipeline takes up a new version (`publish`) with its next batch.
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
    ) -> None:
        self.spark = spark
        self.state_dir = Path(state_dir).absolute()
        self.clock = clock
        self.versions = Versions(self.state_dir / "subscriptions")
        self.layout = self._layout(layout)
        if subscriptions is not None or ddl is not None:
            self.publish(subscriptions, ddl=ddl)
        if self.versions.latest() is None:
            raise TocsinError(
                "the pipeline has no definitions",
                hint="give ddl= with CREATE TABLE or CREATE STREAM statements",
            )
        (self.state_dir / "layout.json").write_text(json.dumps(self.layout.as_dict()))

    def publish(self, subscriptions: Any = None, *, ddl: str | None = None) -> int:
        """Make a set of subscriptions the newest version; returns its number.

        The set is an engine, an Arrow table, rows of (id, sql), or lots (`tocsin.spark.lots`: a template with
        its values, rows of predicates). What is not given stays: the definitions, or the subscriptions. All
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
        sink: str | Path | Sink,
        checkpoint: str | Path | None = None,
        dead_letters: str | Path | Sink | None = None,
        trigger: dict[str, Any] | None = None,
        name: str | None = None,
    ) -> StreamingQuery:
        """Start the streaming query.

        `changes` has the columns `table`, `op`, `row` (JSON text or a struct) and `seq`; `trigger` is
        what `DataStreamWriter.trigger` takes, as in `{"availableNow": True}`. Without `dead_letters`
        bad rows are written to `<state_dir>/dead_letters`; those of a second checkpoint over the same
        `state_dir` beside it, to `dead_letters-<query>`. The session is given the settings of
        `sessions.STATE` that it lacks.
        """
        frame = self._input(changes)
        target = as_sink(sink)
        kept = self._checkpoint(checkpoint)
        name_of_query = query_of(kept.removeprefix(f"{self.state_dir}/"))  # a state_dir may be moved
        place = Place(str(self.versions.path), str(self.state_dir / "pins"), self.layout, name_of_query)
        if not self._has_begun(kept):
            Pins(place.pins, place.query).clear()  # of a checkpoint that was there before, and is gone
        dead = as_sink(dead_letters if dead_letters is not None else self._dead_letters(place.query))
        ensure_state(self.spark)
        frame = (
            frame.mapInArrow(partial(route, place=place, clock=self.clock), MESSAGE)
            .groupBy("shard")
            .transformWithState(TableShards(place), MESSAGE, "Append", "None")
            .groupBy("shard")
            .transformWithState(QueryShards(place), MESSAGE, "Append", "None")
            .mapInArrow(partial(flatten, place=place), OUTPUT)
        )
        writer = frame.writeStream.foreachBatch(partial(deliver, place=place, sink=target, dead=dead))
        writer = writer.outputMode("append")
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
        """The changes as text columns, and the log of versions beside them."""
        if not changes.isStreaming:
            raise TocsinError(
                "the changes are a batch, not a stream", hint="read them by spark.readStream, not spark.read"
            )
        fields = {field.name: field.dataType for field in changes.schema.fields}
        missing = [name for name in (*COLUMNS, "row") if name not in fields]
        if missing:
            raise TocsinError(
                f"the changes have no column {', '.join(missing)}", hint="needed are table, op, row and seq"
            )
        if isinstance(fields["row"], StructType):
            # a struct has all its fields in every row: NULL must mean "not given"
            row = F.to_json("row", TIMES)
        elif isinstance(fields["row"], StringType):
            row = F.col("row")
        else:
            raise TocsinError(
                f"column row is {fields['row'].simpleString()}", hint="make it JSON text or a struct"
            )
        plain = [F.col(column).cast(kind).alias(column) for column, kind in COLUMNS.items()]
        rows = changes.select(*plain, row.alias("row"), F.lit(False).alias("wake"))
        log = self.spark.readStream.schema("version bigint").json(str(self.versions.log))
        nothing = [F.lit(None).cast(kind).alias(column) for column, kind in COLUMNS.items()]
        return rows.union(
            log.select(*nothing, F.lit(None).cast("string").alias("row"), F.lit(True).alias("wake"))
        )

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
            kept = Layout(**json.loads((self.state_dir / "layout.json").read_text()))
        except FileNotFoundError:
            return wanted or Layout()
        if wanted not in (None, kept):
            raise TocsinError(
                f"the state in {self.state_dir} has {kept}, not {wanted}",
                hint="leave layout out, or start with an empty state_dir",
            )
        return kept


def query_of(checkpoint: str) -> str:
    """A short name for the query of a checkpoint."""
    return blake2b(checkpoint.encode(), digest_size=8).hexdigest()
