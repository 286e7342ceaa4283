"""What two thousand people might want to know about flights and weather, drawn by a seed.

Every shape has a few kinds of question, and each question its own carriers, places and ranges.
`MIX` says how many of a hundred have which shape; every shape is there, however few are drawn.

>>> for wanted in draw_subscriptions(9, seed=1)[:2]:
...     print(wanted.id, wanted.subscriber, wanted.sql)
1 ... SELECT ...
2 ... SELECT ...
>>> draw_subscriptions(50, seed=3) == draw_subscriptions(50, seed=3)
True
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random
from typing import NamedTuple

from tocsin.demo.flights import FIRST_DAY
from tocsin.errors import TocsinError

__all__ = ["MIX", "Wanted", "draw_subscriptions"]

MIX = {
    "filter": 34,
    "notice": 12,  # a filter too, over the stream
    "join": 10,
    "band": 5,
    "multiway": 4,
    "extreme": 9,
    "aggregate": 9,
    "distinct": 8,
    "topk": 9,
}

_ORIGINS = ("JFK", "EWR", "LGA")
_CARRIERS = "UA B6 EV DL AA MQ US 9E WN VX FL".split()
_DESTS = "ORD ATL LAX BOS MCO CLT SFO FLL MIA DCA DTW DFW RDU TPA DEN IAH MSP BUF CLE SEA LAS PBI".split()
_PEOPLE = "ann bo cem dee eli fay gus hal ida jon kai lea mia ned oda pia quy ria sam tom una vic".split()
_FLIGHT = "carrier, flight, origin, dest"


class Wanted(NamedTuple):
    """One subscription before it is made."""

    id: int
    sql: str
    subscriber: str


def draw_subscriptions(count: int, seed: int) -> list[Wanted]:
    """`count` subscriptions, at least one of each kind; the same for the same seed."""
    if count < len(MIX):
        raise TocsinError(f"the demo has at least {len(MIX)} subscriptions, one of each kind, not {count}")
    draw = Random(seed)
    kinds = [*MIX, *draw.choices(list(MIX), list(MIX.values()), k=count - len(MIX))]
    draw.shuffle(kinds)
    return [
        Wanted(number, draw.choice(_QUESTIONS[kind])(draw), f"{draw.choice(_PEOPLE)}-{number}")
        for number, kind in enumerate(kinds, start=1)
    ]


# -- filters ---------------------------------------------------------------------------------------


def _late(draw: Random) -> str:
    """A carrier late out of an airport."""
    where = f"carrier = '{draw.choice(_CARRIERS)}' AND origin = '{draw.choice(_ORIGINS)}'"
    return f"SELECT * FROM flights WHERE {where} AND dep_delay >= {draw.randrange(30, 180, 5)}"


def _late_there(draw: Random) -> str:
    low = draw.randrange(10, 120, 5)
    dests = ", ".join(f"'{d}'" for d in draw.sample(_DESTS, 3))
    between = f"arr_delay BETWEEN {low} AND {low + draw.randrange(20, 90)}"
    return f"SELECT {_FLIGHT}, arr_delay FROM flights WHERE dest IN ({dests}) AND {between}"


def _out_of_the_ordinary(draw: Random) -> str:
    distance = draw.choice(("distance <= 300", "distance > 2400", "distance BETWEEN 700 AND 800"))
    usual = f"dep_delay BETWEEN -15 AND {draw.randrange(40, 120, 10)}"
    return f"SELECT * FROM flights WHERE origin = '{draw.choice(_ORIGINS)}' AND {distance} AND NOT ({usual})"


def _still_in_the_air(draw: Random) -> str:
    where = f"status = 'departed' AND air_time IS NULL AND dest LIKE '{draw.choice('ABCDFILMPRST')}%'"
    return (
        f"SELECT {_FLIGHT}, dep_delay FROM flights WHERE {where} AND dep_delay > {draw.randrange(20, 120, 5)}"
    )


def _one_of_two(draw: Random) -> str:
    late, where = (
        draw.randrange(60, 200, 10),
        f"dest RLIKE '^({draw.choice('SLM')}|{draw.choice('DBO')}).[AOS]'",
    )
    return f"SELECT * FROM flights WHERE {where} AND (dep_delay > {late} OR arr_delay > {late})"


def _my_plane(draw: Random) -> str:
    prefix = f"N{draw.randrange(10, 99)}"
    where = f"tailnum LIKE '{prefix}%' AND status != 'scheduled'"
    return f"SELECT tailnum, {_FLIGHT}, status FROM flights WHERE {where}"


def _rough_weather(draw: Random) -> str:
    rough = f"wind_gust >= {draw.randrange(24, 40)} OR visib <= {draw.choice((0.25, 0.5, 1, 2, 3))}"
    return f"SELECT * FROM weather WHERE origin = '{draw.choice(_ORIGINS)}' AND ({rough} OR precip > 0.1)"


def _notice_of_delay(draw: Random) -> str:
    late = f"kind = 'delay' AND minutes >= {draw.randrange(60, 240, 5)}"
    return f"SELECT * FROM notices WHERE {late} AND {draw.choice((_carrier, _origin, _dest))(draw)}"


def _notice_of_end(draw: Random) -> str:
    where = f"{_carrier(draw)} AND {_origin(draw)}"
    return f"SELECT * FROM notices WHERE kind IN ('cancelled', 'diverted') AND {where}"


def _notice_of_weather(draw: Random) -> str:
    gust, visib = draw.randrange(28, 40), draw.choice((0.2, 0.3, 0.8))
    return f"SELECT * FROM notices WHERE gust >= {gust} OR visib < {visib}"


# -- joins -----------------------------------------------------------------------------------------


def _blown(draw: Random) -> str:
    """Flights late in gusts."""
    gust, late = draw.randrange(18, 34), draw.randrange(15, 120, 5)
    ranges = f"wind_gust BETWEEN {gust} AND {gust + 8} AND dep_delay BETWEEN {late} AND {late + 60}"
    tables = "flights JOIN weather USING (origin, time_hour)"
    return f"SELECT {_FLIGHT}, dep_delay, wind_gust FROM {tables} WHERE {ranges} AND {_carrier(draw)}"


def _unseen(draw: Random) -> str:
    low = f"w.visib <= {draw.choice((0.5, 1, 2, 4))} AND f.arr_delay > {draw.randrange(30, 150, 10)}"
    return (
        "SELECT f.carrier, f.flight, f.dest, f.arr_delay, w.visib FROM flights f JOIN weather w "
        f"ON f.origin = w.origin AND f.time_hour = w.time_hour WHERE {low} AND f.{_dest(draw)}"
    )


def _big_and_late(draw: Random) -> str:
    seats, late = draw.randrange(150, 350, 25), draw.randrange(20, 120, 10)
    return (
        "SELECT f.carrier, f.flight, f.dest, f.dep_delay, p.model, p.seats FROM flights f JOIN planes p "
        f"ON p.tailnum = f.tailnum WHERE p.seats >= {seats} AND f.dep_delay > {late} AND f.{_origin(draw)}"
    )


def _soon_after(draw: Random) -> str:
    """Late flights that were to leave within some minutes of a bad hour's beginning."""
    place, minutes = draw.choice(_ORIGINS), draw.randrange(30, 150, 15)
    return (
        "SELECT f.carrier, f.flight, f.sched_dep, f.dep_delay, w.time_hour, w.visib "
        "FROM flights f JOIN weather w "
        f"ON f.sched_dep - w.time_hour BETWEEN INTERVAL '0' MINUTE AND INTERVAL '{minutes}' MINUTE "
        f"WHERE f.origin = '{place}' AND w.origin = '{place}' AND w.visib <= {draw.choice((0.5, 1, 2))} "
        f"AND f.{_carrier(draw)} AND f.dep_delay > {draw.randrange(15, 90, 5)}"
    )


