"""Malformed requests: each is answered by a 4xx with a reason, and nothing is applied.

Bodies are malformed by construction: cut, with bytes that are no UTF-8, with members of other types or names.
SQL texts are mutations of good and bad ones that the engine's own reader rejects.

TOCSIN_MALFORMED: how many (`make test-server`: 100,000).
"""

from __future__ import annotations

import http.client
import io
import json
import os
import random
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pyarrow as pa
import pytest

from tocsin.engine import Engine
from tocsin.errors import TocsinError
from tocsin.language.statements import split_statements
from tocsin.remote import Remote
from tocsin.server.local import local_server

COUNT = int(os.environ.get("TOCSIN_MALFORMED", "1500"))
SCHEMA = """CREATE STREAM hits (n BIGINT, page STRING, ms DOUBLE) RETAIN '1 hour';
CREATE TABLE stocks (symbol STRING, per DOUBLE, PRIMARY KEY (symbol)); CREATE STREAM events"""
JSON, NDJSON, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"
EVENT, EVENTS = "application/cloudevents+json", "application/cloudevents-batch+json"
GOLDEN = [
    statement.text
    for name in ("good.sql", "bad.sql")
    for statement in split_statements(
        (Path(__file__).parents[1] / "golden" / name).read_text(encoding="utf-8")
    )
    if statement.text[:6].upper() == "SELECT"
]
OWN = (
    "SELECT * FROM hits WHERE n > 5 AND page LIKE '/pay%'",
    "SELECT symbol FROM stocks ORDER BY per LIMIT 3",
    "SELECT COUNT(*), MAX(per) FROM stocks WHERE per BETWEEN 1 AND 9",
    "SELECT * FROM events WHERE item.brand = 'acme' AND tags[0] = 'new'",
    "SELECT page FROM hits WHERE ms > 9 WITH (window = '10 minutes')",
)
WORDS = (
    "SELECT", "FROM", "WHERE", "hits", "stocks", "per", "n", "(", ")", ",", "*", "'", '"', "`", "--", "/*",
    "NULL", "LIMIT", "-1", "1e999", "99999999999999999999", "IN ()", "LIKE", "RLIKE '('", "JOIN", "ON",
    "GROUP BY", "WITH (window = '-1 s')", "\x00", "\ufeff", "é", "😀", "\ud800", ";", "DROP STREAM hits",
)  # fmt: skip

OTHERS = (
    b"", b"null", b'"text"', b"[1, 2]", b"[[]]", b'{"n": }', b"{]", b"NaN", b"{'n': 1}", b"\xef\xbb\xbf{",
    b"[" * 3000, b'{"a":' * 3000, b'{"sql": 5}', b'{"_op": "fly", "_seq": []}', b'{"sql": null, "id": "x"}',
)  # fmt: skip


@pytest.fixture(name="url")
def _url(tmp_path):
    with local_server(tmp_path) as url, Remote(url) as remote:
        remote.define(SCHEMA)
        remote.subscribe("SELECT * FROM hits WHERE n > 1", id=1)
        remote.publish("stocks", {"symbol": "A", "per": 1})
        yield url


def test_malformed_requests_are_rejected_and_change_nothing(url):
    draw, reader = random.Random(COUNT), Engine()
    reader.execute(SCHEMA)
    host = urlsplit(url).netloc
    connection = http.client.HTTPConnection(host, timeout=60)
    with Remote(url) as remote:
        before = _state(remote)
        statuses: Counter[int] = Counter()
        for number in range(COUNT):
            path, kind, body = _request(draw, reader)
            connection.request("POST", f"/v1{path}", body, {"content-type": kind})
            answer = connection.getresponse()
            text = answer.read()
            statuses[answer.status] += 1
            assert 400 <= answer.status < 500, (number, path, kind, body, text)
            assert json.loads(text)["detail"], (number, path, kind, body)
            if number % 500 == 0:
                assert _state(remote) == before, (number, path, body)
        assert _state(remote) == before
    assert statuses[400] > COUNT // 2


def _state(remote):
    stats = remote.stats()
    return (
        stats["log"]["position"],
        stats["engine"]["last_seq"],
        remote.definitions(),
        stats["engine"]["rows"],
    )


# -- requests -----------------------------------------------------------------------------------------


