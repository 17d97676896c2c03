"""Each preset beside lm-eval's task: the same requests and the same numbers, sample by sample."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_llmeval.suites.presets import load_preset
from pytest_llmeval.templates.templates import Templates
from tests.presets.comparisons import CASES, CHATS, Case, compare, is_known_to_differ
from tests.properties import examples

pytestmark = [
    pytest.mark.slow,  # lm-eval takes seconds to import
    # Python warns when it first compiles a module of lm-eval 0.4.13, which then fails where warnings are errors.
    pytest.mark.filterwarnings("ignore:invalid escape sequence:DeprecationWarning"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_preset_is_lm_evals_task(case: Case) -> None:
    found = compare(case)
    assert found.differences == []
    assert found.requests.total == len(case.rows)
    assert found.scores.total == len(case.rows) * len(case.numbers)
    accuracies = [value for metric, own in found.values.items() if metric.endswith("accuracy") for value in own]
    if accuracies and len(case.rows) > 3:
        assert 0 < sum(accuracies) < len(accuracies), "these rows can tell nothing"


@pytest.mark.parametrize("case", CHATS, ids=str)
def test_a_preset_is_lm_evals_task_in_a_chat(case: Case) -> None:
    """But for TruthfulQA's examples as turns of their own: lm-eval's are part of the question, as its formula says."""
    assert bool(compare(case).differences) is is_known_to_differ(case)


_PIECES = st.sampled_from(
    [
        " ",
        " \n",
        "'",
        '"',
        *"()[]{}=\n.,;:!?N°\t",
        " @-@ ",
        " @,@ ",
        " @.@ ",
        "s '",
        " 's",
        "/' 9/",
        "é",
        "\\1",
        "{{ x }}",
    ]
)


@settings(max_examples=examples(2000))
@given(st.lists(_PIECES, min_size=1, max_size=40).map("".join))
def test_pages_of_wikitext_are_detokenised_as_by_lm_eval(page: str) -> None:
    from lm_eval.tasks.wikitext.preprocess_wikitext import wikitext_detokenizer

    template = load_preset("wikitext").defaults["dataset"]["fields"]["text"]
    assert Templates().value(template, {"page": page}) == wikitext_detokenizer({"page": page})