def _rivals(draw: Random) -> str:
    """Two carriers that leave for one place almost at once."""
    one, other = draw.sample(_CARRIERS, 2)
    dest, minutes = draw.choice(_DESTS), draw.randrange(10, 60, 5)
    return (
        "SELECT a.carrier, a.flight, a.sched_dep, b.carrier, b.flight, b.sched_dep "
        "FROM flights a JOIN flights b "
        f"ON b.sched_dep - a.sched_dep BETWEEN INTERVAL '-{minutes}' MINUTE AND INTERVAL '{minutes}' MINUTE "
        f"WHERE a.carrier = '{one}' AND b.carrier = '{other}' AND a.dest = '{dest}' AND b.dest = '{dest}'"
    )


def _plane_in_storm(draw: Random) -> str:
    old, gust = draw.randrange(1990, 2006), draw.randrange(20, 32)
    return (
        "SELECT f.carrier, f.flight, f.dest, f.dep_delay, w.wind_gust, p.manufacturer, p.year FROM flights f "
        "JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour "
        "JOIN planes p ON p.tailnum = f.tailnum "
        f"WHERE w.wind_gust >= {gust} AND p.year <= {old} AND f.dep_delay > {draw.randrange(10, 90, 5)} "
        f"AND f.{_carrier(draw)} AND f.{_origin(draw)}"
    )


