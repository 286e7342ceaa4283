"""Warnings about attributes that events of an open stream lack, or have with another kind of value."""

from __future__ import annotations

from datetime import UTC, datetime
from time import perf_counter
from typing import Any

import pyarrow as pa
import pytest

from tocsin.engine import Engine
from tocsin.match.watch import PATIENCE, AttributeWatch, is_one_edit

EVENT = {"price": 5, "color": "red", "fine": True, "at": "2024-05-01T10:00:00Z"}


def engine_of(*wheres: str) -> Engine:
    engine = Engine()
    engine.execute("CREATE STREAM s")
    for where in wheres:
        engine.subscribe(f"SELECT * FROM s WHERE {where}")
    return engine


def publish(engine: Engine, how: str, count: int, event: dict[str, Any] | None = None) -> None:
    events = [event or EVENT] * count
    if how == "batch":
        engine.apply("s", events)
    elif how == "arrow":
        engine.apply("s", pa.Table.from_pylist(events))
    else:
        for one in events:
            engine.publish("s", one)


@pytest.mark.parametrize("how", ["batch", "arrow", "single"])
def test_an_attribute_that_no_event_has_had(how: str) -> None:
    engine = engine_of("weight > 5", "price > 1", "height IS NULL")
    publish(engine, how, PATIENCE - 1)
    assert engine.stats()["warnings"] == {} and not any(s.warnings for s in engine.subscriptions())
    publish(engine, how, 1)
    assert engine.stats()["warnings"] == {"s": {"weight": "no event has had 'weight'"}}
    assert [s.warnings for s in engine.subscriptions()] == [("no event has had 'weight'",), (), ()]
    publish(engine, how, 1, {"weight": 7})
    assert engine.stats()["warnings"] == {} and not any(s.warnings for s in engine.subscriptions())


@pytest.mark.parametrize("how", ["batch", "arrow", "single"])
@pytest.mark.parametrize("name", ["Price", "prise", "pirce", "prices"])
def test_a_name_that_differs_by_case_or_one_edit_is_noted_at_once(how: str, name: str) -> None:
    engine = engine_of(f"{name} > 5")
    publish(engine, how, 1)
    warning = f"no event has had {name!r}: did you mean 'price'?"
    assert engine.stats()["warnings"] == {"s": {name: warning}}
    later = engine.subscribe(f"SELECT * FROM s WHERE color = 'red' AND {name} < 9")
    assert later.warnings == (warning,)
    assert engine.subscribe("SELECT * FROM s WHERE color = 'blue'").warnings == ()


@pytest.mark.parametrize("how", ["batch", "arrow", "single"])
@pytest.mark.parametrize(
    ("where", "warning"),
    [
        ("price = '5'", "'price' is compared with text, but events have number in it"),
        ("price LIKE '5%'", "'price' is compared with text, but events have number in it"),
        ("color > 5", "'color' is compared with number, but events have text in it"),
        ("fine = 1", "'fine' is compared with number, but events have boolean in it"),
        ("color > DATE '2024-01-01'", "'color' is compared with time, but events have text in it"),
        ("price IN (1, 2)", None),
        ("at > DATE '2024-01-01'", None),
        ("price IS NOT NULL", None),
        ("color = 'blue' OR color = 'green'", None),
    ],
)
def test_an_attribute_compared_with_the_wrong_kind(how: str, where: str, warning: str | None) -> None:
    engine = engine_of(where)
    publish(engine, how, 3)
    warnings = () if warning is None else (warning,)
    assert engine.subscriptions()[0].warnings == warnings
    if warning is not None:  # only those that ask so
        ok = engine.subscribe("SELECT * FROM s WHERE price > 1 AND color = 'x' AND fine")
        assert ok.warnings == () and len(engine.stats()["warnings"]["s"]) == 1
        publish(engine, how, 1)
        values: dict[str, Any] = {"price": "5", "color": 7, "fine": 1}
        if "DATE" in where:
            values["color"] = datetime(2024, 5, 1, tzinfo=UTC)
        publish(engine, how, 1, values)
        assert engine.stats()["warnings"] == {}


def test_warnings_end_with_their_subscriptions() -> None:
    engine = engine_of("weight > 5")
    publish(engine, "batch", PATIENCE)
    assert engine.stats()["warnings"]
    engine.unsubscribe(1)
    assert engine.stats()["warnings"] == {}
    engine.subscribe("SELECT * FROM s WHERE weight > 5")
    assert engine.stats()["warnings"] == {}, "it is new: events are counted from now on"
    publish(engine, "batch", PATIENCE)
    assert engine.stats()["warnings"]


def test_bulk_subscriptions_are_warned_about_too() -> None:
    engine = engine_of()
    engine.subscribe_many("SELECT * FROM s WHERE prise > :p", pa.table({"id": [1, 2], "p": [3, 4]}))
    rows = [[{"attribute": "colour", "op": "=", "number": 3.0}]]
    engine.subscribe_predicates("s", pa.table({"id": [3], "predicates": rows}))
    publish(engine, "batch", 1)
    assert set(engine.stats()["warnings"]["s"]) == {"prise", "colour"}
    assert [len(s.warnings) for s in engine.subscriptions()] == [1, 1, 1]


def test_declared_streams_have_no_such_warnings() -> None:
    engine = Engine()
    engine.execute("CREATE STREAM d (a BIGINT, b BIGINT)")
    engine.subscribe("SELECT * FROM d WHERE a > 5")
    engine.apply("d", [{"b": 1}] * PATIENCE)
    engine.publish("d", {"b": 1})
    assert engine.stats()["warnings"] == {}


def test_a_nested_field_is_bad_only_as_long_as_a_subscription_uses_it() -> None:
    engine = engine_of("user = 'x'", "price > 1")
    event = EVENT | {"user": {"name": "x"}}
    with pytest.raises(Exception, match="attribute user: a nested value"):
        engine.publish("s", event)
    engine.unsubscribe(1)
    assert len(engine.publish("s", event)) == 1


def test_counting_an_event_costs_next_to_nothing() -> None:
    watch, event = AttributeWatch(), {f"a{n}": n for n in range(20)}
    began = perf_counter()
    for _ in range(10_000):
        watch.see(event)
    assert perf_counter() - began < 0.1, "10 us each, on a busy machine: it takes 0.05"
    assert watch.events == 10_000


def test_edits() -> None:
    for a, b in (("color", "colour"), ("abc", "abd"), ("abc", "bac"), ("abc", "ab"), ("same", "same")):
        assert is_one_edit(a, b) == is_one_edit(b, a) == (a != b and min(len(a), len(b)) > 2)
    assert not is_one_edit("x10", "x11") and not is_one_edit("abcd", "badc")