def _request(draw, reader):
    """A path, a media type and a body that is wrong."""
    if draw.random() < 0.5:
        return _sql(draw, reader)
    path, kind, good = draw.choice(
        (
            ("/changes/hits", JSON, {"n": 1, "page": "/"}),
            ("/changes/hits", JSON, [{"n": 1}, {"n": 2, "page": "/"}]),
            ("/changes/stocks?op=upsert", JSON, {"symbol": "B", "per": 2}),
            ("/changes/hits", EVENT, {"specversion": "1.0", "id": "1", "source": "s", "type": "t",
                                      "data": {"n": 1}}),
            ("/changes/hits", EVENTS, [{"specversion": "1.0", "id": "1", "source": "s", "type": "t",
                                        "data": {"n": 1}}]),
            ("/subscriptions", JSON, {"subscriptions": [{"sql": "SELECT * FROM hits"}]}),
            ("/subscriptions", JSON, {"template": "SELECT * FROM hits WHERE n > :n", "params": [{"n": 1}]}),
            ("/subscriptions", JSON, {"relation": "hits", "predicates": [
                {"id": 8, "predicates": [{"attribute": "n", "op": ">", "number": 1}]}]}),
            ("/subscriptions/remove", JSON, {"ids": [77]}),
            ("/subscriptions/1/explain", JSON, {"row": {"n": 1}}),
            ("/definitions", JSON, {"sql": "CREATE STREAM more"}),
            ("/deliveries", JSON, {"name": "a", "to": "http://127.0.0.1:1/"}),
            ("/backtest", JSON, {"sql": "SELECT * FROM hits", "limit": 5}),
        )
    )  # fmt: skip
    if draw.random() < 0.15:
        return "/changes/hits", ARROW, _bad_arrow(draw)
    return path, kind, draw.choice((_cut, _not_text, _other))(draw, good)


def _cut(draw, good):
    """A proper prefix: never JSON, as the whole is an object or an array."""
    text = json.dumps(good).encode()
    return text[: draw.randrange(len(text))]


def _not_text(draw, good):
    """A byte that is no UTF-8 inside a text."""
    text = json.dumps(good).encode()
    at = text.index(b'"') + 1
    return text[:at] + draw.choice((b"\xff", b"\xc3", b"\xed\xa0\x80", b"\x00", b"\n")) + text[at:]


def _other(draw, good):
    """A body of another kind."""
    return draw.choice((*OTHERS, json.dumps(good).encode() + b"}"))


def _bad_arrow(draw):
    sink = io.BytesIO()
    table = pa.table({"n": [1, 2, 3]})
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue()
    if draw.random() < 0.5:
        return data[: draw.randrange(8, 100)]  # inside the schema: a stream may end after any whole message
    wrong = pa.table(draw.choice(({"n": ["x"]}, {"page": [1]}, {"other": [1]}, {"n": [[1]]})))
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, wrong.schema) as writer:
        writer.write_table(wrong)
    return sink.getvalue()


def _sql(draw, reader):
    """A request with an SQL text that the engine's reader rejects."""
    while True:
        text = _mutated(draw, draw.choice(GOLDEN if draw.random() < 0.3 else OWN))
        if text.lstrip()[:6].upper() != "SELECT":  # definitions are valid texts to validate
            text = "SELECT " + text
        try:
            reader.plan(text)
        except TocsinError:
            break
    path, member = draw.choice(
        (
            ("/subscriptions", "sql"),
            ("/validate", "sql"),
            ("/backtest", "sql"),
            ("/subscriptions", "template"),
        )
    )
    body = {member: text}
    if member == "template":
        body["params"] = [{"n": 1}]
    try:
        return path, JSON, json.dumps(body, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return path, JSON, json.dumps(body).encode()


def _mutated(draw, text):
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(len(text) + 1)
        kind = draw.randrange(4)
        if kind == 0:
            text = text[:at] + draw.choice(WORDS) + text[at:]
        elif kind == 1:
            text = text[:at] + text[at + draw.randint(1, 8) :]
        elif kind == 2:
            end = draw.randrange(len(text) + 1)
            text = text[min(at, end) : max(at, end)] or text
        else:
            text = text[:at] + chr(draw.choice((draw.randrange(32, 127), draw.randrange(0x2FFF)))) + text[at:]
    return text
