"""Fixtures that open a report in a real browser, without a network, and hold that nothing goes wrong in it.

All tests of this folder are slow, and are skipped where there is no browser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.installed import ARGUMENTS, BROWSER_VARIABLE, browser_path

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Error, Page, Request

_HERE = Path(__file__).resolve().parent

READY = "html[data-ready]"


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """A browser takes a second to start: all tests with one are in the slow tier."""
    for item in items:
        if item.path.is_relative_to(_HERE) and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium for the tests of a module. Playwright keeps an event loop running in this process until it is closed:
    a test that has one of its own belongs in another module.
    """
    api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed: pip install -e '.[dev]'")
    path = browser_path()
    if path is None:
        pytest.skip(f"no Chromium is on PATH, and {BROWSER_VARIABLE} names none")
    api.expect.set_options(timeout=60_000)  # a machine that does other work too is no reason to fail
    with api.sync_playwright() as playwright:
        running: Browser = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield running
        running.close()


@dataclass
class Opener:
    """Opens reports, each in a context of its own, offline.

    ``noticed`` are console messages, errors of a page, and requests for anything but the report itself. There must be
    none when a test ends: one that expects some takes them out.
    """

    browser: Browser
    noticed: list[str] = field(default_factory=list)
    pages: list[Page] = field(default_factory=list)

    def __call__(
        self,
        path: Path,
        fragment: str = "",
        *,
        width: int = 1280,
        javascript: bool = True,
        init_script: str | None = None,
        ready: str = READY,
        **context: Any,
    ) -> Page:
        """A page with the report at ``path``, once its first rows are there, or what ``ready`` selects.

        ``fragment`` begins with ``#``.
        """
        opened = self.browser.new_context(
            offline=True,
            service_workers="block",
            java_script_enabled=javascript,
            viewport={"width": width, "height": 900},
            reduced_motion="reduce",
            locale="en-US",
            timezone_id="UTC",
            **context,
        )
        opened.set_default_timeout(60_000)
        if init_script is not None:
            opened.add_init_script(init_script)
        page = opened.new_page()
        self._listen(page, path.as_uri())
        page.goto(path.as_uri() + fragment)
        if javascript:
            page.wait_for_selector(ready, state="attached")
            self.pages.append(page)
        return page

    def _listen(self, page: Page, own: str) -> None:
        def on_console(message: ConsoleMessage) -> None:
            self.noticed.append(f"console {message.type}: {message.text}")

        def on_error(error: Error) -> None:
            self.noticed.append(f"error: {error}")

        def on_request(request: Request) -> None:
            if request.url.partition("#")[0] != own:
                self.noticed.append(f"request: {request.url}")

        page.on("console", on_console)
        page.on("pageerror", on_error)
        page.on("request", on_request)

    def close(self) -> None:
        """Close all, and hold that nothing was noticed and no hostile text has run."""
        ran = [page.evaluate("() => String(window.__ran)") for page in self.pages if not page.is_closed()]
        for context in list(self.browser.contexts):
            context.close()
        assert self.noticed == []
        assert set(ran) <= {"undefined"}


@pytest.fixture
def open_report(browser: Browser) -> Iterator[Opener]:
    """Opens reports in the browser; the test fails where a page logs, requests or runs anything of what it shows."""
    opener = Opener(browser)
    yield opener
    opener.close()
