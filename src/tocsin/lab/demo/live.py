"""`tocsin demo --serve`: the flights sent to a server by its client, hour by hour, for the live page.

The first day is sent at once, so that there is something to see; the others as time passes, an hour of 2013
in `HOUR` seconds. The page stays when the flights are over.
"""

from __future__ import annotations

import json
import os
import signal
import webbrowser
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from pathlib import Path
from threading import Event

from tocsin.errors import TocsinError
from tocsin.lab.demo.flights import DDL, FlightChange
from tocsin.lab.demo.script import DemoSubscription, Script

__all__ = ["FlightSender", "serve_demo"]

HOUR, SLICE = 4.0, timedelta(minutes=10)
_STREAM, _RETAIN = "CREATE STREAM notices", " RETAIN '30 days'"


def serve_demo(script: Script, folder: Path | None, port: int, say: Callable[[str], None]) -> None:
    """Serve, replay, and stay until SIGINT or SIGTERM."""
    try:
        from tocsin.remote import Remote
        from tocsin.server.local import local_server
    except ImportError as error:
        raise TocsinError(
            f"the demo needs a server and a client: {error}", hint="pip install 'tocsin[server,remote,demo]'"
        ) from None
    changes = script.changes()
    with local_server(folder, port=port) as url, Remote(url) as remote:
        say(f"the page is at {url}")
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.default_int_handler)
        if os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
            webbrowser.open(url)
        try:
            if remote.definitions():
                say("the folder has flights of an earlier demo: nothing is replayed")
            else:
                FlightSender(remote, say).send(script.draw_subscriptions(), changes)
            say("Ctrl-C ends the server")
            Event().wait()
        except KeyboardInterrupt:
            say("ended")


class FlightSender:
    """Sends subscriptions and changes to a server."""

    def __init__(self, remote: object, say: Callable[[str], None], hour: float = HOUR) -> None:
        from tocsin.remote import Remote

        assert isinstance(remote, Remote)
        self._remote, self._say, self._hour = remote, say, hour

    def send(self, wanted: Iterable[DemoSubscription], changes: list[FlightChange]) -> None:
        """Everything, the changes after the first day slowly."""
        self._remote.define(DDL.replace(_STREAM, _STREAM + _RETAIN))
        rows = [{"id": one.id, "sql": one.sql, "subscriber": one.subscriber} for one in wanted]
        self._remote.subscribe_many(rows)
        first = next(change.time for change in changes if change.table == "flights")
        self._say(f"{len(rows):,} subscriptions, {len(changes):,} changes")
        said: object = None
        for when, some in _slices(changes):
            if (late := when >= first + timedelta(days=1)) and when.date() != said:
                self._say(f"{when:%d %B %Y}: an hour in {self._hour:g} s")
                said = when.date()
            for table, rows_of in _by_table(some):
                self._remote.publish(table, rows_of)
            if late:
                Event().wait(self._hour * (SLICE / timedelta(hours=1)))
        self._say("the flights are over; the page stays")


def _slices(changes: list[FlightChange]) -> Iterator[tuple[datetime, list[FlightChange]]]:
    """Changes of ten minutes each, with their time."""
    start = changes[0].time
    for number, some in groupby(changes, lambda change: (change.time - start) // SLICE):
        yield start + number * SLICE, list(some)


def _by_table(changes: list[FlightChange]) -> Iterator[tuple[str, bytes]]:
    """NDJSON for each table, changes of a table in order."""
    for table in dict.fromkeys(change.table for change in changes):
        own = (change for change in changes if change.table == table)
        ops = (c.row if table == "notices" else {**c.row, "_op": c.op} for c in own)
        yield table, "\n".join(json.dumps(row, default=datetime.isoformat) for row in ops).encode()
