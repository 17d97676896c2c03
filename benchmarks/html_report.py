"""What a report as a page costs: to write it beside writing JSON, its size, and its times in a browser.

    python -m benchmarks.html_report                            # 1,000, 10,000 and 100,000 samples, a row for each
    python -m benchmarks.html_report --samples 1000 --json      # JSON lines

Samples have 2.4 kB of text. A process of its own reads the report of so many samples and writes it as JSON, another one
writes it as a page, as ``llmeval export`` does; ``html/json s`` and ``html/json MiB`` are ratios of their wall times
and of their largest resident sets. ``left out`` are samples whose texts are not in the page. In Chromium, of ``--runs``
the median: milliseconds until the first rows are there, from one choice in a filter until its rows are there, a sort by
a metric, and from a click until a sample is shown whose texts were not yet unpacked. Without a browser the row has no
such times. The machine's other work shows in all of it: compare ratios, and times within one run.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.measured_process import environment, run_measured
from pytest_llmeval.reporting.storage.report_file import read_report, write_report
from pytest_llmeval.reporting.writers.formats import format_of
from tests.browser.installed import ARGUMENTS, browser_path
from tests.browser.reports_for_tests import large_report
from tests.support import REPOSITORY

if TYPE_CHECKING:
    from playwright.sync_api import Page

_CHOOSE = """([id, value]) => {
    const element = document.getElementById(id);
    const started = performance.now();
    element.value = value;
    element.dispatchEvent(new Event("change"));
    document.getElementById("rows").getBoundingClientRect();
    return performance.now() - started;
}"""
_CLICK = """(selector) => {
    const started = performance.now();
    document.querySelector(selector).click();
    document.getElementById("rows").getBoundingClientRect();
    return performance.now() - started;
}"""
_OPEN = """async () => {
    const started = performance.now();
    const article = document.getElementById("sample");
    document.querySelector("#rows tbody tr button").click();
    while (article.hidden) await new Promise((resolve) => setTimeout(resolve));
    article.getBoundingClientRect();
    return performance.now() - started;
}"""
"""Each until the new layout is there."""


def write_as(source: Path, path: Path) -> None:
    """Read the report and write it anew, in the format of the suffix."""
    found = format_of(path)
    if found is None:
        raise SystemExit(f"there is no format for {path.name}")
    found.write(read_report(source), path)


def measure_writing(source: Path, folder: Path) -> dict[str, float]:
    """Seconds, MiB and bytes of both formats."""
    found: dict[str, float] = {}
    for suffix in ("json", "html"):
        path = folder / f"written.{suffix}"
        command = [sys.executable, "-m", "benchmarks.html_report", "--write", str(source), str(path)]
        done = run_measured(
            command,
            folder=REPOSITORY,
            variables=environment(folder, num_threads=1),
            log=folder / f"{suffix}.log",
        )
        found |= {f"{suffix}_s": done.seconds, f"{suffix}_peak_mib": done.peak_mib}
        found[f"{suffix}_mb"] = path.stat().st_size / 1e6
    found["html_json_s"] = found["html_s"] / found["json_s"]
    found["html_json_mib"] = found["html_peak_mib"] / found["json_peak_mib"]
    page = (folder / "written.html").read_text(encoding="utf-8")
    left_out = re.search(r"The texts of ([\d,]+) of [\d,]+ samples are left out", page)
    found["left_out"] = 0 if left_out is None else int(left_out[1].replace(",", ""))
    return found


def measure_reading(path: Path, runs: int) -> dict[str, float]:
    """Milliseconds in the browser, medians; nothing where there is none."""
    browser = browser_path()
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        browser = None
    if browser is None:
        return {}
    times: dict[str, list[float]] = {"rows_ms": [], "filter_ms": [], "sort_ms": [], "open_ms": []}
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=browser, args=list(ARGUMENTS))
        for _ in range(runs):
            page = running.new_page()
            page.set_default_timeout(120_000)
            _time_once(page, path, times)
            page.close()
        running.close()
    return {name: statistics.median(values) for name, values in times.items()}


def _time_once(page: Page, path: Path, times: dict[str, list[float]]) -> None:
    started = time.perf_counter()
    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_selector("html[data-ready]", state="attached")
    times["rows_ms"].append((time.perf_counter() - started) * 1000)
    page.wait_for_load_state("load")
    times["filter_ms"].append(page.evaluate(_CHOOSE, ["filter-status", "1"]))
    times["open_ms"].append(page.evaluate(_OPEN))
    page.locator("#close").click()
    page.evaluate(_CHOOSE, ["metric", "1"])
    times["sort_ms"].append(page.evaluate(_CLICK, 'th button[data-sort="metric"]'))


def measure(num_samples: int, runs: int) -> dict[str, float]:
    """All figures for one size of report."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent)
        source = folder / "report.json"
        write_report(large_report(num_samples), source)
        found = {"samples": num_samples, **measure_writing(source, folder)}
        found |= measure_reading(folder / "written.html", runs)
    return {name: round(value, 3) for name, value in found.items()}


_COLUMNS = {
    "samples": "samples",
    "json_s": "json s",
    "html_s": "html s",
    "html_json_s": "html/json s",
    "json_peak_mib": "json MiB",
    "html_peak_mib": "html MiB",
    "html_json_mib": "html/json MiB",
    "json_mb": "json MB",
    "html_mb": "html MB",
    "left_out": "left out",
    "rows_ms": "rows ms",
    "filter_ms": "filter ms",
    "open_ms": "open ms",
    "sort_ms": "sort ms",
}


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--samples", type=int, nargs="+", default=[1_000, 10_000, 100_000])
    parser.add_argument("--runs", type=int, default=3, help="times that the page is opened")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--write", type=Path, nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.write is not None:
        write_as(*given.write)
        return 0
    if not given.json:
        print("  ".join(_COLUMNS.values()))
    for num_samples in given.samples:
        found = measure(num_samples, given.runs)
        if given.json:
            print(json.dumps(found), flush=True)
        else:
            cells = (_cell(found.get(name)).rjust(len(title)) for name, title in _COLUMNS.items())
            print("  ".join(cells), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
