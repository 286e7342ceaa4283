"""Real servers on loopback, in a thread each, and real HTTP clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from time import sleep
from typing import Any

import httpx
import pytest

from tocsin.server.serve import Options, make_server


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of a server on a free port; both end with the block."""
    server = make_server(Options(folder, port=0, **options))
    thread = Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}/v1", timeout=30) as client:
            yield client
    finally:
        server.should_exit = True
        thread.join()


@pytest.fixture(name="server")
def _server(tmp_path) -> Iterator[httpx.Client]:
    with running(tmp_path / "data") as client:
        yield client
