"""Narrow questions about many days: each covers a day, a few hours or a few planes.

With the broad questions, a hundred thousand subscriptions to a month would receive nearly thirty million
deltas; with these they receive an eighth of that. Ranked and aggregated questions have one range and few
other conditions. Questions with the same other conditions share one structure, so about fifty structures
serve any number of them.

>>> _my_plane(Draw(1))
"SELECT tailnum, carrier, flight, origin, dest, status FROM flights WHERE tailnum LIKE 'N...%' AND ..."
"""

from __future__ import annotations

from tocsin.lab.demo import broad_questions as broad
from tocsin.lab.demo.broad_questions import (
    DESTS,
    FLIGHT,
    Draw,
    Questions,
    a_carrier,
    a_day,
    an_origin,
    some_days,
    some_hours,
)

__all__ = ["NARROW"]

# -- filters ---------------------------------------------------------------------------------------


def _late(draw: Draw) -> str:
    """A carrier late out of an airport, on a day."""
    where = f"{a_carrier(draw)} AND {an_origin(draw)} AND {a_day(draw, 'sched_dep')}"
    return f"SELECT * FROM flights WHERE {where} AND dep_delay >= {draw.randrange(30, 180, 5)}"


def _late_there(draw: Draw) -> str:
    low = draw.randrange(10, 120, 5)
    dests = ", ".join(f"'{d}'" for d in draw.sample(DESTS, 3))
    between = f"arr_delay BETWEEN {low} AND {low + draw.randrange(10, 30)}"
    where = f"dest IN ({dests}) AND {between} AND {a_day(draw, 'sched_dep')}"
    return f"SELECT {FLIGHT}, arr_delay FROM flights WHERE {where}"


def _out_of_the_ordinary(draw: Draw) -> str:
    distance = draw.choice(("distance <= 300", "distance > 2400", "distance BETWEEN 700 AND 800"))
    usual = f"dep_delay BETWEEN -15 AND {draw.randrange(40, 120, 10)}"
    where = f"{an_origin(draw)} AND {distance} AND {a_day(draw, 'sched_dep')}"
    return f"SELECT * FROM flights WHERE {where} AND NOT ({usual})"


def _still_in_the_air(draw: Draw) -> str:
    where = f"status = 'departed' AND air_time IS NULL AND dest LIKE '{draw.choice('ABCDFILMPRST')}%'"
    late = f"dep_delay > {draw.randrange(20, 120, 5)} AND {a_day(draw, 'sched_dep')}"
    return f"SELECT {FLIGHT}, dep_delay FROM flights WHERE {where} AND {late}"


def _one_of_two(draw: Draw) -> str:
    late = draw.randrange(60, 200, 10)
    where = f"dest RLIKE '^({draw.choice('SLM')}|{draw.choice('DBO')}).[AOS]'"
    when = a_day(draw, "sched_dep")
    return f"SELECT * FROM flights WHERE {where} AND {when} AND (dep_delay > {late} OR arr_delay > {late})"


def _my_plane(draw: Draw) -> str:
    """Planes whose numbers share a prefix, at any time."""
    where = f"tailnum LIKE 'N{draw.randrange(100, 999)}%' AND status != 'scheduled'"
    return f"SELECT tailnum, {FLIGHT}, status FROM flights WHERE {where}"


def _rough_weather(draw: Draw) -> str:
    rough = f"wind_gust >= {draw.randrange(24, 40)} OR visib <= {draw.choice((0.25, 0.5, 1, 2, 3))}"
    where = f"{an_origin(draw)} AND {some_days(draw, 'time_hour')}"
    return f"SELECT * FROM weather WHERE {where} AND ({rough} OR precip > 0.1)"


# -- joins -----------------------------------------------------------------------------------------


def _delayed_in_gusts(draw: Draw) -> str:
    return broad.delayed_in_gusts(draw, gusts=4, minutes=30)


def _big_and_late(draw: Draw) -> str:
    seats, when = draw.randrange(150, 350, 25), some_days(draw, "f.sched_dep")
    return (
        "SELECT f.carrier, f.flight, f.dest, f.dep_delay, p.model, p.seats FROM flights f JOIN planes p "
        f"ON p.tailnum = f.tailnum WHERE {when} AND p.seats BETWEEN {seats} AND {seats + 50} "
        f"AND f.dep_delay > {draw.randrange(20, 120, 10)}"
    )


