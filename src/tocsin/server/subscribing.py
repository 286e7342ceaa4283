"""Routes of subscriptions: register, list, replace, pause, resume, expire, remove."""

from __future__ import annotations

from itertools import islice
from typing import Any

import msgspec
from msgspec import UNSET

from tocsin.errors import SubscriptionError
from tocsin.server.commands import (
    BulkSubscribe,
    Command,
    Pause,
    Remove,
    Replace,
    ResumeSubscriptions,
    Subscribe,
    arrow_bytes,
    arrow_table,
)
from tocsin.server.endpoints import EndpointCall
from tocsin.server.handlers import explain, time_text
from tocsin.server.intake import bulk_of, rows_table
from tocsin.server.limits import check_sql, check_text
from tocsin.server.problems import MALFORMED, Problem
from tocsin.server.types import (
    BulkPredicates,
    BulkTemplate,
    BulkTexts,
    EndTime,
    Ids,
    NewSubscription,
    Replacement,
    Row,
    SubscriptionInfo,
)
from tocsin.subscriptions.sources import Subscription

__all__ = [
    "expire",
    "explain_row",
    "explain_text",
    "listed",
    "pause",
    "pause_many",
    "remove",
    "remove_many",
    "replace",
    "resume",
    "resume_many",
    "shown",
    "subscribe",
]


async def subscribe(call: EndpointCall) -> Any:
    """Register one query, or many."""
    command = _command(call)
    count = arrow_table(command.table).num_rows if isinstance(command, BulkSubscribe) else 1
    core = call.hosted.core
    call.visit.quota.admit_subscriptions(core, count)
    check_sql(call.tenants.limits, command)
    done = await call.hosted.do(command)
    return {"token": core.token(done.position), **done.result}


def _command(call: EndpointCall) -> Subscribe | BulkSubscribe:
    """What a body registers: one query, or a bulk in one of its forms."""
    template, relation = call.params["template"], call.params["relation"]
    if template is not None and relation is not None:
        raise Problem(400, "template and relation are two ways to subscribe", hint="give one of them")
    if template or relation or call.content_type.partition(";")[0] not in ("application/json", ""):
        form = "template" if template else "predicates" if relation else "texts"
        of = template or relation or ""
        return bulk_of(call.body, call.content_type, form, of, call.params["backfill"])
    try:
        keys = msgspec.json.decode(call.body, type=dict[str, msgspec.Raw])
    except MALFORMED:
        keys = {}
    if "template" in keys:
        bulk = call.json(BulkTemplate)
        return BulkSubscribe("template", bulk.template, arrow_bytes(rows_table(bulk.params)), bulk.backfill)
    if "predicates" in keys:
        rows = call.json(BulkPredicates)
        return BulkSubscribe(
            "predicates", rows.relation, arrow_bytes(rows_table(rows.predicates)), rows.backfill
        )
    if "subscriptions" in keys:
        return _texts(call.json(BulkTexts))
    one = call.json(NewSubscription)
    if one.id == 0:
        raise SubscriptionError("0 is no id", hint="leave out id to have one assigned")
    return Subscribe(one.id or 0, one.sql, one.subscriber, one.valid_from, one.valid_to, one.backfill)


def _texts(bulk: BulkTexts) -> BulkSubscribe:
    given = bulk.subscriptions
    if any(one.valid_from or one.valid_to or one.backfill for one in given):
        raise Problem(400, "times and backfill are for single subscriptions", hint="register them one by one")
    with_id = [one.id is not None for one in given]
    if any(with_id) and not all(with_id):
        raise Problem(
            400, "some subscriptions have an id and some have none", hint="give all of them one, or none"
        )
    rows: list[Any] = [
        {"sql": one.sql, "subscriber": one.subscriber, **({} if one.id is None else {"id": one.id})}
        for one in given
    ]
    return BulkSubscribe("texts", "", arrow_bytes(rows_table(rows)))


async def listed(call: EndpointCall) -> Any:
    """A page of subscriptions, by id or by what they do and cost."""
    applier, limit, subscriber = call.hosted.core.applier, call.params["limit"], call.params["subscriber"]
    if (sort := call.params["sort"]) != "id":
        return await _ranked(call, sort)
    after = call.params["after"]

    def read(engine: Any) -> tuple[list[SubscriptionInfo], int]:
        found = [info(call, one) for one in engine.page(after, limit + 1, subscriber)]
        found += [
            info_paused(one) for one in applier.paused.values()
            if one.id > after and subscriber in (None, one.subscriber)
        ]  # fmt: skip
        return sorted(found, key=lambda one: one.id), call.hosted.core.subscription_count

    (found, total), _ = await call.hosted.read(read)
    last = found[limit - 1].id if len(found) > limit else None
    return {"subscriptions": found[:limit], "next": last, "total": total}


