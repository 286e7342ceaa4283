"""Kernels: interpreted and compiled alike, compiled once, never from stale code."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocsin
from tocsin.compiled import Kernel, cache, kernel
from tocsin.compiled.digest import digest
from tocsin.errors import TocsinError

CALLEE = """
from tocsin.compiled import kernel
STEP = {step}
@kernel
def step(x):
    return x + STEP * {factor}
"""
CALLER = """
from callee import step
from tocsin.compiled import compilations, kernel
@kernel
def twice(numbers):
    total = 0
    for number in numbers:
        total += step(step(number))
    return total
if __name__ == "__main__":
    import numpy as np, sys
    print(int(twice(np.arange(10))), len(compilations()), "numba" in sys.modules)
"""


def run(folder: Path, home: Path, **environment: str) -> tuple[int, int, bool]:
    """What the caller prints: the sum, how many kernels it compiled, and whether Numba was imported."""
    kept = {key: os.environ[key] for key in ("PATH", "PYTHONPATH") if key in os.environ}
    source = str(Path(tocsin.__file__).parents[1])
    own = {"HOME": str(home), "PYTHONPATH": source, "TOCSIN_CACHE": str(home / "cache")}
    given = kept | own | {"PYTHONDONTWRITEBYTECODE": "1"} | environment
    done = subprocess.run(
        [sys.executable, folder / "caller.py"], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr
    total, compiled, imported = done.stdout.split()
    return int(total), int(compiled), imported == "True"


def sources(folder: Path, step: int = 1, factor: int = 1) -> Path:
    (folder / "callee.py").write_text(textwrap.dedent(CALLEE.format(step=step, factor=factor)))
    (folder / "caller.py").write_text(CALLER)
    return folder


def test_small_work_needs_no_numba(tmp_path: Path) -> None:
    assert run(sources(tmp_path), tmp_path) == (65, 0, False)


@pytest.mark.parametrize("given", [{}, {"NUMBA_CACHE_DIR": "numba"}])
def test_a_kernel_is_compiled_once_and_again_when_what_it_calls_changes(
    tmp_path: Path, given: dict[str, str]
) -> None:
    given = {key: str(tmp_path / value) for key, value in given.items()} | {"TOCSIN_JIT": "always"}
    assert run(sources(tmp_path), tmp_path, **given) == (65, 2, True)
    assert run(sources(tmp_path), tmp_path, **given) == (65, 0, True)
    assert run(sources(tmp_path, factor=3), tmp_path, **given)[:2] == (105, 2)  # code in another file
    assert run(sources(tmp_path, step=2), tmp_path, **given)[:2] == (85, 2)  # a constant in another file
    assert run(sources(tmp_path), tmp_path, **given)[:2] == (65, 0)  # both versions are stored


def test_a_read_only_cache_is_read_and_another_is_written(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    assert run(sources(tmp_path), tmp_path, TOCSIN_JIT="always", TOCSIN_CACHE=str(shared))[1] == 2
    for folder in (shared, *shared.iterdir()):
        if folder.is_dir():
            folder.chmod(0o555)
    try:
        assert run(tmp_path, tmp_path, TOCSIN_JIT="always", TOCSIN_CACHE=str(shared))[1] == 0
    finally:
        for folder in (shared, *shared.iterdir()):
            if folder.is_dir():
                folder.chmod(0o755)
    nowhere = tmp_path / "file"
    nowhere.write_text("not a folder")
    assert run(tmp_path, tmp_path, TOCSIN_JIT="always", TOCSIN_CACHE=str(nowhere))[:2] == (65, 2)


def test_processes_that_need_the_same_kernel_compile_it_once(tmp_path: Path) -> None:
    folder = sources(tmp_path)
    given = os.environ | {"TOCSIN_CACHE": str(tmp_path / "cache"), "TOCSIN_JIT": "always"}
    given["PYTHONPATH"] = str(Path(tocsin.__file__).parents[1])
    started = [
        subprocess.Popen([sys.executable, folder / "caller.py"], stdout=subprocess.PIPE, text=True, env=given)
        for _ in range(3)
    ]
    outputs = [process.communicate()[0].split() for process in started]
    assert [total for total, _, _ in outputs] == ["65"] * 3
    assert sum(int(compiled) for _, compiled, _ in outputs) == 2


def test_the_cache_of_a_user_and_of_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    assert cache._roots(None, str(tmp_path)) == (tmp_path / "user" / "tocsin",)
    (tmp_path / "var" / "tocsin").mkdir(parents=True)
    cache._roots.cache_clear()
    assert cache._roots(None, str(tmp_path)) == (tmp_path / "var" / "tocsin", tmp_path / "user" / "tocsin")
    assert cache._roots("/there", str(tmp_path)) == (Path("/there"),)
    cache._roots.cache_clear()


def test_every_kernel_has_a_digest() -> None:
    kernels: list[Kernel] = []
    for module in pkgutil.walk_packages(tocsin.__path__, "tocsin."):
        if "_kernels" in module.name:
            found = vars(importlib.import_module(module.name)).values()
            kernels += [value for value in found if isinstance(value, Kernel)]
    assert len({digest(kernel) for kernel in kernels}) == len(set(map(id, kernels))) > 400


NOTICE = """
import logging, sys
logging.basicConfig(level=logging.INFO, stream=sys.stdout)
from tocsin.compiled.backend import _notice
_notice._seconds = {seconds}
from caller import twice
import numpy as np
print(int(twice(np.arange(10))))
"""


@pytest.mark.parametrize(("seconds", "said"), [(0.0001, 1), (1000.0, 0)])
def test_compiling_for_long_is_said_once(tmp_path: Path, seconds: float, said: int) -> None:
    folder = sources(tmp_path)
    (folder / "notice.py").write_text(NOTICE.format(seconds=seconds))
    given = os.environ | {"TOCSIN_CACHE": str(tmp_path / "cache"), "TOCSIN_JIT": "always"}
    given["PYTHONPATH"] = str(Path(tocsin.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, folder / "notice.py"], capture_output=True, text=True, env=given, check=True
    )
    assert done.stdout.count("compiling kernels, once per machine") == said, done.stderr
    assert done.stdout.endswith("65\n")


def test_a_kernel_pays_once_the_other_way_took_as_long_as_compiling(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOCSIN_JIT", "auto")
    monkeypatch.setattr(sys.modules["tocsin.compiled.kernel"], "_spent", [0.0])
    slow = Kernel(lambda x: x + 1)
    slow._is_stored = False
    assert not slow.pays(0.4) and not slow.pays(0.4)
    assert slow.pays(0.4) and slow.pays(0.0)
    stored = Kernel(lambda x: x + 1)
    stored._is_stored, stored._limit = True, 0.02
    assert not stored.pays(0.01) and stored.pays(0.01)


def test_an_interpreted_kernel_returns_what_a_compiled_one_does(monkeypatch: pytest.MonkeyPatch) -> None:
    @kernel
    def both(numbers: Any, more: Any) -> Any:
        return numbers[0] + more, numbers[0] > more, numbers[0] / 2

    for mode in ("never", "always"):
        monkeypatch.setenv("TOCSIN_JIT", mode)
        assert [type(part) for part in both(np.array([1]), 2)] == [int, bool, float], mode
    monkeypatch.setenv("TOCSIN_JIT", "sometimes")
    with pytest.raises(TocsinError, match="'sometimes'"):
        kernel(lambda x: x)(1)


@pytest.mark.parametrize("mode", ["never", "auto"])
def test_many_names_and_values_without_compiling(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    monkeypatch.setenv("TOCSIN_JIT", mode)
    e = tocsin.Engine()
    e.execute("CREATE STREAM s; CREATE TABLE t (id BIGINT, c STRING, PRIMARY KEY (id))")
    distinct = e.subscribe("SELECT DISTINCT c FROM t")
    for i in range(80):
        e.subscribe(f"SELECT * FROM s WHERE attr{i} = 1")
        assert len(e.publish("s", {f"attr{i}": 1})) == 1
        e.insert("t", {"id": i, "c": f"value {i}"})
    assert len(e.content(distinct)) == 80
