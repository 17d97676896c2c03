"""``--llm-model replay:FILE``, and data sets that carry their responses."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

REPLIES = [{"id": f"s{n}", "response": reply} for n, reply in enumerate(SUMS_REPLIES.values(), 1)]
"""s1 and s4 right, s2 wrong, s3 without an answer."""


def jsonl(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def report_of(folder: Path, name: str = "report.json") -> Any:
    return json.loads((folder / name).read_text(encoding="utf-8"))


def statuses(report: Any) -> dict[str, str]:
    return {record["id"]: record["status"] for record in report["records"]}


def metrics(report: Any) -> dict[str, float]:
    (suite,) = report["suites"]
    return {name: metric["value"] for name, metric in suite["metrics"].items()}


def test_replies_are_scored(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    jsonl(llm_pytester.path, "out.jsonl", REPLIES[::-1])
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, "--llm-model=replay:out.jsonl", "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["llm-model: replay:out.jsonl (replies from a file)", "*2 passed, 2 wrong*"])
    report = report_of(llm_pytester.path)
    assert statuses(report) == {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "correct"}
    assert [record["output"] for record in report["records"]] == list(SUMS_REPLIES.values())
    (model,) = report["models"]
    assert (model["name"], model["backend"]) == ("replay:out.jsonl", "replay")
    details = {"kind": "rows", "num_replies": 4, "partial": False, "known_by_content": True, "costs_nothing": True}
    assert model["details"] == details


def test_two_files_are_compared(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    jsonl(llm_pytester.path, "a.jsonl", REPLIES)
    rows = [{"qid": row["id"], "text": "9"} for row in REPLIES]
    jsonl(llm_pytester.path, "b.jsonl", rows)
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = ["replay:a.jsonl", "replay:b.jsonl?id=qid&response=text", "majority"]
    result = llm_pytester.runpytest(
        *workers, *(f"--llm-model={model}" for model in models), "--llm-report=report.json", "-v", "sums.yaml"
    )
    assert result.ret == 0
    assert "sums.yaml::replay:b.jsonl?id=qid&response=text::s4" in result.stdout.str()
    report = report_of(llm_pytester.path)
    assert [suite["models"] for suite in report["suites"]] == [[model] for model in models]
    assert [suite["metrics"]["accuracy"]["value"] for suite in report["suites"]] == [0.5, 0.25, 0.25]
    assert [(one["first"], one["second"]) for one in report["comparisons"]] == [
        (models[0], models[1]),
        (models[0], models[2]),
    ]
    again = llm_pytester.runpytest(
        *workers, *(f"--llm-model={model}" for model in models), "sums.yaml::replay:b.jsonl?id=qid&response=text::s4"
    )
    again.assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (REPLIES[:3], "*out.jsonl has no reply to 's4', of the 4 samples of suite 'sums'; ?partial=true*"),
        ([*REPLIES, {"id": "s5", "response": ""}], "*out.jsonl has replies to 's5', which suite 'sums' does not have*"),
        ([*REPLIES, REPLIES[0]], "*out.jsonl has more than one reply to 's1' (out.jsonl:1, out.jsonl:5)*"),
        ([{"response": "5"}] * 3, "*out.jsonl has 3 replies without ids, and suite 'sums' has 4 samples*"),
    ],
)
def test_ids_have_to_fit(
    llm_pytester: pytest.Pytester, workers: list[str], rows: list[dict[str, Any]], words: str
) -> None:
    """Said once, when the suite is collected; nothing runs."""
    jsonl(llm_pytester.path, "out.jsonl", rows)
    llm_pytester.makefile(".yaml", sums=SUMS, capitals=CAPITALS)
    result = llm_pytester.runpytest(*workers, "--llm-model=replay:out.jsonl", "sums.yaml")
    assert result.ret in (1, 2)  # pytest-xdist ends with 1
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([words.replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_partial(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    jsonl(llm_pytester.path, "out.jsonl", REPLIES[:2])
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(
        *workers, "--llm-model=replay:out.jsonl?partial=true", "--llm-report=report.json", "-rs", "sums.yaml"
    )
    assert result.ret == 0
    result.assert_outcomes(passed=1, skipped=2)
    result.stdout.fnmatch_lines(["*sums: *skipped 2*", "*SKIPPED [[]2] sums.yaml:1: no reply in out.jsonl*"])
    (suite,) = report_of(llm_pytester.path)["suites"]
    assert (suite["num_expected"], suite["num_scored"], suite["num_skipped"]) == (2, 2, 2)
    assert suite["metrics"]["accuracy"]["value"] == 0.5


@pytest.mark.parametrize(
    ("num_replies", "outcomes", "line"),
    [
        (2, {"passed": 1, "skipped": 2}, "*SKIPPED [[]2] sums.yaml:1: no reply in out.jsonl*"),
        (4, {"passed": 2}, "*sums*"),
        (7, {"passed": 2, "warnings": 1}, "*out.jsonl: the last 3 replies are left out, since suite 'sums' has 4 *"),
    ],
)
def test_partial_in_order(
    llm_pytester: pytest.Pytester, workers: list[str], num_replies: int, outcomes: dict[str, int], line: str
) -> None:
    replies = [{"response": text} for text in ("2", "six", "8", "ten", "9", "10", "11")]
    jsonl(llm_pytester.path, "out.jsonl", replies[:num_replies])
    llm_pytester.makefile(".yaml", sums=SUMS)
    model = "--llm-model=replay:out.jsonl?partial=true"
    result = llm_pytester.runpytest(*workers, model, "--llm-report=report.json", "-rs", "-Wdefault", "sums.yaml")
    assert result.ret == 0
    result.assert_outcomes(**outcomes)
    result.stdout.fnmatch_lines([line])
    (suite,) = report_of(llm_pytester.path)["suites"]
    num_skipped = outcomes.get("skipped", 0)
    assert (suite["num_scored"], suite["num_skipped"]) == (4 - num_skipped, num_skipped)


def test_a_report_can_be_scored_again(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Replies and log-likelihoods of a run with a model give the same scores without it."""
    suites = llm_pytester.mkdir("suites")
    (suites / "conftest.py").write_text(fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES))
    (suites / "capitals.yaml").write_text(CAPITALS)
    (suites / "sums.yaml").write_text(SUMS)
    texts = "suite: texts\nsamples: [{question: A text.}, {question: Another one.}]\nscore: perplexity\n"
    (suites / "texts.yaml").write_text(texts)
    assert llm_pytester.runpytest("suites", "--llm-report=first.json").ret == 0
    (suites / "conftest.py").unlink()
    result = llm_pytester.runpytest(*workers, "suites", "--llm-model=replay:first.json", "--llm-report=second.json")
    assert result.ret == 0
    first, second = report_of(llm_pytester.path, "first.json"), report_of(llm_pytester.path, "second.json")
    assert len(second["records"]) == 9
    for one, other in zip(first["records"], second["records"], strict=True):
        kept = ("id", "suite", "status", "output", "answer", "no_answer", "chance", "details", "fingerprint")
        assert {name: one[name] for name in kept} == {name: other[name] for name in kept}
        assert other["values"] == pytest.approx(one["values"])
    assert second["models"][0]["details"]["kind"] == "report"


