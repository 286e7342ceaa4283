"""Messages as they travel: with the form they belong to and the rows they carry.

A *form* is one space of subscriptions: the joins of two tables over one key that select by the same two
attributes. Codes and row ids of different forms have nothing to do with each other. Brokers look at forms and
regions alone; the bodies are opaque to them.

>>> from tocsin.model.message import MessageKind, Regions, quadrant
>>> one = np.zeros(1, np.int64)
>>> region = Regions.of([[[quadrant(5)], [quadrant(9)]]])
>>> row = Messages(one + 1, one, one.astype(np.int8), one.astype(np.int8), one, one + 7, one - 1, region)
>>> batch = MessageBatch.of(row, form=3, bodies=[b"seven"])
>>> again = MessageBatch.from_bytes(*batch.sizes, batch.to_bytes())
>>> again.body(0), again.form.tolist(), again.messages.row.tolist()
(b'seven', [3], [7])
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tocsin.errors import TocsinError
from tocsin.model.message import MessageKind, Messages, Regions

if TYPE_CHECKING:
    from tocsin.model.columns import Index

__all__ = ["MAX_BOXES", "PLANES", "MessageBatch"]

PLANES = 2  # by which brokers route; a form over one range has the whole plane as its second
MAX_BOXES = 4096  # of a message
_COLUMNS = 10  # of int64 by message: eight, the end of its boxes, the end of its body


@dataclass(frozen=True, slots=True)
class MessageBatch:
    """Messages in order of (seq, step), each with a form and a body."""

    messages: Messages
    form: Index
    ends: Index  # of bodies in `data`
    data: bytes

    @classmethod
    def of(cls, messages: Messages, form: int, bodies: Sequence[bytes]) -> MessageBatch:
        """Messages of one form."""
        ends = np.cumsum([len(body) for body in bodies], dtype=np.int64)
        return cls(messages, np.full(len(messages), form, np.int64), ends, b"".join(bodies))

    @classmethod
    def concat(cls, parts: Sequence[MessageBatch]) -> MessageBatch:
        """The messages of all parts, one part after the other."""
        parts = [part for part in parts if len(part)] or [EMPTY]
        if len(parts) == 1:
            return parts[0]
        before = np.cumsum([0, *(len(part.data) for part in parts)])
        return cls(
            Messages.concat([part.messages for part in parts]),
            np.concatenate([part.form for part in parts]),
            np.concatenate([part.ends + start for part, start in zip(parts, before, strict=False)]),
            b"".join(part.data for part in parts),
        )

    def __len__(self) -> int:
        return len(self.form)

    def body(self, number: int) -> bytes:
        """What a message carries."""
        return self.data[self.ends[number - 1] if number else 0 : self.ends[number]]

    def take(self, index: ArrayLike) -> MessageBatch:
        """The messages at some positions."""
        at = np.arange(len(self))[np.asarray(index)]
        if len(at) == len(self):
            return self
        start = np.concatenate([[0], self.ends])[at]
        sizes = self.ends[at] - start
        data = b"".join(self.data[a:z] for a, z in zip(start.tolist(), (start + sizes).tolist(), strict=True))
        return MessageBatch(self.messages.take(at), self.form[at], np.cumsum(sizes), data)

    def pieces(self, most: int) -> Iterator[MessageBatch]:
        """Batches of at most so many bytes, or of one message; at least one batch."""
        if not len(self):
            yield self
            return
        sizes = 8 * _COLUMNS + np.diff(self.messages.regions.start) * 8 * 4 * PLANES
        total = np.cumsum(sizes + np.diff(self.ends, prepend=0))
        start = 0
        while start < len(self):
            before = total[start - 1] if start else 0
            end = max(start + 1, int(np.searchsorted(total, before + most, side="right")))
            yield self.take(np.arange(start, end))
            start = end

    # -- bytes -------------------------------------------------------------------------------------

    @property
    def sizes(self) -> tuple[int, int]:
        """How many messages and boxes there are, as `from_bytes` needs them."""
        return len(self), len(self.messages.regions.boxes)

    def columns(self) -> NDArray[np.int64]:
        """Ten numbers by message, a row each; the last two: where its boxes and its body end."""
        m = self.messages
        columns = m.seq, m.step, m.kind, m.side, m.key, m.row, m.partner, self.form, m.regions.start[1:]
        return np.stack([np.asarray(column, np.int64) for column in (*columns, self.ends)])

    def to_bytes(self) -> bytes:
        """The arrays one after the other, then the bodies."""
        return b"".join([self.columns().tobytes(), self.messages.regions.boxes.tobytes(), self.data])

    @classmethod
    def from_bytes(cls, messages: int, boxes: int, data: bytes | memoryview) -> MessageBatch:
        """What `to_bytes` wrote; TocsinError if it cannot be that."""
        head_size, boxes_size = 8 * _COLUMNS * messages, 8 * 4 * PLANES * boxes
        if messages < 0 or boxes < 0 or head_size + boxes_size > len(data):
            raise TocsinError(f"{messages} messages with {boxes} boxes do not fit into {len(data)} bytes")
        head = np.frombuffer(data, np.int64, messages * _COLUMNS).reshape(_COLUMNS, messages)
        ends = np.frombuffer(data, np.int64, boxes * 4 * PLANES, head_size).reshape(boxes, PLANES, 4)
        seq, step, kind, side, key, row, partner, form, box_end, body_end = head
        bodies = bytes(data[head_size + boxes_size :])
        _check_ends("boxes", box_end, boxes, MAX_BOXES)
        _check_ends("bodies", body_end, len(bodies), len(bodies))
        if messages and not (kind.min() >= 0 and kind.max() < len(MessageKind)):
            raise TocsinError("a message has an unknown kind")
        if messages and not (side.min() >= 0 and side.max() <= 1):
            raise TocsinError("a message is of neither side of a join")
        regions = Regions(np.concatenate([[0], box_end]), ends)
        return cls(
            Messages(seq, step, kind.astype(np.int8), side.astype(np.int8), key, row, partner, regions),
            *(form, body_end, bodies),
        )

    def _check(self) -> None:
        self.messages.regions._check()
        assert len(self.form) == len(self.ends) == len(self.messages)
        assert not len(self) or self.ends[-1] == len(self.data)


def _check_ends(what: str, ends: NDArray[np.int64], size: int, most: int) -> None:
    """Ends ascend from 0 to the size, by at most so many."""
    if not len(ends):
        if size:
            raise TocsinError(f"there are {what}, but no message")
        return
    begin = np.concatenate([[0], ends[:-1]])
    if begin.min() < 0 or ends[-1] != size or (ends < begin).any() or (ends - begin).max() > most:
        raise TocsinError(f"the {what} of messages are not one after the other, or too many")


_NONE = np.empty(0, np.int64)
_NO_SIDES = np.empty(0, np.int8)
EMPTY = MessageBatch(
    Messages(
        *(_NONE, _NONE, _NO_SIDES, _NO_SIDES, _NONE, _NONE, _NONE),
        Regions(np.zeros(1, np.int64), np.empty((0, PLANES, 4), np.int64)),
    ),
    *(_NONE, _NONE, b""),
)
