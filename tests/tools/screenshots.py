"""Takes the pictures of a report that the README and the documents show, from the example suites.

    python -m tests.tools.screenshots docs/images        # writes report.png and sample.png there

The demo model and the same model with noise on its weights answer some of the example suites, side by side. When the
session ran and how long it took is replaced by fixed values, so that a picture changes only where the page or the
numbers do; fonts are those of the machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmeval.reporting.report.report import Report
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.browser.installed import ARGUMENTS, BROWSER_VARIABLE, browser_path
from tests.browser.reports_for_tests import write_page
from tests.support import REPOSITORY, clean_environment

if TYPE_CHECKING:
    from playwright.sync_api import Page

SUITES = ("boolq", "csqa", "mmlu")
DEMO = REPOSITORY / "pytest_llmeval" / "demo_model"
NOISY = "demo-noisy"
WIDTH, HEIGHT = 1280, 900


def noisy_model(folder: Path, *, noise: float = 0.35) -> None:
    """The demo model with normal noise on its matrices, ``noise`` times the standard deviation of each."""
    import torch
    from safetensors.torch import load_file, save_file

    folder.mkdir()
    generator = torch.Generator().manual_seed(0)
    for source in DEMO.iterdir():
        if source.suffix in (".json", ".jinja"):
            (folder / source.name).write_bytes(source.read_bytes())
        elif source.suffix == ".safetensors":
            weights = {
                name: weight + noise * weight.std() * torch.randn(weight.shape, generator=generator)
                if weight.ndim > 1
                else weight
                for name, weight in load_file(source).items()
            }
            save_file(weights, folder / source.name, metadata={"format": "pt"})


def example_report(folder: Path, suites: Sequence[str] = SUITES, *, baseline: bool = False) -> Report:
    """The session's report, with fixed times; with the demo model's as ``baseline`` if that is asked for.

    Raises ``SystemExit`` where the session did not come to an end.
    """
    noisy_model(folder / NOISY)
    options = [str(REPOSITORY / "example_suites" / name) for name in suites]
    if baseline:
        _run(folder, "--llm-model=demo", "--llm-report=main.json", *options)
        options.append("--llm-baseline=main.json")
    models = ("--llm-model=demo", f"--llm-model={NOISY}")
    _run(folder, *models, "--llm-report=report.json", "--llm-gate=accuracy >= 0.6", *options)
    report = read_report(folder / "report.json")
    return replace(report, created="2026-01-01T12:00:00+00:00", seconds=30.0)


def _run(folder: Path, *options: str) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir=."]
    command += options
    done = subprocess.run(
        command, cwd=folder, env=clean_environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode not in (0, 1):  # 1: a gate failed
        raise SystemExit(f"the session of the example suites ended with exit code {done.returncode}:\n{done.stdout}")


def show_sample(page: Page) -> None:
    """Open a sample that the noisy model got wrong and the demo model right."""
    page.locator("#filter-suite").select_option(label="csqa_letter")
    page.locator("#filter-change").select_option(label="worse")
    page.locator("#rows tbody tr button").first.click()
    page.wait_for_selector("#sample:not([hidden])")
    page.wait_for_url("**sample=*")
    page.locator("#samples").evaluate("element => element.scrollIntoView()")
    page.mouse.move(0, 0)


def take(report: Report, folder: Path, temporary: Path) -> list[Path]:
    """The pictures. Raises ``SystemExit`` where there is no browser."""
    from playwright.sync_api import sync_playwright

    browser = browser_path()
    if browser is None:
        raise SystemExit(f"no Chromium is on PATH, and {BROWSER_VARIABLE} names none")
    path = write_page(report, temporary)
    pictures = [folder / "report.png", folder / "sample.png"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=[*ARGUMENTS, "--hide-scrollbars"])
        page = running.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        page.goto(path.as_uri())
        page.wait_for_selector("html[data-ready]", state="attached")
        page.locator(".matrix summary", has_text="mmlu").click()
        page.mouse.move(0, 0)
        page.screenshot(path=pictures[0])
        show_sample(page)
        page.screenshot(path=pictures[1])
        running.close()
    return pictures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the session, and write the pictures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the pictures are written")
    given = parser.parse_args(arguments)
    given.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        temporary = Path(name)
        for picture in take(example_report(temporary), given.folder, temporary):
            sys.stdout.write(f"{picture}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
