"""Sigma rules all at once: `sigma` of `rules_show.py`."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from claims import Claim, Claims, best, say
from rules_json import clocked, seconds

from tocsin import Engine
from tocsin.errors import TocsinError
from tocsin.reference import holds
from tocsin.rules.base import Condition, read_rules

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.rules.data import json_values
from tests.rules.sigma_events import FIELDS, flat_event

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = (
    "power shell admin net user temp system reg script host query task cred dump proxy load run init".split()
)


def show_sigma(options: argparse.Namespace) -> Claims:
    """Rules taken, events that fire, time of entry, and of an event in batches and singly."""
    documents, events, named = public(Path(options.data)) if options.data else generated(options)
    say(f"{len(documents)} rules, {len(events)} events")
    warm_up(documents, events[0])
    engine = Engine()
    engine.execute("CREATE STREAM logs")
    began = seconds(options)  # from documents (YAML is read already) to an index that has answered an event
    done = engine.subscribe_rules(
        "sigma", documents, stream="logs", ids=range(len(documents)), fields=FIELDS, pipelines=["windows"]
    )
    engine.publish("logs", events[0])
    entry = (seconds(options) - began) / len(documents)
    yield Claim("sigma: rules taken", len(done.ids) / len(documents), "of all", at_least=0.99).show(options)
    if named:
        fired = [rule in engine.publish("logs", events[at]).subscription.tolist() for at, rule in named]
        yield Claim(
            "sigma: events that fire their rule", sum(fired) / len(fired), "of all", at_least=0.99
        ).show(options)
    yield Claim("sigma: entry", 1000 * entry, "ms per rule", at_most=1.0).show(options)
    many = distinct(events, options.events, options.seed)
    check(engine, documents, many[:: max(1, len(many) // options.checked)])
    for batch in (many[:2000], many):
        engine.apply("logs", batch)  # compiled, and built for such events
    batches = best([clocked(options, lambda: engine.apply("logs", many)) for _ in range(options.repeat)])
    yield Claim("sigma: batches", batches.us(len(many)), "µs per event", at_most=100.0).show(
        options, rules=len(done.ids), events=len(many), spread=batches.spread
    )
    some = many[: options.singly]
    for event in some:
        engine.publish("logs", event)
    singly = best(
        [clocked(options, lambda: [engine.publish("logs", e) for e in some]) for _ in range(options.repeat)]
    )
    yield Claim("sigma: singly", singly.us(len(some)), "µs per event", at_most=400.0).show(
        options, rules=len(done.ids), events=len(some), spread=singly.spread
    )


def warm_up(documents: list[Any], event: dict[str, Any]) -> None:
    """Load modules and kernels, by some of the rules and other patterns than they have."""
    engine = Engine()
    engine.execute("CREATE STREAM logs")
    some = [*documents[:100], {**generated(argparse.Namespace(seed=1, rules=1))[0][0], "title": "another"}]
    engine.subscribe_rules("sigma", some, stream="logs", fields=FIELDS, pipelines=["windows"])
    engine.publish("logs", event)


def check(engine: Engine, documents: list[Any], events: list[Any]) -> None:
    """Compare the engine with the reference, rule by rule."""
    read = list(read_rules("sigma", documents, fields=FIELDS, pipelines=["windows"]))
    wheres = [(n, rule.where) for n, rule in enumerate(read) if isinstance(rule, Condition)]
    expected = [[n for n, where in wheres if holds(where, event) is True] for event in events]
    singly = [sorted(engine.publish("logs", event).subscription.tolist()) for event in events]
    deltas = engine.apply("logs", events)
    rows = deltas.seq - deltas.seq.min(initial=0)
    together: list[list[int]] = [[] for _ in events]
    firsts = {seq: n for n, seq in enumerate(np.unique(deltas.seq).tolist())}
    for seq, found in zip(deltas.seq.tolist(), deltas.subscription.tolist(), strict=True):
        together[firsts[seq]].append(found)
    if singly != expected or sorted(map(sorted, filter(None, together))) != sorted(filter(None, expected)):
        raise TocsinError(f"the engine and the reference differ on {len(rows)} deltas")
    say(f"answers of {len(events)} events by {len(wheres)} rules are those of the reference")


# -- rules and events ---------------------------------------------------------------------------------------


def public(folder: Path) -> tuple[list[Any], list[dict[str, Any]], list[tuple[int, int]]]:
    """`rules.tar.xz` and `events.tar.xz` of a folder: rules, events, and which must fire which."""
    documents = [
        one
        for name, text in members(folder / "rules.tar.xz", ".yml")
        if "unsupported" not in name
        for one in yaml.load_all(text, _Loader)
    ]
    number = {document["id"]: n for n, document in enumerate(documents)}
    names = {
        str(Path(name).parent): yaml.load(text, _Loader)["rule_metadata"][0]["id"]
        for name, text in members(folder / "events.tar.xz", ".yml")
    }
    events: list[dict[str, Any]] = []
    named = []
    for name, text in members(folder / "events.tar.xz", ".json"):
        found = [flat_event(event) for event in json_values(text)]
        if len(found) == 1:
            named.append((len(events), number.get(names[str(Path(name).parent)], -1)))
        events += found
    return documents, events, named


def members(archive: Path, suffix: str) -> Iterator[tuple[str, str]]:
    with tarfile.open(archive) as tar:
        for one in tar:
            if one.isfile() and one.name.endswith(suffix) and (file := tar.extractfile(one)) is not None:
                yield one.name, file.read().decode("utf-8-sig")


def generated(options: argparse.Namespace) -> tuple[list[Any], list[dict[str, Any]], list[tuple[int, int]]]:
    """Rules and events of the same shape, by seed."""
    rng = random.Random(options.seed)
    word = lambda: rng.choice(_WORDS) + rng.choice(_WORDS)  # noqa: E731
    documents = [
        {
            "title": f"rule {n}",
            "logsource": {"category": "process_creation", "product": "windows"},
            "detection": {
                "selection": {
                    "Image|endswith": [f"\\{word()}.exe"], "CommandLine|contains": [word(), f" -{word()}"],
                },
                "other": {"CommandLine|contains|all": [word(), word()]},
                "filter": {"ParentImage|startswith": f"C:\\{word()}\\"},
                "condition": "1 of selection or other and not filter",
            },
        }
        for n in range(options.rules)
    ]  # fmt: skip
    events = [
        {
            "EventID": 1,
            "Channel": "Microsoft-Windows-Sysmon/Operational",
            "Image": f"C:\\{word()}\\{word()}.exe",
            "CommandLine": " ".join(word() for _ in range(6)),
            "ParentImage": f"C:\\{word()}\\{word()}.exe",
        }
        for _ in range(200)
    ]
    return documents, events, []


def distinct(events: list[dict[str, Any]], count: int, seed: int) -> list[dict[str, Any]]:
    """So many different events: each text with something of its own."""
    rng = random.Random(seed)
    found = []
    for n in range(count):
        event = dict(events[n % len(events)])
        for name, value in event.items():
            if isinstance(value, str) and len(value) > 8 and name not in ("Channel", "Provider_Name"):
                event[name] = (
                    f"{value}{rng.getrandbits(40):x}" if n % 2 else f"{rng.getrandbits(40):x}{value}"
                )
        event["Number"] = n
        found.append(event)
    return json.loads(json.dumps(found))  # no two share a text object
