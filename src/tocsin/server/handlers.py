"""Definitions, changes, contents, explanations: what the routes do, besides subscriptions and following."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from starlette.responses import Response

from tocsin.engine import Engine
from tocsin.errors import CatalogError, SubscriptionError
from tocsin.model.json_rows import row_json
from tocsin.model.schema import Stream
from tocsin.server.backtests import backtest as run_backtest
from tocsin.server.backtests import source_of
from tocsin.server.commands import ApplyChanges, Define
from tocsin.server.core import Done
from tocsin.server.endpoints import EndpointCall
from tocsin.server.intake import change_of, digest_of, event_key
from tocsin.server.metrics import MEDIA_TYPE
from tocsin.server.problems import Problem
from tocsin.server.scopes import Scope
from tocsin.server.types import BacktestOf, Definition

__all__ = [
    "backtest",
    "change",
    "content",
    "define",
    "definitions",
    "explain",
    "metrics",
    "rows_json",
    "stats",
    "subscription_stats",
    "time_text",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FEW_ROWS = 1000  # that are encoded in the event loop


async def define(call: EndpointCall) -> Any:
    """Execute CREATE and DROP statements, all or none."""
    done = await call.hosted.do(Define(call.sql(call.json(Definition).sql)))
    return {"token": call.hosted.core.token(done.position)}


async def definitions(call: EndpointCall) -> Any:
    """All streams and tables."""
    found = [
        {"name": relation.name, "kind": "stream" if isinstance(relation, Stream) else "table",
         "sql": str(relation), "open": relation.open,
         "columns": [{"name": f.name, "type": f.type.name} for f in relation.fields]}
        for relation in call.hosted.core.engine.schemas()
    ]  # fmt: skip
    return {"definitions": found}


async def change(call: EndpointCall) -> Any:
    """Apply the changes of a body."""
    relation, headers = call.request.path_params["relation"], call.request.headers
    op, skip = call.params["op"], call.params["bad"] == "skip"
    try:
        call.hosted.core.engine.schema(relation)
    except CatalogError as error:
        raise Problem(404, error.fact, hint="GET /v1/definitions lists what there is") from None
    command = change_of(relation, call.body, call.content_type, headers, op=op, skip=skip)
    name = call.params["idempotency-key"] or event_key(call.body, call.content_type, headers)
    call.visit.quota.admit_changes(call.hosted.core)
    if name is None:
        return _applied(call, await call.hosted.do(command))
    return await _once(call, name, command)


async def _once(call: EndpointCall, name: str, command: ApplyChanges) -> Any:
    """Apply it unless a request with this key was applied before."""
    digest = digest_of(str(call.request.url.path) + "?" + call.request.url.query, call.body)
    async with call.hosted.keys.held(name):
        known = call.hosted.core.log.key(name)
        if known is None:
            return _applied(call, await call.hosted.do(command, (name, digest)))
    if known.digest != digest:
        raise Problem(
            422, f"the idempotency key {name[:60]!r} was used for another request", hint="use a new key"
        )
    answer = msgspec.json.decode(known.answer, type=Done)
    return Response(
        msgspec.json.encode(_applied(call, answer)), media_type="application/json",
        headers={"idempotency-replayed": "true"},
    )  # fmt: skip


def _applied(call: EndpointCall, done: Done) -> dict[str, Any]:
    call.visit.quota.count_changes(done.result["applied"])
    return {"token": call.hosted.core.token(done.position), "seq": done.seq, **done.result}


async def content(call: EndpointCall) -> Any:
    """The answer of a subscription, or a page of it."""
    id, hosted, limit = call.id, call.hosted, call.params["limit"]
    if call.params["after"] is None:
        rows, position = await hosted.read(lambda _: hosted.core.applier.content(id))
        page = hosted.pages.first(id, hosted.core.token(position), rows, limit)
    else:
        page = hosted.pages.after(call.params["after"], id, limit)
    head = msgspec.json.encode({"subscription": id, "token": page.token, "total": page.total})
    more = b"" if page.next is None else b',"next":%b' % msgspec.json.encode(page.next)
    rows = page.rows
    text = rows_json(rows) if len(rows) < _FEW_ROWS else await asyncio.to_thread(rows_json, rows)
    body = b'%b%b,"rows":%b}' % (head[:-1], more, text)
    return Response(body, media_type="application/json")


def rows_json(rows: list[dict[str, Any]]) -> bytes:
    """Rows of an answer as a JSON array."""
    return b"[" + b",".join(row_json(row).encode() for row in rows) + b"]"


async def explain(call: EndpointCall, row: dict[str, Any], table: str | None) -> Any:
    """Why a row is, or is not, in an answer."""
    id = call.id
    found, _ = await call.hosted.read(lambda engine: engine.explain(id, row, table=table))
    return {**found.to_dict(), "text": str(found)}


async def backtest(call: EndpointCall) -> Any:
    """What a query would have matched among the retained events."""
    given = call.json(BacktestOf)
    call.sql(given.sql)
    source, _ = await call.hosted.read(lambda engine: source_of(engine, given.sql))
    found = await asyncio.to_thread(run_backtest, source, given.sql, given.limit)
    found["rows"] = [msgspec.Raw(row) for row in found["rows"]]
    return found


async def metrics(call: EndpointCall) -> Any:
    """Metrics in Prometheus' text format."""
    everything = Scope.ADMIN in call.visit.scopes
    text = call.tenants.metrics.text(call.tenants, None if everything else call.visit.tenant)
    return Response(text, media_type=MEDIA_TYPE)


async def subscription_stats(call: EndpointCall) -> Any:
    """What a subscription does and costs."""
    core, id = call.hosted.core, call.id

    def read(engine: Engine) -> Any:
        if id not in core.applier:
            raise Problem(404, f"there is no subscription {id}", hint="GET /v1/subscriptions lists them")
        has_limits = id in engine and "WITH" in engine.subscription(id).sql.upper()
        try:
            return core.activity.of(id), engine.limits(id).to_dict() if has_limits else None
        except SubscriptionError:  # options without limits
            return core.activity.of(id), None

    ((deltas, last, spent), limits), _ = await call.hosted.read(read)
    return {
        "id": id, "deltas": deltas, "last_fired": time_text(last), "cost_us": spent / 1000,
        "limits": _plain(limits),
    }  # fmt: skip


def time_text(at: int) -> str | None:
    """Microseconds since 1970 as a time; None for 0."""
    return None if not at else (_EPOCH + timedelta(microseconds=at)).isoformat()


async def stats(call: EndpointCall) -> Any:
    """Counters of the engine, the log and the followers."""
    hosted = call.hosted
    found, position = await hosted.read(lambda engine: engine.stats())
    log, epoch = hosted.core.log, hosted.core.epoch
    return {
        "engine": _plain(found),
        "log": {**log.sizes(), "position": position, "epoch": epoch},
        "followers": len(hosted.hub),
    }


def _plain(value: Any) -> Any:
    """Statistics as JSON has them."""
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if hasattr(value, "item"):
        return value.item()
    if isinstance(value, str | int | float | bool) or value is None:
        return value
    return str(value)
