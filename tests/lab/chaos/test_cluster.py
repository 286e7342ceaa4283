"""Processes of a cluster: they are waited for, say why they ended, and never outlive who started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tocsin.errors import TocsinError
from tocsin.lab.chaos.cluster import Process, main
from tocsin.spark.sessions import settings


def process(folder: Path, script: str) -> Process:
    return Process("it", ["sh", "-c", script], folder / "log", os.environ)


def is_there(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 20
    while is_there(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_there(pid)


def test_it_is_waited_for_and_killed_with_its_children(tmp_path):
    started = process(tmp_path, "sleep 600 & echo child $!; sleep 600")
    pid = int(started.wait_for(r"child (\d+)\n")[1])
    assert started.is_alive() and is_there(pid)
    started.kill()
    assert not started.is_alive() and gone(pid)


def test_a_process_that_ends_is_reported_with_its_last_lines(tmp_path):
    started = process(tmp_path, "echo no port is free")
    with pytest.raises(TocsinError, match=r"it ended:\nno port is free\nhint: its log is"):
        started.wait_for("ready")
    started.kill()


def test_one_that_never_is_ready_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr("tocsin.lab.chaos.cluster.PATIENCE", 0.1)
    started = process(tmp_path, "sleep 600")
    with pytest.raises(TocsinError, match="did not become ready"):
        started.wait_for("ready")
    started.kill()


def test_it_dies_with_whoever_started_it(tmp_path):
    script = f"""
import os, time
from pathlib import Path
from tocsin.lab.chaos.cluster import Process
p = Process("it", ["sh", "-c", "echo pid $$; sleep 600"], Path({str(tmp_path)!r}) / "log", os.environ)
print(p.wait_for(r"pid (\\d+)\\n")[1], flush=True)
time.sleep(600)
"""
    starter = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert starter.stdout is not None
    pid = int(starter.stdout.readline())
    assert is_there(pid)
    starter.kill()
    starter.communicate()
    assert gone(pid)


def test_a_cluster_on_loopback_is_one_machine():
    here = settings("spark://127.0.0.1:7077", {"spark.executor.extraJavaOptions": "-Da=b"})
    assert here["spark.driver.host"] == "127.0.0.1"
    assert here["spark.executor.extraJavaOptions"].endswith("-XX:+UseSerialGC -Da=b")
    far = settings("spark://10.0.0.1:7077", {"spark.ui.enabled": True})
    assert "spark.driver.host" not in far and "TieredStop" not in far["spark.driver.extraJavaOptions"]
    assert far["spark.ui.enabled"] == "true"


def test_the_address_is_printed(monkeypatch, capsys, tmp_path):
    from contextlib import nullcontext

    monkeypatch.setattr("tocsin.lab.chaos.cluster.cluster", lambda *given: nullcontext("spark://x:1"))
    monkeypatch.setattr("tocsin.lab.chaos.cluster.connect", lambda **given: nullcontext("sc://x:2"))
    main(["--logs", str(tmp_path)], wait=lambda: None)
    main(["--logs", str(tmp_path), "--connect"], wait=lambda: None)
    out = capsys.readouterr().out
    assert "session(master='spark://x:1')" in out and "session(master='sc://x:2')" in out
