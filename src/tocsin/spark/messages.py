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
    reader.read("messages")         the folder of a sink: whatever batches are new
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
from tocsin.errors import TocsinError
from tocsin.language.ddl import parse_definitions
from tocsin.model.columns import Index
from tocsin.model.delta import Delta
from tocsin.model.message import MessageKind
from tocsin.network.answers import Answers
from tocsin.network.batches import MessageBatch
from tocsin.network.follower import ClientNode
from tocsin.network.holdings import Part, Snapshot
from tocsin.network.routing import NO_BOXES, points_as_boxes
from tocsin.network.rows import note_of
from tocsin.network.wire import Answer, Ask, PackedBatch, Replay, Resume, Update, write_boxes

__all__ = [
    "Begin",
    "MessageReader",
    "OutputPart",
    "ShardPart",
    "encoded",
    "halves_of",
    "parts_of",
    "ready_batches",
]

FORMAT = 1
MOST_BYTES = 768 << 10  # of a part: Kafka takes records of a megabyte


class Begin(msgspec.Struct, array_like=True):
    """A subscription that begins: its place in a form, and the rows it holds there."""

    subscription: int
    parts: list[Part]  # one; none: it can never have an answer
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
    definitions: str  # of tables, where subscriptions begin
    begins: list[Begin]
    messages: PackedBatch


_SHARD_PARTS = msgspec.msgpack.Decoder(ShardPart)
_PARTS = msgspec.msgpack.Decoder(OutputPart)
_ENCODER = msgspec.msgpack.Encoder()


# -- writing -----------------------------------------------------------------------------------------


