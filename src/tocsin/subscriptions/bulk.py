"""Many subscriptions at once, by column: rows of predicates, a template and its values, texts.

Each way ends in a `Load`: ids, and batches of a source with its flat plans. Whatever cannot be done by
column (conditions over several tables, templates with very many alternatives, unusual values) becomes
single requests. Nothing is registered here.

    template, values ─► groups with one limit, and one value of each fixed parameter ─► FlatPlans
                    └─► other rows ─► single requests
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.language.algebra import Truth
from tocsin.language.bulk import (
    IdColumns,
    as_table,
    expand_template,
    parameters,
    read_id_columns,
    trace_template,
)
from tocsin.language.literals import Slot
from tocsin.language.predicates import relation_query
from tocsin.language.template import Parser, Template
from tocsin.limits.options import check_supported
from tocsin.model.arrow import convert, flat
from tocsin.model.buffers import to_arrow, to_numpy
from tocsin.model.columns import Index, combine_codes
from tocsin.model.schema import Catalog, Stream, Table, Type
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.deferred import deferred_filters
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.plain import PlainFilter
from tocsin.predicate.templated import flat_tables
from tocsin.store.plans import BandEnds, FlatPlans, LazyPlans
from tocsin.subscriptions.plain import PlainTexts
from tocsin.subscriptions.roster import Request
from tocsin.subscriptions.sources import PredicateSource, Source, TemplateSource

__all__ = ["Load", "collector_paused", "load_predicates", "load_template", "load_texts"]

MIN_ROWS = 8
"""Fewer rows of a template are parsed one by one."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """Around making many objects that stay: Python's collector would search all of them again and again.

    Of 100,000 texts with as many skeletons that takes two fifths of the time. At the end the objects
    become old ones, left to full collections: as young ones they would be searched twice more, at once.
    If a program has frozen objects itself, these stay frozen, and the new ones stay young.
    """
    was_collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_collecting:
            if not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class PlainRequest(NamedTuple):
    """A plain filter to register."""

    id: int
    subscriber: str | None
    sql: str
    filter: PlainFilter


@dataclass
class Load:
    """Subscriptions to register: batches by column, the others one by one; `ids` in order of input."""

    ids: Index
    batches: list[tuple[Index, Source, FlatPlans]] = field(default_factory=list)
    plain: list[PlainRequest] = field(default_factory=list)
    single: list[Request] = field(default_factory=list)

    def without_options(self) -> Load:
        """This load; raises if a query has options, for callers that answer none."""
        for query in [plans.query for _, _, plans in self.batches] + [one.query for one in self.single]:
            check_supported(query.options, frozenset())
        return self


class _Given(NamedTuple):
    """Rows of values for a template, by its keys, and the texts they were read from, if any."""

    id_columns: IdColumns
    rows: Index  # numbers in the input
    columns: Mapping[Any, Any]
    texts: Sequence[str] | None = None

    def take(self, which: Index) -> _Given:
        columns = {key: column.take(to_arrow(which)) for key, column in self.columns.items()}
        return self._replace(rows=self.rows[which], columns=columns)


def load_predicates(relation: Table | Stream, table: Any) -> Load:
    """Rows of predicates."""
    table = as_table(table)
    id_columns = read_id_columns(table)
    deferred, filters = deferred_filters(relation, table), tuple[FlatFilters, ...]()
    wrong: dict[int, str] = {}
    if deferred is None:
        flattened, wrong = flat_predicates(relation, table)
        filters = (flattened,)
    id_columns.check({**wrong, **id_columns.bad})
    source, query = PredicateSource(relation, table), relation_query(relation, Truth(True))
    lazy = LazyPlans(source.plan, np.arange(len(id_columns.ids), dtype=np.int32))
    return Load(
        id_columns.ids,
        [(id_columns.ids, source, FlatPlans(query, source.shape, filters, (), lazy, deferred))],
    )


def load_template(template: str, params: Any, catalog: Catalog) -> Load:
    """A template, once per row of parameters."""
    params = as_table(params)
    id_columns = read_id_columns(params)
    names = parameters(template, params.column_names)
    load = Load(id_columns.ids)
    columns = {name: _normalised(name, params[name]) for name in names} if params.num_rows else {}
    left = np.ones(params.num_rows, np.bool_)
    if params.num_rows and all(column is not None for column in columns.values()):
        given = _Given(id_columns, np.arange(params.num_rows), columns)
        for made, part in _by_fixed_values(template, params, names, given, catalog):
            left[part.rows] = False
            left[_add_batch(load, made, part)] = True
    if left.any() or not params.num_rows:
        slow = np.flatnonzero(left)
        rest = expand_template(template, params if left.all() else params.take(to_arrow(slow)), catalog)
        id_columns.check({int(slow[i]): reason for i, reason in rest.bad} | id_columns.bad)
        for row, (_, who, sql, query) in zip(slow.tolist(), rest.rows(), strict=True):
            load.single.append(Request(int(id_columns.ids[row]), who, sql, query))
    id_columns.check()
    return load


def _by_fixed_values(
    template: str, params: Any, names: Mapping[str, int], given: _Given, catalog: Catalog
) -> Iterator[tuple[Template, _Given]]:
    """The template as parsed for groups of rows, with those rows; small groups are left out."""
    found = trace_template(template, params, names, catalog)
    if found is None:
        return
    made, fixed = found
    if not fixed:
        yield from _by_limit(made, given)
        return
    for rows in _equal_groups([given.columns[name] for name in fixed], len(given.rows)):
        again = trace_template(template, params.take(to_arrow(rows[:MIN_ROWS])), names, catalog)
        if again is not None and again[1] == fixed:
            yield from _by_limit(again[0], given.take(rows))


def _by_limit(template: Template, given: _Given) -> Iterator[tuple[Template, _Given]]:
    """The template with each of its limits, and the rows with that limit."""
    limit = template.query.limit
    if not isinstance(limit, Slot):
        yield template, given
        return
    column = given.columns[limit.key]
    for rows in _equal_groups([column], len(given.rows)):
        try:
            value = limit.read(column[int(rows[0])].as_py())
        except ValueError:  # reported row by row
            continue
        assert isinstance(value, int)
        yield template.limited(value), given.take(rows)


def _equal_groups(columns: Sequence[Any], count: int) -> Iterator[Index]:
    """Groups of rows with equal values in all columns and no NULL; small groups are left out."""
    codes, there = [], np.ones(count, np.bool_)
    for column in columns:
        there &= ~np.asarray(to_numpy(column.is_null()), np.bool_)
        coded = column.dictionary_encode().indices.fill_null(0)
        codes.append(to_numpy(coded).astype(np.int64))
    every = np.flatnonzero(there)
    code = combine_codes(codes, count)[every]
    order = np.argsort(code, kind="stable")
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    for rows in np.split(every[order], first[1:]):
        if len(rows) >= MIN_ROWS:
            yield rows


def _add_batch(load: Load, template: Template, given: _Given) -> Index:
    """Append the rows to the load, as one batch; returns the rows that cannot be done by column."""
    found = flat_tables(template, given.columns, len(given.rows))
    if found is None:
        return given.rows
    filters, bands = found.filters, tuple(BandEnds(*ends) for ends in found.bands)
    left, kept = given.rows[found.slow], ~found.slow
    if len(left):
        given = given.take(np.flatnonzero(kept))
        filters, bands = tuple(f.take(kept) for f in filters), tuple(ends.take(kept) for ends in bands)
    if not len(given.rows):
        return left
    id_columns, query = given.id_columns, template.query
    whose = None if id_columns.subscribers is None else id_columns.subscribers.take(to_arrow(given.rows))
    own = None if given.texts is None else [given.texts[i] for i in given.rows.tolist()]
    source = TemplateSource(template, given.columns, whose, own)
    ids = id_columns.ids[given.rows]
    lazy = LazyPlans(source.plan, np.arange(len(ids), dtype=np.int32))
    load.batches.append((ids, source, FlatPlans(query, source.shape, filters, bands, lazy)))
    return left


def load_texts(
    texts: Sequence[str], ids: Sequence[int] | None, subscribers: Sequence[str | None] | None, parser: Parser,
    first_id: int, plain: PlainTexts | None = None,
) -> Load:  # fmt: skip
    """SQL texts; texts that differ only in literals are read by column.

    `plain`: whether the others may be plain filters, not planned each.
    """
    if isinstance(texts, str):
        raise SubscriptionError("texts is one text, not several", hint="give a list, or use subscribe(text)")
    for name, given in (("ids", ids), ("subscribers", subscribers)):
        if given is not None and len(given) != len(texts):
            raise SubscriptionError(
                f"there are {len(texts)} texts and {len(given)} {name}", hint="give one for each text"
            )
    if first_id + len(texts) >= 2**63 and ids is None:
        raise SubscriptionError("there are not enough ids left to assign", hint="give them: ids=...")
    numbers: Any = range(first_id, first_id + len(texts)) if ids is None else ids
    try:
        table = {"id": to_arrow(np.asarray(numbers, None if len(texts) else np.int64))}
        if subscribers is not None:
            table["subscriber"] = to_arrow(subscribers, pa.string())
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SubscriptionError(
            f"ids or subscribers cannot be read: {error}", hint="ids are int64, subscribers are named by text"
        ) from None
    id_columns = read_id_columns(pa.table(table))
    groups: dict[Any, _TextGroup] = {}
    load = Load(id_columns.ids)
    single: list[int] = []
    bad = dict(id_columns.bad)
    for i, text in enumerate(texts):
        try:
            found = parser.template(text)
        except TocsinError as error:
            bad[i] = _reason(error)
            continue
        if found is None:
            single.append(i)
        else:
            template, key, values = found
            group = groups.get(key)
            if group is None:
                group = groups[key] = _TextGroup(template, key[1], [], [])
            group.rows.append(i)
            group.values.append(values)
    for group in groups.values():
        left = _load_group(load, group, id_columns, texts)
        single += left if plain is None else _load_plain(load, group, left, id_columns, texts, plain)
    for i in single:
        try:
            query = parser.parse(texts[i])
        except TocsinError as error:
            bad[i] = _reason(error)
        else:
            load.single.append(Request(int(id_columns.ids[i]), id_columns.subscriber(i), texts[i], query))
    id_columns.check(bad)
    return load


class _TextGroup(NamedTuple):
    """Texts of one template: where its literals start, the numbers of the texts, and their literals."""

    template: Template
    starts: tuple[int, ...]
    rows: list[int]
    values: list[list[Any]]


def _load_group(load: Load, group: _TextGroup, id_columns: IdColumns, texts: Sequence[str]) -> list[int]:
    """Append texts of one template to the load, by column; returns those that must be parsed one by one."""
    if len(group.rows) < MIN_ROWS:
        return group.rows
    by_key = zip(group.starts, zip(*group.values, strict=True), strict=True)
    keys = group.template.keys
    try:
        columns = {start: to_arrow(list(column)) for start, column in by_key if start in keys}
    except (pa.ArrowInvalid, OverflowError):  # a number beyond 64 bits
        return group.rows
    left = np.ones(len(texts), np.bool_)
    for made, part in _by_limit(group.template, _Given(id_columns, np.array(group.rows), columns, texts)):
        left[part.rows] = False
        left[_add_batch(load, made, part)] = True
    return [i for i in group.rows if left[i]]


def _load_plain(
    load: Load, group: _TextGroup, left: list[int], id_columns: IdColumns, texts: Sequence[str],
    plain: PlainTexts,
) -> list[int]:  # fmt: skip
    """Append the plain ones among these texts of one template; returns the others."""
    values, others = dict(zip(group.rows, group.values, strict=True)), []
    for row in left:
        filter = plain.of(group.template, dict(zip(group.starts, values[row], strict=True)))
        if filter is None:
            others.append(row)
        else:
            who = id_columns.subscriber(row)
            load.plain.append(PlainRequest(int(id_columns.ids[row]), who, texts[row], filter))
    return others


def _reason(error: TocsinError) -> str:
    """The error in a text, with its position."""
    where = error.position
    return error.fact if where is None else f"{error.fact} (line {where.line}, column {where.column})"


def _normalised(name: str, column: Any) -> Any:
    """One array, dictionaries resolved, times in UTC; None if a time is outside the calendar."""
    array = flat(column)
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        kind = Type.DATE if pa.types.is_date(array.type) else Type.TIMESTAMP
        vector, wrong = convert(name, kind, array)
        return None if wrong else vector.arrow
    return array
