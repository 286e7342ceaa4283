"""The script of a demo: its days and its subscriptions, drawn by a seed.

Each shape has a few kinds of question, and each question its own carriers, places and ranges. `MIX` is the
share of each shape in percent; every shape occurs, however few subscriptions are drawn. Few subscriptions to
two days are broad; more subscriptions, or more days, are narrow.

>>> one, two = Script(days=1, subscriptions=9), Script(days=2, subscriptions=9)
>>> one.draw_subscriptions() == two.draw_subscriptions()
True
>>> for wanted in draw_subscriptions(9, seed=1)[:2]:
...     print(wanted.id, wanted.subscriber, wanted.sql)
1 ... SELECT ...
2 ... SELECT ...
>>> draw_subscriptions(50, seed=3) == draw_subscriptions(50, seed=3)
True
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tocsin.errors import TocsinError
from tocsin.lab.demo.broad_questions import BROAD, Draw
from tocsin.lab.demo.flights import FlightChange, load_changes
from tocsin.lab.demo.narrow_questions import NARROW

__all__ = ["MIX", "DemoSubscription", "Script", "default_batches", "default_folder", "draw_subscriptions"]

MIX = {
    "filter": 34,
    "stream": 12,  # filters too, over the stream of notices
    "join": 10,
    "band": 5,
    "multiway": 4,
    "extreme": 9,
    "aggregate": 9,
    "distinct": 8,
    "topk": 9,
}

BROAD_DAYS, BROAD_COUNT = 2, 5000  # at most so many days and subscriptions: broad questions
_PEOPLE = "ann bo cem dee eli fay gus hal ida jon kai lea mia ned oda pia quy ria sam tom una vic".split()


class DemoSubscription(NamedTuple):
    """One drawn subscription."""

    id: int
    sql: str
    subscriber: str
    shape: str  # "stream" for a filter over the stream


def draw_subscriptions(count: int, seed: int, days: int = BROAD_DAYS) -> list[DemoSubscription]:
    """`count` subscriptions, at least one of each shape; a seed gives the same ones for one day and two."""
    if count < len(MIX):
        raise TocsinError(f"the demo has at least {len(MIX)} subscriptions, one of each kind, not {count}")
    draw = Draw(seed)
    draw.days = max(days, BROAD_DAYS)
    questions = BROAD if draw.days == BROAD_DAYS and count <= BROAD_COUNT else NARROW
    kinds = [*MIX, *draw.choices(list(MIX), list(MIX.values()), k=count - len(MIX))]
    draw.shuffle(kinds)
    return [
        DemoSubscription(number, draw.choice(questions[kind])(draw), f"{draw.choice(_PEOPLE)}-{number}", kind)
        for number, kind in enumerate(kinds, start=1)
    ]


@dataclass(frozen=True)
class Script:
    """The input of a demo. The same script gives the same changes, subscriptions and answers."""

    days: int = 2
    subscriptions: int = 2000
    seed: int = 0
    batches: int = 6

    def changes(self) -> list[FlightChange]:
        return load_changes(self.days)

    def draw_subscriptions(self) -> list[DemoSubscription]:
        return draw_subscriptions(self.subscriptions, self.seed, self.days)


def default_batches(days: int) -> int:
    """How many micro-batches. Each costs Spark something however few changes it has, so each has a thousand
    or more; some are needed after the first, to measure the steady state. The numbers are chosen, not tuned.

    >>> default_batches(1), default_batches(2), default_batches(30)
    (4, 6, 10)
    """
    return 4 if days == 1 else 6 if days == 2 else 10


def default_folder() -> Path:
    """The demo's default folder, in the user's cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tocsin" / "demo"
