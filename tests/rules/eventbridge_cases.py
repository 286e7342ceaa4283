"""Random patterns and events over few names and values, so that they often match."""

from __future__ import annotations

import random
from typing import Any

NAMES = ("a", "b", "c", "d-e")
TEXTS = (
    "",
    "a",
    "A",
    "ab",
    "abc",
    "Abc",
    "b*",
    "x.y",
    "10.0.0.1",
    "10.0.0.9",
    "10.1.0.1",
    "::1",
    "0:0::1",
    "é",
    "É",
)
NUMBERS = (0, 1, -1, 2.5, 3, 3.0, 1e10, 300, -0.5)
WILDCARDS = ("*", "a*", "*c", "a*c", "*b*", "b\\*", "A", "*.y", "")
NETWORKS = ("10.0.0.0/24", "10.0.0.0/8", "10.0.0.8/29", "::/64")


def pattern(rng: random.Random, depth: int = 2) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in rng.sample(NAMES, rng.choice((1, 1, 2, 2, 3))):
        if depth and rng.random() < 0.4:
            found[name] = pattern(rng, depth - 1)
        else:
            found[name] = [matcher(rng) for _ in range(rng.choice((1, 1, 2)))]
    if rng.random() < 0.15:
        found["$or"] = [pattern(rng, max(depth - 1, 0)) for _ in range(2)]
    return found


def matcher(rng: random.Random) -> Any:
    return rng.choice(
        (
            lambda: rng.choice(TEXTS),
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice((True, False, None)),
            lambda: {"exists": True},
            lambda: {"exists": False},
            lambda: {"exists": False},
            lambda: {"prefix": rng.choice(TEXTS)},
            lambda: {"suffix": rng.choice(TEXTS)},
            lambda: {rng.choice(("prefix", "suffix")): {"equals-ignore-case": rng.choice(TEXTS)}},
            lambda: {"equals-ignore-case": rng.choice(TEXTS)},
            lambda: {"wildcard": rng.choice(WILDCARDS)},
            lambda: {"cidr": rng.choice(NETWORKS)},
            lambda: numeric(rng),
            lambda: {"anything-but": anything_but(rng)},
            lambda: {"anything-but": anything_but(rng)},
        )
    )()


def numeric(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.6:
        return {"numeric": [rng.choice(("=", "<", "<=", ">", ">=")), rng.choice(NUMBERS)]}
    low, high = sorted(rng.sample((-1, 0, 1, 2.5, 3, 300), 2))
    return {"numeric": [rng.choice((">", ">=")), low, rng.choice(("<", "<=")), high]}


def anything_but(rng: random.Random) -> Any:
    several = rng.choice((1, 2))
    form = rng.choice(("text", "number", "prefix", "suffix", "equals-ignore-case", "wildcard"))
    if form == "number":
        values: list[Any] = rng.sample(NUMBERS[:4], several)
    elif form == "wildcard":
        values = rng.sample([one for one in WILDCARDS if one], several)
    else:
        values = rng.sample([text for text in TEXTS if text], several)
    made = values[0] if several == 1 and rng.random() < 0.5 else values
    return made if form in ("text", "number") else {form: made}


def event(rng: random.Random, depth: int = 3) -> dict[str, Any]:
    return {name: value(rng, depth) for name in rng.sample(NAMES, rng.choice((1, 2, 3, 4)))}


def value(rng: random.Random, depth: int) -> Any:
    shape = rng.random()
    if depth and shape < 0.35:
        return event(rng, depth - 1)
    if depth and shape < 0.55:
        return [value(rng, depth - 1) for _ in range(rng.choice((0, 1, 2, 2, 3)))]
    return rng.choice(
        (lambda: rng.choice(TEXTS), lambda: rng.choice(NUMBERS), lambda: rng.choice((True, False, None)))
    )()
