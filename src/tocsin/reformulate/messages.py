"""Messages: what a change means, addressed to a region of subscriptions instead of to each of them.

A message says "object 7 is at x = 3, y = 12 now" to all ranges [l, r] in a rectangle, l_low <= l <= l_high
and r_low <= r <= r_high, that want the first k (0: whatever their k). Whether a range is meant can be told
from the message alone, so a network can route it like any other content. y = ABSENT: the object is gone.

One event may send several messages. `step` is their order: a client that hears them in another order sorts
them again (`reformulate/topk.py`).

>>> messages = Messages.of(
...     seq=[1, 1], step=[0, 1], k=[2, 2], object=[7, 8], x=[3, 5], y=[12, 9],
...     rectangles=[(0, 3, 3, 9), (0, 3, 5, 9)],
... )
>>> messages.meant_for(2, 4, 2).tolist()
[True, False]
>>> len(messages.take([1])), messages.to_arrow().column_names[-4:]
(1, ['l_low', 'l_high', 'r_low', 'r_high'])

K12, section II-A: Msg(l_I, r_I, l_O, r_O, x, y) with l_O < l <= l_I and r_I <= r < r_O; here both ends belong
to the rectangle, so that the ends of int64 can mean open ranges. `to` is for messages to one subscription.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import ArrayLike, NDArray

__all__ = ["ALL", "Message", "Messages"]

Codes = NDArray[np.int64]
ALL = -1
"""As `to`: all whom the rectangle means."""


class Message(NamedTuple):
    """One message."""

    seq: int
    step: int
    k: int
    object: int
    x: int
    y: int
    to: int
    rectangle: tuple[int, int, int, int]


@dataclass(frozen=True)
class Messages:
    """Many messages, columnar; `len` counts them, iterating is for convenience."""

    seq: Codes
    step: Codes
    k: Codes
    object: Codes
    x: Codes
    y: Codes
    to: Codes
    rectangles: Codes  # by message: l_low, l_high, r_low, r_high

    @classmethod
    def of(
        cls, *, seq: ArrayLike, rectangles: ArrayLike, to: ArrayLike = ALL, **columns: ArrayLike
    ) -> Messages:
        """From columns; single numbers stand for all messages."""
        boxes = np.asarray(rectangles, np.int64).reshape(-1, 4)
        given = {"seq": seq, "to": to, **columns}
        whole = {name: np.broadcast_to(np.asarray(given[name], np.int64), len(boxes)) for name in NAMES}
        return cls(**whole, rectangles=boxes)

    @classmethod
    def concat(cls, parts: Iterable[Messages]) -> Messages:
        """One after the other."""
        listed = list(parts) or [cls.of(seq=[], rectangles=[], step=[], k=[], object=[], x=[], y=[])]
        return cls(*(np.concatenate([getattr(part, f.name) for part in listed]) for f in fields(cls)))

    def __len__(self) -> int:
        return len(self.seq)

    def __iter__(self) -> Iterator[Message]:
        columns = (getattr(self, name).tolist() for name in NAMES)
        return map(Message, *columns, map(tuple, self.rectangles.tolist()))

    def take(self, index: ArrayLike) -> Messages:
        """Some of them."""
        at = np.asarray(index)
        return Messages(*(getattr(self, f.name)[at] for f in fields(self)))

    def meant_for(self, low: int, high: int, k: int, name: int = ALL) -> NDArray[np.bool_]:
        """Which of them the subscription [low, high] with its k must hear; `name` is what `to` calls it."""
        l_low, l_high, r_low, r_high = self.rectangles.T
        inside = (l_low <= low) & (low <= l_high) & (r_low <= high) & (high <= r_high)
        return np.asarray(
            inside & ((self.k == k) | (self.k == 0)) & ((self.to == ALL) | (self.to == name)), np.bool_
        )

    def to_arrow(self) -> Any:
        """A pyarrow Table with one column per number."""
        columns = {name: pa.array(getattr(self, name)) for name in NAMES}
        ends = zip(("l_low", "l_high", "r_low", "r_high"), self.rectangles.T, strict=True)
        return pa.table(columns | {name: pa.array(values) for name, values in ends})


NAMES = ("seq", "step", "k", "object", "x", "y", "to")
