"""Commands that documents show: each is there, with the options that it is given."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from click import Context
from typer.main import get_command

from tocsin.cli import app

ROOT = Path(__file__).parents[2]
PAGES = [
    ROOT / "README.md", ROOT / "bench" / "README.md", ROOT / "CONTRIBUTING.md",
    *sorted(p for p in (ROOT / "docs").rglob("*.md") if "decisions" not in p.parts),
]  # fmt: skip
BLOCK = re.compile(r"^```(?:sh|bash|console|dockerfile)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`(tocsin [^`\n]+)`")


def commands(text: str) -> list[str]:
    """All commands of a page, as they are written."""
    lines = [line for block in BLOCK.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    found = [part.strip() for line in lines for part in line.split("|")]
    return [part for part in found if re.match(r"(\$ )?tocsin ", part)] + INLINE.findall(text)


def unknown(command: str) -> str | None:
    """What of a command there is not."""
    words = shlex.split(command.removeprefix("$ "), comments=True)[1:]
    known = get_command(app)
    context = Context(known)
    while words and hasattr(known, "list_commands"):
        if words[0].startswith(("-", ">", "&")):
            break
        if "|" in words[0] or not re.fullmatch("[a-z-]+", words[0]):
            return None  # several at once, or words about commands
        if (found := known.get_command(context, words[0])) is None:
            return words[0]
        known, words = found, words[1:]
    options = {option for one in known.params for option in (*one.opts, *one.secondary_opts)} | {
        "--help",
        "-h",
    }
    given = [word.partition("=")[0] for word in words if re.match(r"--?[a-z]", word)]
    return next((option for option in given if option not in options), None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_are_there(page):
    found = {command: unknown(command) for command in commands(page.read_text(encoding="utf-8"))}
    assert not {command: what for command, what in found.items() if what is not None}


def test_what_is_not_there_is_found():
    assert unknown("tocsin tokens quota acme --dri data") == "--dri"
    assert unknown("tocsin sreve --dir data") == "sreve"
    assert unknown("tocsin serve --dir data --port 1 2> log &") is None
