"""Another prompt for the same questions: samples are paired by question, target and scorer; what changed is shown."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.reporting.storage.report_file import read_report, write_report

MODEL = """
import re

def one(prompt):
    \"\"\"Add, but not above 20 where the prompt says careful.\"\"\"
    number = int(re.findall(r"(\\d+) \\+", prompt)[-1])
    return "?" if "careful" in prompt and number > 20 else f"{number + 1}"

def lines(prompt):
    return f"Let me think.\\n{one(prompt)}"

def other(prompt):
    return one(prompt)
"""
SUITE: dict[str, Any] = {
    "suite": "sums",
    "prompt": {"template": "Answer with a number.\nQuestion: {{ question }}\nAnswer:"},
    "score": "exact",
    "samples": [{"id": f"q{n}", "question": f"{n} + 1 =", "target": str(n + 1)} for n in range(1, 41)],
}
QUESTIONS = ("--llm-baseline=base.json", "--llm-compare=questions", "--llm-report=now.json")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makepyfile(agents=MODEL)
    return llm_pytester


def run(project: pytest.Pytester, suite: dict[str, Any], *arguments: str, model: str = "one") -> pytest.RunResult:
    (project.path / "sums.yaml").write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
    return project.runpytest(f"--llm-model=python:agents:{model}", *arguments, "sums.yaml")


def text_of(result: pytest.RunResult) -> str:
    return " ".join(result.stdout.str().split())


def gates_in(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["gates"]
    return found


TEMPLATE = SUITE["prompt"]["template"]
CHANGES: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    # keys of the suite, what the gate says of it, lines of the diff
    "template": (
        {"prompt": {"template": TEMPLATE.replace("Answer with", "Write")}},
        "prompt.template",
        ["-  Answer with a number.", "+  Write a number."],
    ),
    "system": (
        {"prompt": {"template": TEMPLATE, "system": "You add."}},
        "prompt.system",
        ['+prompt.system: "You add."'],
    ),
    "generation": ({"generate": {"max_tokens": 7}}, "generate.max_tokens", ["+generate.max_tokens: 7"]),
    "examples": (
        {"prompt": {"template": TEMPLATE, "fewshot": {"count": 2, "sampler": "first_n"}}},
        "prompt.fewshot.count, prompt.fewshot.sampler",
        ["+prompt.fewshot.count: 2", '+prompt.fewshot.sampler: "first_n"'],
    ),
    "filters": (
        {"filters": [{"regex": "[0-9]+"}, "strip"]},
        "filters",
        ['+  - {"kind": "regex", "pattern": "[0-9]+"}', '+  - {"kind": "strip"}'],
    ),
}


@pytest.mark.parametrize(
    "change",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in ("system", "generation", "filters"))) for name in CHANGES],
)
def test_what_changed_is_said_and_shown(project: pytest.Pytester, workers: list[str], change: str) -> None:
    keys, told, lines = CHANGES[change]
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    result = run(project, {**SUITE, **keys}, *workers, "--llm-baseline=base.json")
    assert result.ret == 1
    assert "--llm-compare questions those with the same question and target" in text_of(result)
    result = run(project, {**SUITE, **keys}, *workers, *QUESTIONS, "--llm-report=now.md", "--llm-report=now.html")
    assert result.ret == 0
    assert f"compared by questions: {told} changed;" in text_of(result)
    (gate,) = gates_in(project.path / "now.json")
    assert (gate["outcome"], gate["regression"]["n"]) == ("passed", 40)
    for line in lines:
        assert line in gate["prompt_diff"]
        result.stdout.fnmatch_lines([f"    {line.replace('[', '[[]')}"])
        assert f"\n{line}\n" in (project.path / "now.md").read_text(encoding="utf-8")
    assert "how its questions are asked" in (project.path / "now.html").read_text(encoding="utf-8")


def test_a_prompt_that_is_worse_fails(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    careful = {**SUITE, "prompt": {"template": "Be careful. {{ question }}"}}
    result = run(project, careful, *workers, *QUESTIONS)
    assert result.ret == 1
    assert "accuracy 1.000 -> 0.500" in text_of(result)
    assert "20 samples became wrong and 0 right" in text_of(result)
    for command in (("compare", "base.json", "now.json"), ("gate", "now.json", "--baseline", "base.json")):
        decided = project.run("llmeval", *command, "--compare", "questions")
        assert decided.ret == 1
        assert "compared by questions: prompt.template changed" in text_of(decided)
        assert "+prompt.template" in decided.stdout.str()


VARIANTS = {
    "short": {"prompt.template": "{{ question }}"},
    "careful": {"prompt.template": "Be careful. {{ question }}"},
}


def test_variants_are_compared_with_the_suite_that_had_none(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    suite = {**SUITE, "variants": VARIANTS}
    result = run(project, suite, *workers, *QUESTIONS)
    assert result.ret == 1
    short, careful = gates_in(project.path / "now.json")
    assert (short["suite"], short["outcome"]) == ("sums@short", "passed")
    assert (careful["suite"], careful["outcome"]) == ("sums@careful", "failed")
    for gate, name in ((short, "short"), (careful, "careful")):
        # The comparison of the variants with each other is no test of this family.
        assert (gate["regression"]["n"], gate["regression"]["family"]) == (40, 2)
        assert [line for line in gate["prompt_diff"] if line[0] in "-+"][2:] == [
            *("-prompt.template: |", *(f"-  {line}" for line in TEMPLATE.splitlines())),
            f'+prompt.template: "{VARIANTS[name]["prompt.template"]}"',
        ]
    decided = project.run("llmeval", "compare", "base.json", "now.json", "--compare", "questions")
    assert decided.ret == 1
    assert "sums@careful, accuracy vs baseline: accuracy 1.000 -> 0.500" in text_of(decided)
    result = run(project, suite, *workers, "--llm-baseline=base.json")
    assert result.ret == 1  # as ever, only what is the same is compared
    assert "failed: sums, accuracy vs baseline: in the baseline, and did not run; --llm-compare questions" in text_of(
        result
    )
    with_both = run(project, SUITE, *workers, *QUESTIONS[:1], "--llm-variant=sums: short: prompt.system=You add.")
    assert with_both.ret == 0
    assert "skipped: sums@short, accuracy vs baseline: not in the baseline, which has 'sums': --llm-compare" in text_of(
        with_both
    )


def test_a_suite_is_compared_with_the_variant_that_it_was(project: pytest.Pytester, workers: list[str]) -> None:
    """The walk back: of the variants that were tried, one becomes the suite's prompt."""
    assert run(project, {**SUITE, "variants": VARIANTS}, *workers, "--llm-report=base.json", "-k", "short").ret == 0
    chosen = {**SUITE, "prompt": {"template": VARIANTS["short"]["prompt.template"]}}
    refused = run(project, chosen, *workers, "--llm-baseline=base.json")
    assert refused.ret == 1
    assert "failed: sums@short, accuracy vs baseline: in the baseline, and did not run; --llm-compare" in text_of(
        refused
    )
    assert run(project, chosen, *workers, *QUESTIONS).ret == 0
    (gate,) = gates_in(project.path / "now.json")
    assert (gate["suite"], gate["outcome"], gate["regression"]["n"]) == ("sums", "passed", 40)
    assert gate["notes"] == ["compared with 'sums@short' of the baseline"]
    # Of several variants it is the one that asks in the same way; the others are gone.
    assert run(project, {**SUITE, "variants": VARIANTS}, *workers, "--llm-report=base.json").ret == 0
    careful = {**SUITE, "prompt": {"template": VARIANTS["careful"]["prompt.template"]}}
    assert run(project, careful, *workers, *QUESTIONS).ret == 1
    own, gone = gates_in(project.path / "now.json")
    assert (own["suite"], own["outcome"], own["notes"]) == (
        "sums",
        "passed",
        ["compared with 'sums@careful' of the baseline"],
    )
    assert (gone["suite"], gone["outcome"], gone["reason"]) == (
        "sums@short",
        "failed",
        "in the baseline, and did not run",
    )


