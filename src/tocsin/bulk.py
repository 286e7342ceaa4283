"""Many subscriptions at once, by column: rows of predicates, a template and its values, texts.

Each way ends in a `Load`: ids, a source that can say what a row was, flat filters, and what of an
event they show. Whatever cannot be done by column (joins, rankings, templates with very many
alternatives) comes back as queries to be entered one by one. Nothing is entered here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from tocsin.errors import SubscriptionError, TocsinError
from tocsin.language.bulk import (
    Heads,
    as_table,
    expand_template,
    heads_of,
    parameters,
    trace_template,
)
from tocsin.language.lift import Parser
from tocsin.language.shape import Shape, shape_of
from tocsin.language.template import Template
from tocsin.match.filters import Projection, projection_of
from tocsin.model.arrow import convert, flat
from tocsin.model.columns import Index
from tocsin.model.schema import Catalog, Stream, Table, Type
from tocsin.predicate.columnar import flat_predicates
from tocsin.predicate.flat import FlatFilters
from tocsin.predicate.later import LaterFilters, later_filters
from tocsin.predicate.templated import flat_template
from tocsin.roster import Asked
from tocsin.sources import Filled, Predicates, Source

__all__ = ["Load", "load_predicates", "load_template", "load_texts"]


@dataclass
class Load:
    """What is to be entered: filters by column, and queries one by one; all ids in order of row."""

    ids: Index
    columns: list[tuple[Index, Source, FlatFilters | LaterFilters, Projection]] = field(default_factory=list)
    single: list[Asked] = field(default_factory=list)


def load_predicates(relation: Table | Stream, table: Any) -> Load:
    """Rows of predicates."""
    table = as_table(table)
    heads = heads_of(table)
    filters: FlatFilters | LaterFilters | None = later_filters(relation, table)
    wrong: dict[int, str] = {}
    if filters is None:
        filters, wrong = flat_predicates(relation, table)
    heads.check({**wrong, **heads.bad})
    projection = tuple((f.name, f.name) for f in relation.fields)
    return Load(heads.ids, [(heads.ids, Predicates(relation, table), filters, projection)])


def load_template(template: str, params: Any, catalog: Catalog) -> Load:
    """A template, once per row of parameters."""
    params = as_table(params)
    heads = heads_of(params)
    names = parameters(template, params.column_names)
    made = trace_template(template, params, names, catalog) if params.num_rows else None
    if made is not None and shape_of(made.query) is Shape.FILTER and made.keys == frozenset(names):
        columns = {name: _plain(name, params[name]) for name in names}
        readable = all(column is not None for column in columns.values())
        found = flat_template(made, columns, params.num_rows) if readable else None
        if found is not None:
            return _filled(heads, made, columns, found, template, params, catalog)
    return Load(heads.ids, single=list(expand_template(template, params, catalog).rows()))


def _filled(
    heads: Heads,
    made: Template,
    columns: dict[Any, Any],
    found: tuple[FlatFilters, Index],
    template: str,
    params: Any,
    catalog: Catalog,
) -> Load:
    """A template by column; the rows left over row by row."""
    _, slow = found
    load = Load(heads.ids)
    if len(slow):
        rest = expand_template(template, params.take(pa.array(slow)), catalog)
        heads.check({int(slow[i]): reason for i, reason in rest.bad} | heads.bad)
        for row, (_, who, sql, query) in zip(slow.tolist(), rest.rows(), strict=True):
            load.single.append((int(heads.ids[row]), who, sql, query))
    else:
        heads.check()
    _take_columns(load, heads, np.arange(len(heads.ids)), made, columns, found)
    return load


def _take_columns(
    load: Load, heads: Heads, rows: Index, template: Template, columns: dict[Any, Any],
    found: tuple[FlatFilters, Index], texts: Sequence[str] | None = None,
) -> None:  # fmt: skip
    """The rows that `flat_template` has filled, as one source; `rows` are their numbers in what was given."""
    filters, slow = found
    if len(slow):
        kept = np.ones(len(rows), np.bool_)
        kept[slow] = False
        rows, filters = rows[kept], filters.take(kept)
        columns = {key: column.filter(pa.array(kept)) for key, column in columns.items()}
    if not len(rows):
        return
    whose = None if heads.subscribers is None else heads.subscribers.take(pa.array(rows))
    own = None if texts is None else [texts[i] for i in rows.tolist()]
    source = Filled(template, columns, whose, own)
    load.columns.append((heads.ids[rows], source, filters, projection_of(template.query)))


def load_texts(
    texts: Sequence[str], ids: Sequence[int] | None, subscribers: Sequence[str | None] | None, parser: Parser,
    first_id: int,
) -> Load:  # fmt: skip
    """SQL texts; those that differ only in literals are filled by column."""
    for name, given in (("ids", ids), ("subscribers", subscribers)):
        if given is not None and len(given) != len(texts):
            raise SubscriptionError(f"there are {len(texts)} texts and {len(given)} {name}")
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
    heads = heads_of(pa.table(table))
    groups: dict[Any, tuple[Template, list[int], list[list[Any]]]] = {}
    load = Load(heads.ids)
    bad = dict(heads.bad)
    for i, text in enumerate(texts):
        try:
            found = parser.template(text)
            if found is None:
                load.single.append((int(heads.ids[i]), heads.subscriber(i), text, parser.parse(text)))
            else:
                template, key, values = found
                groups.setdefault(key, (template, [], []))[1].append(i)
                groups[key][2].append(values)
        except TocsinError as error:
            bad[i] = error.fact
    for (_, starts), (template, rows, values) in groups.items():
        _load_group(load, heads, bad, parser, texts, template, starts, rows, values)
    heads.check(bad)
    return load


def _load_group(
    load: Load, heads: Heads, bad: dict[int, str], parser: Parser, texts: Sequence[str],
    template: Template, starts: tuple[int, ...], rows: list[int], values: list[list[Any]],
) -> None:  # fmt: skip
    """Texts of one template: by column if it is a filter and they are several."""
    slow: Any = range(len(rows))
    if len(rows) >= 8 and shape_of(template.query) is Shape.FILTER:
        by_key = zip(starts, zip(*values, strict=True), strict=True)
        try:
            columns = {start: pa.array(list(column)) for start, column in by_key if start in template.keys}
        except (pa.ArrowInvalid, OverflowError):
            columns = None  # a number beyond 64 bits
        found = None if columns is None else flat_template(template, columns, len(rows))
        if columns is not None and found is not None:
            slow = found[1]
            _take_columns(load, heads, np.array(rows), template, columns, found, texts)
    for i in (rows[n] for n in slow):
        try:
            load.single.append((int(heads.ids[i]), heads.subscriber(i), texts[i], parser.parse(texts[i])))
        except TocsinError as error:
            bad[i] = error.fact


def _plain(name: str, column: Any) -> Any:
    """One array, dictionaries resolved, times in UTC; None if it holds a time that no calendar has."""
    array = flat(column)
    if pa.types.is_timestamp(array.type) or pa.types.is_date(array.type):
        kind = Type.DATE if pa.types.is_date(array.type) else Type.TIMESTAMP
        vector, wrong = convert(name, kind, array)
        return None if wrong else vector.arrow
    return array
