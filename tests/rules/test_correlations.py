"""Sigma correlations over random events: reported when brute force says so."""

from __future__ import annotations

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

import pytest

import tocsin
from tocsin.model.schema import Field, Stream, Type
from tocsin.rules.base import Refusal
from tocsin.rules.correlations import read_correlations

pytest.importorskip("sigma")

BASE = """
title: Failed login
name: failed
logsource: {category: authentication}
detection: {selection: {ok: false}, condition: selection}
---
title: Login
id: 0e95725d-7320-415d-80f7-004da920fc11
name: login
logsource: {category: authentication}
detection:
    selection: {ok: true}
    filter: {user|startswith: 'svc_', ip: '10.0.0.1'}
    condition: selection and not filter
---
title: Correlation
correlation:
    type: %s
    rules: %s
    group-by: [user]
    timespan: 10s
    condition: %s
"""
_SPAN = timedelta(seconds=10)
KINDS: dict[str, tuple[str, str]] = {
    "event_count": ("[failed]", "{gte: 3}"),
    "value_count": ("[failed, login]", "{gt: 1, field: ip}"),
    "temporal": ("[failed, login]", "{gte: 2}"),
    "temporal_ordered": ("[failed, failed, login]", "{gte: 3}"),
}


def matched(event: dict[str, Any]) -> list[str]:
    """The names of the rules that an event matches."""
    if not event["ok"]:
        return ["failed"]
    user = str(event["user"]).lower()
    return [] if user.startswith("svc_") and event["ip"] == "10.0.0.1" else ["login"]


def reported(kind: str, events: list[tuple[datetime, dict[str, Any]]], now: datetime) -> set[str]:
    """Users that the correlation reports now, of those whose events are in the timespan."""
    by: dict[str, list[tuple[list[str], dict[str, Any]]]] = defaultdict(list)
    for when, event in events:
        if now < when + _SPAN and event["user"] is not None and (rules := matched(event)):
            by[event["user"]].append((rules, event))
    found = set()
    for user, some in by.items():
        counts = {
            "event_count": sum("failed" in rules for rules, _ in some) >= 3,
            "value_count": len({event["ip"] for _, event in some} - {None}) > 1,
            "temporal": {name for rules, _ in some for name in rules} == {"failed", "login"},
        }
        if counts[kind]:
            found.add(user)
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_correlations_report_what_they_say(kind: str, seed: int) -> None:
    rng, now = Random(seed), [datetime(2024, 5, 1, tzinfo=UTC)]
    engine = tocsin.Engine(clock=lambda: now[0])
    engine.execute("CREATE STREAM logins (user STRING, ip STRING, ok BOOLEAN)")
    done = engine.subscribe_correlations(BASE % (kind, *KINDS[kind]), stream="logins")
    assert not done.refused and done.names == ("Correlation",)
    events: list[tuple[datetime, dict[str, Any]]] = []
    for _ in range(120):
        now[0] += timedelta(seconds=rng.choice([0, 0, 1, 2, 7]))
        event = {
            "user": rng.choice(["ann", "bob", "SVC_x", None]),
            "ip": rng.choice(["10.0.0.1", "10.0.0.2", None]),
            "ok": rng.random() < 0.4,
        }
        events.append((now[0], event))
        deltas = engine.publish("logins", event)
        if kind != "temporal_ordered":
            content = {row["user"] for row in engine.content(int(done.ids[0]))}
            assert content == reported(kind, events, now[0])
            continue
        mine = [
            matched(other)
            for when, other in events
            if now[0] - when <= _SPAN and event["user"] is not None and other["user"] == event["user"]
        ]
        failed = sum("failed" in rules for rules in mine[:-1])
        ends = bool(mine) and "login" in mine[-1] and failed >= 2
        assert [delta.row for delta in deltas] == ([{"user": event["user"]}] if ends else [])


@pytest.mark.parametrize(
    ("kind", "rules", "condition", "reason"),
    [
        ("event_count", "[failed]", "{lt: 3}", "a group without events reports nothing"),
        ("event_count", "[unknown]", "{gte: 3}", "there is no rule of this name"),
        ("value_count", "[failed]", "{gte: 3, field: place}", "no such column"),
        ("value_sum", "[failed]", "{gte: 3, field: ip}", "types are event_count"),
        ("temporal", "[failed, login]", "{gte: 1, field: ip}", "only all rules together"),
        ("temporal_ordered", "[failed]", "{gte: 1}", "two to five steps".replace("five", "5")),
    ],
)
def test_what_is_not_exact_is_refused(kind: str, rules: str, condition: str, reason: str) -> None:
    stream = Stream(
        "logins", (Field("user", Type.STRING), Field("ip", Type.STRING), Field("ok", Type.BOOLEAN))
    )
    (found,) = read_correlations(BASE % (kind, rules, condition), stream)
    assert isinstance(found, Refusal) and reason in str(found)
