"""Pages of a long answer: all are of the moment of the first one, whatever changes meanwhile.

The rows that were not sent yet are kept under a name that the page has as `next`: for some minutes, of some
answers at a time. A page may be asked for again until the one after it has been.

>>> pages = AnswerPages()
>>> first = pages.first(7, "a-1", [{"x": 1}, {"x": 2}, {"x": 3}], 2)
>>> first.rows, first.total, pages.after(first.next, 7, 2).rows
([{'x': 1}, {'x': 2}], 3, [{'x': 3}])
"""

from __future__ import annotations

import secrets
from collections import OrderedDict
from time import monotonic
from typing import Any, NamedTuple

from tocsin.server.problems import Problem

__all__ = ["MOST_ROWS", "AnswerPage", "AnswerPages"]

MOST_ROWS = 100_000  # of a page, unless the request says otherwise
MOST_KEPT, MOST_ROWS_KEPT = 16, 2_000_000  # answers, and their rows together; but always the last one
KEPT_FOR = 300.0  # seconds


class AnswerPage(NamedTuple):
    """Some rows of an answer that has `total`; `next` names the page after it, if there is one."""

    token: str
    rows: list[dict[str, Any]]
    total: int
    next: str | None


class _KeptAnswer(NamedTuple):
    id: int
    token: str
    rows: list[dict[str, Any]]
    until: float


class AnswerPages:
    """Answers of which pages are left. Only one thread may use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _KeptAnswer] = OrderedDict()

    def first(self, id: int, token: str, rows: list[dict[str, Any]], limit: int) -> AnswerPage:
        """The first page of an answer."""
        if len(rows) <= limit:
            return AnswerPage(token, rows, len(rows), None)
        now = monotonic()
        for name in [name for name, kept in self._kept.items() if kept.until < now]:
            del self._kept[name]
        name = secrets.token_hex(8)
        self._kept[name] = _KeptAnswer(id, token, rows, now + KEPT_FOR)
        size = sum(len(kept.rows) for kept in self._kept.values())
        while len(self._kept) > 1 and (len(self._kept) > MOST_KEPT or size > MOST_ROWS_KEPT):
            size -= len(self._kept.popitem(last=False)[1].rows)
        return AnswerPage(token, rows[:limit], len(rows), f"{name}-{limit}")

    def after(self, next: str, id: int, limit: int) -> AnswerPage:
        """The page that another one has named."""
        name, _, start = next.partition("-")
        kept = self._kept.get(name)
        if kept is None or kept.id != id or not (start.isascii() and start.isdecimal() and len(start) < 19):
            raise Problem(
                404, f"there is no page {next[:40]!r} of this answer", hint="read it from the start"
            )
        self._kept.move_to_end(name)
        self._kept[name] = kept._replace(until=monotonic() + KEPT_FOR)
        end = int(start) + limit
        more = end < len(kept.rows)
        return AnswerPage(
            kept.token, kept.rows[int(start) : end], len(kept.rows), f"{name}-{end}" if more else None
        )
