"""Tenants: tokens, scopes, quotas, limits; and that one sees nothing of another, whatever both do.

TOCSIN_TENANT_STEPS: requests of each tenant while they are fuzzed against each other.
"""

from __future__ import annotations

import json
import os
import random
import re
import time
from contextlib import ExitStack

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tocsin.server.access import AccessControl, Quota
from tocsin.server.limits import Limits
from tocsin.server.local import local_server
from tocsin.server.scopes import Scope

STEPS = int(os.environ.get("TOCSIN_TENANT_STEPS", "150"))
ALL = [Scope.DEFINE, Scope.SUBSCRIBE, Scope.PUBLISH, Scope.READ]


def client(stack, url, token=None):
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return stack.enter_context(httpx.Client(base_url=f"{url}/v1", headers=headers, timeout=30))


@pytest.fixture(name="access")
def _access(tmp_path):
    return AccessControl(tmp_path)


def test_a_token_allows_what_its_scopes_say(tmp_path, access):
    tokens = {scope: access.add_token("acme", scope, [scope]) for scope in ALL}
    requests = {
        Scope.DEFINE: ("POST", "/definitions", {"sql": "CREATE STREAM hits"}),
        Scope.SUBSCRIBE: ("POST", "/subscriptions", {"sql": "SELECT * FROM hits"}),
        Scope.PUBLISH: ("POST", "/changes/hits", {"n": 1}),
        Scope.READ: ("GET", "/subscriptions/1/content", None),
    }
    with ExitStack() as stack:
        url = stack.enter_context(local_server(tmp_path))
        assert client(stack, url).get("/stats").status_code == 401
        assert client(stack, url, "toc_wrong").get("/stats").status_code == 401
        for needed, (method, path, body) in requests.items():
            for scope, token in tokens.items():
                if scope is not needed:
                    answer = client(stack, url, token).request(method, path, json=body)
                    assert answer.status_code == 403 and needed in answer.json()["detail"]
            done = client(stack, url, tokens[needed]).request(method, path, json=body)
            assert done.status_code == 200, done.text
        address = url.replace("http", "ws") + "/v1/deltas"
        with pytest.raises(InvalidStatus):
            connect(address)
        with connect(f"{address}?access_token={tokens[Scope.READ]}") as socket:
            assert json.loads(socket.recv())["type"] == "snapshot"


def test_a_removed_token_ends_and_the_file_has_hashes_alone(tmp_path, access):
    token = access.add_token("acme", "ci", ALL)
    other = access.add_token("acme", "other", ALL)
    assert token not in (tmp_path / "access.json").read_text()
    with ExitStack() as stack:
        url = stack.enter_context(local_server(tmp_path))
        mine = client(stack, url, token)
        assert mine.get("/stats").status_code == 200
        AccessControl(tmp_path).remove_token("acme", "ci")
        time.sleep(1.1)  # the file is looked at once a second
        assert mine.get("/stats").status_code == 401
        assert client(stack, url, other).get("/stats").status_code == 200


def test_quotas(tmp_path, access):
    token = access.add_token("acme", "all", ALL)
    access.set_quota("acme", Quota(subscriptions=2, changes_per_second=5.0, followers=0))
    with ExitStack() as stack:
        mine = client(stack, stack.enter_context(local_server(tmp_path)), token)
        mine.post("/definitions", json={"sql": "CREATE STREAM hits"})
        for _ in range(2):
            assert mine.post("/subscriptions", json={"sql": "SELECT * FROM hits"}).status_code == 200
        third = mine.post("/subscriptions", json={"sql": "SELECT * FROM hits"})
        assert third.status_code == 403 and "quota of 2" in third.json()["detail"]
        rows = [{"n": n} for n in range(20)]
        assert mine.post("/changes/hits", json=rows).status_code == 200
        much = mine.post("/changes/hits", json={"n": 1})
        assert much.status_code == 429 and int(much.headers["retry-after"]) >= 1
        assert mine.get("/deltas", headers={"accept": "text/event-stream"}).status_code == 403


def test_limits_of_a_request(tmp_path):
    with ExitStack() as stack:
        url = stack.enter_context(local_server(tmp_path, limits=Limits(body=2000, sql=500, patterns=2)))
        mine = client(stack, url)
        mine.post("/definitions", json={"sql": "CREATE STREAM hits"})
        assert mine.post("/changes/hits", json={"x": "y" * 3000}).status_code == 413
        long = "SELECT * FROM hits WHERE n > 1" + " AND n > 1" * 60
        assert "limit is 500" in mine.post("/subscriptions", json={"sql": long}).json()["detail"]
        many = "SELECT * FROM hits WHERE a LIKE 'x' OR b LIKE 'y%' OR c RLIKE 'z'"
        for path, body in (
            ("/subscriptions", {"sql": many}),
            ("/subscriptions", {"subscriptions": [{"sql": many}]}),
            ("/subscriptions", {"template": many + " AND n > :n", "params": [{"n": 1}]}),
            ("/validate", {"sql": many}),
            ("/backtest", {"sql": many}),
            ("/definitions", {"sql": "CREATE STREAM x; " * 40}),
        ):
            answer = mine.post(path, json=body)
            assert answer.status_code == 400 and "limit" in answer.json()["detail"], (path, answer.text)


