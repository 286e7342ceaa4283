"""Listeners: in the order of the changes, also if they change the engine themselves; never coroutines."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import tocsin
from tocsin.errors import ListenerError, TocsinError
from tocsin.subscriptions.listeners import MOST_CHAINED


@pytest.fixture
def engine() -> tocsin.Engine:
    e = tocsin.Engine()
    e.execute("CREATE STREAM hits")
    e.execute("CREATE TABLE totals (id BIGINT, n BIGINT, PRIMARY KEY (id))")
    e.subscribe("SELECT * FROM hits", id=1, subscriber="ann")
    e.subscribe("SELECT * FROM totals", id=2)
    return e


def seqs(deltas: tocsin.Deltas) -> list[int]:
    return deltas.seq.tolist()


def test_a_listener_may_change_the_engine_and_all_receive_deltas_in_order(engine: tocsin.Engine) -> None:
    first: list[tuple[int, int]] = []
    second: list[tuple[int, int]] = []
    returned: list[list[int]] = []

    def count(deltas: tocsin.Deltas) -> None:
        first.extend((d.seq, d.subscription) for d in deltas)
        for delta in deltas:
            if delta.subscription == 1:
                returned.append(seqs(engine.upsert("totals", {"id": 1, "n": delta.row["x"]})))

    engine.on_delta(count)
    engine.on_delta(lambda deltas: second.extend((d.seq, d.subscription) for d in deltas))
    assert seqs(engine.publish("hits", {"x": 7})) == [1], "a call returns the deltas of its own change"
    assert returned == [[2]] and engine.content(2) == [{"id": 1, "n": 7}]
    assert first == second == [(1, 1), (2, 2)]
    engine.publish("hits", {"x": 8})
    assert first == second and [s for s, _ in second] == [1, 2, 3, 4, 4]


def test_a_listener_may_read_subscribe_and_unsubscribe(engine: tocsin.Engine) -> None:
    seen: list[Any] = []

    def look(deltas: tocsin.Deltas) -> None:
        seen.append((engine.last_seq, len(engine.subscriptions()), engine.content(2)))
        if len(engine.subscriptions()) == 2:
            engine.subscribe("SELECT * FROM hits WHERE x > 0", id=3)
        else:
            engine.unsubscribe(3)

    engine.on_delta(look)
    assert [d.subscription for d in engine.publish("hits", {"x": 1})] == [1]
    assert [d.subscription for d in engine.publish("hits", {"x": 1})] == [1, 3]
    assert [d.subscription for d in engine.publish("hits", {"x": 1})] == [1]
    assert seen == [(1, 2, []), (2, 3, []), (3, 2, [])]


def test_a_failure_while_a_listener_changes_the_engine_is_reported_once(engine: tocsin.Engine) -> None:
    received: list[int] = []

    def answer(deltas: tocsin.Deltas) -> None:
        if deltas.subscription[0] == 1:
            engine.insert("totals", {"id": int(deltas.seq[0]), "n": 0})

    def fails_for_totals(deltas: tocsin.Deltas) -> None:
        if deltas.subscription[0] == 2:
            raise ValueError("no totals here")

    engine.on_delta(answer)
    engine.on_delta(fails_for_totals)
    engine.on_delta(lambda deltas: received.extend(seqs(deltas)))
    with pytest.raises(ListenerError, match="no totals here") as caught:
        engine.publish("hits", {"x": 1})
    assert isinstance(caught.value.deltas, tocsin.Deltas)
    assert seqs(caught.value.deltas) == [1] and received == [1, 2]
    with pytest.raises(ListenerError):
        engine.publish("hits", {"x": 1})
    assert received == [1, 2, 3, 4], "nothing is left over from the failed delivery"


def test_a_listener_that_answers_itself_is_stopped(engine: tocsin.Engine) -> None:
    received: list[int] = []
    engine.on_delta(lambda deltas: received.extend(seqs(deltas)))
    stop = engine.on_delta(lambda deltas: engine.publish("hits", {"x": 1}))
    with pytest.raises(ListenerError, match="each made by a listener"):
        engine.publish("hits", {"x": 0})
    assert received == list(range(1, MOST_CHAINED + 2)) and engine.last_seq == MOST_CHAINED + 1
    stop()
    assert seqs(engine.publish("hits", {"x": 2})) == [MOST_CHAINED + 2]


def test_a_stopped_listener_is_not_called_again(engine: tocsin.Engine) -> None:
    received: list[int] = []
    stop_later = engine.on_delta(lambda deltas: stop())
    stop = engine.on_delta(lambda deltas: received.extend(seqs(deltas)))
    engine.publish("hits", {"x": 1})
    stop()  # again: nothing happens
    stop_later()
    engine.publish("hits", {"x": 1})
    assert received == []


class _Async:
    async def __call__(self, deltas: tocsin.Deltas) -> None: ...


async def _async(deltas: tocsin.Deltas, more: int = 0) -> None: ...


async def _generator(deltas: tocsin.Deltas) -> Any:
    yield deltas


@pytest.mark.parametrize("listener", [_async, functools.partial(_async, more=1), _Async(), _generator])
def test_coroutine_functions_are_rejected_with_a_hint(engine: tocsin.Engine, listener: Any) -> None:
    with pytest.raises(TocsinError, match=r"is async(.|\n)*tocsin\.aio"):
        engine.on_delta(listener)
    assert len(engine.publish("hits", {"x": 1})) == 1


def test_a_coroutine_that_a_listener_returns_is_reported(engine: tocsin.Engine) -> None:
    engine.on_delta(lambda deltas: _async(deltas))  # type: ignore[arg-type,return-value]
    with pytest.raises(ListenerError, match="returned a coroutine"):
        engine.publish("hits", {"x": 1})


# -- subscribers -----------------------------------------------------------------------------------


def test_deltas_name_the_subscriber(engine: tocsin.Engine) -> None:
    engine.subscribe_texts(
        ["SELECT * FROM hits WHERE x = 1", "SELECT * FROM hits WHERE x = 2"], subscribers=["bob", None]
    )
    published = engine.publish("hits", {"x": 1})
    assert [(d.subscription, d.subscriber) for d in published] == [(1, "ann"), (3, "bob")]
    engine.unsubscribe(1)
    assert [d.subscriber for d in published] == ["ann", "bob"], "as it was when the deltas arose"
    assert [d.subscriber for d in engine.publish("hits", {"x": 2})] == [None]
    engine.subscribe("SELECT * FROM totals", id=9, subscriber="cat")
    inserted = engine.insert("totals", {"id": 1, "n": 1})
    assert {d.subscription: d.subscriber for d in inserted} == {2: None, 9: "cat"}
    assert {d.subscription: d.subscriber for d in engine.contents()} == {2: None, 9: "cat"}
    assert engine.subscribers() == {None: [2, 4], "bob": [3], "cat": [9]}
    engine._check()


def test_listed_subscriptions_of_a_bulk_are_ordinary_ones(engine: tocsin.Engine) -> None:
    texts = [f"SELECT * FROM hits WHERE x = {n} AND y = 1" for n in range(3)]
    engine.subscribe_texts(texts, subscribers=["ann", "bob", None])
    listed = engine.subscriptions()[2:]
    assert [s.sql for s in listed] == texts and [s.subscriber for s in listed] == ["ann", "bob", None]
    assert listed == engine.subscriptions()[2:] and len({*listed, *engine.subscriptions()[2:]}) == 3
    assert listed[0].warnings == () and listed[0].valid_to is None
    assert "x = 0" in repr(listed[0])
    with pytest.raises(AttributeError, match="no attribute 'sqll'"):
        listed[0].sqll  # type: ignore[attr-defined] # noqa: B018