def _one_after_the_other(draw: Draw) -> str:
    """A long delay, and another one within minutes."""
    late, later, minutes = draw.randrange(60, 240), draw.randrange(60, 240), draw.randrange(5, 30, 5)
    return (
        "SELECT a.carrier, a.flight, a.dep_delay, b.carrier, b.flight, b.dep_delay "
        "FROM flights a JOIN flights b "
        f"ON b.sched_dep - a.sched_dep BETWEEN INTERVAL '1' MINUTE AND INTERVAL '{minutes}' MINUTE "
        f"WHERE a.dep_delay BETWEEN {late} AND {late + 15} AND b.dep_delay BETWEEN {later} AND {later + 15}"
    )


def _far_and_high(draw: Draw) -> str:
    """Late arrivals at high airports, from a cold origin, within some days."""
    high = draw.randrange(500, 2500, 100)
    return (
        "SELECT f.carrier, f.flight, f.arr_delay, a.name, a.alt, w.temp FROM flights f "
        "JOIN airports a ON a.faa = f.dest "
        "JOIN weather w ON w.origin = f.origin AND w.time_hour = f.time_hour "
        f"WHERE a.alt BETWEEN {high} AND {high + 500} AND f.arr_delay >= {draw.randrange(10, 90, 5)} "
        f"AND {some_days(draw, 'w.time_hour')} AND w.temp < {draw.randrange(34, 50)}"
    )


# -- one table, ranked or counted ------------------------------------------------------------------


def _strongest_gust(draw: Draw) -> str:
    return f"SELECT MAX(wind_gust) AS gust FROM weather WHERE {some_hours(draw, 'time_hour')}"


def _how_many_late(draw: Draw) -> str:
    late = f"{an_origin(draw)} AND dep_delay >= {draw.choice((15, 30, 60))}"
    return f"SELECT COUNT(*) AS late FROM flights WHERE {late} AND {some_hours(draw, 'sched_dep')}"


def _minutes_in_the_air(draw: Draw) -> str:
    where = f"{an_origin(draw)} AND {some_hours(draw, 'sched_dep')}"
    return f"SELECT SUM(air_time) AS minutes FROM flights WHERE {where}"


def _who_is_late(draw: Draw) -> str:
    late = draw.randrange(30, 200)
    what = draw.choice(("carrier", "dest", "origin, status"))
    return f"SELECT DISTINCT {what} FROM flights WHERE dep_delay BETWEEN {late} AND {late + 2}"


def _who_flies(draw: Draw) -> str:
    where = f"status != 'scheduled' AND {some_hours(draw, 'sched_dep')}"
    return f"SELECT DISTINCT {draw.choice(('carrier', 'dest'))} FROM flights WHERE {where}"


def _next_to_leave(draw: Draw) -> str:
    where = f"status = 'scheduled' AND {an_origin(draw)} AND {some_hours(draw, 'sched_dep')}"
    order = f"ORDER BY sched_dep LIMIT {draw.choice((1, 3, 5))}"
    return f"SELECT {FLIGHT}, sched_dep FROM flights WHERE {where} {order}"


NARROW: Questions = {
    "filter": (
        _late,
        _late_there,
        _out_of_the_ordinary,
        _still_in_the_air,
        _one_of_two,
        _my_plane,
        _rough_weather,
    ),
    "stream": broad.BROAD["stream"],
    "join": (_delayed_in_gusts, broad.late_in_poor_visibility, _big_and_late),
    "band": (broad.late_after_poor_visibility, _one_after_the_other),
    "multiway": (broad.old_planes_in_gusts, _far_and_high),
    "extreme": (broad.least_visibility, _strongest_gust, broad.worst_delay),
    "aggregate": (_how_many_late, broad.mean_delay, _minutes_in_the_air),
    "distinct": (_who_is_late, _who_flies),
    "topk": (broad.longest_delays, _next_to_leave, broad.coldest_hours),
}