def _far_and_high(draw: Random) -> str:
    return (
        "SELECT f.carrier, f.flight, f.arr_delay, a.name, a.alt, w.temp FROM flights f "
        "JOIN airports a ON a.faa = f.dest "
        "JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour "
        f"WHERE a.alt >= {draw.randrange(500, 2500, 100)} AND f.arr_delay >= {draw.randrange(10, 90, 5)} "
        f"AND w.temp < {draw.randrange(34, 50)} AND f.{_origin(draw)}"
    )


# -- one table, ranked or counted ------------------------------------------------------------------


def _least_visibility(draw: Random) -> str:
    hours = _hours(draw, "time_hour")
    return f"SELECT MIN(visib) FROM weather WHERE {draw.choice((hours, f'{hours} AND {_origin(draw)}'))}"


def _strongest_gust(draw: Random) -> str:
    return f"SELECT MAX(wind_gust) AS gust, MIN(temp) AS temp FROM weather WHERE {_hours(draw, 'time_hour')}"


def _worst_delay(draw: Random) -> str:
    return f"SELECT MAX(dep_delay) AS worst FROM flights WHERE {_distances(draw)} AND {_carrier(draw)}"


def _how_many_late(draw: Random) -> str:
    late = f"dep_delay >= {draw.randrange(15, 120, 5)}"
    return f"SELECT COUNT(*) AS late FROM flights WHERE {_origin(draw)} AND {late} AND {_distances(draw)}"


def _mean_delay(draw: Random) -> str:
    values = "AVG(arr_delay) AS mean, COUNT(arr_delay) AS landed"
    return f"SELECT {values} FROM flights WHERE {_carrier(draw)} AND {_hours(draw, 'sched_dep')}"


def _minutes_in_the_air(draw: Random) -> str:
    return f"SELECT SUM(air_time) AS minutes FROM flights WHERE {_dest(draw)} OR {_dest(draw)}"


def _who_is_late(draw: Random) -> str:
    late = draw.randrange(30, 200, 10)
    what = draw.choice(("carrier", "dest", "origin, status"))
    where = f"dep_delay BETWEEN {late} AND {late + 15} AND {_distances(draw)}"
    return f"SELECT DISTINCT {what} FROM flights WHERE {where}"


def _longest_delays(draw: Random) -> str:
    columns = f"{_FLIGHT}, dep_delay"
    order = f"ORDER BY dep_delay DESC LIMIT {draw.choice((3, 5, 10))}"
    return f"SELECT {columns} FROM flights WHERE {_distances(draw)} {order}"


def _next_to_leave(draw: Random) -> str:
    order = f"ORDER BY sched_dep LIMIT {draw.choice((1, 3, 5))}"
    return f"SELECT {_FLIGHT}, sched_dep FROM flights WHERE status = 'scheduled' AND {_dest(draw)} {order}"


def _coldest_hours(draw: Random) -> str:
    where = f"{_origin(draw)} AND {_hours(draw, 'time_hour')}"
    return f"SELECT time_hour, temp FROM weather WHERE {where} ORDER BY temp, time_hour DESC LIMIT 3"


# -- parts -----------------------------------------------------------------------------------------


def _carrier(draw: Random) -> str:
    return f"carrier = '{draw.choice(_CARRIERS)}'"


def _origin(draw: Random) -> str:
    return f"origin = '{draw.choice(_ORIGINS)}'"


def _dest(draw: Random) -> str:
    return f"dest = '{draw.choice(_DESTS)}'"


def _distances(draw: Random) -> str:
    low = draw.randrange(100, 2000, 50)
    return f"distance BETWEEN {low} AND {low + draw.randrange(100, 800, 50)}"


def _hours(draw: Random, column: str) -> str:
    start = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day) + timedelta(hours=draw.randrange(6, 40))
    end = start + timedelta(hours=draw.randrange(3, 15))
    return f"{column} BETWEEN TIMESTAMP '{start}' AND TIMESTAMP '{end}'"


_QUESTIONS: dict[str, tuple[Callable[[Random], str], ...]] = {
    "filter": (
        _late,
        _late_there,
        _out_of_the_ordinary,
        _still_in_the_air,
        _one_of_two,
        _my_plane,
        _rough_weather,
    ),
    "notice": (_notice_of_delay, _notice_of_end, _notice_of_weather),
    "join": (_blown, _unseen, _big_and_late),
    "band": (_soon_after, _rivals),
    "multiway": (_plane_in_storm, _far_and_high),
    "extreme": (_least_visibility, _strongest_gust, _worst_delay),
    "aggregate": (_how_many_late, _mean_delay, _minutes_in_the_air),
    "distinct": (_who_is_late,),
    "topk": (_longest_delays, _next_to_leave, _coldest_hours),
}
