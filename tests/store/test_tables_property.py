"""A table against a dict: staged, committed or rolled back, in random order."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tocsin.model.change import ChangeBatch
from tocsin.model.schema import Field, Table, Type
from tocsin.store.tables import TableStore

TABLE = Table("t", (Field("k", Type.BIGINT), Field("a", Type.STRING), Field("b", Type.DOUBLE)), ("k",))
changes = st.tuples(
    st.sampled_from(["insert", "update", "delete", "upsert"]),
    st.integers(0, 4),
    st.fixed_dictionaries(
        {}, optional={"a": st.none() | st.sampled_from("xyz"), "b": st.none() | st.integers(0, 3)}
    ),
)
batches = st.lists(st.tuples(st.booleans(), st.lists(changes, max_size=8)), max_size=8)


def applied(rows: dict[int, dict[str, Any]], op: str, key: int, given: dict[str, Any]) -> bool:
    """One change of the plain model; False if it cannot be."""
    if (op == "insert" and key in rows) or (op in ("update", "delete") and key not in rows):
        return False
    if op == "delete":
        del rows[key]
    else:
        rows[key] = {"k": key, "a": None, "b": None} | rows.get(key, {}) | given
    return True


@given(batches)
def test_a_table_is_a_dict_with_versions(drawn: list[tuple[bool, list[Any]]]) -> None:
    store, model = TableStore(TABLE), {}
    for keep, listed in drawn:
        ahead = dict(model)
        fine = [applied(ahead, *change) for change in listed]
        rows = [{"k": key} | given for _, key, given in listed]
        batch, bad = ChangeBatch.from_dicts(TABLE, rows, [op for op, _, _ in listed])
        assert not bad
        changed, wrong = store.stage(batch, np.arange(len(listed)))
        assert [b.row for b in wrong] == [i for i, ok in enumerate(fine) if not ok]
        assert changed.position.tolist() == [i for i, ok in enumerate(fine) if ok]
        state, position = dict(model), -1
        for position, change in enumerate(listed):  # every moment in between can be looked at
            applied(state, *change)
            alive = np.flatnonzero((store.born <= position) & (position < store.died))
            found = {row["k"]: row for row in store.rows.take(alive).to_dicts()}
            assert found == state
        if keep:
            store.commit()
            model = ahead
        else:
            store.rollback()
        store._check()
        assert {row["k"]: row for row in store.rows.take(store.alive()).to_dicts()} == model
