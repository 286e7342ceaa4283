"""The notebooks of the site run, and print what is stored in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def shown(cell: Any) -> list[str]:
    """What a cell has printed and returned, as text."""
    outputs = cell.get("outputs", [])
    texts = [out.get("text") or out.get("data", {}).get("text/plain", "") for out in outputs]
    return "".join(texts).splitlines()


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["flights", "thermometers"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_is_stored(path: Path) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    stored = nbformat.read(path, as_version=4)
    again = nbformat.read(path, as_version=4)
    nbclient.NotebookClient(again, timeout=120, kernel_name="python3").execute()
    for before, after in zip(stored.cells, again.cells, strict=True):
        assert shown(after) == shown(before), before.source
