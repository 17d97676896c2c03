"""docs/benchmarks.md says what the comparisons find."""

from __future__ import annotations

import pytest

from pytest_llmeval.suites.presets import all_presets
from tests.presets.comparisons import CASES
from tests.presets.other_checks import CHECKS, UNCHECKED
from tests.tools.benchmarks import COMMAND, PATH, page, problems


def test_every_preset_is_checked_or_says_why_not() -> None:
    compared = {case.preset for case in CASES} | CHECKS.keys()
    for preset in all_presets():
        assert bool(preset.checked) is not (preset.name in UNCHECKED), preset.name
        assert preset.checked or preset.name not in compared, preset.name


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning")
def test_the_page_is_what_the_command_writes() -> None:
    assert list(problems()) == []
    assert PATH.read_text(encoding="utf-8") == page(), f"run: {COMMAND}"