def test_variants_are_compared_with_several_reports_of_the_suite_that_had_none(
    project: pytest.Pytester, workers: list[str]
) -> None:
    """Another suite is compared beside them, so that an exit code of 0 could hide that they are not."""
    other = yaml.safe_dump({**SUITE, "suite": "other"}, sort_keys=False)
    (project.path / "other.yaml").write_text(other, encoding="utf-8")
    for number in (1, 2):
        assert run(project, SUITE, *workers, f"--llm-report=runs/{number}.json", "other.yaml").ret == 0
    arguments = ("--llm-baseline=runs/*.json", "--llm-compare=questions", "--llm-report=now.json", "other.yaml")
    assert run(project, {**SUITE, "variants": VARIANTS}, *workers, *arguments).ret == 1
    assert [
        (gate["suite"], gate["name"], gate["outcome"], gate["regression"]["n"])
        for gate in gates_in(project.path / "now.json")
    ] == [
        ("other", "accuracy vs mean of 2 reports", "passed", 40),
        ("sums@short", "accuracy vs mean of 2 reports", "passed", 40),
        ("sums@careful", "accuracy vs mean of 2 reports", "failed", 40),
        ("other", "accuracy vs oldest report", "passed", 40),
        ("sums@short", "accuracy vs oldest report", "passed", 40),
        ("sums@careful", "accuracy vs oldest report", "failed", 40),
    ]


