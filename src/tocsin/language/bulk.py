"""Many subscriptions at once: a template with a table of parameters, or a column of predicates.

>>> import pyarrow as pa
>>> from tocsin.model.schema import Field, Stream, Type
>>> hits = Stream("hits", (Field("page", Type.STRING), Field("ms", Type.BIGINT)))
>>> params = pa.table({"id": [7, 8], "most": [10, 20]})
>>> bulk = expand_template("SELECT * FROM hits WHERE ms > :most", params, {"hits": hits})
>>> [(id, str(query.where)) for id, _, _, query in bulk.rows()]
[(7, 'ms > 10'), (8, 'ms > 20')]

Ids, operators, attributes and missing operands are checked column by column. A bad row is collected with
its index and reason; `Bulk.rows` raises if there is one, so a caller gets all rows or none. A template is
parsed once per combination of NULLs and of parameters that are neither the constant of a condition nor the
end of a band (for example two constants compared with each other).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from tocsin.errors import BadRow, SqlError, SubscriptionError
from tocsin.language.algebra import Band, Query, Value
from tocsin.language.deep_stack import with_deep_stack
from tocsin.language.dialect import read
from tocsin.language.predicates import relation_query, row_conditions
from tocsin.language.scope import nearest
from tocsin.language.sql import trace_query
from tocsin.language.template import Template, trace_numbers
from tocsin.model.arrow import convert, flat
from tocsin.model.buffers import to_numpy
from tocsin.model.schema import Catalog, Stream, Table, Type

__all__ = [
    "Bulk",
    "IdColumns",
    "as_table",
    "bad_rows",
    "expand_predicates",
    "expand_template",
    "parameters",
    "read_id_columns",
    "trace_template",
]  # fmt: skip

MAX_FAILURES = 100
"""Failed rows per combination of NULLs after which the remaining ones are rejected unread."""


@dataclass(frozen=True, slots=True)
class Bulk:
    """New subscriptions as parallel lists; `bad` rows are not in them."""

    ids: list[int]
    subscribers: list[str | None]
    queries: list[Query]
    bad: tuple[BadRow, ...] = ()

    def rows(self) -> Iterator[tuple[int, str | None, str, Query]]:
        """Id, subscriber, SQL text and query of each subscription; raises if a row was bad."""
        if self.bad:
            raise bad_rows(self.bad)
        for id_, subscriber, query in zip(self.ids, self.subscribers, self.queries, strict=True):
            yield id_, subscriber, str(query), query

    def __len__(self) -> int:
        return len(self.ids)


def bad_rows(rows: Sequence[BadRow]) -> SubscriptionError:
    """The error for rejected rows; its text shows the first."""
    first = rows[0]
    count = "1 row is" if len(rows) == 1 else f"{len(rows)} rows are"
    fact = f"{count} bad, so no row was added; row {first.row}: {first.reason}"
    return SubscriptionError(fact, "the error's `rows` has the index and the reason of each", tuple(rows))


@dataclass(slots=True)
class IdColumns:
    """The columns `id` and `subscriber`, and the rows found bad so far."""

    ids: Any  # int64 array; undefined for bad rows
    subscribers: Any  # Arrow column, or None
    bad: dict[int, str] = field(default_factory=dict)

    def subscriber(self, row: int) -> str | None:
        named: str | None = None if self.subscribers is None else self.subscribers[row].as_py()
        return named

    def check(self, bad: Mapping[int, str] | None = None) -> None:
        """Raise if a row is bad."""
        if found := self.bad if bad is None else bad:
            raise bad_rows([BadRow(i, found[i]) for i in sorted(found)])

    def bulk(self, queries: dict[int, Query]) -> Bulk:
        good = [i for i in range(len(self.ids)) if i not in self.bad]
        return Bulk(
            [int(self.ids[i]) for i in good],
            [self.subscriber(i) for i in good],
            [queries[i] for i in good],
            tuple(BadRow(i, self.bad[i]) for i in sorted(self.bad)),
        )


def read_id_columns(table: Any) -> IdColumns:
    """Check the columns `id` (whole numbers, not null, unique) and `subscriber` (text)."""
    if "id" not in table.column_names:
        raise SubscriptionError("there is no column 'id'", "add one: whole numbers, each once")
    column = table.column("id")
    if not pa.types.is_integer(column.type):
        raise SubscriptionError(f"column 'id' is {column.type}", "ids are whole numbers (int64)")
    try:
        column = column if column.type == pa.int64() else pc.cast(column, pa.int64())
    except pa.ArrowInvalid:
        raise SubscriptionError("an id does not fit in 64 bits", "ids are whole numbers (int64)") from None
    subscribers = None
    if "subscriber" in table.column_names:
        subscribers = table.column("subscriber")
        if not (_is_text(subscribers.type) or pa.types.is_null(subscribers.type)):
            raise SubscriptionError(
                f"column 'subscriber' is {subscribers.type}", "subscribers are named by text"
            )
    ids = to_numpy(column.fill_null(0) if column.null_count else column).astype(np.int64)
    found = IdColumns(ids, subscribers)
    if column.null_count:
        missing = pc.indices_nonzero(pc.is_null(column)).to_pylist()
        found.bad.update((i, "the id is null") for i in missing)
    ordered = ids if np.all(ids[1:] > ids[:-1]) else np.sort(ids)
    if np.any(ordered[1:] == ordered[:-1]):
        seen: set[int] = set()
        for i, id_ in enumerate(ids.tolist()):
            if i in found.bad:
                continue
            if id_ in seen:
                found.bad[i] = f"the id {id_} occurs twice"
            seen.add(id_)
    return found


def _is_text(type_: Any) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_))


# -- templates -------------------------------------------------------------------------------------


def expand_template(template: str, params: Any, catalog: Catalog) -> Bulk:
    """One query per row of `params`, whose columns are the `:name` parameters of the template.

    Raises SqlError if the template is invalid for any values.
    """
    params = as_table(params)
    rows = read_id_columns(params)
    names = parameters(template, params.column_names)
    columns = {name: _values(name, params.column(name), rows.bad) for name in names}
    parses = _TemplateParses(template, catalog, names)
    if not len(rows.ids):
        parses.check()
    queries: dict[int, Query] = {}
    for i in range(len(rows.ids)):
        if i not in rows.bad:
            try:
                queries[i] = with_deep_stack(parses.fill, {name: columns[name][i] for name in names})
            except ValueError as error:
                rows.bad[i] = str(error)
    return rows.bulk(queries)


def trace_template(
    template: str, params: Any, names: Mapping[str, int], catalog: Catalog
) -> tuple[Template, list[str]] | None:
    """Parse the template with the first row without NULLs; return it and the parameters without slots.

    None if there is no such row. Raises SqlError if the template is invalid for any values.
    """
    parses = _TemplateParses(template, catalog, names)
    for i in range(min(params.num_rows, MAX_FAILURES)):
        bad: dict[int, str] = {}
        row = {name: _values(name, params.column(name).slice(i, 1), bad)[0] for name in names}
        if not bad and None not in row.values():
            with suppress(ValueError):
                return with_deep_stack(parses.parse, row, (False,) * len(names))
    return None


class _TemplateParses:
    """The parses of one template, by which parameters are NULL and by the values of those without slots."""

    def __init__(self, text: str, catalog: Catalog, names: Mapping[str, int]) -> None:
        self.text, self.catalog, self.names = text, catalog, names
        self.fixed: dict[tuple[bool, ...], list[str]] = {}  # parameters without slots, by NULLs
        self.templates: dict[tuple[Any, ...], Template] = {}
        self.failures: Counter[tuple[bool, ...]] = Counter()

    def fill(self, row: Mapping[str, Value]) -> Query:
        """The query of one row; ValueError if its values do not fit, SqlError if no values would."""
        nulls = tuple(row[name] is None for name in self.names)
        if nulls in self.fixed:
            found = self.templates.get((nulls, *(row[name] for name in self.fixed[nulls])))
            if found is not None:
                return found.fill(row)
        template, fixed = self.parse(row, nulls)
        if self.fixed.setdefault(nulls, fixed) == fixed:
            self.templates[nulls, *(row[name] for name in fixed)] = template
        return template.fill(row)

    def parse(self, row: Mapping[str, Value], nulls: tuple[bool, ...]) -> tuple[Template, list[str]]:
        """Trace the template with these values; return it and the parameters without slots."""
        if self.failures[nulls] >= MAX_FAILURES:
            raise ValueError("skipped: too many rows before it do not fit the template")
        try:
            query = trace_query(self.text, self.catalog, row)
        except SqlError as error:
            at = error.position
            if at is None or ":" not in self.text[at.start : at.end]:
                raise  # not caused by a parameter: it fails for every row
            self.failures[nulls] += 1
            raise ValueError(error.fact) from None
        template = Template.of(query)
        fixed = self._fixed(template)
        if fixed and any(isinstance(join, Band) for join in query.joins):
            return self._with_ends(row, template, fixed)
        return template, fixed

    def _with_ends(
        self, row: Mapping[str, Value], plain: Template, fixed: list[str]
    ) -> tuple[Template, list[str]]:
        """Trace again with slots for ends of bands that are sums with one parameter."""
        given, decided = trace_numbers(row)
        with suppress(SqlError, KeyError):  # a trace_numbers number has no name among types
            template = Template.of(trace_query(self.text, self.catalog, given))
            fewer = self._fixed(template, decided)
            if len(fewer) < len(fixed):
                return template, fewer
        return plain, fixed

    def _fixed(self, template: Template, decided: Collection[str] = ()) -> list[str]:
        """Parameters that occur somewhere without a slot, or that decided the parse."""
        slots = template.slots()
        return [name for name, times in self.names.items() if slots[name] != times or name in decided]

    def check(self) -> None:
        """Check a template without rows, by parsing it with NULLs."""
        nulls = dict.fromkeys(self.names)
        with suppress(ValueError):
            self.parse(nulls, (True,) * len(self.names))


def as_table(table: Any) -> Any:
    """Convert a RecordBatch to a Table, and check that column names are unique."""
    if isinstance(table, pa.RecordBatch):
        return pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise SubscriptionError(f"a pyarrow Table is needed, not {type(table).__name__}", "pa.table({...})")
    twice = next((name for name, count in Counter(table.column_names).items() if count > 1), None)
    if twice is not None:
        raise SubscriptionError(f"column {twice!r} occurs twice", "give each column its own name")
    return table


def parameters(template: str, columns: Sequence[str]) -> dict[str, int]:
    """The parameters of a template and how often each occurs; each must be a column."""
    trees, source = read(template, "a template")
    names: dict[str, int] = {}
    for tree in trees:
        for node in tree.find_all(exp.Placeholder):
            name = node.this
            if isinstance(name, str) and name not in columns:
                hint = nearest(name, columns) or f"the columns are {', '.join(columns)}"
                raise source.error(f"there is no column for the parameter {name!r}", node, hint)
            if isinstance(name, str):
                names[name] = names.get(name, 0) + 1
    return names


def _values(name: str, column: Any, bad: dict[int, str]) -> list[Value]:
    """A column of parameters as Python values; rows whose times are out of range go into `bad`."""
    type_ = column.type
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
        column = pc.cast(column, type_)
    if pa.types.is_timestamp(type_) or pa.types.is_date(type_):
        target = Type.DATE if pa.types.is_date(type_) else Type.TIMESTAMP
        vector, worse = convert(name, target, flat(column))
        for i, reason in worse:
            bad.setdefault(i, reason)
        return vector.to_list()
    if pa.types.is_floating(type_):
        return [None if v is None else math.nan if v != v else v + 0.0 for v in column.to_pylist()]
    known = (pa.types.is_decimal, pa.types.is_integer, pa.types.is_boolean, _is_text, pa.types.is_null)
    if not any(is_known(type_) for is_known in known):
        raise SubscriptionError(
            f"column {name!r} is {type_}",
            "parameters are whole numbers, doubles, text, booleans, dates, timestamps; for times that differ "
            "by an INTERVAL use subscribe_texts",
        )
    values: list[Value] = column.to_pylist()
    return values


# -- columns of predicates -------------------------------------------------------------------------


def expand_predicates(relation: Table | Stream, table: Any) -> Bulk:
    """One query per row, the conjunction of its `predicates`; `predicates.py` documents the columns."""
    table = as_table(table)
    rows = read_id_columns(table)
    conditions = row_conditions(relation, table, rows.bad)
    queries = {i: relation_query(relation, condition) for i, condition in conditions.items()}
    return rows.bulk(queries)
