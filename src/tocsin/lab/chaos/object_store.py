"""An S3 on this machine: moto's server, in a process of its own, with everything in its memory.

with object_store(folder) as s3:
    s3.environment      what each process needs to reach it: an endpoint, keys
    s3.spark            the same as settings of Spark, for its checkpoint (`s3a://`)

Both http.server and werkzeug, which moto's server is made of, answer `Expect: 100-continue`. A client takes
the second answer for that of its request, and fails; so one of them must be silent.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tocsin.errors import TocsinError
from tocsin.lab.chaos.cluster import HOST, Process

__all__ = ["BUCKET", "JARS", "S3", "object_store"]

BUCKET = "tocsin"
JARS = "TOCSIN_S3_JARS"
"""Names the jars with which Spark reads S3: hadoop-aws in the version of its Hadoop, and what that needs."""
_KEY = "testing"


class S3(NamedTuple):
    """A running server."""

    endpoint: str

    @property
    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
        }

    @property
    def spark(self) -> dict[str, str]:
        return {
            **({"spark.jars": os.environ[JARS]} if JARS in os.environ else {}),
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.access.key": _KEY,
            "spark.hadoop.fs.s3a.secret.key": _KEY,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
            "spark.hadoop.fs.s3a.change.detection.mode": "none",
        }


@contextmanager
def object_store(folder: Path) -> Iterator[S3]:
    """A server with an empty bucket; its log goes to the folder. Processes started inside can reach it."""
    if find_spec("moto") is None or find_spec("flask_cors") is None:
        raise TocsinError("there is no moto here", hint="pip install 'moto[s3]' flask flask-cors")
    folder.mkdir(parents=True, exist_ok=True)
    with socket.create_server((HOST, 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-u", "-m", "tocsin.lab.chaos.object_store", str(port)]
    server = Process("S3", command, folder / "s3.log", os.environ)
    try:
        server.wait_for("Running on")
        s3 = S3(f"http://{HOST}:{port}")
        with patch.dict(os.environ, s3.environment):
            _make_bucket()
            yield s3
    finally:
        server.kill()


def _make_bucket() -> None:
    import boto3

    boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).create_bucket(Bucket=BUCKET)


def serve(port: int) -> None:
    """Run the server until it is killed."""
    from moto.moto_server.werkzeug_app import (
        DomainDispatcherApplication,
        MotoRequestHandler,
        create_backend_app,
    )
    from werkzeug.serving import run_simple

    class Handler(MotoRequestHandler):
        def handle_expect_100(self) -> bool:
            return True  # werkzeug sends the answer

    application = DomainDispatcherApplication(create_backend_app)
    run_simple(HOST, port, application, threaded=True, request_handler=Handler)


if __name__ == "__main__":
    serve(int(sys.argv[1]))
