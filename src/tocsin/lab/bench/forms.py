"""Subscriptions in DNF and CNF, made of drawn conjunctions: O14's Figure 13.

A workload's rows are taken in groups, each group one subscription:

    rows        A = 1 AND B <= 4      C >= 7
    dnf         (A = 1 AND B <= 4)  OR  C >= 7          each row a conjunction
    cnf         (A = 1 OR  B <= 4)  AND C >= 7          each row a clause

Indexes get them as flat filters: the Arrow columns of predicates can only say conjunctions.

>>> from tocsin.lab.bench.filters import make_workload
>>> work = make_workload("sparse", 100, 5, smallest=2, attributes=30)
>>> groups = draw_groups(100, most=4, seed=0)
>>> int(groups.sum()), bool((groups <= 4).all())
(100, True)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tocsin.lab.bench.check import brute_answers
from tocsin.lab.bench.draws import laid_out
from tocsin.match.base import pack, unpack
from tocsin.model.columns import Index
from tocsin.predicate.flat import OR_NEXT, FlatFilters

__all__ = ["cnf_answers", "cnf_filters", "dnf_answers", "dnf_filters", "draw_groups"]


def draw_groups(rows: int, most: int, seed: int) -> Index:
    """Sizes from 1 to `most` that add up to the rows."""
    sizes = np.random.default_rng(seed).integers(1, most + 1, rows)
    count = int(np.searchsorted(np.cumsum(sizes), rows)) + 1
    sizes = sizes[:count]
    sizes[-1] -= int(sizes.sum()) - rows
    return sizes


def dnf_filters(rows: FlatFilters, groups: Index) -> FlatFilters:
    """One filter per group, a conjunction per row."""
    _check_plain(rows)
    return replace(rows, count=len(groups), owner=_group_of(groups).astype(np.int32))


def cnf_filters(rows: FlatFilters, groups: Index) -> FlatFilters:
    """One filter per group, a clause per row."""
    _check_plain(rows)
    flags = np.full(len(rows.dim), OR_NEXT, np.uint8)
    flags[rows.start[1:] - 1] = 0  # the last alternative of a clause
    owner = np.arange(len(groups), dtype=np.int32)
    return replace(rows, count=len(groups), owner=owner, start=rows.start[laid_out(groups)], flags=flags)


def dnf_answers(subscriptions: Any, groups: Index, events: Any) -> Index:
    """By brute force: (group, event), packed and ascending."""
    row, event = unpack(brute_answers(subscriptions, events))
    return np.unique(pack(_group_of(groups)[row], event))


def cnf_answers(subscriptions: Any, groups: Index, events: Any) -> Index:
    """By brute force over single predicates: (group, event), packed and ascending."""
    lists = subscriptions["predicates"].combine_chunks()
    flat = pc.list_flatten(lists)
    single = pa.ListArray.from_arrays(pa.array(np.arange(len(flat) + 1), pa.int32()), flat)
    predicate, event = unpack(brute_answers(pa.table({"predicates": single}), events))
    row = pc.list_parent_indices(lists).to_numpy(zero_copy_only=False)[predicate]
    row, event = unpack(np.unique(pack(row, event)))  # a clause that holds, once
    found, clauses = np.unique(pack(_group_of(groups)[row], event), return_counts=True)
    return np.asarray(found[clauses == groups[found >> 32]])


def _group_of(groups: Index) -> Index:
    return np.repeat(np.arange(len(groups)), groups)


def _check_plain(rows: FlatFilters) -> None:
    assert np.array_equal(rows.owner, np.arange(rows.count)), "a row is one conjunction"
    assert not rows.flags.any() and rows.sizes.all(), "of one test or more, each plain"
