"""The command `tocsin broker`: real processes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from tests.network.test_described import TABLES
from tocsin.cli import app
from tocsin.commands.broker import read_tokens, tls_down
from tocsin.engine import Engine
from tocsin.errors import UsageError
from tocsin.network.connect import connect
from tocsin.network.server import serve


def started(*arguments: str) -> tuple[subprocess.Popen[str], int]:
    """A broker process, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tocsin", "broker", *arguments], stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "listens at port" in line, line
    return process, int(line.split()[-1])


def test_a_broker_that_is_killed_and_started_again() -> None:
    engine = Engine()
    engine.execute(TABLES)
    with serve(engine, "127.0.0.1:0", tokens={"secret": None}) as server:
        up = ["--up", f"127.0.0.1:{server.port}", "--token", "secret"]
        process, port = started(*up, "--listen", "127.0.0.1:0")
        with connect(f"127.0.0.1:{port}", token="secret") as client:
            followed = client.subscribe("SELECT a, c FROM r JOIN s ON r.k = s.k")
            engine.insert("r", {"id": 1, "k": 1, "a": 3})
            process.kill()
            process.wait()
            engine.insert("s", {"name": "one", "k": 1, "c": 4})
            process, _ = started(*up, "--listen", f"127.0.0.1:{port}")
            followed.wait(engine.last_seq)
            assert followed.content() == [{"a": 3.0, "c": 4}]
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_mistakes_are_explained(tmp_path) -> None:
    ran = CliRunner().invoke(app, ["broker", "--up", "nowhere"])
    assert ran.exit_code == 2 and "'nowhere' is no address" in ran.output
    empty = tmp_path / "tokens"
    empty.write_text("\n")
    for wrong in (lambda: read_tokens(empty), lambda: read_tokens(tmp_path / "none")):
        with pytest.raises(UsageError):
            wrong()
    with pytest.raises(UsageError, match="without a certificate"):
        tls_down(None, tmp_path / "key", None)
    with pytest.raises(UsageError, match="cannot be used"):
        tls_down(tmp_path / "none", None, None)


def test_a_broker_starts_without_arrow_and_the_engine() -> None:
    """It may be killed and started again under load: what it imports is what its children wait for."""
    code = "import sys, tocsin.commands.broker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"pyarrow", "numba", "tocsin.engine", "tocsin.model.columns"} & set(done.stdout.split())
