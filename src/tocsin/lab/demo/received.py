"""All deltas of a run as columns, and the contents they add up to.

A month has millions of deltas, many of them the same row for many subscribers. Equal rows are stored once, as
text, so a delta is four numbers; only rows that are looked up become Python objects.

    deltas    seq  subscription  sign  text        in order of arrival
    contents       subscription  count text        at the end

>>> deltas = [(1, 7, 1, '{"x":1}'), (2, 7, -1, '{"x":1}'), (2, 7, 1, '{"x":2}'), (3, 9, 1, '{"x":2}')]
>>> received = Received.of([pa.table(dict(zip(COLUMNS, zip(*deltas))))])
>>> received.contents().content(7), received.contents().content(8)
([{'x': 2}], [])
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.errors import TocsinError

__all__ = ["COLUMNS", "Received", "ReceivedContents"]

COLUMNS = ("seq", "subscription", "sign", "row")
Numbers = NDArray[np.int64]

_TEXT = pa.dictionary(pa.int32(), pa.string())
_SCHEMA = pa.schema([("seq", pa.int64()), ("subscription", pa.int64()), ("sign", pa.int8()), ("row", _TEXT)])
_BITS = 32  # of a subscription's id or a text's number, when both are packed into one number


@dataclass(frozen=True)
class Received:
    """Deltas in order; `text` is the number of a row's JSON in `texts`."""

    seq: Numbers
    subscription: Numbers
    sign: NDArray[np.int8]
    text: Numbers
    texts: Any  # an Arrow array

    @classmethod
    def of(cls, tables: Iterable[pa.Table]) -> Received:
        """From tables with (at least) the columns of `COLUMNS`, in order."""
        parts = [_encoded(table) for table in tables]
        whole = pa.concat_tables([_SCHEMA.empty_table(), *parts]).unify_dictionaries().combine_chunks()
        row = whole["row"].combine_chunks()
        row = row.chunk(0) if isinstance(row, pa.ChunkedArray) else row
        seq, subscription, sign = (whole[name].to_numpy() for name in COLUMNS[:3])
        return cls(seq, subscription, sign, row.indices.to_numpy().astype(np.int64), row.dictionary)

    def __len__(self) -> int:
        return len(self.seq)

    def rows(self, places: Numbers) -> list[dict[str, Any]]:
        """The rows of some deltas."""
        return [json.loads(text) for text in self.texts.take(pa.array(self.text[places])).to_pylist()]

    def contents(self) -> ReceivedContents:
        """The contents after all deltas, from empty ones; raises if a delta was lost or repeated."""
        packed = (self.subscription << _BITS) | self.text
        order = np.argsort(packed, kind="stable")  # the deltas of each (subscription, row) together, in order
        first = np.flatnonzero(np.diff(packed[order], prepend=-1))
        sums = np.cumsum(self.sign[order], dtype=np.int64)
        before = np.concatenate([np.zeros(1, np.int64), sums])[first]  # of other rows
        lengths = np.diff(np.append(first, len(order)))
        wrong = np.flatnonzero(sums < np.repeat(before, lengths))
        if len(wrong):
            self._raise_lost(int(order[wrong].min()))
        count = sums[first + lengths - 1] - before
        there = order[first[count > 0]]
        return ReceivedContents(self.subscription[there], count[count > 0], self.text[there], self.texts)

    def _raise_lost(self, place: int) -> None:
        who, row = self.subscription[place], self.rows(np.array([place]))[0]
        raise TocsinError(
            f"seq {self.seq[place]}: subscription {who} does not hold the row to remove: {row}",
            hint="a delta was lost or delivered twice",
        )


@dataclass(frozen=True)
class ReceivedContents:
    """Which subscription has which row how often, in order of subscriptions."""

    subscription: Numbers
    count: Numbers
    text: Numbers
    texts: Any

    def content(self, subscription: int) -> list[dict[str, Any]]:
        """The rows of a subscription, as a bag."""
        low, high = np.searchsorted(self.subscription, [subscription, subscription + 1])
        texts = self.texts.take(pa.array(self.text[low:high])).to_pylist()
        often = self.count[low:high].tolist()
        return [json.loads(text) for text, count in zip(texts, often, strict=True) for _ in range(count)]

    def checksum(self, ids: Iterable[int]) -> str:
        """A checksum of all contents: runs of the same script have the same, also when interrupted.

        >>> one = Received.of([pa.table({"seq": [1, 2], "subscription": [7, 7], "sign": [1, 1],
        ...                              "row": ['{"b":1,"a":2}', '{"a":1}']})])
        >>> other = Received.of([pa.table({"seq": [1, 2], "subscription": [7, 7], "sign": [1, 1],
        ...                                "row": ['{"a":1}', '{"a": 2, "b": 1}']})])
        >>> one.contents().checksum([7]) == other.contents().checksum([7])
        True
        """
        hashes = self._hashes[self.text]
        order = np.lexsort((hashes, self.subscription))
        # The same row may have come as two texts: its counts are added up.
        pairs = np.stack([self.subscription[order], hashes[order].view(np.int64)])
        first = np.flatnonzero(np.any(np.diff(pairs, axis=1, prepend=pairs[:, :1] - 1) != 0, axis=0))
        counts = np.add.reduceat(self.count[order], first) if len(first) else self.count[:0]
        digest = blake2b(digest_size=8)
        for part in (np.array(sorted(ids), np.int64), *pairs[:, first], counts):
            digest.update(len(part).to_bytes(8, "little"))
            digest.update(np.ascontiguousarray(part, "<i8").tobytes())
        return digest.hexdigest()

    @cached_property
    def _hashes(self) -> NDArray[np.uint64]:
        """A 64-bit hash of each text that some subscription has; equal rows have equal hashes."""
        out = np.zeros(len(self.texts), np.uint64)
        used = np.unique(self.text)
        texts = self.texts.take(pa.array(used)).to_pylist()
        out[used] = np.frombuffer(b"".join(map(_row_hash, texts)), "<u8")
        return out


def _row_hash(text: str) -> bytes:
    """A row's hash, independent of the order of its columns."""
    return blake2b(json.dumps(json.loads(text), sort_keys=True).encode(), digest_size=8).digest()


def _encoded(table: pa.Table) -> pa.Table:
    """The needed columns, with the types of `_SCHEMA`."""
    columns = [table[field.name] for field in _SCHEMA]
    if not pa.types.is_dictionary(columns[-1].type):
        columns[-1] = columns[-1].dictionary_encode()
    return pa.table(
        [column.cast(field.type) for column, field in zip(columns, _SCHEMA, strict=True)], schema=_SCHEMA
    )
