"""A read-only installation and a read-only home: all works, nothing is written there, and the log says so."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

import pytest

import tocsin

PROGRAM = """
from pathlib import Path
import numpy as np
import tocsin
from tocsin.compiled import compilations, kernel

e = tocsin.Engine()
e.execute("CREATE STREAM hits")
e.subscribe("SELECT * FROM hits WHERE page = '/pay' AND ms > 5")
assert [delta.row["ms"] for ms in (3, 7) for delta in e.publish("hits", {"page": "/pay", "ms": ms})] == [7]

@kernel
def total(numbers):
    out = 0
    for number in numbers:
        out += number
    return out

assert total.compiled()(np.arange(4)) == 6
try:
    Path(tocsin.__file__).with_name("written").touch()
except OSError:
    print(Path(tocsin.__file__).parent, len(compilations()))
"""


class Installed(NamedTuple):
    """A virtual environment with a copy of the package, and a home; both read-only."""

    root: Path

    @property
    def package(self) -> Path:
        (found,) = self.root.glob("venv/lib/python*/site-packages/tocsin")
        return found

    def run(self, **settings: str) -> tuple[list[str], str]:
        """What the program prints, and its log."""
        given = {
            k: v for k, v in os.environ.items() if k not in ("TOCSIN_CACHE", "XDG_CACHE_HOME", "PYTHONPATH")
        }
        given |= {"HOME": str(self.root / "home"), **settings}
        command = [*_without_privileges(), str(self.root / "venv/bin/python"), str(self.root / "program.py")]
        done = subprocess.run(
            command, capture_output=True, text=True, env=given, cwd=self.root / "home", check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split(), done.stderr

    def files(self) -> dict[str, tuple[int, int]]:
        paths = [*(self.root / "venv").rglob("*"), *(self.root / "home").rglob("*")]
        return {str(path): (path.lstat().st_size, path.lstat().st_mtime_ns) for path in paths}


def _without_privileges() -> list[str]:
    """What to put before a command that must obey permissions: root does not, unless it gives that up."""
    if os.getuid():
        return []
    return ["setpriv", "--bounding-set=-dac_override,-dac_read_search,-fowner", "--inh-caps=-all"]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    if shutil.which("setpriv") is None and not os.getuid():
        pytest.skip("root can write anywhere, and there is no setpriv")
    if subprocess.run([*_without_privileges(), "true"], capture_output=True, check=False).returncode:
        pytest.skip("root can write anywhere, and may not give that up here")
    root = Path(mkdtemp(prefix="tocsin-installed-"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    (packages,) = root.glob("venv/lib/python*/site-packages")
    dependencies = Path(pytest.__file__).parents[1]
    (packages / "dependencies.pth").write_text(f"{dependencies}\n")
    shutil.copytree(
        Path(tocsin.__file__).parent, packages / "tocsin", ignore=shutil.ignore_patterns("__pycache__")
    )
    (root / "program.py").write_text(PROGRAM)
    (root / "home").mkdir()
    folders = [path for path in root.rglob("*") if path.is_dir() and not path.is_symlink()]
    for folder in folders:
        folder.chmod(0o555)
    yield Installed(root)
    for folder in folders:
        folder.chmod(0o755)
    shutil.rmtree(root)


def test_it_works_and_says_where_compiled_code_cannot_be_stored(installed: Installed) -> None:
    before = installed.files()
    printed, log = installed.run()
    assert printed == [str(installed.package), "1"]
    home = installed.root / "home"
    assert f"compiled code cannot be stored in {home}/.cache/tocsin: set TOCSIN_CACHE" in log
    assert installed.files() == before


def test_it_compiles_into_another_folder_and_reads_that_once_it_is_read_only_too(
    installed: Installed, tmp_path: Path
) -> None:
    before = installed.files()
    cache = tmp_path / "cache"
    assert installed.run(TOCSIN_CACHE=str(cache))[0][1] == "1"
    stored = sorted(cache.rglob("*"))
    assert any(path.suffix == ".nbc" for path in stored)
    for path in (cache, *stored):
        path.chmod(0o555 if path.is_dir() else 0o444)
    printed, log = installed.run(TOCSIN_CACHE=str(cache))
    assert printed[1] == "0" and "cannot be stored" not in log
    assert sorted(cache.rglob("*")) == stored and installed.files() == before
