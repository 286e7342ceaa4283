"""The application: routes, checks that all of them share, errors as problems.

request ─► tenant and scope ─► parameters ─► body within its limit ─► handler ─► JSON
                                                                         └─► problem+json
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, WebSocketRoute
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope
from starlette.websockets import WebSocket

from tocsin.errors import TocsinError
from tocsin.server.endpoints import Endpoint, EndpointCall, Param, read_params
from tocsin.server.openapi import document
from tocsin.server.problems import Problem, problem_response
from tocsin.server.routes import ENDPOINTS, FOLLOW_PARAMS
from tocsin.server.scopes import Scope
from tocsin.server.streaming import serve_socket
from tocsin.server.tenants import Tenants, Visit

__all__ = ["make_app"]

_LOG = logging.getLogger(__name__)
_SLOW = 5.0  # seconds; such requests are logged
_ENCODER = msgspec.json.Encoder()


def make_app(make_tenants: Callable[[], Awaitable[Tenants]], mounts: tuple[BaseRoute, ...] = ()) -> Starlette:
    """The application over tenants that are made when it starts.

    `mounts` are further routes, such as those of a page.
    """

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        app.state.tenants = await make_tenants()
        try:
            yield
        finally:
            await app.state.tenants.close()

    openapi = _ENCODER.encode(document(ENDPOINTS))

    async def described(request: Request) -> Response:
        return Response(openapi, media_type="application/json")

    async def health(request: Request) -> Response:
        failed = request.app.state.tenants.failed()
        body = {"status": "ok"} if failed is None else {"status": "failed", "detail": failed}
        return Response(
            _ENCODER.encode(body), status_code=200 if failed is None else 503, media_type="application/json"
        )

    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    fixed_first = sorted(by_path, key=lambda path: (not path.startswith("/v1/changes"), "{" in path))
    routes: list[BaseRoute] = [_route(path, by_path[path]) for path in fixed_first]
    routes += [
        WebSocketRoute("/v1/deltas", _socket),
        Route("/v1/openapi.json", described),
        Route("/v1/health", health),
        *mounts,
    ]
    handlers: Mapping[Any, Any] = {HTTPException: _http_problem, TocsinError: _problem, Exception: _problem}
    return Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)


def _route(path: str, endpoints: list[Endpoint]) -> Route:
    """One path with its methods."""
    by_method = {endpoint.method: endpoint for endpoint in endpoints}
    if "GET" in by_method:
        by_method["HEAD"] = by_method["GET"]

    return Route(path, Answering(by_method), methods=[*by_method])


class Answering:
    """The endpoints of a path as an ASGI application: errors are answered in `_answer`, not by wrappers."""

    def __init__(self, by_method: Mapping[str, Endpoint]) -> None:
        self._by_method = by_method

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        response = await _answer(self._by_method[request.method], request)
        await response(scope, receive, send)


async def _answer(endpoint: Endpoint, request: Request) -> Response:
    """Answer a request, and count it."""
    start, tenants = perf_counter(), request.app.state.tenants
    visit: Visit | None = None
    try:
        visit = tenants.visit(request.headers, endpoint.scope, request.query_params.get("access_token"))
        response = await _handled(endpoint, request, visit, tenants)
    except TocsinError as error:
        response = problem_response(error)
    except (ClientDisconnect, asyncio.CancelledError):
        raise
    except Exception as error:  # noqa: BLE001 - a defect: logged, and answered without its details
        _LOG.exception("%s %s failed", request.method, request.url.path)
        response = problem_response(error)
    name, seconds = "" if visit is None else visit.tenant, perf_counter() - start
    tenants.metrics.request(name, request.method, endpoint.path, response.status_code, seconds)
    if seconds > _SLOW:
        fields = {"tenant": name, "path": request.url.path, "seconds": round(seconds, 3)}
        _LOG.warning("a slow request", extra={"fields": fields})
    return response


async def _handled(endpoint: Endpoint, request: Request, visit: Visit, tenants: Tenants) -> Response:
    """Check a request, call its handler, encode what it returns."""
    params, body = read_params(endpoint, request), b""
    if endpoint.takes:
        body = await _body(request, tenants.limits.body)
        visit.quota.admit_body(len(body))
    result = await endpoint.handler(EndpointCall(request, params, visit, tenants, body))
    if isinstance(result, Response):
        return result
    return Response(_ENCODER.encode(result), status_code=endpoint.status, media_type="application/json")


async def _body(request: Request, limit: int) -> bytes:
    """The body, unless it is too large."""
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise _too_large(limit)
    parts, size = [], 0
    async for part in request.stream():
        parts.append(part)
        size += len(part)
        if size > limit:
            raise _too_large(limit)
    return b"".join(parts)


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body has more than {limit} bytes", hint="send it in parts; see --max-body")


async def _socket(socket: WebSocket) -> None:
    """A WebSocket that follows; errors close it with a reason before it is accepted."""
    tenants: Tenants = socket.app.state.tenants
    try:
        visit = tenants.visit(socket.headers, Scope.READ, socket.query_params.get("access_token"))
        visit.quota.admit_follower(len(visit.hosted.hub))
        params = {param.name: param.read(_param(socket, param)) for param in FOLLOW_PARAMS}
        await serve_socket(socket, visit.hosted, params)
    except TocsinError as error:
        await socket.send_denial_response(problem_response(error))


def _param(socket: WebSocket, param: Param) -> str | None:
    found = socket.headers if param.where == "header" else socket.query_params
    return found.get(param.name)


def _problem(request: Request, error: Exception) -> Response:
    return problem_response(error)


def _http_problem(request: Request, error: HTTPException) -> Response:
    problem = Problem(error.status_code, error.detail)
    problem.headers = dict(error.headers or {})
    return problem_response(problem)