def test_a_report_of_several_models(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    models = ["--llm-model=random", "--llm-model=random?seed=2"]
    assert llm_pytester.runpytest(*models, "--llm-report=first.json", "capitals.yaml").ret == 0
    result = llm_pytester.runpytest("--llm-model=replay:first.json", "capitals.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(
        ["*first.json is a report on 'random', 'random[?]seed=2': choose one with [?]model=NAME*"]
    )
    result = llm_pytester.runpytest(
        "--llm-model=replay:first.json?model=random?seed=2", "--llm-report=second.json", "capitals.yaml"
    )
    assert result.ret == 0
    first, second = report_of(llm_pytester.path, "first.json"), report_of(llm_pytester.path, "second.json")
    expected = [record["answer"] for record in first["records"] if record["model"] == "random?seed=2"]
    assert [record["answer"] for record in second["records"]] == expected


CHOICES: list[dict[str, Any]] = [
    {"id": "q1", "loglikelihoods": [-1.0, -2.0, -3.0, -4.0]},
    {"id": "q2", "loglikelihoods": [-4.0, -2.0, -3.0, -4.0]},
    {"id": "q3", "loglikelihoods": [-1.0, -2.0, -3.0, -4.0]},
]


def test_numbers_of_tokens_that_nobody_counted(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Per token is an error, the other normalisations are computed, and no number of tokens is made up."""
    jsonl(llm_pytester.path, "out.jsonl", CHOICES)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    run = [*workers, "--llm-model=replay:out.jsonl", "--llm-report=report.json", "capitals.yaml"]
    result = llm_pytester.runpytest(*run)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*without numbers of tokens, and the suite compares them per token: give num_tokens*"])
    result = llm_pytester.runpytest(*run, "--llm-set=capitals: score.choice.normalize=sum")
    assert result.ret == 0
    found = metrics(report_of(llm_pytester.path))
    assert found["accuracy"] == found["accuracy_sum"] == pytest.approx(2 / 3)
    assert found["accuracy_char"] == pytest.approx(2 / 3)
    assert found.get("accuracy_token") is None


def test_scores_are_what_they_are(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """No normalisation by length applies to an option's score, and no accuracy by one is reported."""
    rows = [{"id": row["id"], "logits": [value + 9 for value in row["loglikelihoods"]]} for row in CHOICES]
    jsonl(llm_pytester.path, "out.jsonl", rows)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    reports = []
    for normalize in ("token", "byte"):
        result = llm_pytester.runpytest(
            *workers,
            "--llm-model=replay:out.jsonl",
            "--llm-report=report.json",
            f"--llm-set=capitals: score.choice.normalize={normalize}",
            "capitals.yaml",
        )
        assert result.ret == 0
        reports.append(metrics(report_of(llm_pytester.path)))
    assert reports[0] == reports[1]
    assert reports[0]["accuracy"] == pytest.approx(2 / 3)
    assert reports[0].get("accuracy_byte") is None


def test_pairs_of_logits(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    (llm_pytester.path / "out.csv").write_text("id,yes,no\na,2.5,-1\nb,0.5,1.5\n")
    llm_pytester.makefile(
        ".yaml",
        facts="suite: facts\nsamples: [{id: a, question: x, target: 'yes'}, {id: b, question: y, target: 'yes'}]\n"
        "score: {yes_no: {by: loglikelihood}}\n",
    )
    result = llm_pytester.runpytest(
        *workers, "--llm-model=replay:out.csv?scores=yes,no", "--llm-report=report.json", "facts.yaml"
    )
    assert result.ret == 0
    report = report_of(llm_pytester.path)
    assert statuses(report) == {"a": "correct", "b": "wrong"}
    assert report["records"][0]["details"]["probabilities"][0] == pytest.approx(0.9706877692)  # 1 / (1 + e^-3.5)


def test_epochs(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    jsonl(llm_pytester.path, "out.jsonl", [{"id": f"s{n}", "response": ["2", "5", "2"]} for n in range(1, 5)])
    llm_pytester.makefile(".yaml", sums=SUMS + "epochs: {count: 3, reduce: mode}\ngenerate: {temperature: 1}\n")
    result = llm_pytester.runpytest(*workers, "--llm-model=replay:out.jsonl", "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    report = report_of(llm_pytester.path)
    assert statuses(report) == {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "wrong"}
    again = llm_pytester.runpytest(*workers, "--llm-model=replay:report.json", "--llm-report=second.json", "sums.yaml")
    assert again.ret == 0
    assert statuses(report_of(llm_pytester.path, "second.json")) == statuses(report)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("replay:missing.jsonl", "ERROR: model replay:missing.jsonl: missing.jsonl: there is no such file*"),
        ("replay:sums.txt", "ERROR: model replay:sums.txt: sums.txt: found the suffix '.txt', expected one of .jsonl*"),
        (
            "replay:out.jsonl?respnse=x",
            "ERROR: --llm-model replay:out.jsonl?respnse=x: there is no argument*",
        ),
    ],
)
def test_what_is_refused_before_the_run(
    llm_pytester: pytest.Pytester, workers: list[str], model: str, message: str
) -> None:
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*workers, f"--llm-model={model}", "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([message.replace("?", "[?]")])
    result.stderr.no_fnmatch_line("*Traceback*")


@pytest.mark.fresh_interpreters
def test_no_torch_is_loaded(llm_pytester: pytest.Pytester) -> None:
    jsonl(llm_pytester.path, "out.jsonl", REPLIES)
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.makeconftest(
        "import sys\ndef pytest_unconfigure():\n"
        "    print('heavy:', sorted({'torch', 'transformers', 'numpy'} & set(sys.modules)))\n"
    )
    for model in ("replay:out.jsonl", "majority"):
        result = llm_pytester.runpytest_subprocess(f"--llm-model={model}", "-s", "sums.yaml")
        result.stdout.fnmatch_lines(["heavy: [[][]]"])


# A data set that carries its responses

OWN = SUMS.replace("target: 2}", 'target: 2, response: "2"}').replace("target: 5}", 'target: 5, response: "six: 6"}')
OWN = OWN.replace("target: 8}", 'target: 8, response: ""}').replace("target: 9}", "target: 9, response: 9}")


def test_responses_of_the_data_need_no_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=OWN)
    result = llm_pytester.runpytest(*workers, "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*LLM evaluation: responses*", "*2 passed, 2 wrong*"])
    report = report_of(llm_pytester.path)
    assert statuses(report) == {"s1": "correct", "s2": "wrong", "s3": "wrong", "s4": "correct"}
    assert {record["model"] for record in report["records"]} == {"responses"}
    assert [model["name"] for model in report["models"]] == ["responses"]
    bare = llm_pytester.runpytest(*workers)
    assert bare.ret == 0
    bare.stdout.fnmatch_lines(["*2 passed, 2 wrong*"])


def test_a_column_of_another_name(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    rows = [{"q": "1 + 1 =", "a": "2", "llm": {"text": "2"}}, {"q": "2 + 2 =", "a": "4", "llm": {"text": "5"}}]
    jsonl(llm_pytester.path, "rows.jsonl", rows)
    llm_pytester.makefile(
        ".yaml",
        sums="suite: sums\ndataset:\n  path: rows.jsonl\n  fields: {question: q, target: a, response: llm.text}\n"
        "prompt: {fewshot: {count: 1, samples: [{question: x, target: '1'}]}}\nscore: number\n",
    )
    result = llm_pytester.runpytest(*workers, "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    assert statuses(report_of(llm_pytester.path)) == {"1": "correct", "2": "wrong"}


def test_a_model_is_asked_although_there_are_responses(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=OWN)
    jsonl(llm_pytester.path, "out.jsonl", [{"id": f"s{n}", "response": "2"} for n in range(1, 5)])
    result = llm_pytester.runpytest(*workers, "--llm-model=replay:out.jsonl", "--llm-report=report.json", "sums.yaml")
    assert result.ret == 0
    assert list(statuses(report_of(llm_pytester.path)).values()) == ["correct", "wrong", "wrong", "wrong"]
    llm_pytester.makeconftest(fake_model_conftest(replies=SUMS_REPLIES))
    result = llm_pytester.runpytest(*workers, "--llm-report=report.json", "sums.yaml")
    assert {record["model"] for record in report_of(llm_pytester.path)["records"]} == {"fake"}


@pytest.mark.parametrize(
    "suite",
    [
        "suite: s\ndataset: {path: rows.jsonl, fields: {question: prompt, target: response}}\nscore: exact\n",
        "suite: s\ndataset: {path: rows.jsonl, fields: {question: prompt, target: prompt}}\nscore: exact\n"
        "prompt: {template: 'Is this harmful? {{ response }}'}\n",
    ],
)
def test_a_column_that_is_something_else_is_no_reply(
    llm_pytester: pytest.Pytester, workers: list[str], suite: str
) -> None:
    """The targets of a data set for tuning, say, must not be scored against themselves."""
    jsonl(llm_pytester.path, "rows.jsonl", [{"prompt": "Hi", "response": "Hello"}])
    llm_pytester.makefile(".yaml", s=suite)
    result = llm_pytester.runpytest(*workers, "s.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: s.yaml needs a model: *"])


def test_a_row_without_a_response(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=OWN.replace(', response: ""', ""))
    result = llm_pytester.runpytest(*workers, "--llm-report=report.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*sample 's3': the row has no response; dataset.where can leave such rows out*"])
    assert statuses(report_of(llm_pytester.path))["s3"] == "unscored"


def test_own_responses_beside_a_suite_without(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=OWN, capitals=CAPITALS)
    result = llm_pytester.runpytest(*workers, "-rs")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["SKIPPED [[]3] capitals.yaml:1: no model: *", "*2 passed, 3 skipped, 2 wrong*"])
