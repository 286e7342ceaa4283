"""The documentation site: it builds without a warning, and blocks of Python that are no doctests run."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOWTOS = sorted((ROOT / "docs" / "howto").glob("*.md"))
BLOCK = re.compile(r"^```python\n(?!>>>)(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("sphinx")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        "docs",
        str(tmp_path),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").exists()
    pages = {page.relative_to(ROOT / "docs").with_suffix("") for page in (ROOT / "docs").rglob("*.md")}
    assert not [page for page in pages if not (tmp_path / page).with_suffix(".html").exists()]


@pytest.mark.parametrize("page", HOWTOS, ids=lambda page: page.stem)
@pytest.mark.filterwarnings("ignore:Using .httpx. with")
def test_what_is_no_doctest_prints_what_its_comments_say(page: Path) -> None:
    """Blocks that promise an output: comments on lines of their own, at the end."""
    for block in BLOCK.findall(page.read_text(encoding="utf-8")):
        promised = [line[2:] for line in block.splitlines() if line.startswith("# ")]
        if not promised:
            continue
        if "fastapi" in block:
            pytest.importorskip("fastapi")
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, page.name, "exec"), {"__name__": "page"})
        assert out.getvalue().splitlines() == promised
