"""The command `tocsin serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tocsin.commands.output import report_errors
from tocsin.errors import UsageError

__all__ = ["add_server_commands"]

Folder = Annotated[Path, typer.Option("--dir", help="The folder of the data; it is created.")]


def add_server_commands(app: typer.Typer) -> None:
    """Add them to an app."""
    app.command("serve")(serve)


def serve(
    folder: Folder,
    host: Annotated[str, typer.Option(help="The address to listen at.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port to listen at.", min=0, max=65535)] = 7780,
    max_body: Annotated[int, typer.Option(help="Bytes that the body of a request may have.", min=1)] = 64
    << 20,
    certificate: Annotated[
        Path | None, typer.Option("--tls-cert", help="A certificate (PEM): serve HTTPS.", exists=True)
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", help="Its private key (PEM).", exists=True)] = None,
) -> None:
    """Serve streams, tables and subscriptions over HTTP, durably.

    \b
      tocsin serve --dir data
      curl localhost:7780/v1/definitions -d '{"sql": "CREATE STREAM hits"}'
      curl localhost:7780/v1/subscriptions -d '{"sql": "SELECT * FROM hits WHERE ms > 900"}'
      curl -N -H 'Accept: text/event-stream' localhost:7780/v1/deltas &
      curl localhost:7780/v1/changes/hits -d '{"ms": 950}'

    A change is answered when it is in the log and synced. GET /v1/openapi.json describes all requests. SIGINT
    and SIGTERM end it in order; a killed server loses nothing that it has answered.
    """
    with report_errors(False):
        if (key is None) != (certificate is None):
            raise UsageError("TLS needs --tls-cert and --tls-key", hint="give both")
        try:
            from tocsin.server.serve import Options
            from tocsin.server.serve import serve as run
        except ImportError as error:
            raise ImportError(f"{error}; install tocsin[server]") from None
        run(Options(folder, host, port, max_body, certificate, key))
