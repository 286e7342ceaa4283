"""A tab of a real Chromium beside a real server; skipped where the machine has no Chromium."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.page.chromium import Page, chromium, executable


@pytest.fixture(name="tab")
def _tab(tmp_path) -> Iterator[Page]:
    if executable() is None:
        pytest.skip("no Chromium: install one, or name it in TOCSIN_CHROMIUM")
    with chromium(tmp_path) as page:
        page.show(1200, 820)
        yield page
        assert page.errors == []
