"""JSON: paths against attributes, and flattening: `paths` and `flatten` of `rules_show.py`."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Callable
from typing import Any

from claims import Claim, Claims, best, say

from tocsin import Engine
from tocsin.errors import TocsinError


def seconds(options: argparse.Namespace) -> float:
    """A clock: of the wall, or with `--cpu 1` of this process, so that other processes do not count."""
    return time.process_time() if options.cpu else time.perf_counter()


def clocked(options: argparse.Namespace, run: Callable[[], object]) -> float:
    began = seconds(options)
    run()
    return seconds(options) - began


def show_paths(options: argparse.Namespace) -> Claims:
    """Subscriptions on paths three deep against the same on flat events, parsing apart."""
    rng = random.Random(options.seed)
    draws = [(rng.randrange(20_000), rng.randrange(1000)) for _ in range(options.subscriptions)]
    deep, flat = Engine(), Engine()
    for engine, brand, price in ((deep, "item.maker.brand", "item.price.net"), (flat, "brand", "net")):
        engine.execute("CREATE STREAM events")
        began = time.perf_counter()
        engine.subscribe_texts(
            [f"SELECT * FROM events WHERE {brand} = 'b{b}' AND {price} > {p}" for b, p in draws]
        )
        say(f"{options.subscriptions} subscriptions on {brand} in {time.perf_counter() - began:.1f} s")
    values = [(rng.randrange(20_000), rng.randrange(1000)) for _ in range(options.events)]
    nested = [
        {"id": n, "item": {"maker": {"brand": f"b{b}"}, "price": {"net": p}}}
        for n, (b, p) in enumerate(values)
    ]
    plain = [{"id": n, "brand": f"b{b}", "net": p} for n, (b, p) in enumerate(values)]
    one, other = deep.apply("events", nested), flat.apply("events", plain)
    if one.subscription.tolist() != other.subscription.tolist() or one.seq.tolist() != other.seq.tolist():
        raise TocsinError("paths and attributes give different answers")
    for n in range(options.checked):
        b, p = values[n]
        expected = [k + 1 for k, (brand, price) in enumerate(draws) if brand == b and p > price]
        if deep.publish("events", nested[n]).subscription.tolist() != expected:
            raise TocsinError(f"event {n} has a wrong answer")
    for name, run in (
        ("batches", lambda engine, events: engine.apply("events", events)),
        ("singly", lambda engine, events: [engine.publish("events", event) for event in events[:3000]]),
    ):
        times: dict[str, list[float]] = {"deep": [], "flat": []}
        for _ in range(options.repeat + 1):
            times["deep"].append(clocked(options, lambda run=run: run(deep, nested)))
            times["flat"].append(clocked(options, lambda run=run: run(flat, plain)))
        a, b = best(times["deep"][1:]), best(times["flat"][1:])
        count = options.events if name == "batches" else min(3000, options.events)
        yield Claim(f"paths: {name}", a.seconds / b.seconds, "times flat", at_most=1.5).show(
            options, deep_us=a.us(count), flat_us=b.us(count), spread=a.spread
        )


def show_flatten(options: argparse.Namespace) -> Claims:
    """JSON lines of nested events, flattened to the attributes that subscriptions use."""
    lines = generated(options)
    size = len(lines) / 1e6
    engine = Engine()
    engine.execute("CREATE STREAM events")
    engine.subscribe("SELECT * FROM events WHERE detail.instance.type = 'x9' AND detail.cpu > 2")
    engine.subscribe("SELECT * FROM events WHERE source = 'none'")
    some = lines[: lines.index(b"\n", 100_000) + 1]
    expected = sum(
        one["detail"]["instance"]["type"] == "x9" and one["detail"]["cpu"] > 2
        for one in map(json.loads, some.splitlines())
    )
    if len(engine.apply("events", some)) != expected:
        raise TocsinError("flattened events give other answers")
    times = best(
        [clocked(options, lambda: engine.apply("events", lines)) for _ in range(max(2, options.repeat))]
    )
    yield Claim("flatten", size / times.seconds, "MB/s", at_least=200.0).show(options, megabytes=size)


def generated(options: argparse.Namespace) -> bytes:
    """JSON lines of cloud events, by seed."""
    rng = random.Random(options.seed)
    kinds = [one(rng, n) for n in range(2000)]
    text = b"".join(json.dumps(kind, separators=(",", ":")).encode() + b"\n" for kind in kinds)
    return text * max(1, int(options.megabytes * 1e6 / len(text)))


def one(rng: random.Random, n: int) -> dict[str, Any]:
    return {
        "version": "0", "id": f"{rng.getrandbits(64):x}", "source": f"aws.ec{n % 7}", "account": "1234",
        "time": "2024-01-02T10:00:00Z", "region": rng.choice(["us-east-1", "eu-west-1"]), "n": n,
        "resources": [f"arn:aws:ec2:instance/i-{rng.getrandbits(64):x}"],
        "detail": {
            "instance": {"id": f"{rng.getrandbits(64):x}", "type": f"x{rng.randrange(20)}", "tags": ["a"]},
            "state": rng.choice(["running", "stopped"]), "cpu": rng.random() * 100,
            "text": " ".join(f"{rng.getrandbits(32):x}" for _ in range(8)),
        },
    }  # fmt: skip