def test_variants_are_compared_with_those_of_their_names(project: pytest.Pytester, workers: list[str]) -> None:
    suite = {**SUITE, "variants": VARIANTS}
    assert run(project, suite, *workers, "--llm-report=base.json").ret == 0
    changed = {**VARIANTS, "careful": {"prompt.template": "Be very careful. {{ question }}"}}
    assert run(project, {**suite, "variants": changed}, *workers, *QUESTIONS).ret == 0
    gates = gates_in(project.path / "now.json")
    assert [(gate["suite"], gate["outcome"]) for gate in gates] == [
        ("sums@short", "passed"),
        ("sums@careful", "passed"),
    ]
    assert [[line for line in gate["prompt_diff"] if line[0] in "-+"][2:] for gate in gates] == [
        [],
        ['-prompt.template: "Be careful. {{ question }}"', '+prompt.template: "Be very careful. {{ question }}"'],
    ]
    # A variant that was not selected is undecided, as a suite is.
    assert run(project, suite, *workers, *QUESTIONS, "-k", "short").ret == 0
    gates = gates_in(project.path / "now.json")
    assert [(gate["suite"], gate["outcome"]) for gate in gates] == [
        ("sums@short", "passed"),
        ("sums@careful", "skipped"),
    ]
    assert run(project, {**suite, "variants": {"short": VARIANTS["short"]}}, *workers, *QUESTIONS).ret == 1


