"""Described output: the messages of a batch as records, and a reader that keeps contents from them.

    shards ─► ShardPart ─ merged in one task ─► OutputPart, as bytes ─► files, Kafka ─► MessageReader

With `output="messages"` a pipeline sends what changed and whom it concerns instead of every subscription's
rows (`network/described.py`). A batch is a few *parts*, records of at most some hundred kilobytes:

    begins     subscriptions that begin with this batch: their place, and the rows they hold so far
    messages   in order of (seq, step), each with its region

A client applies whole batches, each once. A replay of a batch may describe the same changes by other regions,
so parts of two attempts are never mixed: an attempt counts when all its parts are there.

    reader = MessageReader()
    reader.follow(7, "SELECT * FROM stocks JOIN reviews USING (symbol) WHERE per < 20")
    reader.read("messages")         the folder of a sink, or a Topic: whatever is new
    reader.content(7)

Needs no Spark.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import numpy as np
import orjson
import pyarrow.parquet as parquet

from tocsin.client import Client
from tocsin.errors import TocsinError, UsageError
from tocsin.model.columns import Index
from tocsin.model.delta import Delta
from tocsin.model.message import MessageKind
from tocsin.network.answers import Answers
from tocsin.network.batches import MessageBatch
from tocsin.network.follower import ClientNode
from tocsin.network.holdings import Part, Snapshot
from tocsin.network.routing import NO_BOXES
from tocsin.network.wire import Answer, ClientRequest, PackedBatch, Replay, Resume, Update, write_boxes
from tocsin.spark.topic import Topic

__all__ = [
    "Begin",
    "MessageReader",
    "OutputPart",
    "ShardPart",
    "decoded",
    "encoded",
    "is_delta",
    "parts_in",
    "parts_of",
    "ready_batches",
]

FORMAT = 1
MOST_BYTES = 768 << 10  # of a part: Kafka takes records of a megabyte


class Begin(msgspec.Struct, array_like=True):
    """A subscription that begins: its tables, and by form its point and the rows it holds."""

    subscription: int
    tables: tuple[str, ...]
    parts: list[Part]  # none: it can never have an answer
    ends: bool = False  # it is described no more: removed, or sent as deltas

    @property
    def has_rows(self) -> bool:
        return any(rows for part in self.parts for rows in part.rows)


class ShardPart(msgspec.Struct, array_like=True):
    """What one shard describes in a batch."""

    start: int  # the last seq before the batch
    begins: list[Begin]
    messages: PackedBatch


class OutputPart(msgspec.Struct, array_like=True):
    """One record of a batch: number `number` of `count`."""

    format: int
    batch: int
    attempt: str
    number: int
    count: int
    start: int  # the last seq before the batch
    seq: int  # the last one of its messages
    version: int  # of the subscriptions
    definitions: dict[str, str]  # by name, of the tables of subscriptions that begin
    begins: list[Begin]
    messages: PackedBatch


_SHARD_PARTS = msgspec.msgpack.Decoder(ShardPart)
_PARTS = msgspec.msgpack.Decoder(OutputPart)
_ENCODER = msgspec.msgpack.Encoder()


# -- writing -----------------------------------------------------------------------------------------


def parts_of(
    shards: Iterable[bytes], batch: int, version: int, definitions: Mapping[str, str]
) -> Iterator[OutputPart]:
    """The parts of a batch, from what its shards describe."""
    found = [_SHARD_PARTS.decode(data) for data in shards]
    messages = _merged([part.messages.open() for part in found])
    begins = list(_begins(found))
    if not len(messages) and not begins:
        return
    start = max(part.start for part in found)
    seq = int(messages.messages.seq[-1]) if len(messages) else start
    chunks = [*_chunks(begins), *(([], piece) for piece in messages.pieces(MOST_BYTES) if len(piece))]
    attempt = uuid4().hex
    for number, (some, piece) in enumerate(chunks):
        texts = {table: definitions[table] for begin in some for table in begin.tables}
        packed = PackedBatch.of(piece) if piece is not None else PackedBatch()
        yield OutputPart(
            *(FORMAT, batch, attempt, number, len(chunks), start, seq, version, texts, some, packed)
        )


def _merged(parts: Sequence[MessageBatch]) -> MessageBatch:
    """The messages of all shards in order, with steps of their own.

    A change that moves a row from one shard to another is a GONE in the one, and comes first; what it brings
    in the other one follows.
    """
    whole = MessageBatch.concat(parts)
    if not len(whole):
        return whole
    shard = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    seq, step = whole.messages.seq, whole.messages.step
    order = np.lexsort((step, shard, seq))
    runs = np.flatnonzero(np.diff(shard[order], prepend=-1) | np.diff(seq[order], prepend=seq.min() - 1))
    comes = np.maximum.reduceat((whole.messages.kind != MessageKind.GONE)[order].astype(np.int8), runs)
    late = np.repeat(comes, np.diff(runs, append=len(order)))
    order = order[np.lexsort((step[order], shard[order], late, seq[order]))]
    messages = whole.messages.take(order)
    steps = np.arange(len(order)) - np.searchsorted(messages.seq, messages.seq)
    return replace(_taken(whole, order), messages=replace(messages, step=steps))


def _taken(batch: MessageBatch, order: Index) -> MessageBatch:
    """The messages in another order: `take` alone keeps a whole batch as it is."""
    bodies = [batch.body(i) for i in order.tolist()]
    ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
    return MessageBatch(batch.messages.take(order), batch.form[order], ends, b"".join(bodies))


def _begins(shards: Iterable[ShardPart]) -> Iterable[Begin]:
    """The begins of all shards, of a subscription one with the rows of all of them."""
    found: dict[int, Begin] = {}
    for shard in shards:
        for begin in shard.begins:
            known = found.setdefault(begin.subscription, begin)
            if known is not begin:
                for part, other in zip(known.parts, begin.parts, strict=True):
                    for rows, more in zip(part.rows, other.rows, strict=True):
                        rows.extend(more)
    return found.values()


def _chunks(begins: Sequence[Begin]) -> Iterator[tuple[list[Begin], MessageBatch | None]]:
    """Begins, some at a time."""
    some: list[Begin] = []
    size = 0
    for begin in begins:
        texts = (text for part in begin.parts for rows in part.rows for _, _, text in rows)
        bytes_of = 120 + sum(24 + len(text) for text in texts)
        if some and size + bytes_of > MOST_BYTES:
            yield some, None
            some, size = [], 0
        some.append(begin)
        size += bytes_of
    if some:
        yield some, None


def encoded(part: OutputPart | ShardPart) -> bytes:
    """A part as bytes."""
    return _ENCODER.encode(part)


# -- reading -----------------------------------------------------------------------------------------


def is_delta(record: bytes) -> bool:
    """Whether a record of a topic is a delta, as JSON, beside the parts of batches."""
    return record[:1] == b"{"


def decoded(data: bytes) -> OutputPart:
    """A part from its bytes."""
    try:
        part = _PARTS.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise TocsinError(f"a part of a batch cannot be read: {error}") from None
    if part.format != FORMAT or not 0 <= part.number < part.count:
        raise TocsinError(f"a part of a batch has format {part.format}: {FORMAT} can be read")
    return part


class BatchAssembly:
    """Parts of batches as they come; a batch is there when one attempt at it is complete."""

    def __init__(self) -> None:
        self.batch = -1  # the last one that was complete
        self._attempts: dict[str, dict[int, OutputPart]] = {}

    def add(self, part: OutputPart) -> list[OutputPart] | None:
        """All parts of a batch, in order, if this is its last; None if it is not, or the batch was before."""
        if part.batch <= self.batch:
            return None
        parts = self._attempts.setdefault(part.attempt, {})
        parts[part.number] = part
        if len(parts) < part.count:
            return None
        self.batch = part.batch
        self._attempts.clear()
        return [parts[number] for number in range(part.count)]


@dataclass
class _Meaning:
    sql: str
    version: int  # it has this meaning from here on
    next: list[_Meaning] = field(default_factory=list)


class MessageReader:
    """Contents of some subscriptions of a pipeline, kept from its described output alone.

    Every shape may be followed: where the pipeline describes, contents are kept from messages, elsewhere
    from the deltas beside them.
    """

    def __init__(self) -> None:
        self.batch = -1  # the last one applied
        self.seq = -1  # of the last message applied
        self._followed: dict[int, _Meaning] = {}
        self._deltas = Client()
        self._received: dict[int, tuple[int, int]] = {}  # by subscription: the last delta's batch and number
        self._lost = ""  # what is missing before the first record
        self._assembly = BatchAssembly()
        self._answers = Answers()
        self._node = ClientNode("", self._answers)
        (resume,) = self._node.connected("pipeline")
        assert isinstance(resume, Resume)
        self._node.take(Replay(resume.request, 0, "pipeline", [], True, PackedBatch()))

    def follow(self, subscription: int, sql: str, *, version: int = 0) -> None:
        """Keep the content of a subscription, which has this text in the pipeline.

        Call it before the batch in which the subscription begins is read. For one that is replaced, call it
        again with the new text and the version that has it (`Pipeline.change` returns its number).
        """
        known = self._followed.get(subscription)
        if known is not None:
            known.next.append(_Meaning(sql, version))
            return
        self._followed[subscription] = _Meaning(sql, version)
        self._deltas.start(subscription)

    def forget(self, subscription: int) -> None:
        """Follow a subscription no more: the pipeline does not say that one was removed."""
        if self._followed.pop(subscription, None) is not None:
            self._deltas.stop(subscription)
            self._received.pop(subscription, None)
            if subscription in self._node.followed:
                self._node.unsubscribe(subscription)

    def content(self, subscription: int) -> list[dict[str, Any]]:
        """The rows of a subscription after the last batch, as a bag."""
        if subscription not in self._followed:
            raise TocsinError(f"subscription {subscription} is not followed", hint="follow it, then read")
        followed = self._node.followed.get(subscription)
        if followed is None:
            if self._lost:
                raise TocsinError(
                    f"subscription {subscription} began before the first record: {self._lost}",
                    hint="set retention.ms=-1 for the topic, and replace the subscription",
                )
            return self._deltas.content(subscription)
        if failure := followed.failure or self._answers.failures.get(subscription, ""):
            raise TocsinError(f"subscription {subscription} cannot be evaluated: {failure}")
        if missing := self._answers.missing(self._node.rows_of(subscription)):
            raise TocsinError(missing, hint="select fewer columns of it, or a smaller row")
        return self._answers.content(subscription)

    def read(self, place: str | Path | Topic) -> list[int]:
        """Apply what is new in a sink's folder or a topic; the numbers of the batches that are complete."""
        if isinstance(place, Topic):
            return self._read_topic(place)
        folder = place
        if not Path(folder).is_dir():
            raise UsageError(f"there is no folder {folder}", hint="the sink makes it with its first batch")
        numbers = ready_batches(Path(folder), self.batch)
        for number in numbers:
            self.apply(rows_of(Path(folder) / f"batch={number}"))
            self.batch = number
        return numbers

    def apply(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Apply the rows of one whole batch, as a sink gets them."""
        records = []
        for row in rows:
            if row["data"] is not None:
                records.append(row["data"])
            elif row["subscription"] in self._followed:
                self._receive(row)
        for data in records:
            self.take(data)

    def take(self, data: bytes, id: str = "") -> bool:
        """Take one record, as from a topic; whether a batch is complete now, and applied.

        The parts of a batch may come in any order. A delta is applied by its id, the header `tocsin-id`, once
        and in the order of its subscription; without an id it is passed over.
        """
        if is_delta(data):
            self._receive_record(data, id)
            return False
        parts = self._assembly.add(decoded(data))
        if parts is None:
            return False
        begins = [(begin, part) for part in parts for begin in part.begins]
        begins = [both for both in begins if self._ends_before(*both)]
        self._node.take(Update(parts[0].start, PackedBatch()))
        for begin, part in begins:
            self._begin(begin, part)
        for part in parts[:-1]:
            self._node.take(Update(part.start, part.messages))
        self._node.take(Update(parts[-1].seq, parts[-1].messages))
        self.batch, self.seq = parts[0].batch, max(self.seq, parts[0].seq)
        self._answers.flush(self.seq)
        return True

    # -- inside ------------------------------------------------------------------------------------

    def _read_topic(self, topic: Topic) -> list[int]:
        if topic.starts_late and not self._lost:
            self._lost = f"the beginning of the topic {topic.name} is gone"
        return [self.batch for record in topic.read() if self.take(record.value, record.id)]

    def _receive_record(self, data: bytes, id: str) -> None:
        """A delta as a record: a replayed batch repeats its records with their ids."""
        row = orjson.loads(data) if id else {}
        number = row.get("subscription")
        if number not in self._followed:
            return
        place = row["batch"], int(id.rpartition("/")[2])
        if place > self._received.get(number, (-1, -1)):
            self._received[number] = place
            self._deltas.receive([Delta(row["seq"], number, row["sign"], row["row"])])

    def _receive(self, row: Mapping[str, Any]) -> None:
        """A delta of a subscription that is not described."""
        number = row["subscription"]
        self._deltas.receive([Delta(row["seq"], number, row["sign"], orjson.loads(row["row"]))])

    def _ends_before(self, begin: Begin, part: OutputPart) -> bool:
        """Whether a subscription that is followed begins; what it was before ends."""
        number = begin.subscription
        if (meaning := self._followed.get(number)) is None:
            return False
        due = [one for one in meaning.next if one.version <= part.version]
        if due:
            later = [one for one in meaning.next if one.version > part.version]
            meaning = self._followed[number] = replace(due[-1], next=later)
        if part.version < meaning.version:
            return False  # another meaning, of an earlier version
        if number in self._node.followed:
            self._node.unsubscribe(number)
        return not begin.ends

    def _begin(self, begin: Begin, part: OutputPart) -> None:
        number = begin.subscription
        self._answers.sql[number] = self._followed[number].sql
        (request,) = self._node.subscribe(number, b"")
        assert isinstance(request, ClientRequest)
        definitions = {table: part.definitions[table] for table in begin.tables}
        snapshot = Snapshot(number, part.start, definitions, begin.parts)
        self._node.take(Answer(request.request, 0, _NO_FORMS, "", msgspec.msgpack.encode(snapshot)))

    def _check(self) -> None:
        self._node._check()
        self._answers._check()
        assert set(self._node.followed) <= set(self._followed)


_NO_FORMS = write_boxes(*NO_BOXES)  # a reader wants nothing sent: it has all messages


def ready_batches(folder: Path, after: int) -> list[int]:
    """The numbers of the batches in a sink's folder after one, in order."""
    numbers = (path.name.removeprefix("batch=") for path in folder.glob("batch=*"))
    return sorted(number for number in map(int, numbers) if number > after)


def parts_in(folder: Path) -> list[OutputPart]:
    """The parts of a batch in a folder, in order."""
    parts = [decoded(row["data"]) for row in rows_of(folder) if row["data"] is not None]
    return sorted(parts, key=lambda part: part.number)


def rows_of(folder: Path) -> Iterator[dict[str, Any]]:
    """The rows of a batch in a folder, Parquet or JSON."""
    for file in sorted(folder.iterdir()):
        if file.suffix == ".parquet":
            yield from parquet.read_table(file, partitioning=None).to_pylist()
        elif file.suffix == ".json":
            for line in file.read_bytes().splitlines():
                row = orjson.loads(line)
                data = row["data"] and b64decode(row["data"])
                yield {**row, "data": data, "row": orjson.dumps(row["row"])}
