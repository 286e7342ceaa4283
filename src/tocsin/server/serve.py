"""What `tocsin serve` runs: the application under uvicorn, with logs, and an end in order.

SIGINT and SIGTERM end it: followers receive `end` with their token, requests under way are answered, what is
queued is committed, and a snapshot is written if a restart would have much to replay.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import socket
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from tocsin.errors import UsageError
from tocsin.server.access import AccessControl
from tocsin.server.app import make_app
from tocsin.server.keeper import Settings
from tocsin.server.limits import Limits
from tocsin.server.page.routes import page_routes
from tocsin.server.tenants import Tenants

__all__ = ["HttpServer", "ServeOptions", "make_server", "serve"]


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """The options of `tocsin serve`."""

    folder: Path
    host: str = "127.0.0.1"
    port: int = 7780
    limits: Limits = field(default_factory=Limits)
    settings: Settings = field(default_factory=Settings)
    certificate: Path | None = None
    key: Path | None = None
    client_ca: Path | None = None
    is_open: bool = False
    log_format: str = "text"


class HttpServer(uvicorn.Server):
    """Ends followers first: their connections would be waited for."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End in order."""
        tenants = getattr(self.config.app.state, "tenants", None)  # type: ignore[union-attr]
        if tenants is not None:
            tenants.end_followers()
        await super().shutdown(sockets)


def make_server(options: ServeOptions) -> HttpServer:
    """A server that is not started yet."""
    if not options.is_open and AccessControl(options.folder).is_open and not _is_loopback(options.host):
        raise UsageError(
            f"there are no tokens, so whoever reaches {options.host} could do everything",
            hint="add one with `tocsin tokens add`, or say --open",
        )

    async def tenants() -> Tenants:
        return Tenants(options.folder, options.limits, options.settings)

    config = uvicorn.Config(
        make_app(tenants, page_routes()),
        host=options.host,
        port=options.port,
        ssl_certfile=options.certificate,
        ssl_keyfile=options.key,
        ssl_ca_certs=None if options.client_ca is None else str(options.client_ca),
        ssl_cert_reqs=0 if options.client_ca is None else 2,
        access_log=False,
        log_config=None,
        timeout_graceful_shutdown=10,
        ws_ping_interval=20,
        backlog=8192,
        server_header=False,
        proxy_headers=False,
    )
    return HttpServer(config)


def serve(options: ServeOptions) -> None:
    """Serve until SIGINT or SIGTERM."""
    set_up_logs(options.log_format)
    sys.setswitchinterval(0.001)  # the writer and the loop wait for each other's results
    server = make_server(options)
    logging.getLogger("tocsin.server").info("the data is in %s", options.folder.resolve())
    server.run()


def set_up_logs(form: str) -> None:
    """Log to stderr, as text or as a JSON object per line."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else logging.Formatter("%(levelname)s %(message)s"))
    root = logging.getLogger()
    root.handlers, root.level = [handler], logging.WARNING
    for name in ("tocsin", "uvicorn"):
        logging.getLogger(name).setLevel(logging.INFO)


class JsonLines(logging.Formatter):
    """A JSON object per line: time, level, logger, message, and further fields."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        out: dict[str, Any] = {
            "time": f"{when}.{int(record.msecs):03}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            out["error"] = self.formatException(record.exc_info)
        return json.dumps(out, ensure_ascii=False, default=str)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
