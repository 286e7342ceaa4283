"""Compiled code is discarded when something it calls has changed."""

from __future__ import annotations

import ast
import os
from pathlib import Path

import pytest

import tocsin
from tocsin.compiled import INLINED, LEVELS, discard_stale, kernel_sources

PACKAGE = Path(tocsin.__file__).parent
FILES = ("predicate/_kernels/flat.py", "match/_kernels/bits.py", "model/_kernels.py", "join/_kernels/band.py")
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}


def stored(package: Path) -> set[str]:
    return {str(path.relative_to(package)).split("/")[0] for path in package.rglob("*.nbi")}


def compile_all(package: Path, files: tuple[str, ...] = FILES) -> None:
    for name in files:
        source = package / name
        (source.parent / "__pycache__").mkdir(parents=True, exist_ok=True)
        if not source.exists():
            source.write_text("one = 1\n")
        (source.parent / "__pycache__" / f"{source.stem}.f-1.py311.nbi").write_text("compiled")


def test_code_that_calls_a_changed_file_is_discarded(tmp_path: Path) -> None:
    compile_all(tmp_path)
    discard_stale(tmp_path)
    compile_all(tmp_path)
    assert discard_stale(tmp_path) == 0 and stored(tmp_path) == {"predicate", "match", "model", "join"}
    os.utime(tmp_path / FILES[1], (1, 1))
    assert discard_stale(tmp_path) == 1 and stored(tmp_path) == {"predicate", "model", "join"}
    compile_all(tmp_path)
    (tmp_path / FILES[0]).write_text("one = 1 + 1\n")
    assert discard_stale(tmp_path) == 3 and stored(tmp_path) == {"model"}
    assert discard_stale(tmp_path) == 0


@pytest.mark.parametrize(
    "changed", [*FILES, "predicate/flat.py", "network/_kernels.py", "other/_kernels/a.py"]
)
def test_a_room_without_a_level_depends_on_all_others(tmp_path: Path, changed: str) -> None:
    files = (*FILES, "network/_kernels.py", "other/_kernels/a.py")
    compile_all(tmp_path, files)
    (tmp_path / "predicate/flat.py").write_text("one = 1\n")
    discard_stale(tmp_path)
    compile_all(tmp_path, files)
    assert discard_stale(tmp_path) == 0
    (tmp_path / changed).write_text("one = 1 + 1\n")
    discard_stale(tmp_path)
    assert not {"network", "other"} & stored(tmp_path)


def test_a_folder_that_may_not_be_written_is_left_alone(tmp_path: Path) -> None:
    compile_all(tmp_path, ("match/_kernels/bits.py",))
    (tmp_path / "match" / "__pycache__").write_text("no folder")
    assert discard_stale(tmp_path) == 0


def test_every_kernel_of_the_package_is_covered() -> None:
    found = {path for sources in kernel_sources(PACKAGE).values() for path in sources}
    every = {
        path for path in PACKAGE.rglob("*.py") if any(part.startswith("_kernels") for part in path.parts)
    }
    jitted = {path for path in PACKAGE.rglob("*.py") if "\n@njit" in path.read_text()}
    assert found == every and jitted <= found and len(jitted) > 10
    assert set(kernel_sources(PACKAGE)) == set(LEVEL), "give a new room with kernels its level"


def test_kernels_import_from_their_own_room_and_rooms_below() -> None:
    for room, sources in kernel_sources(PACKAGE).items():
        for source in sources:
            for node in ast.walk(ast.parse(source.read_text())):
                if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("tocsin."):
                    continue
                _, other, *rest = (node.module or "").split(".")
                if any(part.startswith("_kernels") for part in [*rest, *(n.name for n in node.names)]):
                    assert other == room or LEVEL[other] < LEVEL[room], f"{source}: {node.module}"
                else:
                    assert "/".join([other, *rest]) + ".py" in INLINED, f"{source}: {node.module}"
