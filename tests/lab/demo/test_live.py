"""The flights on a real server end with the contents of one engine."""

from __future__ import annotations

from tests.lab.demo.embedded import embedded
from tocsin.lab.demo.live import FlightSender
from tocsin.lab.demo.script import Script
from tocsin.remote import Remote
from tocsin.server.local import local_server


def test_a_server_has_the_contents_of_an_engine():
    script, said = Script(days=1, subscriptions=40), []
    engine = embedded(script).engine
    with local_server() as url, Remote(url) as remote:
        FlightSender(remote, said.append, hour=0.01).send(script.draw_subscriptions(), script.changes())
        streams = {w.id for w in script.draw_subscriptions() if w.shape == "stream"}
        for wanted in script.draw_subscriptions():
            found, expected = remote.content(wanted.id), engine.content(wanted.id)
            if wanted.id not in streams:
                assert sorted(map(str, found)) == sorted(map(str, _plain(expected))), wanted.sql
        assert remote.backtest("SELECT * FROM notices WHERE kind = 'cancelled'")["matched"] > 0
    assert said[0].startswith("40 subscriptions") and said[-1].endswith("the page stays")


def _plain(rows):
    return [
        {name: value.isoformat() if hasattr(value, "isoformat") else value for name, value in row.items()}
        for row in rows
    ]
