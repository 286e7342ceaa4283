"""The calls of a client, said once for `Remote` and `AsyncRemote`: each is a request, or a few in turn.

Results of `_do` and `_run` are values of a `Remote`, and awaitables of an `AsyncRemote`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from threading import Event
from typing import Any

import msgspec

from tocsin.remote.requests import RemoteRequest, publish, simple, subscribe, subscribe_many
from tocsin.remote.tries import Exchange

__all__ = ["KEPT_HEARTBEAT", "Api"]

KEPT_HEARTBEAT = 1.0  # seconds after which kept contents learn that a change did not concern them


class Api(ABC):
    """Everything but following."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        timeout: float = 60.0,
        retry: float = 30.0,
        **options: Any,
    ) -> None:
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        self._http = self._make(base_url=url.rstrip("/") + "/v1", headers=headers, timeout=timeout, **options)
        self._retry, self._closed = retry, Event()

    @staticmethod
    @abstractmethod
    def _make(**options: Any) -> Any:
        """A client of httpx."""

    @abstractmethod
    def _run(self, exchange: Exchange) -> Any:
        """Do the requests of an exchange in turn; its result."""

    @abstractmethod
    def _do(self, request: RemoteRequest[Any]) -> Any:
        """Send a request, again if it may be; the value that is read from the answer."""

    def define(self, sql: str) -> Any:
        """Execute CREATE and DROP statements, all or none."""
        return self._do(simple("POST", "/definitions", {"sql": sql}, sql=sql))

    def definitions(self) -> Any:
        """All streams and tables, as dicts."""
        return self._do(simple("GET", "/definitions", read=_member("definitions")))

    def subscribe(
        self, sql: str, *, id: int | None = None, subscriber: str | None = None,
        valid_from: str | None = None, valid_to: str | None = None, backfill: bool | None = None,
    ) -> Any:  # fmt: skip
        """Register a query; returns a `Registered` with its id. Times are in ISO form."""
        return self._do(
            subscribe(
                sql, id=id, subscriber=subscriber, valid_from=valid_from, valid_to=valid_to, backfill=backfill
            )
        )

    def subscribe_many(
        self, rows: Any, *, template: str | None = None, relation: str | None = None, backfill: bool = False
    ) -> Any:
        """Register many, all or none: rows with `sql`, or the parameters of a template, or predicates.

        Rows are dicts or an Arrow table; `id` and `subscriber` are columns too. Returns count and first id.
        """
        return self._do(subscribe_many(rows, template, relation, backfill))

    def replace(self, id: int, sql: str, **given: Any) -> Any:
        """Another query under the same id, of the same subscriber unless `subscriber=` is given."""
        return self._do(simple("PUT", f"/subscriptions/{id}", {"sql": sql, **given}, again=True, sql=sql))

    def pause(self, ids: Sequence[int]) -> Any:
        """Subscriptions rest."""
        return self._do(simple("POST", "/subscriptions/pause", {"ids": list(ids)}, again=True))

    def resume(self, ids: Sequence[int]) -> Any:
        """Paused subscriptions go on, with the answer as it is then."""
        return self._do(simple("POST", "/subscriptions/resume", {"ids": list(ids)}, again=True))

    def unsubscribe(self, ids: Sequence[int]) -> Any:
        """Unregister subscriptions."""
        return self._do(simple("POST", "/subscriptions/remove", {"ids": list(ids)}))

    def expire(self, id: int, at: str | None = None) -> Any:
        """The end of a subscription, now or at a time."""
        return self._do(simple("POST", f"/subscriptions/{id}/expire", {"at": at}, again=True))

    def publish(
        self, relation: str, rows: Any, *, op: str | None = None, skip: bool = False, key: str | None = None
    ) -> Any:
        """Send events of a stream or changes of a table; returns an `Applied` once they are durable.

        `rows`: an object, several, an Arrow table, or NDJSON as bytes. It is applied once, though a lost
        connection makes it be sent again: `key` is its Idempotency-Key, drawn if it is left out.
        """
        return self._do(publish(relation, rows, op=op, skip=skip, key=key))

    def subscription(self, id: int) -> Any:
        """One subscription: its query, state, and how often it has fired."""
        return self._do(simple("GET", f"/subscriptions/{id}"))

    def subscriptions(self, after: int | None = None, limit: int = 100, subscriber: str | None = None) -> Any:
        """A page of subscriptions; its `next` is the `after` of the next one."""
        return self._do(simple("GET", "/subscriptions", after=after, limit=limit, subscriber=subscriber))

    def content(self, id: int) -> Any:
        """The answer of a subscription now, in order for a top-k; a long one comes in pages."""
        return self._run(_content(id))

    def explain(self, id: int, row: dict[str, Any], table: str | None = None) -> Any:
        """Why a row is in an answer or not, condition by condition."""
        body = {"row": row, "table": table}
        return self._do(simple("POST", f"/subscriptions/{id}/explain", body, again=True))

    def backtest(self, sql: str, limit: int = 100) -> Any:
        """What a query would have matched among the events that its stream retains."""
        return self._do(simple("POST", "/backtest", {"sql": sql, "limit": limit}, again=True, sql=sql))

    def call(self, method: str, path: str, body: Any = None, **params: Any) -> Any:
        """Any other request of the API: `remote.call("GET", "/deliveries")`."""
        return self._do(simple(method, path, body, **params))

    def stats(self) -> Any:
        """Counters of the engine, the log and the followers."""
        return self._do(simple("GET", "/stats"))


def _member(name: str) -> Any:
    def read(body: bytes) -> Any:
        return msgspec.json.decode(body)[name]

    return read


def _content(id: int) -> Exchange:
    """All pages of an answer; they are of one moment."""
    rows: list[Any] = []
    after = None
    while True:
        page = yield simple("GET", f"/subscriptions/{id}/content", after=after)
        rows += page["rows"]
        after = page.get("next")
        if after is None:
            return rows
