"""Compiled code is thrown away when something it calls has changed."""

from __future__ import annotations

import os
from pathlib import Path

from tocsin.compiled import discard_stale

FILES = ("predicate/_kernels.py", "match/_kernels/bits.py", "model/_kernels.py", "join/_kernels/band.py")


def kept(package: Path) -> set[str]:
    return {str(path.relative_to(package)).split("/")[0] for path in package.rglob("*.nbi")}


def compile_all(package: Path) -> None:
    for name in FILES:
        source = package / name
        (source.parent / "__pycache__").mkdir(parents=True, exist_ok=True)
        if not source.exists():
            source.write_text("one = 1\n")
        (source.parent / "__pycache__" / f"{source.stem}.f-1.py311.nbi").write_text("compiled")


def test_what_calls_a_changed_file_is_forgotten(tmp_path: Path) -> None:
    compile_all(tmp_path)
    discard_stale(tmp_path)
    compile_all(tmp_path)
    assert discard_stale(tmp_path) == 0 and kept(tmp_path) == {"predicate", "match", "model", "join"}
    os.utime(tmp_path / FILES[1], (1, 1))
    assert discard_stale(tmp_path) == 1 and kept(tmp_path) == {"predicate", "model", "join"}
    compile_all(tmp_path)
    (tmp_path / FILES[0]).write_text("one = 1 + 1\n")
    assert discard_stale(tmp_path) == 3 and kept(tmp_path) == {"model"}
    assert discard_stale(tmp_path) == 0


def test_a_folder_that_may_not_be_written_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "__pycache__").write_text("no folder")
    assert discard_stale(tmp_path) == 0
