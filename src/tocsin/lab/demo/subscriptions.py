"""What people might want to know about flights and weather, drawn by a seed.

Every shape has a few kinds of question, and each question its own carriers, places and ranges.
`MIX` says how many of a hundred have which shape; every shape is there, however few are drawn. Few people
ask broad questions about two days; many people, or people who look at many days, ask narrow ones.

>>> for wanted in draw_subscriptions(9, seed=1)[:2]:
...     print(wanted.id, wanted.subscriber, wanted.sql)
1 ... SELECT ...
2 ... SELECT ...
>>> draw_subscriptions(50, seed=3) == draw_subscriptions(50, seed=3)
True
"""

from __future__ import annotations

from typing import NamedTuple

from tocsin.errors import TocsinError
from tocsin.lab.demo.broad import BROAD
from tocsin.lab.demo.narrow import NARROW
from tocsin.lab.demo.phrases import Draw

__all__ = ["MIX", "Wanted", "draw_subscriptions"]

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

BROAD_DAYS, BROAD_COUNT = 2, 5000  # more days or subscriptions are asked about narrowly
_PEOPLE = "ann bo cem dee eli fay gus hal ida jon kai lea mia ned oda pia quy ria sam tom una vic".split()


class Wanted(NamedTuple):
    """One subscription before it is made."""

    id: int
    sql: str
    subscriber: str
    shape: str  # "stream" for a filter over the stream


def draw_subscriptions(count: int, seed: int, days: int = BROAD_DAYS) -> list[Wanted]:
    """`count` subscriptions, at least one of each kind; the same for the same seed, up to two days."""
    if count < len(MIX):
        raise TocsinError(f"the demo has at least {len(MIX)} subscriptions, one of each kind, not {count}")
    draw = Draw(seed)
    draw.days = max(days, BROAD_DAYS)
    questions = BROAD if draw.days == BROAD_DAYS and count <= BROAD_COUNT else NARROW
    kinds = [*MIX, *draw.choices(list(MIX), list(MIX.values()), k=count - len(MIX))]
    draw.shuffle(kinds)
    return [
        Wanted(number, draw.choice(questions[kind])(draw), f"{draw.choice(_PEOPLE)}-{number}", kind)
        for number, kind in enumerate(kinds, start=1)
    ]
