"""Lettered options: what the prompt shows is what the letters mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.loading.loader import load_suite

ROWS = "".join(f"  - {{question: q{number}, choices: [red, green, blue], target: 0}}\n" for number in range(6))


def ask(folder: Path, template: str, score: str = "letter", more: str = "") -> Evaluation:
    path = folder / "s.yaml"
    path.write_text(f"suite: s\nsamples:\n{ROWS}prompt: {{template: {template!r}}}\nscore: {score}\n{more}")
    evaluation = Evaluation(load_suite(path))
    evaluation.fingerprints()
    return evaluation


@pytest.mark.parametrize(
    "template",
    [
        "{{ lettered_choices }}",
        "{% for choice in choices %}({{ labels[loop.index0] }}) {{ choice }} {% endfor %}",
        "{% for choice in choices %}{{ labels[loop.index0] }}: **{{ choice }}** {% endfor %}",
    ],
)
def test_options_under_their_letters(tmp_path: Path, template: str) -> None:
    ask(tmp_path, template)


@pytest.mark.parametrize(
    "template",
    ["A. {{ row.choices[0] }} B. {{ row.choices[1] }} C. {{ row.choices[2] }}", "{{ choices | join(', ') }}"],
)
def test_shuffled_options_under_other_letters_or_none(tmp_path: Path, template: str) -> None:
    with pytest.raises(SuiteError, match=r"does not show the option .* under its letter [ABC]"):
        ask(tmp_path, template)


def test_letters_as_choices_cannot_be_shuffled(tmp_path: Path) -> None:
    """Each option is a letter that every prompt shows, and not under the letter that the shuffle gives it."""
    template = "A. {{ row.choices[0] }} B. {{ row.choices[1] }} C. {{ row.choices[2] }}"
    with pytest.raises(SuiteError, match="options are shuffled"):
        ask(tmp_path, template, more="choices: [A, B, C]\n")
    ask(tmp_path, template, score="{letter: {shuffle: false}}", more="choices: [A, B, C]\n")
