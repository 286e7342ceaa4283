"""The parts that questions are put together from: carriers, places, hours.

>>> a_dest(Draw(1))
"dest = '...'"
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from tocsin.lab.demo.flights import FIRST_DAY

__all__ = [
    "CARRIERS", "DESTS", "FLIGHT", "ORIGINS", "Draw", "Questions",
    "a_carrier", "a_day", "a_dest", "an_origin", "distances", "hours", "some_days",
]  # fmt: skip

ORIGINS = ("JFK", "EWR", "LGA")
CARRIERS = "UA B6 EV DL AA MQ US 9E WN VX FL".split()
DESTS = "ORD ATL LAX BOS MCO CLT SFO FLL MIA DCA DTW DFW RDU TPA DEN IAH MSP BUF CLE SEA LAS PBI".split()
FLIGHT = "carrier, flight, origin, dest"


class Draw(Random):
    """Chance, and the days it may draw hours from."""

    days = 2


Questions = dict[str, tuple[Callable[[Draw], str], ...]]


def a_carrier(draw: Draw) -> str:
    return f"carrier = '{draw.choice(CARRIERS)}'"


def an_origin(draw: Draw) -> str:
    return f"origin = '{draw.choice(ORIGINS)}'"


def a_dest(draw: Draw) -> str:
    return f"dest = '{draw.choice(DESTS)}'"


def distances(draw: Draw) -> str:
    low = draw.randrange(100, 2000, 50)
    return f"distance BETWEEN {low} AND {low + draw.randrange(100, 800, 50)}"


def hours(draw: Draw, column: str) -> str:
    """Some hours of one of the days; of many days, three hours are the least that matters."""
    step = 1 if draw.days <= 2 else 3
    start = draw.randrange(6, 24 * draw.days - 8, step)
    return _between(column, start, start + draw.randrange(3, 15, step))


def a_day(draw: Draw, column: str) -> str:
    """One whole day."""
    day = draw.randrange(draw.days)
    return _between(column, 24 * day, 24 * (day + 1))


def some_days(draw: Draw, column: str) -> str:
    """One to four days of all of them."""
    first = draw.randrange(draw.days)
    return _between(column, 24 * first, 24 * (first + draw.randrange(1, 5)))


def _between(column: str, low: int, high: int) -> str:
    """From one hour to another, counted from the first day."""
    start = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day)
    low_time, high_time = (start + timedelta(hours=hour) for hour in (low, high))
    return f"{column} BETWEEN TIMESTAMP '{low_time}' AND TIMESTAMP '{high_time}'"
