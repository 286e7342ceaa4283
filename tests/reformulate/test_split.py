"""Selections with payloads sent apart: exact rows after every change, and no payload that is not needed."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.message import GREATEST, LEAST
from tocsin.reformulate.split import PayloadChanges, SplitContents, describe_split

Wide = dict[int, tuple[int, int]]  # rating and photo by id


def changed(was: tuple[int, int] | None, now: tuple[int, int] | None, row: int) -> PayloadChanges:
    old, new = was or (0, -1), now or (0, -1)
    columns = row, was is not None, now is not None, old[0], new[0], old[1] != new[1]
    return PayloadChanges(*(np.array([column]) for column in columns))


def drawn(rnd: random.Random, rows: Wide) -> tuple[int, tuple[int, int] | None]:
    """A row as it is next: mostly another rating near the last one, seldom another photo."""
    row = rnd.randrange(5)
    was = rows.get(row)
    if was is None:
        return row, (rnd.randint(0, 10), rnd.randint(0, 99))
    if rnd.random() < 0.1:
        return row, None
    return row, (was[0] + rnd.choice([-2, -1, 0, 1, 2]), was[1] if rnd.random() < 0.8 else rnd.randint(0, 99))


@given(seed=st.integers(0, 2**32))
def test_property_rows_are_exact_and_payloads_are_needed(seed: int) -> None:
    rnd = random.Random(seed)
    ends = [tuple(sorted((rnd.randint(-2, 12), rnd.randint(-2, 12)))) for _ in range(10)]
    ends += [(LEAST, 5), (5, GREATEST), (LEAST, GREATEST)]
    clients, rows = [SplitContents({}) for _ in ends], Wide()
    for number in range(60):
        row, now = drawn(rnd, rows)
        was = rows.pop(row, None)
        if now is not None:
            rows[row] = now
        messages = describe_split(changed(was, now, row), number)
        messages._check()
        bodies = {side: {id: wide[side] for id, wide in rows.items()} for side in (0, 1)}
        for (low, high), client in zip(ends, clients, strict=True):
            mine = messages.take(messages.received_by(0, [(low, high)]))
            client.apply(mine, bodies)
            assert client.content() == {id: wide for id, wide in rows.items() if low <= wide[0] <= high}
            holds = now is not None and low <= now[0] <= high
            held = was is not None and low <= was[0] <= high
            needed = holds and (not held or was is None or now is None or was[1] != now[1])
            assert int((mine.side == 1).sum()) == needed, "a payload more or less than needed"


def test_a_batch_is_described_like_its_changes_one_by_one() -> None:
    rnd, rows = random.Random(4), Wide()
    parts = []
    for _ in range(80):
        row, now = drawn(rnd, rows)
        parts.append(changed(rows.pop(row, None), now, row))
        rows |= {row: now} if now is not None else {}
    columns = zip(*(part[:-1] for part in parts), strict=True)
    whole = describe_split(PayloadChanges(*map(np.concatenate, columns)), 0)
    whole._check()
    singly = [describe_split(part, number) for number, part in enumerate(parts)]
    for name in ("seq", "step", "kind", "side", "key", "row"):
        assert np.array_equal(getattr(whole, name), np.concatenate([getattr(one, name) for one in singly]))
    assert np.array_equal(whole.regions.boxes, np.concatenate([one.regions.boxes for one in singly]))


def test_a_column_beside_value_and_payload_goes_to_who_holds_the_row() -> None:
    change = changed((5, 1), (5, 1), 7)._replace(rest=np.array([True]))
    messages = describe_split(change, 0)
    assert (messages.kind.tolist(), messages.side.tolist()) == ([0], [0]), "the row, without its payload"
    assert messages.received_by(0, [(5, 5)]).tolist() == [0] and not len(messages.received_by(0, [(6, 9)]))
