"""Errors: a short fact, where it is, and what to do about it.

Every error of the package is a `TocsinError`. Its text has at most three parts:

    there is no column 'prise' in listings
      line 1, column 31: SELECT * FROM listings WHERE prise <= 5
                                                      ^^^^^
    hint: did you mean 'price'?

>>> raise SqlError("LIMIT must be above 0", Position("SELECT 1 LIMIT 0", 15, 16))
Traceback (most recent call last):
...
tocsin.errors.SqlError: LIMIT must be above 0
  line 1, column 16: SELECT 1 LIMIT 0
                                    ^
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = [
    "BadRow",
    "CatalogError",
    "ChangeError",
    "ListenerError",
    "NormalFormError",
    "Position",
    "SqlError",
    "SubscriptionError",
    "SumOverflow",
    "TocsinError",
    "UsageError",
]


_WIDTH = 100  # characters shown on either side of a position


@dataclass(frozen=True, slots=True)
class Position:
    """A stretch of a text, `text[start:end]`, shown as line, column and a caret under it."""

    text: str
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.start) + 1

    @property
    def column(self) -> int:
        return self.start - (self.text.rfind("\n", 0, self.start) + 1) + 1

    def __str__(self) -> str:
        first = self.text.rfind("\n", 0, self.start) + 1
        last = self.text.find("\n", self.start)
        last = last if last >= 0 else len(self.text)
        end = max(self.start + 1, min(self.end, last, self.start + _WIDTH))
        before = "" if self.start - first <= _WIDTH else "... "  # a long line is cut around the position
        after = "" if last - end <= _WIDTH else " ..."
        first, last = max(first, self.start - _WIDTH), min(last, end + _WIDTH)
        line = self.text[first:last].replace("\t", " ")
        place = f"  line {self.line}, column {self.column}: {before}"
        return f"{place}{line}{after}\n{' ' * (len(place) + self.start - first)}{'^' * (end - self.start)}"


class TocsinError(Exception):
    """The base of all: `fact`, optional `position` in a text, optional `hint`."""

    def __init__(self, fact: str, position: Position | None = None, hint: str | None = None) -> None:
        super().__init__(fact, position, hint)
        self.fact, self.position, self.hint = fact, position, hint

    def __str__(self) -> str:
        parts = [self.fact]
        if self.position is not None:
            parts.append(str(self.position))
        if self.hint:
            parts.append(f"hint: {self.hint}")
        return "\n".join(parts)


class SqlError(TocsinError):
    """A text that is not a supported subscription or definition."""


class NormalFormError(SqlError):
    """A condition whose DNF and CNF are both over the cap."""


class CatalogError(TocsinError):
    """A stream or table that does not exist, exists already, or is in use."""


class SubscriptionError(TocsinError):
    """A subscription that does not exist, exists already, or is rejected; `rows` in bulk forms.

    `option` names the option of `WITH (...)` that is wrong; whoever has the text adds its position.
    """

    def __init__(
        self,
        fact: str,
        hint: str | None = None,
        rows: tuple[BadRow, ...] = (),
        *,
        option: str | None = None,
        position: Position | None = None,
    ) -> None:
        super().__init__(fact, position, hint)
        self.rows, self.option = rows, option


class ChangeError(TocsinError):
    """A batch with a bad row; `row` is its number, counted from 0. Nothing of the batch was applied."""

    def __init__(self, fact: str, row: int | None = None, hint: str | None = None) -> None:
        super().__init__(fact if row is None else f"row {row}: {fact}", None, hint)
        self.row = row


class SumOverflow(TocsinError):
    """A sum of BIGINTs that is no BIGINT; rooms set the slot, the roster the subscription's id."""

    slot: int | None = None
    id: int | None = None  # of the subscription


class ListenerError(TocsinError):
    """A listener failed. The change is applied, all listeners were called with `deltas`."""

    def __init__(self, fact: str, deltas: object) -> None:
        super().__init__(fact, None, "the change is applied: do not repeat it; see the error's `deltas`")
        self.deltas = deltas


class UsageError(TocsinError):
    """A command that cannot be run as it was given."""


class BadRow(NamedTuple):
    """A rejected row: its number in the batch (from 0), and the reason."""

    row: int
    reason: str
