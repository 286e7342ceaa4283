"""Where subscriptions come from: one text, or a table of many.

A source holds the input as it was given and makes the text and the query of a row on demand: to
explain, to save, to list. Matching never needs them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tocsin.language.algebra import Predicate, Query
from tocsin.language.predicates import relation_query, row_conditions
from tocsin.language.shape import Plan, Shape, plan, shape_of
from tocsin.language.template import Template
from tocsin.model.schema import Stream, Table

__all__ = ["PlainSource", "PredicateSource", "SingleSource", "Source", "Subscription", "TemplateSource"]

READ_AHEAD = 256  # rows of predicates read at a time by a sequential reader


class _Deferred:
    """Text and warnings of a subscription may be made when they are first read."""

    __slots__ = ("_origin",)
    _origin: tuple[Source, int]

    def __getattr__(self, name: str) -> Any:
        """An attribute without a value yet."""
        if name not in ("sql", "warnings"):
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )
        source, row = self._origin
        value = source.sql(row) if name == "sql" else source.plan(row).warnings
        object.__setattr__(self, name, value)
        return value


@dataclass(frozen=True, slots=True)
class Subscription(_Deferred):
    """What `subscribe` returns; every method of the engine takes it or its id."""

    id: int
    sql: str
    shape: Shape
    warnings: tuple[str, ...] = ()
    subscriber: str | None = None
    valid_from: datetime | None = None
    valid_to: datetime | None = None

    @classmethod
    def deferred(cls, id: int, source: Source, row: int) -> Subscription:
        """A row of a source; its text and warnings are made when they are read."""
        made = object.__new__(cls)
        known = {"id": id, "shape": source.shape, "subscriber": source.subscriber(row)}
        for name, value in {**known, "valid_from": None, "valid_to": None, "_origin": (source, row)}.items():
            object.__setattr__(made, name, value)
        return made


class Source(ABC):
    """Subscriptions by row, all of one shape over the same tables."""

    shape: Shape
    tables: tuple[str, ...]

    @abstractmethod
    def sql(self, row: int) -> str:
        """The text of a row; parsed again, it gives the same query."""

    @abstractmethod
    def query(self, row: int) -> Query:
        """The query of a row."""

    @abstractmethod
    def subscriber(self, row: int) -> str | None:
        """The subscriber, if the row names one."""

    @abstractmethod
    def subscribers(self) -> NDArray[np.object_] | None:
        """The subscriber of each row; None if no row names one."""

    def plan(self, row: int) -> Plan:
        """The plan of a row's query."""
        return plan(self.query(row), text=self.sql(row))

    def record(self, row: int) -> dict[str, Any]:
        """The row as a saved engine stores it."""
        return {"sql": self.sql(row), "subscriber": self.subscriber(row), "valid": [None, None]}

    def subscription(self, id: int, row: int) -> Subscription:
        """The row under its id."""
        return Subscription.deferred(id, self, row)


class SingleSource(Source):
    """A single subscription, with its plan."""

    def __init__(self, given: Subscription, plan: Plan) -> None:
        self.given, self._plan = given, plan
        self.shape = plan.shape
        self.tables = tuple({table.name for table in plan.query.tables})

    def sql(self, row: int) -> str:
        return self.given.sql

    def query(self, row: int) -> Query:
        return self._plan.query

    def plan(self, row: int) -> Plan:
        return self._plan

    def subscriber(self, row: int) -> str | None:
        return self.given.subscriber

    def subscribers(self) -> NDArray[np.object_] | None:
        return None if self.given.subscriber is None else np.array([self.given.subscriber], object)

    def record(self, row: int) -> dict[str, Any]:
        return {**super().record(row), "valid": [self.given.valid_from, self.given.valid_to]}

    def subscription(self, id: int, row: int) -> Subscription:
        return self.given


class PlainSource(SingleSource):
    """A single subscription whose text differs from others in literals; its plan is made when needed."""

    def __init__(self, given: Subscription, template: Template, raw: Mapping[Any, Any], table: str) -> None:
        self.given, self.shape, self.tables = given, given.shape, (table,)
        self._template, self._raw = template, raw

    def query(self, row: int) -> Query:
        return self._template.fill(self._raw)

    def plan(self, row: int) -> Plan:
        return plan(self.query(row), text=self.given.sql)


class _TableSource(Source):
    """Rows of an Arrow table; the column `subscriber`, if present, names the subscribers."""

    def __init__(self, shape: Shape, tables: Iterable[str], subscribers: Any) -> None:
        self.shape, self.tables = shape, tuple(dict.fromkeys(tables))
        self._subscribers = _names(subscribers)

    def subscriber(self, row: int) -> str | None:
        named: str | None = None if self._subscribers is None else self._subscribers[row]
        return named

    def subscribers(self) -> NDArray[np.object_] | None:
        return self._subscribers

    def sql(self, row: int) -> str:
        return str(self.query(row))


class PredicateSource(_TableSource):
    """Rows of predicates (`language/predicates.py`)."""

    def __init__(self, relation: Table | Stream, table: Any) -> None:
        whose = table["subscriber"] if "subscriber" in table.column_names else None
        super().__init__(Shape.FILTER, [relation.name], whose)
        self._relation, self._table = relation, table
        self._read: dict[int, Predicate] = {}  # conditions read last
        self._next = -1  # the row after the last one read

    def query(self, row: int) -> Query:
        """A sequential reader has its rows read ahead."""
        read = self._read  # another thread may replace it meanwhile
        if row not in read:
            some = self._table.slice(row, READ_AHEAD if row == self._next else 1)
            found = row_conditions(self._relation, some, {})
            read = self._read = {row + i: condition for i, condition in found.items()}
        self._next = row + 1
        return relation_query(self._relation, read[row])


class TemplateSource(_TableSource):
    """A template and the values that fill it: `columns[key][row]`."""

    def __init__(
        self,
        template: Template,
        columns: Mapping[Any, Any],
        subscribers: Any = None,
        texts: Sequence[str] | None = None,
    ) -> None:
        query = template.query
        super().__init__(shape_of(query), (table.name for table in query.tables), subscribers)
        self._template, self._columns, self._texts = template, columns, texts

    def query(self, row: int) -> Query:
        values = {key: _value(column[row].as_py()) for key, column in self._columns.items()}
        return self._template.fill(values)

    def sql(self, row: int) -> str:
        return str(self.query(row)) if self._texts is None else self._texts[row]


def _names(subscribers: Any) -> NDArray[np.object_] | None:
    """An Arrow array of names as an object array, each distinct name once in memory; None if all are null."""
    if subscribers is None or subscribers.null_count == len(subscribers):
        return None
    whole = subscribers.combine_chunks() if isinstance(subscribers, pa.ChunkedArray) else subscribers
    coded = whole.dictionary_encode()
    names = np.array([*coded.dictionary.to_pylist(), None], object)  # the last one is for nulls
    return np.asarray(names[coded.indices.fill_null(-1).to_numpy()])


def _value(value: Any) -> Any:
    """A parameter as literals have it: one zero, one zone."""
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    return value + 0.0 if isinstance(value, float) else value
