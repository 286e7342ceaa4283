"""The demo's folder is held by one demo, and only what is the demo's is ever removed from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tocsin.errors import TocsinError, UsageError
from tocsin.lab.demo.replay import clear_folder, locked_folder


def begin(folder: Path) -> Path:
    with locked_folder(folder, resume=False) as held:
        clear_folder(held)
        (held / "changes").mkdir()
        (held / "changes" / "0.json").write_text("{}")
        (held / "demo.json").write_text("{}")
    return held


def test_a_new_start_removes_the_earlier_demo(tmp_path):
    begin(tmp_path / "new" / "demo")
    (tmp_path / "new" / "demo" / "changes" / "1.json").write_text("{}")
    held = begin(tmp_path / "new" / "demo")
    assert [path.name for path in (held / "changes").iterdir()] == ["0.json"]


@pytest.mark.parametrize("name", ["lock", "demo.json", "changes"])
def test_a_name_of_ours_does_not_make_a_folder_ours(tmp_path, name):
    (tmp_path / name).write_text("mine")
    with pytest.raises(UsageError, match="holds no demo"):
        begin(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "mine"


def test_a_file_of_someone_else_in_a_demo_stops_it(tmp_path):
    begin(tmp_path)
    (tmp_path / "thesis.txt").write_text("years of work")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match=r"thesis\.txt; nothing was removed"):
        begin(tmp_path)
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_held_by_one(tmp_path):
    with locked_folder(tmp_path, resume=False) as held:
        clear_folder(held)
        with (
            pytest.raises(TocsinError, match="a demo is running"),
            locked_folder(tmp_path, resume=False),
        ):
            pytest.fail("held twice")
    begin(tmp_path)


def test_a_link_to_a_folder_is_that_folder(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    for _ in range(2):
        assert begin(tmp_path / "link") == (tmp_path / "real").resolve()
    assert (tmp_path / "link").is_symlink()


def test_what_a_link_in_the_folder_leads_to_is_not_removed(tmp_path):
    begin(tmp_path / "demo")
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "x").touch()
    (tmp_path / "demo" / "deltas").symlink_to(tmp_path / "kept")
    begin(tmp_path / "demo")
    assert (tmp_path / "kept" / "x").exists()
    assert not (tmp_path / "demo" / "deltas").exists()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path):
    (tmp_path / "file").touch()
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for folder in (tmp_path / "file", tmp_path / "file" / "below", tmp_path / "loop"):
        with pytest.raises(UsageError, match="cannot be the demo's folder"):
            begin(folder)