# -- two tenants --------------------------------------------------------------------------------------

TEXTS = (
    "SELECT * FROM stocks WHERE per > {n}",
    "SELECT symbol FROM stocks ORDER BY per LIMIT {n}",
    "SELECT COUNT(*) FROM stocks WHERE per <= {n}",
    "SELECT * FROM hits WHERE n > {n}",
    "SELECT nothing FROM hits, stocks WHERE",
    "SELECT * FROM secrets",
)
_OWN = re.compile(r'"(?:token|at|last_fired|epoch|valid_to)":"[^"]*"|"cost_us":[^,}]*')


def request_of(draw, name):
    """A request of a tenant; names, ids and keys are those of the other one too."""
    id, n = draw.randint(1, 9), draw.randint(0, 5)
    sql = draw.choice(TEXTS).format(n=n)
    key = {"idempotency-key": str(draw.randint(1, 20))}
    return draw.choice(
        (
            ("POST", "/subscriptions", {"sql": sql, "id": id, "subscriber": "ann"}, {}),
            ("POST", "/subscriptions", {"sql": sql}, {}),
            ("PUT", f"/subscriptions/{id}", {"sql": sql}, {}),
            ("DELETE", f"/subscriptions/{id}", None, {}),
            ("POST", f"/subscriptions/{id}/{draw.choice(('pause', 'resume', 'expire'))}", {}, {}),
            ("POST", "/changes/stocks?op=upsert", {"symbol": f"{name}{n}", "per": n}, {}),
            ("POST", "/changes/stocks?op=delete", {"symbol": f"{name}{n}"}, {}),
            ("POST", "/changes/hits", [{"n": n, "who": name}], key),
            ("POST", "/changes/hits", [{"n": n, "who": name}, {"n": "x"}], {}),
            ("POST", "/definitions", {"sql": f"CREATE STREAM {draw.choice(('hits', name))}"}, {}),
            ("GET", "/definitions", None, {}),
            ("GET", "/subscriptions?limit=3", None, {}),
            ("GET", f"/subscriptions?sort={draw.choice(('deltas', 'last_fired'))}", None, {}),
            ("GET", f"/subscriptions/{id}", None, {}),
            ("GET", f"/subscriptions/{id}/content", None, {}),
            ("GET", f"/subscriptions/{id}/stats", None, {}),
            ("GET", f'/subscriptions/{id}/explain?row={{"symbol":"A","per":3}}', None, {}),
            ("GET", "/deltas", None, {}),
            ("GET", "/deltas?subscriber=ann", None, {}),
            ("GET", "/deltas?since=SINCE", None, {}),
            ("POST", "/validate", {"sql": sql}, {}),
            ("POST", "/backtest", {"sql": sql}, {}),
            ("GET", "/deliveries", None, {}),
            ("GET", "/nothing", None, {}),
        )
    )  # fmt: skip


class Tenant:
    """One that sends requests drawn from a seed, and writes down what it sees."""

    def __init__(self, http, name):
        self.http, self.draw, self.name, self.seen, self.since = http, random.Random(name), name, [], "0-0"
        sql = "CREATE STREAM hits; CREATE TABLE stocks (symbol STRING, per BIGINT, PRIMARY KEY (symbol))"
        self.send("POST", "/definitions", {"sql": sql}, {})

    def step(self):
        self.send(*request_of(self.draw, self.name))

    def send(self, method, path, body, headers):
        path = path.replace("SINCE", self.since)
        answer = self.http.request(method, path, json=body, headers=headers)
        assert answer.status_code < 500
        if path.startswith("/deltas") and answer.status_code == 200 and self.draw.random() < 0.3:
            self.since = answer.json()["token"]
        self.seen.append((method, answer.status_code, _OWN.sub("", answer.text)))


def test_two_tenants_see_nothing_of_each_other(tmp_path):
    """What a tenant is answered beside another one is what it is answered alone."""
    with ExitStack() as stack:
        together, alone = [], []
        shared, folders = AccessControl(tmp_path / "shared"), [tmp_path / "a", tmp_path / "b"]
        tokens = [shared.add_token(name, "all", ALL) for name in ("acme", "bolt")]
        url = stack.enter_context(local_server(tmp_path / "shared"))
        for name, token, folder in zip(("acme", "bolt"), tokens, folders, strict=True):
            together.append(Tenant(client(stack, url, token), name))
            own = AccessControl(folder).add_token(name, "all", ALL)
            alone.append(Tenant(client(stack, stack.enter_context(local_server(folder)), own), name))
        for _ in range(STEPS):
            for tenant in (*together, *alone):
                tenant.step()
        for mine, lone in zip(together, alone, strict=True):
            for number, (one, other) in enumerate(zip(mine.seen, lone.seen, strict=True)):
                assert one == other, (mine.name, number)
        metrics = together[0].http.get("/metrics").text
        assert 'tenant="acme"' in metrics and "bolt" not in metrics
