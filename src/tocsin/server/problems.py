"""Errors as `application/problem+json` (RFC 9457): our fact, place and hint.

    {"type": "about:blank", "title": "Bad Request", "status": 400,
     "detail": "there is no column 'prise' in listings",
     "place": {"line": 1, "column": 31, "start": 30, "end": 35},
     "hint": "did you mean 'price'?"}

Bulk errors name the bad rows: `rows`, each with its number (from 0) and the reason.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response

from tocsin.errors import ChangeError, SubscriptionError, TocsinError
from tocsin.server.log import LogError

__all__ = ["MALFORMED", "Problem", "problem_of", "problem_response"]

MEDIA_TYPE = "application/problem+json"
MALFORMED = (msgspec.DecodeError, UnicodeError, RecursionError)  # what reading JSON raises
_MOST_ROWS = 100
_STATUSES = {"there is a subscription": 409, "there is no subscription": 404}


class Problem(TocsinError):
    """An error of the server itself, with its status."""

    def __init__(self, status: int, fact: str, hint: str | None = None, **headers: str) -> None:
        super().__init__(fact, None, hint)
        self.status = status
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


def problem_of(error: BaseException) -> dict[str, Any]:
    """An error as the members of a problem."""
    if not isinstance(error, TocsinError):
        return _problem(500, "the server failed", hint="its log has the reason")
    out = _problem(_status(error), error.fact, hint=error.hint)
    if (place := error.position) is not None:
        out["place"] = {"line": place.line, "column": place.column, "start": place.start, "end": place.end}
    if isinstance(error, SubscriptionError) and error.rows:
        out["rows"] = [{"row": row, "reason": reason} for row, reason in error.rows[:_MOST_ROWS]]
    if isinstance(error, ChangeError) and error.row is not None:
        out["rows"] = [{"row": error.row, "reason": error.fact}]
    return out


def problem_response(error: BaseException) -> Response:
    """The response to a request that failed."""
    body = problem_of(error)
    headers = error.headers if isinstance(error, Problem) else None
    return Response(
        msgspec.json.encode(body), status_code=body["status"], media_type=MEDIA_TYPE, headers=headers
    )


def _problem(status: int, detail: str, hint: str | None) -> dict[str, Any]:
    out = {"type": "about:blank", "title": HTTPStatus(status).phrase, "status": status, "detail": detail}
    return out | ({"hint": hint} if hint else {})


def _status(error: TocsinError) -> int:
    if isinstance(error, Problem):
        return error.status
    if isinstance(error, LogError):
        return 503
    if isinstance(error, SubscriptionError):
        return next((s for start, s in _STATUSES.items() if error.fact.startswith(start)), 400)
    return 400
