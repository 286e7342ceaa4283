"""POST over kept connections, one per host and poster. Does not follow redirects."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

__all__ = ["HttpAnswer", "HttpPoster", "Send"]


class HttpAnswer(NamedTuple):
    """A status, 0 for none, with the reason; and the header `Retry-After`."""

    status: int
    reason: str = ""
    retry_after: str | None = None


Send = Callable[[str, bytes, Mapping[str, str], float], HttpAnswer]
"""Posts a body to a URL with headers, within a time: an `HttpPoster`, or what a test puts in its place."""


class HttpPoster:
    """POSTs over persistent connections, one per host. Does not follow redirects."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, str], http.client.HTTPConnection] = {}

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> HttpAnswer:
        parts = urlsplit(url)
        place = (parts.scheme, parts.netloc)
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        reused = place in self._open
        try:
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            if not reused or isinstance(error, TimeoutError):
                return HttpAnswer(0, f"{type(error).__name__}: {error}")
        try:  # the receiver may have closed an idle connection, which is no failure
            return self._post(place, target, body, headers, timeout)
        except (OSError, http.client.HTTPException) as error:
            self._close(place)
            return HttpAnswer(0, f"{type(error).__name__}: {error}")

    def close(self) -> None:
        for place in list(self._open):
            self._close(place)

    def _post(
        self, place: tuple[str, str], target: str, body: bytes, headers: Mapping[str, str], timeout: float
    ) -> HttpAnswer:
        if place not in self._open:
            kind = http.client.HTTPSConnection if place[0] == "https" else http.client.HTTPConnection
            self._open[place] = kind(place[1], timeout=timeout)
        connection = self._open[place]
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        response.read()
        return HttpAnswer(response.status, response.reason, response.headers.get("Retry-After"))

    def _close(self, place: tuple[str, str]) -> None:
        connection = self._open.pop(place, None)
        if connection is not None:
            connection.close()
