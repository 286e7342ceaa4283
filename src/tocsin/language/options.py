"""Options of a query: what `SELECT ... WITH (name = value, ...)` says beside the question itself.

    windows         window, time, late, absent
    bounded joins   memory, policy, alpha
    refresh         refresh, within, when, check, group, group_memory, policy

An absent option is None. Time spans are microseconds; an amount of memory is bytes or rows. They print back
as SQL (`with_options.py` reads them):

>>> print(Options(window=600_000_000, late=30_000_000, memory=Budget(64 << 20)))
WITH (window = '10 minutes', late = '30 seconds', memory = '64 MB')
>>> bool(Options()), str(Options())
(False, '')
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import timedelta

from tocsin.model.schema import print_duration

__all__ = ["ADAPTIVE", "BYTES", "FOREVER", "NO_OPTIONS", "Budget", "Options", "print_bytes", "print_span"]

ADAPTIVE = "adaptive"
"""The value of `alpha` that is learned."""

FOREVER = 2**63 - 1
"""The value of `absent` without an end, in microseconds."""

BYTES = {"GB": 1 << 30, "MB": 1 << 20, "KB": 1 << 10, "bytes": 1}
"""Units of memory, the largest first."""


@dataclass(frozen=True, slots=True)
class Budget:
    """An amount of memory: bytes, or rows.

    >>> print(Budget(1000), Budget(3 << 30), Budget(5000, rows=True))
    1000 bytes 3 GB 5000 rows
    """

    amount: int
    rows: bool = False

    def __str__(self) -> str:
        return f"{self.amount} rows" if self.rows else print_bytes(self.amount)


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one query."""

    window: int | None = None  # microseconds an event stays in the window
    time: str | None = None  # the column of event time
    late: int | None = None  # microseconds that events may be out of order
    absent: int | None = None  # microseconds after its last event that an absent key is shown
    memory: Budget | None = None  # of a join of streams
    policy: str | None = None  # what to evict, or what to propagate
    alpha: float | str | None = None  # of HEEB's exponential lifetime, or 'adaptive'
    refresh: str | None = None  # 'on demand', 'when' or 'every'
    every: int | None = None  # microseconds between refreshes; part of `refresh` in SQL
    within: int | None = None  # microseconds a refresh may take
    when: str | None = None  # the condition of a refresh, as text
    check: int | None = None  # microseconds between evaluations of it
    group: str | None = None  # the refresh group's name
    group_memory: Budget | None = None

    @property
    def given(self) -> tuple[str, ...]:
        """The names of the options that are not None, as SQL has them."""
        names = (field.name for field in fields(self) if field.name != "every")
        return tuple(name for name in names if getattr(self, name) is not None)

    def __bool__(self) -> bool:
        return self != NO_OPTIONS

    def __str__(self) -> str:
        parts = [f"{name} = {self._value(name)}" for name in self.given]
        return f"WITH ({', '.join(parts)})" if parts else ""

    def _value(self, name: str) -> str:
        value = getattr(self, name)
        if isinstance(value, Budget) and value.rows:
            return str(value.amount)
        if isinstance(value, float):
            return repr(value)
        if isinstance(value, int):
            value = "forever" if name == "absent" and value == FOREVER else print_span(value)
        if name == "refresh" and self.every is not None:
            value = f"every {print_span(self.every)}"
        escaped = str(value).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"


NO_OPTIONS = Options()


def print_span(microseconds: int) -> str:
    """A positive span in words, to the microsecond.

    >>> print_span(5_400_000_000), print_span(200_000)
    ('1 hour 30 minutes', '0.2 seconds')
    """
    return print_duration(timedelta(microseconds=microseconds))


def print_bytes(amount: int) -> str:
    """A number of bytes in the largest unit that divides it."""
    unit, size = next((unit, size) for unit, size in BYTES.items() if amount % size == 0)
    return f"{amount // size} {unit}"