def test_the_same_suite_is_compared_as_ever(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    result = run(project, SUITE, *workers, *QUESTIONS)
    assert result.ret == 0
    assert "compared by questions" not in text_of(result)
    assert gates_in(project.path / "now.json")[0]["prompt_diff"] == []


def test_questions_and_targets_that_changed_are_left_out(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    first, second, third, *others = SUITE["samples"]
    changed = [{**first, "question": "10 + 1 ="}, {**second, "target": "4"}, third, *others[:-1]]
    result = run(project, {**SUITE, "samples": changed, **CHANGES["template"][0]}, *workers, *QUESTIONS)
    told = "37 of 40 samples have the same question and target in both; of the baseline's 40 samples, 1 is gone ('q40')"
    assert f"{told} and 2 changed" in text_of(result)
    assert gates_in(project.path / "now.json")[0]["regression"]["n"] == 37


def test_questions_that_are_gone_are_named_and_decide_nothing(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    fewer = {**SUITE, "samples": SUITE["samples"][5:], **CHANGES["template"][0]}
    result = run(project, fewer, *workers, *QUESTIONS)
    assert result.ret == 0
    assert "of the baseline's 40 samples, 5 are gone ('q1', 'q2', 'q3', …)" in text_of(result)
    # Those that a selection leaves out are not gone.
    result = run(project, {**SUITE, **CHANGES["template"][0]}, *workers, *QUESTIONS, "--llm-limit=30")
    assert result.ret == 0
    assert "30 of 40 samples: a selection" in text_of(result)
    assert "are gone (" not in text_of(result)


NOT_ASKED = "the replies come from a file, and were not asked with this prompt"


def replayed(project: pytest.Pytester, suite: dict[str, Any], *arguments: str, file: str = "r.jsonl") -> str:
    """Run the suite on replies from a file, and return the output with the exit code."""
    replies = [json.dumps({"id": one["id"], "response": one["target"]}) for one in SUITE["samples"]]
    (project.path / "r.jsonl").write_text("\n".join(replies), encoding="utf-8")
    (project.path / "sums.yaml").write_text(yaml.safe_dump(suite, sort_keys=False), encoding="utf-8")
    result = project.runpytest(f"--llm-model=replay:{file}", *arguments, "sums.yaml")
    return f"exit {int(result.ret)}: {text_of(result)}"


@pytest.mark.parametrize("file", ["r.jsonl", pytest.param("base.json", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "change", ["template", "generation", *(pytest.param(one, marks=pytest.mark.slow) for one in ("system", "examples"))]
)
def test_replies_from_a_file_are_none_to_a_changed_prompt(project: pytest.Pytester, change: str, file: str) -> None:
    replayed(project, SUITE, "--llm-report=base.json")
    found = replayed(project, {**SUITE, **CHANGES[change][0]}, *QUESTIONS, file=file)
    assert found.startswith("exit 1: ")
    assert f"failed: baseline: nothing was compared: {NOT_ASKED}" in found
    assert [gate["outcome"] for gate in gates_in(project.path / "now.json")] == ["skipped", "failed"]
    decided = project.run("llmeval", "gate", "now.json", "--baseline", "base.json", "--compare", "questions")
    assert decided.ret == 1
    assert NOT_ASKED in text_of(decided)


def test_replies_from_another_file_may_be_those_to_the_new_prompt(project: pytest.Pytester) -> None:
    """Whoever records replies elsewhere has a new file for a new prompt."""
    replayed(project, SUITE, "--llm-report=base.json")
    rows = [json.dumps({"id": one["id"], "response": "no answer"}) for one in SUITE["samples"]]
    (project.path / "new.jsonl").write_text("\n".join(rows), encoding="utf-8")
    found = replayed(project, {**SUITE, **CHANGES["template"][0]}, *QUESTIONS, file="new.jsonl")
    assert NOT_ASKED not in found
    assert "the model changed" in found or "samples became wrong" in found


def test_replies_from_a_file_are_undecided_where_other_suites_are_compared(
    project: pytest.Pytester, workers: list[str]
) -> None:
    (project.path / "more.yaml").write_text(
        yaml.safe_dump({**SUITE, "suite": "more"}, sort_keys=False), encoding="utf-8"
    )
    replayed(project, SUITE, *workers, "more.yaml", "--llm-report=base.json")
    changed = {**SUITE, **CHANGES["template"][0]}
    found = replayed(project, changed, *workers, *QUESTIONS, "more.yaml")
    assert found.startswith("exit 0: ")
    assert f"skipped: sums, accuracy vs baseline: {NOT_ASKED}" in found
    assert replayed(project, changed, *workers, *QUESTIONS, "more.yaml", "--llm-require-gates").startswith("exit 1: ")


@pytest.mark.parametrize(
    "keys", [{}, CHANGES["filters"][0], {"generate": {"reasoning": False}}, {"samples": SUITE["samples"][::-1]}]
)
def test_replies_from_a_file_are_compared_if_the_prompt_did_not_change(
    project: pytest.Pytester, keys: dict[str, Any]
) -> None:
    replayed(project, SUITE, "--llm-report=base.json")
    found = replayed(project, {**SUITE, **keys}, *QUESTIONS)
    assert found.startswith("exit 0: ")
    assert "gates: 1 passed" in found
    assert NOT_ASKED not in found


def test_replies_in_the_data_are_none_to_a_changed_prompt(project: pytest.Pytester) -> None:
    rows = [json.dumps({**one, "response": one["target"]}) for one in SUITE["samples"]]
    (project.path / "rows.jsonl").write_text("\n".join(rows), encoding="utf-8")
    suite = {**{key: value for key, value in SUITE.items() if key != "samples"}, "dataset": {"path": "rows.jsonl"}}
    for keys in ({}, CHANGES["template"][0]):
        (project.path / "sums.yaml").write_text(yaml.safe_dump({**suite, **keys}, sort_keys=False), encoding="utf-8")
        result = project.runpytest(*(QUESTIONS if keys else ("--llm-report=base.json",)), "sums.yaml")
        assert (result.ret, NOT_ASKED in text_of(result)) == ((1, True) if keys else (0, False))


def test_variants_on_replies_from_a_file_say_that_nothing_asked_them(
    project: pytest.Pytester, workers: list[str]
) -> None:
    rows = [
        json.dumps({"suite": f"sums@{variant}", "id": one["id"], "response": one["target"]})
        for variant in VARIANTS
        for one in SUITE["samples"]
    ]
    (project.path / "both.jsonl").write_text("\n".join(rows), encoding="utf-8")
    found = replayed(project, {**SUITE, "variants": VARIANTS}, *workers, "--llm-report=now.json", file="both.jsonl")
    assert f"sums@careful against short: {NOT_ASKED}" in found
    variants = json.loads((project.path / "now.json").read_text(encoding="utf-8"))["variants"]
    assert [one["note"] for one in variants] == [NOT_ASKED]
    asked = run(project, {**SUITE, "variants": VARIANTS}, *workers)
    assert NOT_ASKED not in text_of(asked)


OTHER_JUDGING: dict[str, dict[str, Any]] = {
    "another scorer": {"score": "contains"},
    "another setting": {"score": {"exact": {"normalize": ["lower"]}}},
    "a filter that changes what a text means": {"filters": ["lower"]},
    "replies to epochs": {"generate": {"temperature": 1.0}, "epochs": 2},
}


@pytest.mark.parametrize("change", OTHER_JUDGING)
def test_another_way_of_judging_is_refused(project: pytest.Pytester, workers: list[str], change: str) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    result = run(project, {**SUITE, **OTHER_JUDGING[change], **CHANGES["template"][0]}, *workers, *QUESTIONS)
    assert result.ret == 1
    assert "the replies are judged in another way: the scorer differs" in text_of(result)


@pytest.mark.parametrize(("judge", "told"), [("kind", None), ("strict", "another judge: ")])
def test_the_judge_must_be_the_same(project: pytest.Pytester, workers: list[str], judge: str, told: str | None) -> None:
    functions = ["def kind(prompt):\n    return 'Yes'", "def strict(prompt):\n    return 'No'"]
    project.makepyfile(judges="\n\n".join(functions))
    judged = {**SUITE, "score": {"equivalence": {"math": False}}}
    assert run(project, judged, *workers, "--llm-judge=python:judges:kind", "--llm-report=base.json").ret == 0
    changed = {**judged, **CHANGES["template"][0]}
    result = run(project, changed, *workers, f"--llm-judge=python:judges:{judge}", *QUESTIONS)
    assert (result.ret, told is None or told in text_of(result)) == (0 if told is None else 1, True)


@pytest.mark.parametrize("how", ["none", "hash"])
def test_reports_without_prompts_hold_none_of_their_settings(
    project: pytest.Pytester, workers: list[str], how: str
) -> None:
    """Neither this session's nor the baseline's, also where the baseline has them."""
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    secret = {**SUITE, "prompt": {"template": "My own words: {{ question }}", "system": "You add."}}
    reports = [f"--llm-report=now.{form}" for form in ("json", "md", "html")]
    result = run(project, secret, *workers, *QUESTIONS[:2], *reports, f"--llm-report-prompts={how}")
    assert "compared by questions: prompt.template, prompt.system changed" in text_of(result)
    for form in ("json", "md", "html"):
        written = (project.path / f"now.{form}").read_text(encoding="utf-8")
        assert not any(text in written for text in ("My own", "You add", "Answer with"))
    assert (project.path / "now.json").rename(project.path / "base.json")
    result = run(project, secret, *workers, *QUESTIONS)
    assert result.ret == 0
    assert "compared by questions" not in text_of(result)
    again = run(project, {**secret, "prompt": {"template": "My own words: {{ question }}"}}, *workers, *QUESTIONS)
    assert "compared by questions: prompt.system changed" in text_of(again)
    again.stdout.fnmatch_lines(['    -prompt.system: "sha256:*'])


def test_nothing_in_common_is_refused(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    others = [{**row, "question": f"{row['question']} ?"} for row in SUITE["samples"]]
    result = run(project, {**SUITE, "samples": others}, *workers, *QUESTIONS)
    assert result.ret == 1
    assert "no question is known to be the same in both" in text_of(result)


def test_the_model_may_change_too_and_the_gate_says_so(project: pytest.Pytester, workers: list[str]) -> None:
    changed = {**SUITE, **CHANGES["template"][0]}
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    result = run(project, changed, *workers, *QUESTIONS, model="other")
    assert "the model changed too: 'python:agents:one' -> 'python:agents:other'" in text_of(result)
    result = run(project, changed, *workers, *QUESTIONS)
    assert "the model's code is the same" in text_of(result)


def test_the_model_may_have_changed_under_its_name(project: pytest.Pytester, workers: list[str]) -> None:
    assert run(project, SUITE, *workers, "--llm-report=base.json").ret == 0
    project.makepyfile(agents=f"{MODEL}\nOTHER = 1")
    result = run(project, {**SUITE, **CHANGES["template"][0]}, *workers, *QUESTIONS)
    assert "the model changed too: its code differs" in text_of(result)


def test_filters_read_the_baselines_own_replies_anew(project: pytest.Pytester, workers: list[str]) -> None:
    """Nothing is asked again, and what is compared is the filters."""
    store = ("--llm-store=store", "--llm-store-max-age=1d")
    assert run(project, SUITE, *workers, *store, "--llm-report=base.json", model="lines").ret == 0
    last_line = {**SUITE, "filters": ["last_line"]}
    result = run(project, last_line, *workers, *store, *QUESTIONS, model="lines")
    assert result.ret == 0
    assert "accuracy 0.000 -> 1.000" in text_of(result)
    assert "the prompts are the same: these may be the baseline's own replies, read by other filters" in text_of(result)


def test_questions_that_changed_alone_leave_the_baselines_own_replies_no_evidence(
    project: pytest.Pytester, workers: list[str]
) -> None:
    """The model may have been swapped, and nothing but a question changed: replies of a store say nothing of it."""
    store = ("--llm-store=store", "--llm-store-max-age=1d")
    assert run(project, SUITE, *workers, *store, "--llm-report=base.json").ret == 0
    first, *others = SUITE["samples"]
    changed = {**SUITE, "samples": [{**first, "target": "3"}, *others]}
    result = run(project, changed, *workers, *store, *QUESTIONS, "--llm-require-gates")
    assert result.ret == 1
    assert "39 of 39 samples are judged on the baseline's own replies, from a store" in text_of(result)
    result = run(project, changed, *workers, *QUESTIONS)
    assert "compared by questions: no setting of the prompt changed; 39 of 40 samples" in text_of(result)


def test_a_prompt_without_settings_of_its_own_has_a_diff(project: pytest.Pytester, workers: list[str]) -> None:
    plain = {name: value for name, value in SUITE.items() if name != "prompt"}
    assert run(project, plain, *workers, "--llm-report=base.json").ret == 0
    result = run(project, {**plain, "prompt": {"system": "You add."}}, *workers, *QUESTIONS)
    assert "compared by questions: prompt.system changed" in text_of(result)
    result.stdout.fnmatch_lines(['    +prompt.system: "You add."'])


def test_a_long_diff_is_cut_and_whole_in_the_report(project: pytest.Pytester) -> None:
    assert run(project, SUITE, "--llm-report=base.json").ret == 0
    template = "".join(f"Rule {n}.\n" for n in range(100)) + TEMPLATE
    result = run(project, {**SUITE, "prompt": {"template": template}}, *QUESTIONS, "--llm-report=now.md")
    (gate,) = gates_in(project.path / "now.json")
    assert sum(line.startswith("+  Rule") for line in gate["prompt_diff"]) == 100
    num_more = len(gate["prompt_diff"]) - 40
    for text in (result.stdout.str(), (project.path / "now.md").read_text(encoding="utf-8")):
        assert f"… and {num_more} more lines, all in the JSON report" in text
        assert text.count("+  Rule") <= 40


def test_texts_of_a_prompt_break_no_output(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    template = "```\n::error::x\n</pre><script>\x1b[31m\n{{ question }}"
    before = {**SUITE, "prompt": {"template": f"{template}!"}}
    assert run(project, before, "--llm-report=base.json").ret == 0
    result = run(
        project, {**SUITE, "prompt": {"template": template}}, *QUESTIONS, "--llm-report=now.md", "--llm-report=now.html"
    )
    assert not [line for line in result.outlines if line.strip().startswith("::error::x")]
    assert [line for line in result.outlines if "::error::x" in line or "error::x" in line]
    assert "\x1b[31m" not in result.stdout.str()
    assert "````diff" in (project.path / "now.md").read_text(encoding="utf-8")
    assert "</pre><script>" not in (project.path / "now.html").read_text(encoding="utf-8")


def test_a_baseline_of_an_earlier_version(project: pytest.Pytester) -> None:
    """It holds hashes of the whole alone: questions that are all the same are compared, others are not known."""
    assert run(project, SUITE, "--llm-report=new.json").ret == 0
    report = read_report(project.path / "new.json")
    records = [replace(record, question_fingerprint=None) for record in report.records]
    (suite,) = report.suites
    parts = {name: part for name, part in suite.info.fingerprint_parts.items() if name != "judging"}
    info = replace(suite.info, fingerprint_parts=parts, asked_with={})
    write_report(replace(report, records=records, suites=(replace(suite, info=info),)), project.path / "base.json")
    changed = {**SUITE, **CHANGES["template"][0]}
    result = run(project, changed, *QUESTIONS)
    assert result.ret == 0
    assert "compared by questions: the prompt changed" in text_of(result)
    assert gates_in(project.path / "now.json")[0]["prompt_diff"] == []
    result = run(project, {**changed, "samples": SUITE["samples"][1:]}, *QUESTIONS)
    assert result.ret == 1
    assert "make the baseline anew if an earlier version wrote it" in text_of(result)
    result = run(project, {**changed, "filters": ["strip"]}, *QUESTIONS)
    assert result.ret == 1
    assert "a report of an earlier version does not say which" in text_of(result)


@pytest.mark.parametrize("way", ["ini", "environment"])
def test_where_it_is_said(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    assert run(project, SUITE, "--llm-report=base.json").ret == 0
    if way == "ini":
        project.makeini("[pytest]\nllm_compare = questions\n")
    else:
        monkeypatch.setenv("PYTEST_LLM_COMPARE", "questions")
    result = run(project, {**SUITE, **CHANGES["template"][0]}, "--llm-baseline=base.json")
    assert result.ret == 0
    assert "compared by questions: prompt.template changed" in text_of(result)


def test_a_misspelt_level(project: pytest.Pytester) -> None:
    result = run(project, SUITE, "--llm-compare=question")
    assert result.ret == 4
    assert "all, common or questions" in " ".join(result.stderr.str().split())
