"""The documentation site: `make docs` builds it into build/docs with Sphinx, MyST and furo.

Pages are Markdown that is read on a code host, too, so links are those of the repository. While a page is
read, `site_links` turns them into links of the site: to another page, to a page that shows a file from
outside of docs, or, for anything else, into plain text. A page `<!-- page: CONTRIBUTING.md -->` is that file.
"""

from __future__ import annotations

import os
import re
from importlib.metadata import version as version_of
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
ROOT = DOCS.parent

project = "Tocsin"
author = "Tocsin contributors"
copyright = "Tocsin contributors"
release = version = version_of("tocsin")
extensions = ["sphinx.ext.autodoc", "sphinx_copybutton", "myst_nb"]
exclude_patterns = ["_build"]
root_doc = "index"

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
nb_execution_mode = "off"  # tests/docs/test_notebooks.py executes them and compares what is stored

html_theme = "furo"
html_title = f"Tocsin {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_copy_source = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#9a3412", "color-brand-content": "#9a3412"},
    "dark_css_variables": {"color-brand-primary": "#fb923c", "color-brand-content": "#fb923c"},
}
pygments_style, pygments_dark_style = "friendly", "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"  # docstrings write `name` for code
add_module_names = False
suppress_warnings = ["ref.python"]  # several classes have a `name`

LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s#:]+)(#[\w-]+)?\)")
WHOLE = re.compile(r"\A<!-- page: (\S+) -->\s*\Z")


def shown_files() -> dict[Path, str]:
    """Files from outside of docs that a page shows, with the name of that page."""
    found = {}
    for page in DOCS.rglob("*.md"):
        if whole := WHOLE.match(page.read_text(encoding="utf-8")):
            found[(ROOT / whole[1]).resolve()] = page.relative_to(DOCS).as_posix()
    return found


def site_links(text: str, file: Path, page: Path, shown: dict[Path, str]) -> str:
    """The text of a file, to be shown as `page`, with the links of the site."""

    def link(found: re.Match[str]) -> str:
        image, label, target, anchor = found[1], found[2], found[3], found[4] or ""
        path = (file.parent / target).resolve()
        if not path.exists():
            return found[0]
        if image:
            return f"![{label}]({os.path.relpath(path, page.parent)})"
        if path in shown:
            return f"[{label}](/{shown[path]}{anchor})"
        if path.suffix in (".md", ".ipynb") and path.is_relative_to(DOCS):
            return f"[{label}](/{path.relative_to(DOCS).as_posix()}{anchor})"
        return label  # a source file, a folder: it is in the repository

    return LINK.sub(link, text)


def other_pages(index: str) -> str:
    """Pages of docs, not of its folders, that the index does not list."""
    listed = set(re.findall(r"^(?:.* <)?([\w-]+)>?$", index, re.MULTILINE))
    return "\n".join(sorted({page.stem for page in DOCS.glob("*.md")} - listed - {"index"}))


def read_page(app: Any, name: str, content: list[str]) -> None:
    """Sphinx's event: a source was read."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    whole = WHOLE.match(content[0])
    file = ROOT / whole[1] if whole else page
    text = file.read_text(encoding="utf-8") if whole else content[0]
    if name == root_doc:
        text = text.replace("OTHER-PAGES", other_pages(text))
    if name == "decisions/README":  # on a code host it is read without Sphinx
        text += "\n```{toctree}\n:hidden:\n:glob:\n\n[0-9]*\n```\n"
    content[0] = site_links(text, file, page, shown_files())
    if whole:
        app.env.note_dependency(str(file), docname=name)


def plain_docstring(app: Any, what: str, name: str, it: Any, options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: indented blocks are pictures and tables, not quotations."""
    out: list[str] = []
    inside = False
    for line in lines:
        indented = line.startswith("    ") and not line.lstrip().startswith((">>>", "..."))
        if indented and not inside and (not out or not out[-1].strip()):
            out += [".. code-block:: text", ""]
            inside = True
        elif line.strip() and not line.startswith(" "):
            inside = False
        out.append(line)
    lines[:] = out


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.connect("source-read", read_page)
    app.connect("autodoc-process-docstring", plain_docstring)
