"""Few-shot examples and the beginning of the reply, as a user sees them."""

from __future__ import annotations

import json
import random

import pytest

from tests.support import FAKE_MODEL_CONFTEST, model_calls

ROWS = [{"question": f"q{n}", "target": f"t{n}", "subject": ("law", "art")[n % 2]} for n in range(1, 11)]
HEAD = "suite: s\nscore: exact\ndataset: {path: d.jsonl}\n"


def write(pytester: pytest.Pytester, prompt: str) -> None:
    pytester.makeconftest(FAKE_MODEL_CONFTEST)
    pytester.path.joinpath("d.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
    pytester.path.joinpath("s.yaml").write_text(HEAD + prompt)


def asked(pytester: pytest.Pytester) -> list[str]:
    return sorted(prompt for call in model_calls(pytester.path, "generate") for prompt in call["prompts"])


def shown(*parts: tuple[dict[str, str], bool]) -> str:
    return "\n\n".join(row["question"] + f" {row['target']}" * is_answered for row, is_answered in parts)


def test_every_process_draws_the_same_examples(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    write(llm_pytester, "prompt: {template: '{{ question }}', fewshot: {count: 3, sampler: lm_eval, seed: 7}}\n")
    assert llm_pytester.runpytest(*workers).ret == 0
    stream = random.Random(7)
    expected = []
    for row in ROWS:
        shots = [shot for shot in stream.sample(ROWS, 4) if shot != row][:3]
        expected.append(shown(*((shot, True) for shot in shots), (row, False)))
    assert asked(llm_pytester) == sorted(expected)


def test_examples_of_the_own_subject(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    write(
        llm_pytester,
        "prompt: {template: '{{ question }}', fewshot: {count: 2, sampler: first_n, match: subject}}\n",
    )
    assert llm_pytester.runpytest(*workers, "--llm-set", "s: prompt.fewshot.count=1").ret == 0
    first = {"law": ROWS[1:4:2], "art": ROWS[0:3:2]}
    expected = []
    for row in ROWS:
        shot = next(shot for shot in first[row["subject"]] if shot != row)
        expected.append(shown((shot, True), (row, False)))
    assert asked(llm_pytester) == sorted(expected)


TURNS = """\
prompt:
  system: "On {{ subject }}."
  template: "{{ question }}"
  prefix: "Answer:"
  chat: true
  fewshot: {count: 1, sampler: first_n, multi_turn: true}
"""


def test_turns_and_the_beginning_of_the_reply_are_shown(llm_pytester: pytest.Pytester) -> None:
    write(llm_pytester, TURNS)
    result = llm_pytester.runpytest("--llm-show-prompts", "s.yaml::2")
    result.stdout.fnmatch_lines(
        [
            "(turns, before the model's chat template)",
            "<system> On law.",
            "<user> q1",
            "<assistant> Answer: t1",
            "<user> q2",
            "<assistant> Answer:⟦reply of up to 256 tokens⟧",
            "target: t2",
        ],
        consecutive=True,
    )


def test_the_beginning_of_the_reply_is_shown_without_a_chat(llm_pytester: pytest.Pytester) -> None:
    write(llm_pytester, TURNS)
    arguments = ("--llm-set", "s: prompt.chat=false", "--llm-set", "s: prompt.fewshot.multi_turn=false")
    result = llm_pytester.runpytest("--llm-show-prompts", *arguments, "s.yaml::2")
    result.stdout.fnmatch_lines(
        ["On law.", "", "q1 Answer: t1", "", "q2 Answer:⟦reply of up to 256 tokens⟧", "target: t2"], consecutive=True
    )


def test_a_field_that_no_row_has_is_a_collection_error(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    write(llm_pytester, "prompt:\n  fewshot: {count: 1, match: topic}\n")
    result = llm_pytester.runpytest(*workers)
    # pytest-xdist fails the session where pytest alone interrupts it
    assert result.ret == (pytest.ExitCode.TESTS_FAILED if "-n2" in workers else pytest.ExitCode.INTERRUPTED)
    result.stdout.fnmatch_lines(
        [
            "*s.yaml:5: prompt.fewshot.match: sample '1' (d.jsonl:1): there is no value 'topic'; "
            "expected one of question, subject, target"
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert asked(llm_pytester) == []