async def _ranked(call: EndpointCall, sort: Any) -> Any:
    """Subscriptions that have fired, the greatest first; `after` counts those of the pages before."""
    core, limit, after = call.hosted.core, call.params["limit"], max(0, call.params["after"])

    def read(engine: Any) -> list[SubscriptionInfo]:
        ids = core.activity.top(sort, engine.__contains__)
        if (name := call.params["subscriber"]) is not None:
            ids = filter(set(engine.subscribers().get(name, ())).__contains__, ids)
        return [info(call, engine.subscription(id)) for id in islice(ids, after, after + limit + 1)]

    found, _ = await call.hosted.read(read)
    more = after + limit if len(found) > limit else None
    return {"subscriptions": found[:limit], "next": more, "total": core.subscription_count}


def info(call: EndpointCall, one: Subscription) -> SubscriptionInfo:
    """A subscription as it is listed."""
    begins, ends = (None if when is None else when.isoformat() for when in (one.valid_from, one.valid_to))
    core = call.hosted.core
    deltas, last, spent = core.activity.of(one.id)
    return SubscriptionInfo(
        one.id, one.sql, str(one.shape), core.engine.state(one.id), one.subscriber, begins, ends,
        list(one.warnings), deltas, time_text(last), spent / 1000,
    )  # fmt: skip


def info_paused(one: Subscribe) -> SubscriptionInfo:
    """A paused subscription as it is listed."""
    return SubscriptionInfo(one.id, one.sql, None, "paused", one.subscriber, one.valid_from, one.valid_to)


async def shown(call: EndpointCall) -> Any:
    """One subscription."""
    applier, id = call.hosted.core.applier, call.id

    def read(engine: Any) -> SubscriptionInfo:
        return (
            info_paused(applier.paused[id]) if id in applier.paused else info(call, engine.subscription(id))
        )

    return (await call.hosted.read(read))[0]


async def replace(call: EndpointCall) -> Any:
    """Another query under the same id."""
    given = call.json(Replacement)
    check_text(call.tenants.limits, given.sql)
    subscriber = (await _described(call)).subscriber if given.subscriber is UNSET else given.subscriber
    command = Replace(call.id, given.sql, subscriber, given.valid_from, given.valid_to)
    done = await call.hosted.do(command)
    return {"token": call.hosted.core.token(done.position), **done.result}


async def expire(call: EndpointCall) -> Any:
    """The end of a subscription, now or later."""
    when = call.json(EndTime).at if call.body.strip() else None
    one = await _described(call)
    at = call.hosted.core.wall().isoformat() if when is None else when
    done = await call.hosted.do(Replace(call.id, one.sql, one.subscriber, one.valid_from, at))
    return {"token": call.hosted.core.token(done.position)}


async def _described(call: EndpointCall) -> Subscribe:
    """The subscription as it is registered."""
    applier, id = call.hosted.core.applier, call.id

    def read(engine: Any) -> Subscribe:
        return applier.paused[id] if id in applier.paused else applier.described(id)

    return (await call.hosted.read(read))[0]


async def _do(call: EndpointCall, command: Command) -> Any:
    done = await call.hosted.do(command)
    return {"token": call.hosted.core.token(done.position)}


async def pause(call: EndpointCall) -> Any:
    """Let a subscription rest."""
    return await _do(call, Pause([call.id]))


async def resume(call: EndpointCall) -> Any:
    """Let a paused subscription go on."""
    return await _do(call, ResumeSubscriptions([call.id]))


async def remove(call: EndpointCall) -> Any:
    """Unregister a subscription."""
    return await _do(call, Remove([call.id]))


async def pause_many(call: EndpointCall) -> Any:
    """Let subscriptions rest."""
    return await _do(call, Pause(call.json(Ids).ids))


async def resume_many(call: EndpointCall) -> Any:
    """Let paused subscriptions go on."""
    return await _do(call, ResumeSubscriptions(call.json(Ids).ids))


async def remove_many(call: EndpointCall) -> Any:
    """Unregister subscriptions."""
    return await _do(call, Remove(call.json(Ids).ids))


async def explain_row(call: EndpointCall) -> Any:
    """Why a row, sent as the body, is or is not in the answer."""
    given = call.json(Row)
    return await explain(call, given.row, given.table)


async def explain_text(call: EndpointCall) -> Any:
    """The same, for a row in the query."""
    try:
        row = msgspec.json.decode(call.params["row"].encode(), type=dict[str, Any])
    except MALFORMED as error:
        raise Problem(400, f"row is not a JSON object: {error}") from None
    return await explain(call, row, call.params["table"])
