"""The limits that keep the house readable: files, functions, kernels, names."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "src" / "tocsin"
_LINES_OF_A_FILE, _LINES_OF_A_FUNCTION, _ARGUMENTS_OF_A_KERNEL = 600, 60, 8
_TREES = {path: ast.parse(path.read_text(encoding="utf8")) for path in sorted(_PACKAGE.rglob("*.py"))}


def _functions() -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for path, tree in _TREES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield f"{path.relative_to(_PACKAGE)}:{node.lineno} {node.name}", node


def test_no_file_is_too_long() -> None:
    lines = {str(path): path.read_text(encoding="utf8").count("\n") for path in _TREES}
    assert not [(path, n) for path, n in lines.items() if n > _LINES_OF_A_FILE]


def test_no_function_is_too_long() -> None:
    lines = {place: (node.end_lineno or node.lineno) - node.lineno + 1 for place, node in _functions()}
    assert not [(place, n) for place, n in lines.items() if n > _LINES_OF_A_FUNCTION]


def test_no_kernel_has_too_many_arguments() -> None:
    kernels = {
        p: n.args for p, n in _functions() if any("kernel" in ast.unparse(d) for d in n.decorator_list)
    }
    counts = {p: len(a.posonlyargs) + len(a.args) + len(a.kwonlyargs) for p, a in kernels.items()}
    assert len(counts) > 300
    assert not [(place, n) for place, n in counts.items() if n > _ARGUMENTS_OF_A_KERNEL]


def test_a_class_name_means_one_thing() -> None:
    places = defaultdict(list)
    for path, tree in _TREES.items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path.relative_to(_PACKAGE)))
    assert not {name: found for name, found in places.items() if len(found) > 1}
