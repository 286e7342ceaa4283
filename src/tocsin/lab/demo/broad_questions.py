"""Broad questions about two days of flights and weather: their answers change often.

A question is a function from a random draw to SQL; each draw has its own carriers, places and ranges.

>>> least_visibility(Draw(1))
"SELECT MIN(visib) FROM weather WHERE time_hour BETWEEN TIMESTAMP '2013-03-...
>>> a_dest(Draw(1))
"dest = '...'"
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from random import Random

from tocsin.lab.demo.flights import FIRST_DAY

__all__ = [
    "BROAD",
    "CARRIERS",
    "DESTS",
    "FLIGHT",
    "ORIGINS",
    "Draw",
    "Questions",
    "a_carrier",
    "a_day",
    "a_dest",
    "a_distance",
    "an_origin",
    "coldest_hours",
    "delayed_in_gusts",
    "late_after_poor_visibility",
    "late_in_poor_visibility",
    "least_visibility",
    "longest_delays",
    "mean_delay",
    "old_planes_in_gusts",
    "rivals",
    "some_days",
    "some_hours",
    "worst_delay",
]

ORIGINS = ("JFK", "EWR", "LGA")
CARRIERS = "UA B6 EV DL AA MQ US 9E WN VX FL".split()
DESTS = "ORD ATL LAX BOS MCO CLT SFO FLL MIA DCA DTW DFW RDU TPA DEN IAH MSP BUF CLE SEA LAS PBI".split()
FLIGHT = "carrier, flight, origin, dest"


class Draw(Random):
    """Random numbers, and how many days hours are drawn from."""

    days = 2


Questions = dict[str, tuple[Callable[[Draw], str], ...]]  # by shape

# -- conditions --------------------------------------------------------------------------------------


def a_carrier(draw: Draw) -> str:
    return f"carrier = '{draw.choice(CARRIERS)}'"


def an_origin(draw: Draw) -> str:
    return f"origin = '{draw.choice(ORIGINS)}'"


def a_dest(draw: Draw) -> str:
    return f"dest = '{draw.choice(DESTS)}'"


def a_distance(draw: Draw) -> str:
    low = draw.randrange(100, 2000, 50)
    return f"distance BETWEEN {low} AND {low + draw.randrange(100, 800, 50)}"


def some_hours(draw: Draw, column: str) -> str:
    """Some hours of one of the days; above two days, in steps of three hours."""
    step = 1 if draw.days <= 2 else 3
    start = draw.randrange(6, 24 * draw.days - 8, step)
    return _between(column, start, start + draw.randrange(3, 15, step))


def a_day(draw: Draw, column: str) -> str:
    """One whole day."""
    day = draw.randrange(draw.days)
    return _between(column, 24 * day, 24 * (day + 1))


def some_days(draw: Draw, column: str) -> str:
    """One to four days."""
    first = draw.randrange(draw.days)
    return _between(column, 24 * first, 24 * (first + draw.randrange(1, 5)))


def _between(column: str, low: int, high: int) -> str:
    """From one hour to another, counted from the start of the first day."""
    start = datetime(FIRST_DAY.year, FIRST_DAY.month, FIRST_DAY.day)
    low_time, high_time = (start + timedelta(hours=hour) for hour in (low, high))
    return f"{column} BETWEEN TIMESTAMP '{low_time}' AND TIMESTAMP '{high_time}'"


# -- filters ---------------------------------------------------------------------------------------


def _late(draw: Draw) -> str:
    """A carrier late out of an airport."""
    where = f"carrier = '{draw.choice(CARRIERS)}' AND origin = '{draw.choice(ORIGINS)}'"
    return f"SELECT * FROM flights WHERE {where} AND dep_delay >= {draw.randrange(30, 180, 5)}"


def _late_there(draw: Draw) -> str:
    low = draw.randrange(10, 120, 5)
    dests = ", ".join(f"'{d}'" for d in draw.sample(DESTS, 3))
    between = f"arr_delay BETWEEN {low} AND {low + draw.randrange(20, 90)}"
    return f"SELECT {FLIGHT}, arr_delay FROM flights WHERE dest IN ({dests}) AND {between}"


def _out_of_the_ordinary(draw: Draw) -> str:
    distance = draw.choice(("distance <= 300", "distance > 2400", "distance BETWEEN 700 AND 800"))
    usual = f"dep_delay BETWEEN -15 AND {draw.randrange(40, 120, 10)}"
    return f"SELECT * FROM flights WHERE origin = '{draw.choice(ORIGINS)}' AND {distance} AND NOT ({usual})"


def _still_in_the_air(draw: Draw) -> str:
    where = f"status = 'departed' AND air_time IS NULL AND dest LIKE '{draw.choice('ABCDFILMPRST')}%'"
    return (
        f"SELECT {FLIGHT}, dep_delay FROM flights WHERE {where} AND dep_delay > {draw.randrange(20, 120, 5)}"
    )


def _one_of_two(draw: Draw) -> str:
    late, where = (
        draw.randrange(60, 200, 10),
        f"dest RLIKE '^({draw.choice('SLM')}|{draw.choice('DBO')}).[AOS]'",
    )
    return f"SELECT * FROM flights WHERE {where} AND (dep_delay > {late} OR arr_delay > {late})"


def _my_plane(draw: Draw) -> str:
    prefix = f"N{draw.randrange(10, 99)}"
    where = f"tailnum LIKE '{prefix}%' AND status != 'scheduled'"
    return f"SELECT tailnum, {FLIGHT}, status FROM flights WHERE {where}"


def _rough_weather(draw: Draw) -> str:
    rough = f"wind_gust >= {draw.randrange(24, 40)} OR visib <= {draw.choice((0.25, 0.5, 1, 2, 3))}"
    return f"SELECT * FROM weather WHERE origin = '{draw.choice(ORIGINS)}' AND ({rough} OR precip > 0.1)"


def notice_of_delay(draw: Draw) -> str:
    late = f"kind = 'delay' AND minutes >= {draw.randrange(60, 240, 5)}"
    return f"SELECT * FROM notices WHERE {late} AND {draw.choice((a_carrier, an_origin, a_dest))(draw)}"


def notice_of_end(draw: Draw) -> str:
    where = f"{a_carrier(draw)} AND {an_origin(draw)}"
    return f"SELECT * FROM notices WHERE kind IN ('cancelled', 'diverted') AND {where}"


def notice_of_weather(draw: Draw) -> str:
    gust, visib = draw.randrange(28, 40), draw.choice((0.2, 0.3, 0.8))
    return f"SELECT * FROM notices WHERE gust >= {gust} OR visib < {visib}"


# -- joins -----------------------------------------------------------------------------------------


def delayed_in_gusts(draw: Draw, gusts: int = 8, minutes: int = 60) -> str:
    """Flights delayed in gusts; `gusts` and `minutes` are the widths of the ranges."""
    gust, late = draw.randrange(18, 34), draw.randrange(15, 120, 5)
    ranges = f"wind_gust BETWEEN {gust} AND {gust + gusts} AND dep_delay BETWEEN {late} AND {late + minutes}"
    tables = "flights JOIN weather USING (origin, time_hour)"
    return f"SELECT {FLIGHT}, dep_delay, wind_gust FROM {tables} WHERE {ranges} AND {a_carrier(draw)}"


def late_in_poor_visibility(draw: Draw) -> str:
    low = f"w.visib <= {draw.choice((0.5, 1, 2, 4))} AND f.arr_delay > {draw.randrange(30, 150, 10)}"
    return (
        "SELECT f.carrier, f.flight, f.dest, f.arr_delay, w.visib FROM flights f JOIN weather w "
        f"ON f.origin = w.origin AND f.time_hour = w.time_hour WHERE {low} AND f.{a_dest(draw)}"
    )


def _big_and_late(draw: Draw) -> str:
    seats, late = draw.randrange(150, 350, 25), draw.randrange(20, 120, 10)
    return (
        "SELECT f.carrier, f.flight, f.dest, f.dep_delay, p.model, p.seats FROM flights f JOIN planes p "
        f"ON p.tailnum = f.tailnum WHERE p.seats >= {seats} AND f.dep_delay > {late} AND f.{an_origin(draw)}"
    )


def late_after_poor_visibility(draw: Draw) -> str:
    """Late flights scheduled within some minutes after an hour of poor visibility began."""
    place, minutes = draw.choice(ORIGINS), draw.randrange(30, 150, 15)
    return (
        "SELECT f.carrier, f.flight, f.sched_dep, f.dep_delay, w.time_hour, w.visib "
        "FROM flights f JOIN weather w "
        f"ON f.sched_dep - w.time_hour BETWEEN INTERVAL '0' MINUTE AND INTERVAL '{minutes}' MINUTE "
        f"WHERE f.origin = '{place}' AND w.origin = '{place}' AND w.visib <= {draw.choice((0.5, 1, 2))} "
        f"AND f.{a_carrier(draw)} AND f.dep_delay > {draw.randrange(15, 90, 5)}"
    )


def rivals(draw: Draw) -> str:
    """Two carriers that leave for the same place within minutes."""
    one, other = draw.sample(CARRIERS, 2)
    dest, minutes = draw.choice(DESTS), draw.randrange(10, 60, 5)
    return (
        "SELECT a.carrier, a.flight, a.sched_dep, b.carrier, b.flight, b.sched_dep "
        "FROM flights a JOIN flights b "
        f"ON b.sched_dep - a.sched_dep BETWEEN INTERVAL '-{minutes}' MINUTE AND INTERVAL '{minutes}' MINUTE "
        f"WHERE a.carrier = '{one}' AND b.carrier = '{other}' AND a.dest = '{dest}' AND b.dest = '{dest}'"
    )


def old_planes_in_gusts(draw: Draw) -> str:
    old, gust = draw.randrange(1990, 2006), draw.randrange(20, 32)
    return (
        "SELECT f.carrier, f.flight, f.dest, f.dep_delay, w.wind_gust, p.manufacturer, p.year FROM flights f "
        "JOIN weather w ON f.origin = w.origin AND f.time_hour = w.time_hour "
        "JOIN planes p ON p.tailnum = f.tailnum "
        f"WHERE w.wind_gust >= {gust} AND p.year <= {old} AND f.dep_delay > {draw.randrange(10, 90, 5)} "
        f"AND f.{a_carrier(draw)} AND f.{an_origin(draw)}"
    )


def _far_and_high(draw: Draw) -> str:
    return (
        "SELECT f.carrier, f.flight, f.arr_delay, a.name, a.alt, w.temp FROM flights f "
        "JOIN airports a ON a.faa = f.dest "
        "JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour "
        f"WHERE a.alt >= {draw.randrange(500, 2500, 100)} AND f.arr_delay >= {draw.randrange(10, 90, 5)} "
        f"AND w.temp < {draw.randrange(34, 50)} AND f.{an_origin(draw)}"
    )


# -- one table, ranked or counted ------------------------------------------------------------------


def least_visibility(draw: Draw) -> str:
    when = some_hours(draw, "time_hour")
    return f"SELECT MIN(visib) FROM weather WHERE {draw.choice((when, f'{when} AND {an_origin(draw)}'))}"


def _strongest_gust(draw: Draw) -> str:
    return (
        f"SELECT MAX(wind_gust) AS gust, MIN(temp) AS temp FROM weather WHERE {some_hours(draw, 'time_hour')}"
    )


def worst_delay(draw: Draw) -> str:
    return f"SELECT MAX(dep_delay) AS worst FROM flights WHERE {a_distance(draw)} AND {a_carrier(draw)}"


def _how_many_late(draw: Draw) -> str:
    late = f"dep_delay >= {draw.randrange(15, 120, 5)}"
    return f"SELECT COUNT(*) AS late FROM flights WHERE {an_origin(draw)} AND {late} AND {a_distance(draw)}"


def mean_delay(draw: Draw) -> str:
    values = "AVG(arr_delay) AS mean, COUNT(arr_delay) AS landed"
    return f"SELECT {values} FROM flights WHERE {a_carrier(draw)} AND {some_hours(draw, 'sched_dep')}"


def _minutes_in_the_air(draw: Draw) -> str:
    return f"SELECT SUM(air_time) AS minutes FROM flights WHERE {a_dest(draw)} OR {a_dest(draw)}"


def _who_is_late(draw: Draw) -> str:
    late = draw.randrange(30, 200, 10)
    what = draw.choice(("carrier", "dest", "origin, status"))
    where = f"dep_delay BETWEEN {late} AND {late + 15} AND {a_distance(draw)}"
    return f"SELECT DISTINCT {what} FROM flights WHERE {where}"


def longest_delays(draw: Draw) -> str:
    columns = f"{FLIGHT}, dep_delay"
    order = f"ORDER BY dep_delay DESC LIMIT {draw.choice((3, 5, 10))}"
    return f"SELECT {columns} FROM flights WHERE {a_distance(draw)} {order}"


def _next_to_leave(draw: Draw) -> str:
    order = f"ORDER BY sched_dep LIMIT {draw.choice((1, 3, 5))}"
    return f"SELECT {FLIGHT}, sched_dep FROM flights WHERE status = 'scheduled' AND {a_dest(draw)} {order}"


def coldest_hours(draw: Draw) -> str:
    where = f"{an_origin(draw)} AND {some_hours(draw, 'time_hour')}"
    return f"SELECT time_hour, temp FROM weather WHERE {where} ORDER BY temp, time_hour DESC LIMIT 3"


BROAD: Questions = {
    "filter": (
        _late,
        _late_there,
        _out_of_the_ordinary,
        _still_in_the_air,
        _one_of_two,
        _my_plane,
        _rough_weather,
    ),
    "stream": (notice_of_delay, notice_of_end, notice_of_weather),
    "join": (delayed_in_gusts, late_in_poor_visibility, _big_and_late),
    "band": (late_after_poor_visibility, rivals),
    "multiway": (old_planes_in_gusts, _far_and_high),
    "extreme": (least_visibility, _strongest_gust, worst_delay),
    "aggregate": (_how_many_late, mean_delay, _minutes_in_the_air),
    "distinct": (_who_is_late,),
    "topk": (longest_delays, _next_to_leave, coldest_hours),
}
