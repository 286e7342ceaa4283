"""Endpoints: what a route takes and answers, said once; routing, checks and OpenAPI read it.

    Endpoint("GET", "/v1/subscriptions", listed, READ, "List subscriptions", (LIMIT, AFTER), answer=Page)

A handler receives a `Call` (the parameters read and checked, the body within its limit) and returns a value
that is encoded as JSON, or a response.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from starlette.requests import Request

from tocsin.server.limits import check_text
from tocsin.server.problems import MALFORMED, Problem
from tocsin.server.scopes import Scope

if TYPE_CHECKING:
    from tocsin.server.hosted import Hosted
    from tocsin.server.tenants import Tenants, Visit

__all__ = ["ID", "Endpoint", "EndpointCall", "Handler", "Param", "Scope", "read_params"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of a path or a query, or a header."""

    name: str
    type: type
    description: str
    default: Any = None
    least: float | None = None
    most: float | None = None
    choices: tuple[str, ...] = ()
    where: str = "query"
    max_length: int | None = None

    def read(self, text: str | None) -> Any:
        """The value of a text, checked."""
        if text is None:
            return self.default
        try:
            value = _READERS[self.type](text)
        except ValueError:
            kind = {int: "an integer", float: "a number", bool: "true or false"}.get(self.type, "text")
            raise Problem(400, f"{self.name} is {kind}, not {text[:40]!r}") from None
        if self.choices and value not in self.choices:
            raise Problem(400, f"{self.name} is one of {', '.join(self.choices)}, not {text[:40]!r}")
        if self.least is not None and not self.least <= value <= (self.most or value):
            raise Problem(400, f"{self.name} is at least {self.least}" + (
                f" and at most {self.most}" if self.most else "") + f", not {text[:40]}")  # fmt: skip
        if self.max_length is not None and len(text) > self.max_length:
            raise Problem(400, f"{self.name} has at most {self.max_length} characters")
        return value


def _read_bool(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}.get(text.lower()) or _not_false(text)


def _not_false(text: str) -> bool:
    if text.lower() not in ("false", "0"):
        raise ValueError(text)
    return False


def _read_int(text: str) -> int:
    if len(text) > 20 or not text.isascii():
        raise ValueError(text)
    return int(text)


_READERS: dict[type, Callable[[str], Any]] = {int: _read_int, float: float, bool: _read_bool, str: str}
_INT64 = 2**63 - 1
ID = Param("id", int, "The subscription's id.", least=-(2**63), most=_INT64, where="path")


@dataclass(slots=True)
class EndpointCall:
    """One request."""

    request: Request
    params: Mapping[str, Any]
    visit: Visit
    tenants: Tenants
    body: bytes = b""

    @property
    def hosted(self) -> Hosted:
        return self.visit.hosted

    def json(self, type: type[_T]) -> _T:
        """The body as JSON of a type."""
        try:
            return msgspec.json.decode(self.body, type=type)
        except msgspec.ValidationError as error:
            raise Problem(400, f"the body is not as it should be: {error}") from None
        except MALFORMED as error:
            raise Problem(400, f"the body is malformed: {error}", hint="send JSON") from None

    def sql(self, text: str) -> str:
        """A text, if it is within the limits."""
        check_text(self.tenants.limits, text)
        return text

    @property
    def content_type(self) -> str:
        return self.request.headers.get("content-type", "")

    @property
    def id(self) -> int:
        found: int = self.params["id"]
        return found


Handler = Callable[[EndpointCall], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route: method and path, who may call it, what it takes, what it answers."""

    method: str
    path: str
    handler: Handler
    scope: Scope | None
    summary: str
    params: tuple[Param, ...] = ()
    takes: Mapping[str, Any] = field(default_factory=dict)  # media type: a type, or a schema
    answer: Any = None  # a type
    media: tuple[str, ...] = ("application/json",)
    status: int = 200
    description: str = ""
    problems: tuple[int, ...] = ()


def read_params(endpoint: Endpoint, request: Request) -> dict[str, Any]:
    """The parameters of a request, checked."""
    out = {}
    for param in endpoint.params:
        source: Mapping[str, str] = {
            "query": request.query_params, "path": request.path_params, "header": request.headers,
        }[param.where]  # fmt: skip
        out[param.name] = param.read(source.get(param.name))
    return out
