"""All routes of the API, in one table: `app.py` serves them, `openapi.py` describes them."""

from __future__ import annotations

from tocsin.server import drafts, handlers, streaming, subscribing, types
from tocsin.server.answer_pages import MOST_ROWS
from tocsin.server.deliveries.routes import DELIVERY_ENDPOINTS
from tocsin.server.endpoints import ID, Endpoint, Param
from tocsin.server.intake import ARROW
from tocsin.server.scopes import Scope

__all__ = ["ENDPOINTS", "FOLLOW_PARAMS"]

JSON, NDJSON = "application/json", "application/x-ndjson"
_OBJECT = {"type": "object"}
_ROWS = {"oneOf": [_OBJECT, {"type": "array", "items": _OBJECT}]}
_TEXT = {"type": "string"}
_BYTES = {"type": "string", "format": "binary"}
_CLOUD_EVENT = {
    "type": "object",
    "required": ["specversion", "id", "source", "type", "data"],
    "properties": {
        "specversion": {"const": "1.0"}, "id": _TEXT, "source": _TEXT, "type": _TEXT, "data": _OBJECT,
    },
}  # fmt: skip
_RELATION = Param("relation", str, "A stream or table.", where="path", max_length=200)
_OP = Param(
    "op", str, "What rows without `_op` do to a table.", choices=("insert", "update", "delete", "upsert")
)
_BAD = Param("bad", str, "What a bad row does.", "reject", choices=("reject", "skip"))
_KEY = Param(
    "idempotency-key", str, "The same key with the same request is applied once within a day.",
    where="header", max_length=200,
)  # fmt: skip
_SUBSCRIBER = Param("subscriber", str, "Only subscriptions of this subscriber.", max_length=200)
FOLLOW_PARAMS = (
    Param("subscription", str, "Ids with commas between them. Default: all.", max_length=4000),
    _SUBSCRIBER,
    Param("since", str, "A resume token; without it a snapshot comes first.", max_length=80),
    Param("last-event-id", str, "A resume token, as EventSource sends it.", where="header", max_length=80),
    Param("snapshot", bool, "Whether a snapshot comes first.", True),
    Param("queue", int, "Deltas that may wait for a slow reader.", 10_000, 1, 1_000_000),
    Param("heartbeat", float, "Seconds of silence after which a message has the token alone.", 15.0, 0.1, 60),
    Param("wait", float, "Long poll: seconds to wait for deltas.", 0.0, 0, 60),
    Param("limit", int, "Long poll: deltas in an answer, about.", 10_000, 1, 100_000),
)
_BULK = (
    Param("template", str, "SQL with `:name` parameters; the body has a row for each.", max_length=4000),
    Param("relation", str, "A stream or table; the body has rows of predicates on it.", max_length=200),
    Param("backfill", bool, "Also what the stream retains.", False),
)
_S = "/v1/subscriptions"

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/changes/{relation}", handlers.change, Scope.PUBLISH, "Publish events, change rows",
        (_RELATION, _OP, _BAD, _KEY),
        {JSON: _ROWS, NDJSON: _TEXT, ARROW: _BYTES, "application/cloudevents+json": _CLOUD_EVENT,
         "application/cloudevents-batch+json": {"type": "array", "items": _CLOUD_EVENT}},
        types.AppliedChanges, problems=(404, 409, 415, 422),
        description="Answered when the changes are durable. A body is one step: all rows or none, "
        "unless `bad=skip`. A row may have an `_op` of its own.",
    ),
    Endpoint(
        "POST", "/v1/definitions", handlers.define, Scope.DEFINE, "Create and drop streams and tables",
        (), {JSON: types.Definition}, types.Defined,
    ),
    Endpoint(
        "GET", "/v1/definitions", handlers.definitions, Scope.READ, "List streams and tables",
        answer=types.Definitions,
    ),
    Endpoint(
        "POST", _S, subscribing.subscribe, Scope.SUBSCRIBE, "Register queries",
        _BULK,
        {JSON: (types.NewSubscription, types.BulkTexts, types.BulkTemplate, types.BulkPredicates),
         NDJSON: _TEXT, ARROW: _BYTES},
        (types.RegisteredSubscription, types.RegisteredMany), problems=(409, 415),
        description="One query, or many: all or none. Rows of NDJSON and Arrow have the column `sql`, or "
        "the parameters of `template`, or `predicates` on `relation`; and `id` and `subscriber`, if known.",
    ),
    Endpoint(
        "GET", _S, subscribing.listed, Scope.READ, "List subscriptions",
        (Param("after", int, "`next` of the page before.", -(2**63), -(2**63), 2**63 - 1),
         Param("sort", str, "By id, or those that have fired by what they do and cost, the greatest first.",
               "id", choices=("id", "deltas", "last_fired", "cost")),
         Param("limit", int, "At most so many.", 100, 1, 10_000), _SUBSCRIBER),
        answer=types.Page,
    ),
    Endpoint("GET", _S + "/{id}", subscribing.shown, Scope.READ, "One subscription", (ID,),
             answer=types.SubscriptionInfo, problems=(404,)),
    Endpoint("PUT", _S + "/{id}", subscribing.replace, Scope.SUBSCRIBE, "Replace the query", (ID,),
             {JSON: types.Replacement}, types.RegisteredSubscription, problems=(404,),
             description="Followers receive the difference of the contents as deltas."),
    Endpoint("DELETE", _S + "/{id}", subscribing.remove, Scope.SUBSCRIBE, "Unregister", (ID,),
             answer=types.Token, problems=(404,)),
    Endpoint("POST", _S + "/{id}/pause", subscribing.pause, Scope.SUBSCRIBE, "Pause", (ID,),
             answer=types.Token, problems=(404,)),
    Endpoint("POST", _S + "/{id}/resume", subscribing.resume, Scope.SUBSCRIBE, "Resume", (ID,),
             answer=types.Token, problems=(404,)),
    Endpoint("POST", _S + "/{id}/expire", subscribing.expire, Scope.SUBSCRIBE, "End now or later", (ID,),
             {JSON: types.EndTime}, types.Token, problems=(404,)),
    Endpoint("POST", _S + "/remove", subscribing.remove_many, Scope.SUBSCRIBE, "Unregister several", (),
             {JSON: types.Ids}, types.Token, problems=(404,)),
    Endpoint("POST", _S + "/pause", subscribing.pause_many, Scope.SUBSCRIBE, "Pause several", (),
             {JSON: types.Ids}, types.Token, problems=(404,)),
    Endpoint("POST", _S + "/resume", subscribing.resume_many, Scope.SUBSCRIBE, "Resume several", (),
             {JSON: types.Ids}, types.Token, problems=(404,)),
    Endpoint("GET", _S + "/{id}/content", handlers.content, Scope.READ, "The answer now",
             (ID, Param("limit", int, "At most so many rows.", MOST_ROWS, 1, 1_000_000),
              Param("after", str, "`next` of the page before.", max_length=40)),
             answer=types.Content, problems=(404,),
             description="Rows in order for a top-k. The token resumes after this content. A longer answer "
             "comes in pages, all of one moment: `next` is the `after` of the next one."),
    Endpoint("GET", _S + "/{id}/explain", subscribing.explain_text, Scope.READ, "Why a row matches or not",
             (ID, Param("row", str, "The row as a JSON object; a long one by POST.", "{}", max_length=4000),
              Param("table", str, "The row's table, if several have its columns.", max_length=200)),
             answer=types.Explained, problems=(404,)),
    Endpoint("POST", _S + "/{id}/explain", subscribing.explain_row, Scope.READ, "Why a row matches or not",
             (ID,), {JSON: types.Row}, types.Explained, problems=(404,)),
    Endpoint(
        "GET", "/v1/deltas", streaming.deltas, Scope.READ, "Follow: long poll, SSE or NDJSON",
        FOLLOW_PARAMS, answer=types.Polled, media=(JSON, "text/event-stream", NDJSON), problems=(404,),
        description="The `Accept` header chooses the form; the same path is a WebSocket.",
    ),
    Endpoint("POST", "/v1/backtest", handlers.backtest, Scope.READ, "Try a query on what its stream retains",
             (), {JSON: types.BacktestOf}, types.BacktestResult,
             description="Nothing is registered. A stream retains events if it is declared with RETAIN."),
    Endpoint("POST", "/v1/validate", drafts.validate, Scope.READ, "Check a query without registering it",
             (), {JSON: types.Definition}, types.Validated),
    Endpoint("POST", "/v1/try", drafts.try_query, Scope.READ, "Try a query on rows without registering it",
             (), {JSON: types.Trial}, types.Tried,
             description="Why each row would be in the answer or not, condition by condition."),
    Endpoint("GET", "/v1/relations/{relation}/sample", drafts.sample, Scope.READ,
             "Some rows or retained events", (_RELATION, Param("limit", int, "So many.", 20, 1, 1000)),
             answer=types.Sample, problems=(404,)),
    Endpoint("GET", "/v1/access", drafts.access, None, "Whose token this is, and what it is for",
             answer=types.Caller),
    Endpoint("GET", _S + "/{id}/stats", handlers.subscription_stats, Scope.READ, "Cost and activity of one",
             (ID,), answer=types.SubscriptionStats, problems=(404,)),
    Endpoint("GET", "/v1/metrics", handlers.metrics, Scope.READ, "Metrics for Prometheus",
             media=("text/plain",)),
    Endpoint("GET", "/v1/stats", handlers.stats, Scope.READ, "Counters", answer=dict),
    *DELIVERY_ENDPOINTS,
)  # fmt: skip
