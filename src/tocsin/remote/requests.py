"""Requests as values: what is sent, and how the answer is read. `Remote` and `AsyncRemote` send them.

A request that may be sent again after a connection was lost says so: reading is safe, a change has an
idempotency key of its own, a definition or a subscription is sent again only if it cannot have arrived.

>>> publish("hits", {"ms": 950}, key="k").headers
{'content-type': 'application/json', 'idempotency-key': 'k'}
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from tocsin.errors import BadRow, Position, TocsinError

__all__ = [
    "Applied",
    "Follow",
    "Registered",
    "RemoteError",
    "RemoteRequest",
    "follow_params",
    "problem_of",
    "publish",
    "retry_after",
    "simple",
    "subscribe",
    "subscribe_many",
]

T = TypeVar("T")
_JSON, _NDJSON = "application/json", "application/x-ndjson"
_ARROW = "application/vnd.apache.arrow.stream"
_FIRST_WAIT, _LONGEST_WAIT = 0.05, 5.0  # seconds between two tries


class RemoteError(TocsinError):
    """What the server answered instead: `status`, and `rows` that are bad, with reasons; 0: no answer."""

    def __init__(
        self, status: int, fact: str, place: Position | None = None, hint: str | None = None,
        rows: Sequence[BadRow] = (),
    ) -> None:  # fmt: skip
        super().__init__(fact, place, hint)
        self.status, self.rows = status, tuple(rows)


class Registered(msgspec.Struct):
    """A subscription of the server."""

    id: int
    token: str
    shape: str | None = None
    warnings: list[str] = []


class Applied(msgspec.Struct):
    """Changes that are durable: how many, the number of the last one, and the token that includes them."""

    token: str
    seq: int
    applied: int
    rejected: list[dict[str, Any]] = []


class RemoteRequest(NamedTuple, Generic[T]):
    """One request; `again`: it may be sent again though it may have arrived."""

    method: str
    path: str
    read: Callable[[bytes], T]
    params: Mapping[str, Any]
    headers: Mapping[str, str]
    body: bytes | None
    again: bool
    sql: str | None = None  # the text that a place in an error is about


def simple(
    method: str, path: str, body: Any = None, *, read: Callable[[bytes], T] = msgspec.json.decode,
    again: bool | None = None, sql: str | None = None, **params: Any,
) -> RemoteRequest[T]:  # fmt: skip
    """A request with a JSON body, or none; parameters that are None are left out."""
    given = {name: value for name, value in params.items() if value is not None}
    headers = {} if body is None else {"content-type": _JSON}
    data = None if body is None else msgspec.json.encode(body)
    return RemoteRequest(
        method, path, read, given, headers, data, method == "GET" if again is None else again, sql
    )


def subscribe(sql: str, **given: Any) -> RemoteRequest[Registered]:
    """Register one query."""
    body = {"sql": sql, **{name: value for name, value in given.items() if value is not None}}
    return simple("POST", "/subscriptions", body, read=_decode(Registered), sql=sql)


def subscribe_many(
    rows: Any, template: str | None, relation: str | None, backfill: bool
) -> RemoteRequest[dict[str, Any]]:
    """Register many queries: rows of texts, of a template's parameters, or of predicates on a relation."""
    kind, body = body_of(rows)
    if kind == _JSON:
        kind, body = _NDJSON, body_of([rows])[1]
    params = {"template": template, "relation": relation, "backfill": "true" if backfill else None}
    given = {name: value for name, value in params.items() if value is not None}
    return RemoteRequest(
        "POST", "/subscriptions", msgspec.json.decode, given, {"content-type": kind}, body, False, template
    )


def publish(
    relation: str, rows: Any, *, op: str | None = None, skip: bool = False, key: str | None = None
) -> RemoteRequest[Applied]:
    """Events of a stream, or changes of a table."""
    kind, body = body_of(rows)
    params = {"op": op, "bad": "skip" if skip else None}
    given = {name: value for name, value in params.items() if value is not None}
    headers = {"content-type": kind, "idempotency-key": key or secrets.token_hex(12)}
    return RemoteRequest("POST", f"/changes/{relation}", _decode(Applied), given, headers, body, True)


def body_of(rows: Any) -> tuple[str, bytes]:
    """A body and its media type: an object, rows, an Arrow table or batch, or NDJSON as bytes.

    >>> body_of([{"n": 1}, {"n": 2}])
    ('application/x-ndjson', b'{"n":1}\\n{"n":2}\\n')
    """
    if isinstance(rows, bytes):
        return _NDJSON, rows
    if isinstance(rows, Mapping):
        return _JSON, msgspec.json.encode(rows)
    if hasattr(rows, "__arrow_c_stream__") or hasattr(rows, "__arrow_c_array__"):
        return _ARROW, _arrow_bytes(rows)
    return _NDJSON, b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


class Follow(NamedTuple):
    """What to follow, and how: parameters of `/v1/deltas`."""

    subscription: int | Iterable[int] | None = None
    subscriber: str | None = None
    queue: int = 100_000
    heartbeat: float = 15.0


def follow_params(wanted: Follow, since: str | None) -> dict[str, str]:
    """The parameters of a request that goes on after a token."""
    subscription = wanted.subscription
    out = {"queue": str(wanted.queue), "heartbeat": str(wanted.heartbeat)}
    if wanted.subscriber is not None:
        out["subscriber"] = wanted.subscriber
    if subscription is not None:
        ids = [subscription] if isinstance(subscription, int) else subscription
        out["subscription"] = ",".join(str(id) for id in ids)
    return out if since is None else {**out, "since": since}


def problem_of(status: int, body: bytes, sql: str | None) -> RemoteError:
    """The error of an answer."""
    try:
        found = msgspec.json.decode(body, type=_Problem)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return RemoteError(status, f"the server answered {status}", hint="is it a server of Tocsin?")
    place = found.place and sql and Position(sql, found.place["start"], found.place["end"])
    rows = [BadRow(row["row"], row["reason"]) for row in found.rows]
    return RemoteError(status, found.detail, place or None, found.hint, rows)


def retry_after(status: int | None, headers: Mapping[str, str], tries: int, again: bool) -> float | None:
    """Seconds until a request is sent again; None: it is not. No status: the connection was lost."""
    wait = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** min(tries, 20))
    if status is None:
        return wait if again else None
    if status not in (429, 503):
        return None
    given = headers.get("retry-after", "")
    return float(given) if given.isdecimal() else wait


class _Problem(msgspec.Struct):
    detail: str
    hint: str | None = None
    place: dict[str, int] | None = None
    rows: list[dict[str, Any]] = []


def _decode(type: type[T]) -> Callable[[bytes], T]:
    return msgspec.json.Decoder(type).decode


def _arrow_bytes(rows: Any) -> bytes:
    import pyarrow as pa

    reader = pa.table(rows)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        writer.write_table(reader)
    return bytes(sink.getvalue())
