"""Many subscriptions at once, by column: rows of predicates, a template and its values, texts.

Each way ends in a `Load`: ids, and batches of a source with its flat plans. Whatever cannot be done by
column (conditions over several tables, templates with very many alternatives, unusual values) becomes
single requests. Nothing is registered here.

    template, values ─► groups with one limit, and one value of each fixed parameter ─► FlatPlans
                    └─► other rows ─► single requests
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from tocsin.model.arrow import convert, flat
from tocsin.model.columns import Index, combine_codes
from tocsin.model.schema import Catalog, Stream, Table, Type
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.deferred import deferred_filters
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.templated import flat_tables
from tocsin.store.plans import BandEnds, FlatPlans, LazyPlans
from tocsin.subscriptions.roster import Request
from tocsin.subscriptions.sources import PredicateSource, Source, TemplateSource

__all__ = ["Load", "load_predicates", "load_template", "load_texts"]

MIN_ROWS = 8
"""Fewer rows of a template are parsed one by one."""


@dataclass
class Load:
    """Subscriptions to register: batches by column, the others one by one; `ids` in order of input."""

    ids: Index
    batches: list[tuple[Index, Source, FlatPlans]] = field(default_factory=list)
    single: list[Request] = field(default_factory=list)


class _Given(NamedTuple):
    """Rows of values for a template, by its keys, and the texts they were read from, if any."""

    heads: IdColumns
    rows: Index  # numbers in the input
    columns: Mapping[Any, Any]
    texts: Sequence[str] | None = None

    def take(self, which: Index) -> _Given:
        columns = {key: column.take(pa.array(which)) for key, column in self.columns.items()}
        return self._replace(rows=self.rows[which], columns=columns)


def load_predicates(relation: Table | Stream, table: Any) -> Load:
    """Rows of predicates."""
    table = as_table(table)
    heads = read_id_columns(table)
    deferred, filters = deferred_filters(relation, table), tuple[FlatFilters, ...]()
    wrong: dict[int, str] = {}
    if deferred is None:
        flattened, wrong = flat_predicates(relation, table)
        filters = (flattened,)
    heads.check({**wrong, **heads.bad})
    source, query = PredicateSource(relation, table), relation_query(relation, Truth(True))
    lazy = LazyPlans(source.plan, np.arange(len(heads.ids), dtype=np.int32))
    return Load(heads.ids, [(heads.ids, source, FlatPlans(query, source.shape, filters, (), lazy, deferred))])


def load_template(template: str, params: Any, catalog: Catalog) -> Load:
    """A template, once per row of parameters."""
    params = as_table(params)
    heads = read_id_columns(params)
    names = parameters(template, params.column_names)
    load = Load(heads.ids)
    columns = {name: _plain(name, params[name]) for name in names} if params.num_rows else {}
    left = np.ones(params.num_rows, np.bool_)
    if params.num_rows and all(column is not None for column in columns.values()):
        given = _Given(heads, np.arange(params.num_rows), columns)
        for made, part in _parts(template, params, names, given, catalog):
            left[part.rows] = False
            left[_take(load, made, part)] = True
    if left.any() or not params.num_rows:
        slow = np.flatnonzero(left)
        rest = expand_template(template, params if left.all() else params.take(pa.array(slow)), catalog)
        heads.check({int(slow[i]): reason for i, reason in rest.bad} | heads.bad)
        for row, (_, who, sql, query) in zip(slow.tolist(), rest.rows(), strict=True):
            load.single.append(Request(int(heads.ids[row]), who, sql, query))
    heads.check()
    return load


def _parts(
    template: str, params: Any, names: Mapping[str, int], given: _Given, catalog: Catalog
) -> Iterator[tuple[Template, _Given]]:
    """The template as it is read for some of the rows, with them; small parts are left out."""
    found = trace_template(template, params, names, catalog)
    if found is None:
        return
    made, fixed = found
    if not fixed:
        yield from _limited(made, given)
        return
    for rows in _alike([given.columns[name] for name in fixed], len(given.rows)):
        again = trace_template(template, params.take(pa.array(rows[:MIN_ROWS])), names, catalog)
        if again is not None and again[1] == fixed:
            yield from _limited(again[0], given.take(rows))


def _limited(template: Template, given: _Given) -> Iterator[tuple[Template, _Given]]:
    """The template with each of its limits, and the rows that have it."""
    limit = template.query.limit
    if not isinstance(limit, Slot):
        yield template, given
        return
    column = given.columns[limit.key]
    for rows in _alike([column], len(given.rows)):
        try:
            value = limit.read(column[int(rows[0])].as_py())
        except ValueError:  # told row by row
            continue
        assert isinstance(value, int)
        yield template.limited(value), given.take(rows)


def _alike(columns: Sequence[Any], count: int) -> Iterator[Index]:
    """Rows with equal values in all columns, and no NULL; those with too few are left out."""
    codes, there = [], np.ones(count, np.bool_)
    for column in columns:
        there &= ~np.asarray(column.is_null().to_numpy(zero_copy_only=False), np.bool_)
        coded = column.dictionary_encode().indices.fill_null(0)
        codes.append(coded.to_numpy(zero_copy_only=False).astype(np.int64))
    every = np.flatnonzero(there)
    code = combine_codes(codes, count)[every]
    order = np.argsort(code, kind="stable")
    first = np.flatnonzero(np.diff(code[order], prepend=-1))
    for rows in np.split(every[order], first[1:]):
        if len(rows) >= MIN_ROWS:
            yield rows


def _take(load: Load, template: Template, given: _Given) -> Index:
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
    heads, query = given.heads, template.query
    whose = None if heads.subscribers is None else heads.subscribers.take(pa.array(given.rows))
    own = None if given.texts is None else [given.texts[i] for i in given.rows.tolist()]
    source = TemplateSource(template, given.columns, whose, own)
    ids = heads.ids[given.rows]
    lazy = LazyPlans(source.plan, np.arange(len(ids), dtype=np.int32))
    load.batches.append((ids, source, FlatPlans(query, source.shape, filters, bands, lazy)))
    return left


def load_texts(
    texts: Sequence[str], ids: Sequence[int] | None, subscribers: Sequence[str | None] | None, parser: Parser,
    first_id: int,
) -> Load:  # fmt: skip
    """SQL texts; those that differ only in literals are filled by column."""
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
        table = {"id": pa.array(np.asarray(numbers, None if len(texts) else np.int64))}
        if subscribers is not None:
            table["subscriber"] = pa.array(subscribers, pa.string())
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
        raise SubscriptionError(
            f"ids or subscribers cannot be read: {error}", hint="ids are int64, subscribers are named by text"
        ) from None
    heads = read_id_columns(pa.table(table))
    groups: dict[Any, tuple[Template, list[int], list[list[Any]]]] = {}
    load = Load(heads.ids)
    bad = dict(heads.bad)
    for i, text in enumerate(texts):
        try:
            found = parser.template(text)
            if found is None:
                load.single.append(Request(int(heads.ids[i]), heads.subscriber(i), text, parser.parse(text)))
            else:
                template, key, values = found
                groups.setdefault(key, (template, [], []))[1].append(i)
                groups[key][2].append(values)
        except TocsinError as error:
            bad[i] = _reason(error)
    for (_, starts), (template, rows, values) in groups.items():
        _load_group(load, heads, bad, parser, texts, template, starts, rows, values)
    heads.check(bad)
    return load


def _reason(error: TocsinError) -> str:
    """What is wrong with a text, and where."""
    where = error.position
    return error.fact if where is None else f"{error.fact} (line {where.line}, column {where.column})"


def _load_group(
    load: Load, heads: IdColumns, bad: dict[int, str], parser: Parser, texts: Sequence[str],
    template: Template, starts: tuple[int, ...], rows: list[int], values: list[list[Any]],
) -> None:  # fmt: skip
    """Texts of one template: by column if they are several."""
    left = np.ones(len(texts), np.bool_)
    if len(rows) >= MIN_ROWS:
        by_key = zip(starts, zip(*values, strict=True), strict=True)
        try:
            columns = {start: pa.array(list(column)) for start, column in by_key if start in template.keys}
        except (pa.ArrowInvalid, OverflowError):
            columns = None  # a number beyond 64 bits
        if columns is not None:
            for made, part in _limited(template, _Given(heads, np.array(rows), columns, texts)):
                left[part.rows] = False
                left[_take(load, made, part)] = True
    for i in rows:
        if left[i]:
            try:
                load.single.append(
                    Request(int(heads.ids[i]), heads.subscriber(i), texts[i], parser.parse(texts[i]))
                )
            except TocsinError as error:
                bad[i] = _reason(error)


def _plain(name: str, column: Any) -> Any:
    """One array, dictionaries resolved, times in UTC; None if it holds a time that no calendar has."""
    array = flat(column)
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        kind = Type.DATE if pa.types.is_date(array.type) else Type.TIMESTAMP
        vector, wrong = convert(name, kind, array)
        return None if wrong else vector.arrow
    return array
