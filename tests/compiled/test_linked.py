"""Kernels that kernels call: linked into their callers, from the compiler and from the cache alike."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tocsin

SOURCE = """
import gc
import numpy as np
from tocsin.compiled import compilations, kernel

@kernel
def checked(x):
    if x < 0:
        raise ValueError("negative")
    return np.sqrt(np.full(3, x)).sum()

@kernel
def middle(x, deep):
    return checked(x) + (middle_again(x) if deep else 0.0)

@kernel
def middle_again(x):
    return 2 * checked(x)

@kernel
def outer(numbers):
    total = 0.0
    for number in numbers:
        total += middle(number, True) + checked(number)
    return total

@kernel
def other(number):
    return middle_again(number)

if __name__ == "__main__":
    print(outer(np.array([4.0, 9.0])), other(4.0), checked(1.0))
    for call in (lambda: outer(np.array([-1.0])), lambda: other(-1.0), lambda: checked(-1.0)):
        try:
            call()
        except ValueError as error:
            print(error)
    print(len(compilations()), gc.isenabled())
"""


def run(folder: Path) -> list[str]:
    (folder / "nested.py").write_text(SOURCE)
    given = os.environ | {"TOCSIN_CACHE": str(folder / "cache"), "TOCSIN_JIT": "always"}
    given["PYTHONPATH"] = str(Path(tocsin.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, folder / "nested.py"], capture_output=True, text=True, env=given, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_results_and_errors_are_those_of_python(tmp_path: Path) -> None:
    said = ["60.0 12.0 3.0", *["negative"] * 3]
    assert run(tmp_path) == [*said, "6 True"]
    assert run(tmp_path) == [*said, "0 True"]
    for path in (tmp_path / "cache").rglob("*other*.nbc"):  # compile one caller of stored code again
        path.unlink()
    assert run(tmp_path) == [*said, "1 True"]


def test_shortcuts_answer_as_numba_does() -> None:
    pytest.importorskip("tocsin.compiled.backend")
    from numba.core import ir
    from numba.core.compiler import Flags
    from numba.core.targetconfig import TargetConfig

    one, other = Flags(), Flags()
    one.nrt = True
    assert one.values() == TargetConfig.values(one) and hash(one) == TargetConfig.__hash__(one)
    assert one != other
    other.nrt = True
    assert one == other and hash(one) == hash(other)
    place = ir.Loc("file", 1)
    variable = ir.Var(None, "x", place)
    value = ir.Expr.getattr(variable, "shape", place)
    assert ir.Assign(value, variable, place).list_vars() == [variable, variable]
    call = ir.Expr.call(variable, [variable], {"y": variable}, place)
    assert call.list_vars() == [variable] * 3
