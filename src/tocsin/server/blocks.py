"""Blocks: the deltas of one command, as columns, as bytes in the log and as messages to followers.

The log numbers commands; the number is a *position*. A block holds the deltas of one position in their order,
each distinct row once, as JSON text:

    seq            5  5  6         of the change, as the engine numbers it
    subscription   1  2  1
    sign          +1 +1 -1
    row            0  0  1         ─►  texts: {"x":7} {"x":8}
    event          0  0  0         1: of a subscription that has no content, which adds to no answer

>>> from tocsin.model.columns import Rows, Vector
>>> from tocsin.model.schema import Type
>>> rows = Rows.of(x=Vector.of(Type.BIGINT, [7, 8]))
>>> block = Block.of(9, 0, "change", Deltas.of([5, 5, 6], [1, 2, 1], [1, 1, -1], rows, [0, 0, 1]))
>>> again = Block.decode(block.encode())
>>> [again.delta(i) for i in again.of_subscriptions(np.array([1]))]
[b'{"seq":5,"subscription":1,"sign":1,"row":{"x":7}}', b'{"seq":6,"subscription":1,"sign":-1,"row":{"x":8}}']
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from tocsin.model.columns import Index
from tocsin.model.delta import Deltas
from tocsin.model.json_rows import row_json, to_json

__all__ = ["Block"]

_FEW = 64  # rows of few deltas are written one by one


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """The deltas of one position. `at` is microseconds since 1970; `whose[i]` is a number in `names`."""

    position: int
    at: int
    cause: str
    seq: Index
    subscription: Index
    sign: Any
    row: Any
    texts: list[bytes]
    names: list[str]
    whose: Any  # -1: the subscription names no subscriber
    event: Any = None  # None: none is one

    @classmethod
    def of(cls, position: int, at: int, cause: str, deltas: Deltas, event: Any = None) -> Block:
        """The block of an engine's deltas; `event` says which are of subscriptions without content."""
        texts, row = _texts(deltas)
        names: list[str] = []
        whose = np.full(len(deltas), -1, np.int32)
        if deltas.subscriber is not None:
            numbers: dict[str, int] = {}
            known = [
                -1 if name is None else numbers.setdefault(name, len(numbers))
                for name in deltas.subscriber.tolist()
            ]
            whose, names = np.array(known, np.int32), list(numbers)
        return cls(
            position, at, cause, deltas.seq, deltas.subscription, deltas.sign, row, texts, names, whose,
            event if event is not None and event.any() else None,
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self.subscription)

    def encode(self) -> bytes:
        """As the log stores it."""
        columns = (
            np.ascontiguousarray(column, kind).tobytes()
            for column, kind in zip(
                (self.seq, self.subscription, self.sign, self.row, self.whose), _KINDS, strict=True
            )
        )
        event = b"" if self.event is None else np.packbits(self.event).tobytes()
        return _ENCODER.encode((self.position, self.at, self.cause, *columns, self.texts, self.names, event))

    @classmethod
    def decode(cls, data: bytes) -> Block:
        """A block of the log."""
        position, at, cause, *columns, texts, names, bits = _DECODER.decode(data)
        seq, subscription, sign, row, whose = (
            np.frombuffer(column, kind) for column, kind in zip(columns, _KINDS, strict=True)
        )
        event = np.unpackbits(np.frombuffer(bits, np.uint8))[: len(seq)].astype(np.bool_) if bits else None
        return cls(position, at, cause, seq, subscription, sign, row, texts, names, whose, event)

    @property
    def nbytes(self) -> int:
        return 25 * len(self) + sum(map(len, self.texts))

    def of_subscriptions(self, ids: Index) -> list[int]:
        """The numbers of the deltas of these subscriptions."""
        found: list[int] = np.flatnonzero(np.isin(self.subscription, ids)).tolist()
        return found

    def of_subscriber(self, name: str) -> list[int]:
        """The numbers of the deltas of this subscriber's subscriptions."""
        if name not in self.names:
            return []
        found: list[int] = np.flatnonzero(self.whose == self.names.index(name)).tolist()
        return found

    def delta(self, number: int) -> bytes:
        """One delta as a JSON object."""
        head = b'{"seq":%d,"subscription":%d,"sign":%d,"row":%b' % (
            self.seq[number], self.subscription[number], self.sign[number], self.texts[self.row[number]]
        )  # fmt: skip
        if self.event is not None and self.event[number]:
            head += b',"event":true'
        who = self.whose[number]
        return head + (b"}" if who < 0 else b',"subscriber":%b}' % json.dumps(self.names[who]).encode())

    def deltas(self, numbers: Iterable[int]) -> bytes:
        """Several deltas as a JSON array."""
        return b"[" + b",".join(map(self.delta, numbers)) + b"]"


_KINDS = (np.int64, np.int64, np.int8, np.int32, np.int32)
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(
    tuple[int, int, str, bytes, bytes, bytes, bytes, bytes, list[bytes], list[str], bytes]
)


def _texts(deltas: Deltas) -> tuple[list[bytes], Any]:
    """The distinct rows of deltas as JSON texts, and the number of each delta's text."""
    if not len(deltas):
        return [], np.empty(0, np.int32)
    texts: list[bytes] = []
    row = np.empty(len(deltas), np.int32)
    for where, rows in deltas._by_source():
        unique, inverse = np.unique(deltas.row[where], return_inverse=True)
        row[where] = inverse + len(texts)
        if len(unique) < _FEW:
            texts += [row_json(one).encode() for one in rows.to_dicts(unique)]
        else:
            texts += to_json(rows, unique).cast(pa.binary()).to_pylist()
    return texts, row
