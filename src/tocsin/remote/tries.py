"""What `Remote` and `AsyncRemote` share: tries of a request, a follower's connections; no I/O.

A client sends `Tries.request` until it has an answer, waiting as `lost` and `failed` say; they raise when
there is no further try. It opens the connections of a `Following` one after the other.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from time import monotonic
from typing import Any

import httpx

from tocsin.remote.messages import MessageStream, RemoteMessage
from tocsin.remote.requests import Follow, RemoteError, RemoteRequest, follow_params, problem_of, retry_after

__all__ = ["Exchange", "Following", "Tries"]

Exchange = Generator[RemoteRequest[Any], Any, Any]  # requests out, their answers in, a result at last
SILENCE = 45.0  # seconds without a heartbeat: the connection is lost
FOLLOWING = {"accept": "application/x-ndjson"}


class Tries:
    """The tries of one request, for some seconds."""

    def __init__(self, request: RemoteRequest[Any], seconds: float) -> None:
        self._request, self._end, self._count = request, monotonic() + seconds, 0
        self.problem: RemoteError | None = None  # of the last try

    @property
    def request(self) -> dict[str, Any]:
        """What httpx sends."""
        sent = self._request
        return {
            "method": sent.method, "url": sent.path, "params": sent.params, "headers": sent.headers,
            "content": sent.body,
        }  # fmt: skip

    def lost(self, error: httpx.TransportError) -> float:
        """Seconds to wait after a connection was lost, or not made."""
        again = self._request.again or isinstance(error, httpx.ConnectError)
        fact = f"the server cannot be reached: {error or type(error).__name__}"
        problem = RemoteError(0, fact, hint="is `tocsin serve` running there?")
        return self._wait(retry_after(None, {}, self._count, again), problem)

    def failed(self, status: int, headers: Mapping[str, str], body: bytes) -> float:
        """Seconds to wait after an answer that is an error."""
        wait = retry_after(status, headers, self._count, self._request.again)
        return self._wait(wait, problem_of(status, body, self._request.sql))

    def _wait(self, wait: float | None, problem: RemoteError) -> float:
        if wait is None or monotonic() + wait > self._end:
            raise problem
        self.problem = problem
        self._count += 1
        return wait


class Following:
    """The connections of one follower: each goes on where the one before has ended."""

    def __init__(self, stream: MessageStream, wanted: Follow) -> None:
        self._stream, self._wanted = stream, wanted
        self._count = 0  # connections without a message
        self._wait: float | None = None

    def connect(self) -> dict[str, Any]:
        """The request of the next connection, for httpx."""
        self._stream.connect()
        self._wait = None
        return {
            "method": "GET", "url": "/deltas", "params": follow_params(self._wanted, self._stream.token),
            "headers": FOLLOWING, "timeout": SILENCE,
        }  # fmt: skip

    def read(self, line: str) -> RemoteMessage | None:
        """The message of a line; None where the token went on without one."""
        self._count = 0
        return self._stream.read(line.encode())

    def failed(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """The connection was answered by an error."""
        self._wait = retry_after(status, headers, self._count, True)
        if self._wait is None:
            raise problem_of(status, body, None)

    def pause(self) -> float:
        """Seconds to wait before the next connection."""
        wait = self._wait if self._wait is not None else retry_after(None, {}, self._count, True)
        self._count = 0 if self._stream.ended == "slow" else self._count + 1
        return wait or 0.0
