"""Routes of deliveries: define, list, pause, remove; read dead letters and send them again."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta
from starlette.responses import Response

from tocsin.delivery.signing import new_secret
from tocsin.server.deliveries.definitions import DeliveryRule
from tocsin.server.deliveries.planner import wanted_by
from tocsin.server.deliveries.service import Deliveries
from tocsin.server.endpoints import Endpoint, EndpointCall, Param, Scope
from tocsin.server.problems import Problem

__all__ = ["DELIVERY_ENDPOINTS"]


class DeliveryState(msgspec.Struct):
    """A delivery and how it is doing."""

    name: str
    to: str
    state: str
    delivered: int
    waiting: int
    dead: int
    last_delivered: float | None
    last_error: str | None


class DeliveryList(msgspec.Struct):
    """All deliveries."""

    deliveries: list[DeliveryState]


class DeliveryMade(msgspec.Struct):
    """A delivery was made; `secret` signs its messages and is not shown again."""

    name: str
    secret: str


class DeadLetters(msgspec.Struct):
    """Messages that were given up, oldest first; `number` is the `after` of the next page."""

    dead_letters: list[dict[str, Any]]


class Redeliver(msgspec.Struct, forbid_unknown_fields=True):
    """Which dead letters are sent again; all, if left out."""

    numbers: Annotated[list[int], Meta(max_length=100_000)] | None = None


class Redelivered(msgspec.Struct):
    """How many dead letters are sent again."""

    count: int


async def make(call: EndpointCall) -> Any:
    """Define a delivery, or replace the one of this name."""
    delivery, hosted = call.json(DeliveryRule), call.hosted
    if delivery.to.startswith(("http://", "https://")) and not delivery.secret:
        delivery = msgspec.structs.replace(delivery, secret=new_secret())
    for id in delivery.subscriptions or ():
        if id not in hosted.core.applier:
            raise Problem(404, f"there is no subscription {id}", hint="GET /v1/subscriptions lists them")
    await asyncio.to_thread(hosted.deliveries.keep_blocks)  # before the contents are read
    contents, position = await hosted.contents(wanted_by(delivery))
    ids, counts = np.unique(contents.subscription, return_counts=True)
    rows = dict(zip(ids.tolist(), counts.tolist(), strict=True))
    await asyncio.to_thread(hosted.deliveries.add, delivery, rows, position)
    return {"name": delivery.name, "secret": delivery.secret}


async def listed(call: EndpointCall) -> Any:
    """All deliveries."""

    def read(deliveries: Deliveries) -> list[dict[str, Any]]:
        return [deliveries.shown(name) for name in deliveries.names()]

    return {"deliveries": await asyncio.to_thread(read, call.hosted.deliveries)}


async def shown(call: EndpointCall) -> Any:
    """One delivery."""
    return await _do(call, Deliveries.shown)


async def remove(call: EndpointCall) -> Any:
    """End a delivery."""
    await _do(call, Deliveries.remove)
    return {"removed": call.params["name"]}


async def pause(call: EndpointCall) -> Any:
    """Keep messages and send none."""
    await _do(call, Deliveries.pause, True)
    return await shown(call)


async def resume(call: EndpointCall) -> Any:
    """Send again."""
    await _do(call, Deliveries.pause, False)
    return await shown(call)


async def dead_letters(call: EndpointCall) -> Any:
    """What was given up."""
    found = await _do(call, Deliveries.dead_letters, call.params["after"], call.params["limit"])
    return Response(msgspec.json.encode({"dead_letters": found}), media_type="application/json")


async def redeliver(call: EndpointCall) -> Any:
    """Send dead letters again."""
    numbers = call.json(Redeliver).numbers if call.body.strip() else None
    return {"count": await _do(call, Deliveries.redeliver, numbers)}


async def _do(call: EndpointCall, method: Any, *given: Any) -> Any:
    return await asyncio.to_thread(method, call.hosted.deliveries, call.params["name"], *given)


_D = "/v1/deliveries"
_NAME = Param("name", str, "The delivery's name.", where="path", max_length=100)
_AFTER = Param("after", int, "The last number of the page before.", 0, 0, 2**63 - 1)
_LIMIT = Param("limit", int, "At most so many.", 100, 1, 1000)
_JSON = "application/json"

DELIVERY_ENDPOINTS = (
    Endpoint(
        "POST", _D, make, Scope.SUBSCRIBE, "Deliver deltas to a webhook, a topic, e-mail or chat",
        takes={_JSON: DeliveryRule}, answer=DeliveryMade, problems=(404,),
        description="What comes from now on. Webhooks are signed by the Standard Webhooks scheme; without a "
        "`secret` one is drawn and answered, once. The delivery of this name, if there is one, is replaced.",
    ),
    Endpoint("GET", _D, listed, Scope.READ, "List deliveries", answer=DeliveryList),
    Endpoint("GET", _D + "/{name}", shown, Scope.READ, "One delivery", (_NAME,), answer=DeliveryState,
             problems=(404,)),
    Endpoint("DELETE", _D + "/{name}", remove, Scope.SUBSCRIBE, "End a delivery; drop its messages", (_NAME,),
             answer={"type": "object"}, problems=(404,)),
    Endpoint("POST", _D + "/{name}/pause", pause, Scope.SUBSCRIBE, "Keep messages, send none", (_NAME,),
             answer=DeliveryState, problems=(404,)),
    Endpoint("POST", _D + "/{name}/resume", resume, Scope.SUBSCRIBE, "Send again", (_NAME,),
             answer=DeliveryState, problems=(404,)),
    Endpoint("GET", _D + "/{name}/dead-letters", dead_letters, Scope.READ, "Messages that were given up",
             (_NAME, _AFTER, _LIMIT), answer=DeadLetters, problems=(404,)),
    Endpoint("POST", _D + "/{name}/redeliver", redeliver, Scope.SUBSCRIBE, "Send dead letters again",
             (_NAME,), {_JSON: Redeliver}, Redelivered, problems=(404,)),
)  # fmt: skip
