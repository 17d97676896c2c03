"""``--llm-show-prompts``."""

from __future__ import annotations

import pytest

from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import FAKE_MODEL_CONFTEST, model_calls


def test_prompts_with_the_scored_part_marked(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-show-prompts", "-k", "q2 or s1", ".")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "capitals.yaml::q2",
            "Question: Capital of Italy?",
            "Answer:⟦ Paris⟧",
            "⟦ Rome⟧ [*]",
            "⟦ Oslo⟧",
            "⟦ Bern⟧",
            "target: Rome",
            "",
            "sums.yaml::s1",
            "1 + 1 =⟦reply of up to 256 tokens⟧",
            "target: 2",
        ],
        consecutive=True,
    )
    assert model_calls(llm_pytester.path) == []


def test_it_needs_no_model(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    assert llm_pytester.runpytest("--llm-show-prompts", "capitals.yaml").ret == 0


def test_chat_turns_are_shown(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", sums=SUMS + "prompt: {chat: true, system: Be brief., template: '{{ question }}'}\n")
    result = llm_pytester.runpytest("--llm-show-prompts", "sums.yaml::s1")
    result.stdout.fnmatch_lines(
        ["(turns, before*", "<system> Be brief.", "<user> 1 + 1 =", "<assistant> ⟦reply of up to 256 tokens⟧"]
    )


def test_the_judge_s_prompts_are_shown(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """As they are first asked; nobody is asked, and the model's reply has a placeholder."""
    suite = "suite: j\nsamples: [{id: a, question: Say it., target: It.}]\nscore: {equivalence: {math: false}}\n"
    llm_pytester.makefile(".yaml", j=suite)
    result = llm_pytester.runpytest(*workers, "--llm-show-prompts", "j.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "Say it.⟦reply of up to * tokens⟧",
            "target: It.",
            "judge (turns, before its chat template)",
            "<system> You decide whether a reply to a question gives the same answer as a reference answer.*",
            "<user> Question:",
            "Reply:",
            "⟦the reply⟧",
        ]
    )
