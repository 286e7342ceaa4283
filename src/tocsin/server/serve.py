"""What `tocsin serve` runs: the application under uvicorn."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from tocsin.server.app import make_app
from tocsin.server.tenants import Limits, Tenants

__all__ = ["Options", "serve"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of `tocsin serve`."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 7780
    max_body: int = 64 << 20
    certificate: Path | None = None
    key: Path | None = None


def make_server(options: Options) -> uvicorn.Server:
    """A server that is not started yet."""

    async def tenants() -> Tenants:
        return Tenants(options.folder, Limits(options.max_body))

    config = uvicorn.Config(
        make_app(tenants),
        host=options.host,
        port=options.port,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        access_log=False,
        log_level="warning",
        timeout_graceful_shutdown=10,
        ws_ping_interval=20,
        backlog=8192,
    )
    return uvicorn.Server(config)


def serve(options: Options) -> None:
    """Serve until SIGINT or SIGTERM."""
    logging.getLogger("tocsin").setLevel(logging.INFO)
    make_server(options).run()
