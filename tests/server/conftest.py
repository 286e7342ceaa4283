"""Real servers on loopback, in a thread each, and real HTTP clients."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tocsin.server.local import local_server


@contextmanager
def running(folder: Path, **options: Any) -> Iterator[httpx.Client]:
    """A client of a server on a free port; both end with the block."""
    with (
        local_server(folder, **options) as url,
        httpx.Client(base_url=f"{url}/v1", timeout=30) as client,
    ):
        yield client


@pytest.fixture(name="server")
def _server(tmp_path) -> Iterator[httpx.Client]:
    with running(tmp_path / "data") as client:
        yield client
