"""docs/other_tools.md says what was measured of other plugins and tools, and here is measured again."""

from __future__ import annotations

import pytest

from tests.tools.other_tools import COMMAND, PATH, tables, with_tables

pytestmark = [pytest.mark.slow, pytest.mark.campaign]


def test_the_page_says_what_other_tools_do() -> None:
    page = PATH.read_text(encoding="utf-8")
    assert page == with_tables(page, tables()), f"run: {COMMAND}"
