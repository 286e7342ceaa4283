"""Public rules and events for tests, where they are: beside the project, or where TOCSIN_DATA points to."""

from __future__ import annotations

import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["folder", "json_values", "members"]


def folder(name: str) -> Path:
    """A folder of data; skips the test if it is not there."""
    beside = Path(__file__).parents[3] / "shared" / "data"
    found = Path(os.environ.get("TOCSIN_DATA", beside)) / name
    if not found.is_dir():
        pytest.skip(f"there is no data in {name}: TOCSIN_DATA names the folder")
    return found


def members(archive: Path, suffix: str) -> Iterator[tuple[str, str]]:
    """Names and texts of the files in an archive."""
    with tarfile.open(archive) as tar:
        for one in tar:
            if one.isfile() and one.name.endswith(suffix) and (file := tar.extractfile(one)) is not None:
                yield one.name, file.read().decode("utf-8-sig")


def json_values(text: str) -> Iterator[Any]:
    """The values of a text that holds one after the other, or a list of them."""
    decoder, at = json.JSONDecoder(), 0
    while at < len(text):
        if text[at] in " \r\n\t,":
            at += 1
            continue
        value, at = decoder.raw_decode(text, at)
        yield from value if isinstance(value, list) else [value]
