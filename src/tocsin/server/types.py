"""What requests and answers look like, as types: decoded and encoded by msgspec, described in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

__all__ = [
    "AppliedChanges",
    "BacktestOf",
    "BacktestResult",
    "BulkPredicates",
    "BulkTemplate",
    "BulkTexts",
    "Caller",
    "Content",
    "Defined",
    "Definition",
    "Definitions",
    "EndTime",
    "Explained",
    "Ids",
    "NewSubscription",
    "Page",
    "Polled",
    "ProblemBody",
    "RegisteredMany",
    "RegisteredSubscription",
    "Replacement",
    "Row",
    "Sample",
    "SubscriptionInfo",
    "SubscriptionStats",
    "Token",
    "Trial",
    "Tried",
    "Validated",
]

Sql = Annotated[str, Meta(min_length=1, description="The text of a query or of statements.")]
Id = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Time = Annotated[str, Meta(description="A time, as 2024-05-01T10:00:00Z", max_length=40)]
Name = Annotated[str, Meta(min_length=1, max_length=200)]
ResumeToken = Annotated[str, Meta(description="A resume token: epoch and position.")]
Object = dict[str, Any]


class Definition(Struct, forbid_unknown_fields=True):
    """CREATE and DROP statements."""

    sql: Sql


class Defined(Struct):
    """What an engine knows after statements were executed."""

    token: ResumeToken


class Definitions(Struct):
    """All streams and tables, as statements."""

    definitions: list[dict[str, Any]]


class NewSubscription(Struct, forbid_unknown_fields=True):
    """One query to register."""

    sql: Sql
    id: Id | None = None
    subscriber: Name | None = None
    valid_from: Time | None = None
    valid_to: Time | None = None
    backfill: bool = False


class BulkTexts(Struct, forbid_unknown_fields=True):
    """Many queries as texts."""

    subscriptions: list[NewSubscription]


class BulkTemplate(Struct, forbid_unknown_fields=True):
    """A template with `:name` parameters, and a row of values for each subscription (also id, subscriber)."""

    template: Sql
    params: list[Object]
    backfill: bool = False


class BulkPredicates(Struct, forbid_unknown_fields=True):
    """Rows with id, subscriber and predicates on one stream or table.

    A predicate has attribute, op, and number, text, high, high_text or values.
    """

    relation: Name
    predicates: list[Object]
    backfill: bool = False


class RegisteredSubscription(Struct):
    """A subscription was registered."""

    token: ResumeToken
    id: int
    shape: str | None = None
    state: str | UnsetType = UNSET
    warnings: list[str] = []


class RegisteredMany(Struct):
    """Many subscriptions were registered; without ids of their own they are numbered from `first`."""

    token: ResumeToken
    count: int
    first: int | None


class Replacement(Struct, forbid_unknown_fields=True):
    """Another query for a subscription; its subscriber stays unless one, or null, is given."""

    sql: Sql
    subscriber: Name | UnsetType | None = UNSET
    valid_from: Time | None = None
    valid_to: Time | None = None


class EndTime(Struct, forbid_unknown_fields=True):
    """When a subscription ends; now, if left out."""

    at: Time | None = None


class Ids(Struct, forbid_unknown_fields=True):
    """Several subscriptions."""

    ids: Annotated[list[Id], Meta(max_length=1_000_000)]


class SubscriptionInfo(Struct, omit_defaults=True):
    """One subscription."""

    id: int
    sql: str
    shape: str | None = None
    state: str = "active"
    subscriber: str | None = None
    valid_from: str | None = None
    valid_to: str | None = None
    warnings: list[str] = []
    deltas: int = 0
    last_fired: str | None = None
    cost_us: float = 0.0


class Page(Struct):
    """Some subscriptions in order of their ids; `next` is the `after` of the next page."""

    subscriptions: list[SubscriptionInfo]
    next: int | None
    total: int


class Content(Struct):
    """The answer of a subscription now, or a page of it: `next` asks for the one after."""

    subscription: int
    rows: list[Object]
    token: ResumeToken
    total: int
    next: str | UnsetType = UNSET


class Row(Struct, forbid_unknown_fields=True):
    """A row to explain, and the table it belongs to."""

    row: Object
    table: str | None = None


class Explained(Struct):
    """Whether a row is in an answer, each predicate, and what else decides."""

    subscription: int
    shape: str
    held: bool | None
    checks: list[Object]
    notes: list[str]
    text: str


class BacktestOf(Struct, forbid_unknown_fields=True):
    """A query to try on what its stream retains."""

    sql: Sql
    limit: Annotated[int, Meta(ge=0, le=10_000)] = 100


class BacktestResult(Struct):
    """What a query would have matched: events seen and matched, when, and the first rows."""

    events: int
    matched: int
    begin: str | None
    end: str | None
    histogram: list[Object]
    rows: list[Object]


class Validated(Struct):
    """A query, or definitions, as they are understood."""

    shape: str
    tables: list[str]
    warnings: list[str]


class Trial(Struct, forbid_unknown_fields=True):
    """A query that is not registered, and rows to try it on."""

    sql: Sql
    rows: Annotated[list[Object], Meta(max_length=200)]
    table: str | None = None


class Tried(Struct):
    """For each row: whether it would be in the answer, each predicate, what else decides; or its problem."""

    shape: str
    results: list[Object]


class Sample(Struct):
    """Rows of a table, or the last retained events of a stream."""

    rows: list[Object]


class Caller(Struct):
    """Whose token was sent; `tokens` are the tenant's, for the scope `admin`."""

    tenant: str
    scopes: list[str]
    is_open: bool
    quota: Object
    tokens: list[Object]


class SubscriptionStats(Struct):
    """What a subscription does and costs; `cost_us` is its part of the engine's time so far."""

    id: int
    deltas: int
    last_fired: str | None
    cost_us: float
    limits: Object | None


class Rejected(Struct):
    """A bad row: its number and the reason."""

    row: int
    reason: str


class AppliedChanges(Struct, omit_defaults=True):
    """Changes are applied and durable; `seq` is the number of the last one."""

    token: ResumeToken
    seq: int
    applied: int
    rejected: list[Rejected] = []


class Token(Struct):
    """Something was done."""

    token: ResumeToken


class Polled(Struct, omit_defaults=True):
    """Deltas since a token; with `reset`, contents that replace whatever the client has."""

    token: ResumeToken
    deltas: list[Object]
    reset: str | None = None
    contents: list[Object] = []


class TextPlace(Struct):
    """Where in a text."""

    line: int
    column: int
    start: int
    end: int


class ProblemBody(Struct, omit_defaults=True):
    """An error: the fact, its place, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    place: TextPlace | None = None
    hint: str | None = None
    rows: list[Rejected] = []


def described(types: list[Any]) -> tuple[Any, dict[str, Any]]:
    """JSON schemas of types and of what they refer to."""
    return msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
