"""All schemes for select-joins beside each other: exact contents after every change, no needless message."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reformulate.worlds import Row, World, as_change, join, ranges_of, semijoin
from tocsin.model.message import MessageKind, Messages
from tocsin.reformulate.base import Scheme, row_changes
from tocsin.reformulate.contents import SemijoinContents
from tocsin.reformulate.joins import (
    EnumeratedJoins,
    EnumeratedSemijoins,
    JoinedRows,
    RelaxedSelections,
    SelectedJoinedRows,
    SemijoinsByClusters,
    SemijoinsByRanges,
    SemijoinsByTuples,
    SemijoinsFewest,
    SemijoinsMerged,
)

SEMIJOINS = [SemijoinsMerged, SemijoinsByTuples, SemijoinsByRanges, SemijoinsByClusters, SemijoinsFewest]
SCHEMES = [
    *SEMIJOINS,
    *(EnumeratedSemijoins, EnumeratedJoins, JoinedRows, SelectedJoinedRows, RelaxedSelections),
]
Tables = tuple[dict[int, Row], dict[int, Row]]


def by_name(schemes: list[type[Scheme]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("made", schemes, ids=[scheme.name for scheme in schemes])


def opened(made: type[Scheme], world: World) -> Scheme:
    scheme = made()
    ranges = ranges_of(world.subscriptions)
    scheme.subscribe(np.arange(len(world.subscriptions)), ranges)
    return scheme


def copied(world: World) -> Tables:
    return dict(world.tables[0]), dict(world.tables[1])


@by_name(SCHEMES)
@settings(max_examples=max(15, settings().max_examples), deadline=None)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 40), late=st.integers(0, 10))
def test_property_contents_are_exact_after_every_change(
    made: type[Scheme], seed: int, changes: int, late: int
) -> None:
    """Also of clients that start late."""
    world = World(seed)
    scheme = opened(made, world)
    clients = {}
    for number in range(changes):
        if number == min(late, changes - 1):
            tables = dict(enumerate(world.tables))
            clients = {slot: scheme.contents(slot, tables) for slot in range(len(world.subscriptions))}
        messages = scheme.describe(as_change(*world.change()), number)
        messages._check()
        bodies = dict(enumerate(world.tables))
        for slot, client in clients.items():
            mine = messages.take(messages.received_by(slot, scheme.point(slot)))
            client.apply(mine, bodies)
            assert client.content() == join(world.subscriptions[slot], world.tables), slot
    scheme._check()


@by_name(SEMIJOINS)
@settings(max_examples=max(15, settings().max_examples), deadline=None)
@given(seed=st.integers(0, 2**32), changes=st.integers(1, 40))
def test_property_semijoins_send_nothing_needless(made: type[Scheme], seed: int, changes: int) -> None:
    world = World(seed)
    scheme = opened(made, world)
    clients = [scheme.contents(slot, ({}, {})) for slot in range(len(world.subscriptions))]  # type: ignore[arg-type]
    for number in range(changes):
        before = copied(world)
        side, old, new = world.change()
        messages = scheme.describe(as_change(side, old, new), number)
        moved = old is not None and new is not None and old.key != new.key
        received = np.zeros(len(messages), np.bool_)
        for slot, subscription in enumerate(world.subscriptions):
            mine = messages.received_by(slot, scheme.point(slot))
            received[mine] = True
            received_now = messages.take(mine)
            check_needed(received_now, subscription, before, world.tables, moved)
            client = clients[slot]
            assert isinstance(client, SemijoinContents)
            client.apply(received_now, dict(enumerate(world.tables)))
            for part in (0, 1):
                rows = {row: body for row, (_, body) in client.held[part].items()}
                assert rows == semijoin(subscription, part, world.tables)
        assert received.all(), "a message that nobody receives"


def check_needed(
    received_now: Messages, subscription: object, before: Tables, after: Tables, moved: bool
) -> None:
    """Each message says something new, and none says the same twice."""
    rows = list(
        zip(received_now.kind.tolist(), received_now.side.tolist(), received_now.row.tolist(), strict=True)
    )
    comes = Counter((side, row, kind == MessageKind.GONE) for kind, side, row in rows)
    assert all(count == 1 for count in comes.values()), "twice"
    for kind, side, row in rows:
        had = semijoin(subscription, side, before).get(row)  # type: ignore[arg-type]
        has = semijoin(subscription, side, after).get(row)  # type: ignore[arg-type]
        if kind == MessageKind.GONE:
            assert had is not None and (has is None or moved), "needless GONE"
        elif kind == MessageKind.EXPOSE:
            assert had is None and has is not None, "sent again"
        else:
            assert has is not None, "a row that is not in the semijoin"


@settings(max_examples=max(15, settings().max_examples), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_property_sizes_of_skylines(seed: int) -> None:
    """Fewest <= merged <= clusters <= two per group; fewest <= ranges and tuples."""
    world = World(seed)
    schemes = {made.name.removeprefix("ref-sj-"): opened(made, world) for made in SEMIJOINS}
    for number in range(30):
        change = as_change(*world.change())
        sizes = {name: skyline_sizes(scheme.describe(change, number)) for name, scheme in schemes.items()}
        assert len({len(found) for found in sizes.values()}) == 1, "all send the same messages"
        fewest, merged, clusters = (np.array(sizes[name]) for name in ("min", "clu+", "clu"))
        assert np.all(fewest <= merged) and np.all(merged <= clusters)
        assert np.all(fewest <= np.array(sizes["sub"])) and np.all(fewest <= np.array(sizes["tup"]))
        groups = max(len(sets.index.active) for sets in schemes["clu"].index.sets)
        assert np.all(clusters <= 2 * groups)


def skyline_sizes(messages: Messages) -> list[int]:
    sizes = np.diff(messages.regions.start)
    return [
        int(size)
        for size, kind in zip(sizes, messages.kind, strict=True)
        if kind in (MessageKind.ROW, MessageKind.GONE)
    ]


def test_a_batch_is_described_like_its_changes_one_by_one() -> None:
    """Also when the buffers are too short for it."""
    world = World(5, subscriptions=200)
    one, many = opened(SemijoinsMerged, world), opened(SemijoinsMerged, world)
    changes = [as_change(*world.change()) for _ in range(400)]
    changes = [change for change in changes if len(change.row)]
    parts = [one.describe(change, seq) for seq, change in enumerate(changes)]
    joined = row_changes([], [], [], [])._make(
        np.concatenate(columns) for columns in zip(*changes, strict=True)
    )
    expected, found = Messages.concat(parts), many.describe(joined, 0)
    for name in ("seq", "step", "kind", "side", "key", "row", "partner"):
        assert np.array_equal(getattr(expected, name), getattr(found, name))
    assert np.array_equal(expected.regions.boxes, found.regions.boxes)
    many._check()
