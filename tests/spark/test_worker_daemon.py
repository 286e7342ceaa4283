"""Workers: what Python knows of archives is dropped, so that no task reads their directories again."""

import importlib
import sys
import zipfile
from zipimport import zipimporter

from tocsin.spark.worker_daemon import drop_archives


def test_archives_are_read_again_only_when_a_module_is_needed(tmp_path, monkeypatch):
    archive = tmp_path / "spark-core.jar"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("first_of_archive.py", "value = 1")
        file.writestr("second_of_archive.py", "value = 2")
    monkeypatch.syspath_prepend(str(archive))
    assert importlib.import_module("first_of_archive").value == 1
    assert isinstance(sys.path_importer_cache[str(archive)], zipimporter)
    drop_archives()
    assert not any(isinstance(finder, zipimporter) for finder in sys.path_importer_cache.values())
    assert sys.modules["first_of_archive"].value == 1
    assert importlib.import_module("second_of_archive").value == 2
    for name in ("first_of_archive", "second_of_archive"):
        del sys.modules[name]