def parts_of(shards: Iterable[bytes], batch: int, version: int, definitions: str) -> Iterator[OutputPart]:
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
        text = definitions if some else ""
        packed = PackedBatch.of(piece) if piece is not None else PackedBatch()
        yield OutputPart(
            *(FORMAT, batch, attempt, number, len(chunks), start, seq, version, text, some, packed)
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
    for part in shards:
        for begin in part.begins:
            known = found.setdefault(begin.subscription, begin)
            if known is not begin:
                for one, other in zip(known.parts, begin.parts, strict=True):
                    for rows, more in zip(one.rows, other.rows, strict=True):
                        rows.extend(more)
    return found.values()


def _chunks(begins: Sequence[Begin]) -> Iterator[tuple[list[Begin], MessageBatch | None]]:
    """Begins, some at a time."""
    some: list[Begin] = []
    size = 0
    for begin in begins:
        texts = (row[2] for part in begin.parts for rows in part.rows for row in rows)
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


def _decoded(data: bytes) -> OutputPart:
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
    """What a subscription means from a version on."""

    sql: str
    version: int
    next: list[_Meaning] = field(default_factory=list)


_HEAD, _PAYLOAD = "\0head", "\0payload"


def halves_of(table: str) -> tuple[str, str]:
    """How the sides of a form are named whose rows travel without their payloads."""
    return table + _HEAD, table + _PAYLOAD


class _SplitAnswers(Answers):
    """Answers over rows, of which some come in halves: such a row is there while both of them are."""

    def __init__(self) -> None:
        super().__init__()
        self._halves: dict[tuple[str, int], dict[str, tuple[int, bytes]]] = {}  # by half: holders, text

    def hold(self, table: str, row: int, text: bytes, seq: int) -> None:
        name, half, _ = table.partition("\0")
        if not half:
            super().hold(table, row, text, seq)
            return
        halves = self._halves.setdefault((name, row), {})
        was_whole = len(halves) == 2
        halves[table] = halves.get(table, (0, b""))[0] + 1, text
        if len(halves) == 2:
            (super().change if was_whole else super().hold)(name, row, self._whole(name, row), seq)

    def change(self, table: str, row: int, text: bytes, seq: int) -> None:
        name, half, _ = table.partition("\0")
        if not half:
            super().change(table, row, text, seq)
            return
        halves = self._halves[name, row]
        halves[table] = halves[table][0], text
        if len(halves) == 2:
            super().change(name, row, self._whole(name, row), seq)

    def release(self, table: str, row: int) -> None:
        name, half, _ = table.partition("\0")
        if not half:
            super().release(table, row)
            return
        halves = self._halves[name, row]
        count, text = halves[table]
        if count > 1:
            halves[table] = count - 1, text
            return
        if len(halves) == 2:
            super().release(name, row)
        del halves[table]
        if not halves:
            del self._halves[name, row]

    def _whole(self, name: str, row: int) -> bytes:
        head, payload = (self._halves[name, row][half][1] for half in halves_of(name))
        if note_of(head) or note_of(payload):  # a row that is too long to be sent
            return head if note_of(head) else payload
        return head[:-1] + b"," + payload[1:]


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
        self._assembly = BatchAssembly()
        self._answers = _SplitAnswers()
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
            if subscription in self._node.followed:
                self._node.unsubscribe(subscription)

    def content(self, subscription: int) -> list[dict[str, Any]]:
        """The rows of a subscription after the last batch, as a bag."""
        if subscription not in self._followed:
            raise TocsinError(f"subscription {subscription} is not followed", hint="follow it, then read")
        if subscription in self._node.followed:
            return self._answers.content(subscription)
        return self._deltas.content(subscription)

    def read(self, folder: str | Path) -> list[int]:
        """Apply the batches of a sink's folder that are new; their numbers."""
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

    def take(self, data: bytes) -> bool:
        """Take one record, as from a topic, in any order; whether a batch is complete now, and applied.

        Records that are not messages, deltas as JSON, are passed over.
        """
        if data[:1] == b"{":
            return False
        parts = self._assembly.add(_decoded(data))
        if parts is None:
            return False
        begins = [
            (begin, part)
            for part in parts
            for begin in part.begins
            if begin.subscription in self._followed and self._is_due(begin, part)
        ]
        for begin, _ in begins:  # first, so that nobody follows a table of another definition
            if begin.subscription in self._node.followed:
                self._node.unsubscribe(begin.subscription)
        self._node.take(Update(parts[0].start, PackedBatch()))
        for begin, part in begins:
            if not begin.ends:
                self._begin(begin, part)
        for part in parts[:-1]:
            self._node.take(Update(part.start, part.messages))
        self._node.take(Update(parts[-1].seq, parts[-1].messages))
        self.batch, self.seq = parts[0].batch, max(self.seq, parts[0].seq)
        self._answers.flush(self.seq)
        return True

    # -- inside ------------------------------------------------------------------------------------

    def _receive(self, row: Mapping[str, Any]) -> None:
        """A delta of a subscription that is not described."""
        number = row["subscription"]
        self._deltas.receive([Delta(row["seq"], number, row["sign"], orjson.loads(row["row"]))])

    def _is_due(self, begin: Begin, part: OutputPart) -> bool:
        """Whether a subscription begins with the meaning that it is followed for."""
        meaning = self._followed[begin.subscription]
        due = [one for one in meaning.next if one.version <= part.version]
        if due:
            later = [one for one in meaning.next if one.version > part.version]
            meaning = self._followed[begin.subscription] = replace(due[-1], next=later)
        return part.version >= meaning.version

    def _begin(self, begin: Begin, part: OutputPart) -> None:
        number = begin.subscription
        self._answers.sql[number] = self._followed[number].sql
        (ask,) = self._node.subscribe(number, b"")
        assert isinstance(ask, Ask)
        definitions = {one.name: str(one) for one in parse_definitions(part.definitions)}
        read = {table.partition("\0")[0] for own in begin.parts for table in own.tables}
        known = {name: text for name, text in definitions.items() if name in read or not begin.parts}
        snapshot = Snapshot(number, part.start, known, begin.parts)
        forms = np.array([own.form for own in begin.parts], np.int64)
        boxes = points_as_boxes([own.point for own in begin.parts]) if begin.parts else NO_BOXES[1]
        body = msgspec.msgpack.encode(snapshot)
        self._node.take(Answer(ask.request, 0, write_boxes(forms, boxes), "", body))
        if self._node.followed[number].failure:
            raise TocsinError(f"subscription {number}: {self._node.followed[number].failure}")

    def _check(self) -> None:
        self._answers._check()
        assert self._node.followed.keys() <= self._followed.keys()


def ready_batches(folder: Path, after: int) -> list[int]:
    """The numbers of the batches in a sink's folder after one, in order."""
    numbers = (path.name.removeprefix("batch=") for path in folder.glob("batch=*"))
    return sorted(number for number in map(int, numbers) if number > after)


def parts_in(folder: Path) -> list[OutputPart]:
    """The parts of a batch in a folder, in order."""
    parts = [_decoded(row["data"]) for row in rows_of(folder) if row["data"] is not None]
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
