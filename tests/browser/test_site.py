"""The site that Sphinx builds from the pages: strict, whole without a network, and searched from a folder."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

pytest.importorskip("furo", reason="the site is not built here: pip install -e '.[docs]'")


def build(source: Path, site: Path) -> tuple[int, str]:
    """Build the site as CI does; return the exit code and all that was printed."""
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "-c", "docs", ".", str(site)]
    environment = clean_environment() | {"NO_COLOR": "1"}
    done = subprocess.run(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    code, printed = build(REPOSITORY, folder)
    assert code == 0, printed
    return folder


PAGES = {
    "README.md": "# Front\n\n[good](docs/a.md#one-b) [file](pyproject.toml) [gone](docs/gone.md) [b](docs/a.md#gone)\n",
    "docs/README.md": "# Index\n\n## Pages\n\n### Group\n\n| page |\n|---|\n| [a](a.md) |\n",
    "docs/a.md": "# A\n\n## One `b`\n\n[good](../README.md) [here](#gone) ![picture](gone.png)\n",
    "docs/orphan.md": "# Orphan\n",
}


def test_what_leads_nowhere_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("pyproject.toml", "docs/conf.py"):
        shutil.copyfile(REPOSITORY / name, tmp_path / name)
    for name, text in PAGES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    code, printed = build(tmp_path, tmp_path / "site")
    assert code == 1
    found = re.findall(r"(\w+\.md)(?::\d+)?: WARNING: (.*) \[", printed)
    assert sorted(found) == [
        ("README.md", "'myst' cross-reference target not found: 'docs/gone.md'"),
        ("README.md", "local id not found in doc 'docs/a': 'gone'"),
        ("a.md", "'myst' cross-reference target not found: 'gone'"),
        ("a.md", "image file not readable: docs/gone.png"),
        ("orphan.md", "document isn't included in any toctree"),
    ]


def test_a_page_loads_nothing_from_elsewhere(site: Path) -> None:
    pages, styles = sorted(site.rglob("*.html")), sorted(site.rglob("*.css"))
    assert {"index.html", "README.html", "search.html"} <= {path.name for path in pages}
    loaded = r"<(?:script|img|iframe|source|link)\b[^>]*?\b(?:src|href|srcset)=[\"']?((?:https?:)?//[^\"' >]+)"
    imported = r"(?:url\(|@import)\s*[\"']?((?:https?:)?//[^\"')]+)"
    found = {path.name: re.findall(loaded, path.read_text("utf-8")) for path in pages}
    found |= {path.name: re.findall(imported, path.read_text("utf-8")) for path in styles}
    assert {name: addresses for name, addresses in found.items() if addresses} == {}


def test_it_is_searched_without_a_network_in_light_and_dark(site: Path, browser: Browser) -> None:
    """Open it as a file: there is no server, and no request may be for anything but files."""
    backgrounds: list[str] = []
    requested: list[str] = []
    for scheme in ("light", "dark"):
        context = browser.new_context(offline=True, color_scheme=scheme)
        page = context.new_page()
        page.on("request", lambda request: requested.append(request.url))
        page.goto((site / "index.html").as_uri())
        backgrounds.append(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        page.locator(".sidebar-search").fill("scoring")
        page.keyboard.press("Enter")
        page.locator("#search-results a", has_text="Scoring").first.click()
        page.locator("h1", has_text="Scoring").wait_for()
        assert page.url.startswith((site / "docs" / "scoring.html").as_uri())
        context.close()
    assert {url.partition(":")[0] for url in requested} == {"file"}
    assert backgrounds[0] != backgrounds[1]
