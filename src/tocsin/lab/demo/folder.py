"""The folder of the demo: one demo at a time, and nothing removed that is not the demo's.

    <folder>/.tocsin-demo   says that the folder is the demo's; written first, never removed
    <folder>/lock           locked while a demo runs; never removed, or a second demo would lock another file

A folder is begun in if it is empty, not there, or the demo's and without anything else in it.

>>> import tempfile
>>> with alone(Path(tempfile.mkdtemp()), resume=False) as folder:
...     sorted(path.name for path in folder.iterdir())
['.tocsin-demo', 'lock']
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tocsin.errors import TocsinError, UsageError

__all__ = ["SCRIPT", "alone", "clear"]

SCRIPT = "demo.json"  # what is replayed; a folder that has it can be resumed
_MARK, _LOCK = ".tocsin-demo", "lock"
_OURS = ("changes", "state", "deltas", "dead_letters", "spark.log", SCRIPT, f".{SCRIPT}")


@contextmanager
def alone(folder: Path, *, resume: bool) -> Iterator[Path]:
    """Hold a folder for one demo; gives its real path. A folder that is not the demo's is left as it is."""
    try:
        folder = folder.resolve()
        if resume and not (folder / SCRIPT).is_file():
            raise nothing_to_resume(folder)
        if not resume:
            _refuse_foreign(folder)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _MARK).touch()
        lock = open(folder / _LOCK, "a")  # noqa: SIM115  # held below
    except (OSError, RuntimeError) as error:  # a loop of links is a RuntimeError
        raise UsageError(
            f"{folder} cannot be the demo's folder: {error}", hint="choose another with --dir"
        ) from None
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise TocsinError(
                f"a demo is running in {folder}", hint="wait for it, or choose another with --dir"
            ) from None
        yield folder


def clear(folder: Path) -> None:
    """Remove what an earlier demo left in a folder that is held; the mark and the lock stay."""
    _refuse_foreign(folder)
    for path in (folder / name for name in _OURS):
        try:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise TocsinError(
                f"{path} of an earlier demo cannot be removed: {error.strerror}",
                hint="choose another folder with --dir",
            ) from None


def nothing_to_resume(folder: Path) -> UsageError:
    return UsageError(
        f"there is no demo to resume in {folder}",
        hint="start one: tocsin demo; or name its folder with --dir",
    )


def _refuse_foreign(folder: Path) -> None:
    """Raise unless the folder is the demo's, or free."""
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if names and _MARK not in names:
        raise UsageError(
            f"{folder} is not empty and holds no demo: nothing was removed", hint="choose another with --dir"
        )
    others = sorted(names - {_MARK, _LOCK, *_OURS})
    if others:
        raise UsageError(
            f"{folder} holds more than a demo: {', '.join(others[:5])}{', ...' if others[5:] else ''}; "
            "nothing was removed",
            hint="move that away, or choose another folder with --dir",
        )
