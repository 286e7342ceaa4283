"""The tutorial's lines in a shell, from an empty folder: everything it promises is printed."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.slow
def test_the_tutorial_ends_at_a_signed_webhook(tmp_path: Path) -> None:
    pytest.importorskip("starlette")
    blocks = BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    script = "".join(text for kind, text in blocks if kind == "sh")
    server, receiver = free_port(), free_port()
    script = re.sub(r"^(python3 -m venv|pip install) .*\n", "", script, flags=re.MULTILINE)
    script = script.replace("serve --dir data", f"serve --dir data --port {server}")
    script = script.replace(":7780", f":{server}").replace("9000", str(receiver))
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "TOCSIN_SERVER": f"http://127.0.0.1:{server}",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    done = subprocess.run(
        ["bash", "-c", script + "\nkill %1 %2 %3; wait 2> wait.log"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    printed = done.stdout.splitlines()
    for line in "".join(text for kind, text in blocks if kind == "text").splitlines():
        assert line in printed, (line, done.stdout)
