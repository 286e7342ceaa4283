"""Clients that keep contents and resume: through restarts, cuts, slow reading; the commands beside them."""

from __future__ import annotations

import asyncio
import json
from itertools import islice
from threading import Event, Thread

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tocsin.cli import app
from tocsin.remote import AsyncRemote, Remote, RemoteContents, RemoteError
from tocsin.server.local import local_server

SCHEMA = "CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol)); CREATE STREAM hits"


@pytest.fixture(name="url")
def _url(tmp_path):
    with local_server(tmp_path / "data") as url:
        yield url


def test_every_call(url):
    with Remote(url) as remote:
        remote.define(SCHEMA)
        assert [one["name"] for one in remote.definitions()] == ["stocks", "hits"]
        id = remote.subscribe("SELECT * FROM stocks WHERE per < 5", subscriber="ann", id=7).id
        rows = [{"id": 10, "n": 1}, {"id": 11, "n": 2}]
        assert remote.subscribe_many(rows, template="SELECT * FROM hits WHERE n > :n")["count"] == 2
        assert remote.publish("stocks", {"symbol": "A", "per": 1}).applied == 1
        assert remote.publish("stocks", pa.table({"symbol": ["B", "C"], "per": [2.0, 9.0]})).applied == 2
        done = remote.publish("stocks", [{"symbol": "D", "per": "x"}, {"symbol": "E", "per": 3}], skip=True)
        assert done.applied == 1 and done.rejected[0]["row"] == 0
        assert remote.publish("stocks", b'{"symbol": "E"}\n', op="delete").applied == 1
        assert sorted(row["symbol"] for row in remote.content(id)) == ["A", "B"]
        remote.replace(id, "SELECT * FROM stocks WHERE per < 2", subscriber="ann")
        assert remote.explain(id, {"symbol": "A", "per": 7})["held"] is False
        remote.pause([id])
        assert remote.subscription(id)["state"] == "paused"
        remote.resume([id])
        assert [one["id"] for one in remote.subscriptions()["subscriptions"]] == [7, 10, 11]
        remote.expire(10)
        remote.unsubscribe([10, 11])
        assert remote.stats()["engine"]["subscriptions"] == 1


def test_errors_have_their_place_and_rows(url):
    with Remote(url) as remote:
        remote.define(SCHEMA)
        with pytest.raises(RemoteError) as found:
            remote.subscribe("SELECT * FROM stocks WHERE prise < 5")
        assert found.value.status == 400 and found.value.position.column == 28
        assert "'per'" in str(found.value) or "prise" in str(found.value)
        with pytest.raises(RemoteError) as found:
            remote.publish("stocks", [{"symbol": "A", "per": 1}, {"symbol": "A", "per": 2}])
        assert found.value.rows[0].row == 1


def test_a_key_makes_a_change_once(url):
    with Remote(url) as remote:
        remote.define(SCHEMA)
        first = remote.publish("hits", {"n": 1}, key="k")
        assert remote.publish("hits", {"n": 1}, key="k") == first


def test_contents_are_kept_through_restarts_of_server_and_client(tmp_path):
    folder, file = tmp_path / "data", tmp_path / "kept.json"
    with local_server(folder) as url, Remote(url) as remote:
        remote.define(SCHEMA)
        id = remote.subscribe("SELECT symbol FROM stocks WHERE per < 5").id
        remote.subscribe("SELECT * FROM hits")
        with remote.keep(file=file) as contents:
            contents.wait(remote.publish("stocks", {"symbol": "A", "per": 1}).token)
            contents.wait(remote.publish("hits", {"n": 1}).token)
            assert contents.rows(id) == [{"symbol": "A"}] and contents.ids() == [id]
    port = int(url.rpartition(":")[2])
    with local_server(folder, port=port) as url, Remote(url) as remote:
        remote.publish("stocks", {"symbol": "B", "per": 1})
        before = RemoteContents.open(file)
        with remote.keep(file=file) as contents:
            contents.wait(remote.publish("stocks", {"symbol": "A"}, op="delete").token)
            assert before.rows(id) == [{"symbol": "A"}] and contents.rows(id) == [{"symbol": "B"}]
        found = list(islice(remote.follow(id, since=before.token), 2))
        assert [d.sign for message in found for d in message.deltas] == [1, -1]


def test_following_goes_on_when_the_server_comes_back(tmp_path):
    seen, started = [], Event()

    def read(remote):
        for message in remote.follow(subscriber="ann"):
            started.set()
            seen.extend(delta.row["n"] for delta in message.deltas)
            if len(seen) == 2:
                return

    with local_server(tmp_path) as url, Remote(url) as remote:
        remote.define("CREATE STREAM hits")
        remote.subscribe("SELECT n FROM hits", subscriber="ann")
    port = int(url.rpartition(":")[2])
    with Remote(url) as remote:
        for n in range(2):
            with local_server(tmp_path, port=port):
                if n == 0:
                    reader = Thread(target=read, args=(remote,))
                    reader.start()
                    assert started.wait(20)
                remote.publish("hits", {"n": n})
                if n == 1:
                    reader.join(20)
    assert seen == [0, 1]


def test_the_same_for_asyncio(url):
    async def main():
        async with AsyncRemote(url) as remote:
            await remote.define(SCHEMA)
            id = (await remote.subscribe("SELECT symbol FROM stocks WHERE per < 5")).id
            async with remote.keep() as contents:
                done = await remote.publish("stocks", {"symbol": "A", "per": 1})
                await asyncio.to_thread(contents.wait, done.token)
                return contents.rows(id), await remote.content(id)

    assert asyncio.run(main()) == ([{"symbol": "A"}], [{"symbol": "A"}])


def test_a_server_that_is_not_there_is_an_error_with_a_hint():
    with Remote("http://127.0.0.1:1", retry=0.1) as remote, pytest.raises(RemoteError, match="tocsin serve"):
        remote.stats()


def test_commands(url, tmp_path):
    def run(*arguments, text=None):
        done = CliRunner().invoke(app, [*arguments, "--server", url], input=text, catch_exceptions=False)
        return done.exit_code, done.stdout

    file = tmp_path / "alerts.sql"
    file.write_text(SCHEMA + "; SELECT * FROM hits WHERE n > 1; SELECT symbol FROM stocks")
    assert run("subscribe", str(file)) == (0, "1\n2\n")
    assert run("subscribe", "SELECT n FROM hits", "--id", "9", "--subscriber", "ann") == (0, "9\n")
    assert run("publish", "hits", '{"n": 5}') == (0, "1 applied\n")
    assert run("publish", "stocks", "-", text='{"symbol": "A"}\n{"symbol": "B"}') == (0, "2 applied\n")
    assert run("content", "2") == (0, '{"symbol": "A"}\n{"symbol": "B"}\n')
    with Remote(url) as remote:
        since = remote.publish("hits", {"n": 0}).token
    run("publish", "hits", '[{"n": 7}, {"n": 8}]')
    code, out = run("follow", "--subscriber", "ann", "--since", since, "-n", "2", "--json")
    assert code == 0 and [json.loads(line)["row"]["n"] for line in out.splitlines()] == [7, 8]
    code, out = run("follow", "9", "--since", since, "-n", "1")
    assert out == '9 + {"n": 7}\n'
    assert run("content", "77")[0] == 1
    assert run("publish", "hits", "missing.jsonl")[0] == 2
