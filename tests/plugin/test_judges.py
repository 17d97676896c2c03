"""``--llm-judge``: a second model gives verdicts on replies, in sessions as a user has them."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest

from tests.plugin.judge_for_tests import JUDGED_SUITE, asked, records_of, report_of, write_judge

ALONE = ("-p", "no:xdist")
JUDGE = "--llm-judge=python:my_judge:Judge"
REPORT = "--llm-report=report.json"
EQUIVALENCE = JUDGED_SUITE + "score: {equivalence: {math: false}}\n"
ASPECTS = JUDGED_SUITE + "score: {aspects: {aspects: [clarity, accuracy], n_iter: 2}}\n"
RUBRIC = JUDGED_SUITE + "score: {rubric: {criteria: {kind: It is kind., short: It is short.}}}\n"
ASKED = """\
suite: asked
samples:
  - {id: m1, question: a good one, target: "1"}
  - {id: m2, question: a bad one, target: "2"}
  - {id: m3, question: another good one, target: "3"}
prompt: {template: "{{ question }}"}
score: {equivalence: {math: false}}
"""


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    write_judge(llm_pytester)
    llm_pytester.makefile(".yaml", equivalence=EQUIVALENCE, aspects=ASPECTS, rubric=RUBRIC, asked=ASKED)
    return llm_pytester


def with_replies(*replies: str, score: str = "{equivalence: {math: false}}") -> str:
    """A suite with these replies, r1 and on."""
    rows = [
        {"id": f"r{number}", "question": "Say it.", "response": reply, "target": "T"}
        for number, reply in enumerate(replies, 1)
    ]
    return f"suite: replies\nsamples: {json.dumps(rows)}\nscore: {score}\n"


def statuses(pytester: pytest.Pytester, name: str = "report.json") -> dict[str, str]:
    return {key: record["status"] for key, record in records_of(pytester.path, name).items()}


def metrics(pytester: pytest.Pytester, name: str = "report.json") -> dict[str, float]:
    (suite,) = report_of(pytester.path, name)["suites"]
    return {metric: found["value"] for metric, found in suite["metrics"].items()}


def test_replies_of_the_data_are_judged(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, REPORT, "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["llm-judge: python:my_judge:Judge (*", "*3 passed, 1 wrong*"])
    assert statuses(project) == {"j1": "correct", "j2": "wrong", "j3": "correct", "j4": "correct"}
    found = metrics(project)
    assert found["accuracy"] == 0.75
    assert (found["decided_by_exact"], found["decided_by_math"], found["decided_by_judge"]) == (1, 0, 3)
    report = report_of(project.path)
    assert report["options"]["judge"] == ["python:my_judge:Judge"]
    (suite,) = report["suites"]
    (judged_by,) = suite["judged_by"]
    assert re.fullmatch(r"python:my_judge:Judge \(test, [0-9a-f]{8}\)", judged_by)
    (verdict,) = records_of(project.path)["j1"]["details"]["verdicts"]
    assert verdict == {
        "value": True,
        "reasons": "because",
        "raw": '{"reason": "because", "equivalent": true}',
        "num_prompt_tokens": 30,
        "num_tokens": 10,
        "seconds": 0.5,
        "tries": 1,
    }
    assert "verdicts" not in records_of(project.path)["j4"]["details"], "nobody was asked"


RECORDED = """
suite: rated
score: {aspects: {recorded: {clarity: c, tone: [t1, t2]}}}
samples:
  - {id: a, question: q, response: r, c: 4, t1: "5", t2: 2}
  - {id: b, question: q, response: r, c: 3.5, t1: 1, t2: 1}
  - {id: none, question: q, response: r, c: 3, t1: 1, t2: null}
"""


@pytest.mark.parametrize("absent", [", t2: null", ""], ids=["null", "no column"])
def test_aspects_that_a_judge_rated_before_are_read(
    llm_pytester: pytest.Pytester, workers: list[str], absent: str
) -> None:
    """What was rated once has no spread, and a rating that is missing is no rating."""
    llm_pytester.makefile(".yaml", rated=RECORDED.replace(", t2: null", absent))
    llm_pytester.runpytest(*workers, REPORT, "--llm-allow-unscored=1", "rated.yaml")
    report = report_of(llm_pytester.path)
    first, second, third = report["records"]
    assert first["values"] == {"aspects": 3.75, "aspect_clarity": 4, "aspect_tone": 3.5}
    assert second["values"] == {"aspects": 2.25, "aspect_clarity": 3.5, "aspect_tone": 1}
    assert [one["details"]["spread"] for one in (first, second)] == [{"tone": 1.5}, {"tone": 0}]
    assert (third["status"], third["reason"]) == ("unscored", "no verdict: none was recorded in t2")
    assert [one["num_judge_requests"] for one in (first, second, third)] == [0, 0, 0]
    assert report["suites"][0]["judged_by"] == ["verdicts recorded in c and t1 and t2"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("c: 4", "c: 6", "*rated.yaml:4: sample 'a': c is 6, expected a rating from 1 to 5, or nothing"),
        ("c: 4", "c: good", "*rated.yaml:4: sample 'a': c is 'good', expected a rating from 1 to 5, or nothing"),
        ("c: 4", "c: true", "*rated.yaml:4: sample 'a': c is True, expected a rating from 1 to 5, or nothing"),
        ("c: ", "d: ", "*rated.yaml:4: sample 'a': the sample has no column 'c'*"),
        ("{clarity: c,", "{clarity: [],", "*score.aspects.recorded.clarity: found an empty list, *"),
        ("{clarity: c, tone", "{tone", None),
        ("recorded", "aspects: [clarity], recorded", "*score.aspects.recorded.tone: 'tone' is not among the aspects*"),
        ("recorded", "aspects: [clarity, accuracy], recorded", "*found no column for the aspect 'accuracy', *"),
    ],
)
def test_recorded_ratings_that_are_none(llm_pytester: pytest.Pytester, old: str, new: str, message: str | None) -> None:
    llm_pytester.makefile(".yaml", rated=RECORDED.replace(old, new))
    result = llm_pytester.runpytest_inprocess("--collect-only", "rated.yaml")
    if message is None:
        assert result.ret == 0
    else:
        result.stdout.fnmatch_lines([message])


def test_aspects_are_shown(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, REPORT, "aspects.yaml")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["*aspects*aspect_clarity*aspect_accuracy*"])
    assert metrics(project) == {"aspects": 3, "aspect_clarity": 3, "aspect_accuracy": 3}
    record = records_of(project.path)["j1"]
    assert record["values"] == {"aspects": 5, "aspect_clarity": 5, "aspect_accuracy": 5}
    assert len(record["details"]["verdicts"]) == 2
    assert record["details"]["spread"] == {"clarity": 0, "accuracy": 0}


def test_a_rubric_is_right_or_wrong(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, REPORT, "rubric.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"j1": "correct", "j2": "wrong", "j3": "correct", "j4": "wrong"}
    assert metrics(project)["rubric"] == metrics(project)["criterion_kind"] == 0.5


def test_a_model_is_asked_and_judged(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-model=python:my_judge:Writer", JUDGE, REPORT, "asked.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"m1": "correct", "m2": "wrong", "m3": "correct"}
    assert records_of(project.path)["m1"]["num_tokens"] == 3, "the judge's are apart"


def test_two_models_have_one_judge(project: pytest.Pytester, workers: list[str]) -> None:
    models = ["--llm-model=python:my_judge:Writer", "--llm-model=majority"]
    result = project.runpytest(*workers, *models, JUDGE, REPORT, "asked.yaml")
    assert result.ret == 0, result.stdout.str()
    found = {(record["model"], record["id"]): record["status"] for record in report_of(project.path)["records"]}
    assert len(found) == 6
    assert found["python:my_judge:Writer", "m1"] == "correct"
    judges = [suite["judged_by"] for suite in report_of(project.path)["suites"]]
    assert len(judges) == 2
    assert judges[0] == judges[1]


def test_a_suite_words_the_task(project: pytest.Pytester, workers: list[str]) -> None:
    """The verdict's form is ours also then: the judge finds it where it always stands."""
    project.makefile(".txt", words="Judge {{ id }}.")
    project.makefile(
        ".yaml",
        own=RUBRIC.replace("suite: judged", "suite: own").replace(
            "{rubric: {", "{rubric: {prompt: {path: words.txt}, "
        ),
    )
    result = project.runpytest(*workers, JUDGE, REPORT, "own.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"j1": "correct", "j2": "wrong", "j3": "correct", "j4": "wrong"}
    project.makefile(".txt", words="Judge {{ di }}.")
    result = project.runpytest(*workers, JUDGE, REPORT, "own.yaml")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*own.yaml:7: score.rubric.prompt: sample 'j1' (own.yaml:3): 'di' is undefined; *"])


def test_a_function_judges(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-judge=python:my_judge:by_function", REPORT, "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"j1": "correct", "j2": "wrong", "j3": "correct", "j4": "correct"}


def test_one_call_holds_the_verdicts_of_a_chunk(project: pytest.Pytester) -> None:
    assert project.runpytest(*ALONE, JUDGE, "aspects.yaml").ret == 0
    (call,) = asked(project.path)
    assert len(call) == 4 * 2
    assert asked(project.path, "load-judge") == [[]]


def test_all_replies_come_before_all_verdicts(project: pytest.Pytester) -> None:
    assert project.runpytest(*ALONE, "--llm-model=python:my_judge:Writer", JUDGE, "asked.yaml").ret == 0
    lines = [json.loads(line) for line in (project.path / "asked.jsonl").read_text().splitlines()]
    calls = [(line["name"], len(line["texts"])) for line in lines if not line["name"].startswith("load")]
    assert calls == [("writer", 3), ("judge", 3)]


def test_batches_of_each_worker(project: pytest.Pytester) -> None:
    rows = [f"a good one, number {number}" for number in range(40)]
    project.makefile(".yaml", replies=with_replies(*rows))
    assert project.runpytest("-n2", JUDGE, REPORT, "replies.yaml").ret == 0
    calls = asked(project.path)
    assert sum(map(len, calls)) == 40, "each is asked once"
    assert len(calls) < 20


@pytest.mark.parametrize("how", ["ini", "environment"])
def test_the_judge_of_a_project(
    project: pytest.Pytester, workers: list[str], how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if how == "ini":
        project.makeini("[pytest]\nllm_judge = python:my_judge:Judge\n")
    else:
        monkeypatch.setenv("PYTEST_LLM_JUDGE", "python:my_judge:Judge")
    result = project.runpytest(*workers, REPORT, "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    assert metrics(project)["accuracy"] == 0.75
    assert report_of(project.path)["options"]["judge"] == ["python:my_judge:Judge"]


CONFTEST = """
import pytest
from my_judge import Judge

@pytest.fixture(scope="session")
def llm_judge():
    return Judge("of a conftest")
"""


def test_a_conftest_gives_the_judge(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(CONFTEST)
    project.syspathinsert()
    result = project.runpytest(*workers, REPORT, "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    (suite,) = report_of(project.path)["suites"]
    assert suite["judged_by"][0].startswith("judge-of a conftest (test")
    assert metrics(project)["accuracy"] == 0.75


def test_a_fixture_that_gives_no_judge(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest("import pytest\n@pytest.fixture\ndef llm_judge():\n    return None\n")
    result = project.runpytest(*workers, REPORT, "equivalence.yaml")
    assert result.ret == 1
    assert set(statuses(project).values()) == {"unscored"}, "also of what no judge is needed for"
    assert "Traceback" not in result.stdout.str()


def one_line(result: pytest.RunResult, words: str) -> None:
    """The error is one line, and not pytest's own failure."""
    lines = [line for line in [*result.outlines, *result.errlines] if words in line]
    assert len(lines) == 1, result.stdout.str() + result.stderr.str()
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()


def test_without_a_judge_no_model_is_loaded(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-model=python:my_judge:Writer", "asked.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    one_line(result, "asked.yaml needs a judge: give --llm-judge, or override the fixture llm_judge in a conftest.py")
    assert not (project.path / "asked.jsonl").exists()


def test_a_suite_that_is_named_wants_its_judge(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "equivalence.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    one_line(result, "equivalence.yaml needs a judge: give --llm-judge")


def test_a_bare_pytest_skips(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """A project's own tests run without a model and without a judge."""
    write_judge(llm_pytester)
    llm_pytester.makefile(".yaml", judged=EQUIVALENCE, asked=ASKED)
    llm_pytester.makepyfile(test_own="def test_own():\n    pass\n")
    result = llm_pytester.runpytest(*workers, "-rs")
    assert result.ret == 0, result.stdout.str()
    outcomes = result.parseoutcomes()
    assert outcomes["passed"] == 1
    assert outcomes.get("skipped", 0) == 7
    result.stdout.fnmatch_lines(["*no judge: give --llm-judge, or override the fixture llm_judge in a conftest.py*"])


@pytest.mark.parametrize("spec", ["python:no_module_here:Judge", "python:my_judge", "python:my_judge:Missing"])
def test_a_judge_that_is_not_there(project: pytest.Pytester, workers: list[str], spec: str) -> None:
    result = project.runpytest(*workers, f"--llm-judge={spec}", "equivalence.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    one_line(result, spec if spec == "python:my_judge" else f"the judge: model {spec}")


def test_a_judge_that_cannot_be_loaded_ends_the_session(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-judge=python:my_judge:Unloadable", REPORT, "equivalence.yaml")
    assert result.ret in (1, 2)
    text = result.stdout.str()
    assert "no weights here" in text
    assert "judge python:my_judge:Unloadable could not be loaded" in text
    assert "INTERNALERROR" not in text
    assert "correct" not in statuses(project).values()


def test_a_judge_that_fails_for_one_sample(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", replies=with_replies("good", "RAISE", "bad", "good REFUSE", "good PROSE", "good"))
    result = project.runpytest(*workers, JUDGE, REPORT, "replies.yaml")
    assert result.ret == 1
    assert statuses(project) == {
        "r1": "correct",
        "r2": "unscored",
        "r3": "wrong",
        "r4": "unscored",
        "r5": "unscored",
        "r6": "correct",
    }
    reasons = {key: record["reason"] for key, record in records_of(project.path).items() if record["reason"]}
    assert reasons == {
        "r2": "RuntimeError: the judge fell over",
        "r4": "no verdict: refused by the judge",
        "r5": "no verdict: the verdict is not one JSON object",
    }
    assert metrics(project)["accuracy"] == pytest.approx(2 / 3)
    (verdict,) = records_of(project.path)["r5"]["details"]["verdicts"]
    assert (verdict["raw"], verdict["tries"]) == ("I cannot help with that.", 3)


def test_wrong_is_shown_and_strict_fails(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, "-v", "equivalence.yaml")
    assert [line for line in result.outlines if "WRONG" in line and "::j2" in line], result.stdout.str()
    result = project.runpytest(*workers, JUDGE, "--llm-strict", "equivalence.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*wrong: expected 'The target.', found 'a bad one'*"])
    result.assert_outcomes(passed=3, failed=1)


def test_a_wrong_answer_is_one_letter(project: pytest.Pytester) -> None:
    result = project.runpytest(*ALONE, JUDGE, "equivalence.yaml")
    result.stdout.fnmatch_lines(["equivalence.yaml .w.. *"])


def several(parts: str) -> str:
    return f"{{several: {{scorers: {{{parts}}}, decides: same}}}}"


def test_parts_that_ask_and_parts_that_do_not(project: pytest.Pytester, workers: list[str]) -> None:
    score = several(
        "same: {score: {equivalence: {math: false}}}, words: {score: f1}, rated: {score: {aspects: {n_iter: 2}}}"
    )
    project.makefile(".yaml", replies=with_replies("a good one", "bad", "T", "good PROSE", score=score))
    result = project.runpytest(*workers, JUDGE, REPORT, "replies.yaml")
    assert result.ret == 1, result.stdout.str()
    records = records_of(project.path)
    assert {key: record["status"] for key, record in records.items()}["r4"] == "unscored"
    assert "no verdict" in records["r4"]["reason"]
    assert records["r1"]["values"]["accuracy"] == 1
    assert records["r1"]["values"]["rated.aspect_clarity"] == 5
    assert records["r2"]["values"]["rated.aspect_clarity"] == 1
    assert records["r3"]["values"]["words.f1"] == 1


def test_several_parts_are_asked_together(project: pytest.Pytester) -> None:
    score = several("same: {score: {equivalence: {math: false}}}, rated: {score: {aspects: {n_iter: 2}}}")
    project.makefile(".yaml", replies=with_replies("a good one", "bad", score=score))
    assert project.runpytest(*ALONE, JUDGE, "replies.yaml").ret == 0
    assert [len(call) for call in asked(project.path)] == [6]


def test_epochs_are_judged_each(project: pytest.Pytester, workers: list[str]) -> None:
    suite = ASKED + "epochs: 3\ngenerate: {temperature: 1.0}\n"
    project.makefile(".yaml", asked=suite)
    result = project.runpytest(*workers, "--llm-model=python:my_judge:Writer", JUDGE, REPORT, "asked.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"m1": "correct", "m2": "wrong", "m3": "correct"}
    assert sum(map(len, asked(project.path))) == 9


def test_filters_come_before_the_judge(project: pytest.Pytester, workers: list[str]) -> None:
    suite = with_replies("bad. Answer: good", "good. Answer: bad") + "filters: [{regex: 'Answer: (.*)'}]\n"
    project.makefile(".yaml", replies=suite)
    result = project.runpytest(*workers, JUDGE, REPORT, "replies.yaml")
    assert result.ret == 0, result.stdout.str()
    assert statuses(project) == {"r1": "correct", "r2": "wrong"}
    assert sorted(text for call in asked(project.path) for text in call) == ["```\nbad\n```", "```\ngood\n```"]


def test_a_baseline_of_another_judge_is_refused(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", replies=with_replies(*(f"a good one, number {number}" for number in range(40))))
    assert project.runpytest(*workers, JUDGE, "--llm-report=before.json", "replies.yaml").ret == 0
    again = project.runpytest(*workers, JUDGE, "--llm-baseline=before.json", "replies.yaml")
    assert again.ret == 0, again.stdout.str()
    judge = f"{JUDGE}?weights=b&shown=weights"
    other = project.runpytest(*workers, judge, "--llm-baseline=before.json", "replies.yaml")
    assert other.ret != 0
    other.stdout.fnmatch_lines(
        ["*another judge: 'python:my_judge:Judge (test, *)' ->*", "*'python:my_judge:Judge?weights=b (test, *)'*"]
    )


def test_a_judge_with_an_argument_that_is_not_shown_may_be_another_one(
    project: pytest.Pytester, workers: list[str]
) -> None:
    """No hash of the argument is in a report: it would give a short secret away."""
    project.makepyfile(
        hidden_judge="""
        import json

        class Judge:
            def __init__(self, mode="", api_key=""):
                pass
            def __call__(self, messages):
                return json.dumps({"reason": "because", "equivalent": True})
        """
    )
    rows = ", ".join(f"{{id: r{n}, question: q, response: a, target: b}}" for n in range(40))
    project.makefile(".yaml", same=f"suite: same\nsamples: [{rows}]\nscore: equivalence\n")

    def run(arguments: str, *options: str) -> pytest.RunResult:
        return project.runpytest(*workers, f"--llm-judge=python:hidden_judge:Judge?{arguments}", "same.yaml", *options)

    assert run("mode=strict", "--llm-report=before.json").ret == 0
    assert "strict" not in (project.path / "before.json").read_text()
    for mode in ("strict", "mild"):
        again = run(f"mode={mode}", "--llm-baseline=before.json")
        assert again.ret == 0
        again.stdout.fnmatch_lines(["*whether the judge's mode changed is not known: add shown=mode to its name*"])
    shown = "mode=strict&shown=mode&api_key=abcdefg"
    assert run(f"{shown}1", "--llm-report=before.json").ret == 0
    assert "strict" in (project.path / "before.json").read_text()
    assert run(f"{shown}2", "--llm-baseline=before.json").ret == 0, "another key asks the same judge"
    run("mode=mild&shown=mode", "--llm-baseline=before.json").stdout.fnmatch_lines(["*another judge: *"])


def test_the_store_keeps_verdicts(project: pytest.Pytester, workers: list[str]) -> None:
    arguments = [*workers, "--llm-model=python:my_judge:Writer", JUDGE, "--llm-store=store", "asked.yaml"]
    assert project.runpytest(*arguments, "--llm-report=first.json").ret == 0
    first, writer = asked(project.path), asked(project.path, "writer")
    assert sum(map(len, first)) == sum(map(len, writer)) == 3
    assert project.runpytest(*arguments, "--llm-report=second.json").ret == 0
    assert (asked(project.path), asked(project.path, "writer")) == (first, writer)
    assert metrics(project, "first.json") == metrics(project, "second.json")


MOODY = """
import json
from pathlib import Path
from pytest_llmeval.types import GenerateResponse, ModelIdentity

HERE = Path(__file__).parent
GOOD = '{"reason": "because", "equivalent": true}'

class Judge:
    # Has no verdict on what holds "another", and one on "bad" at the second asking, while there is the file moody.
    identity = ModelIdentity(name="moody", backend="test", fingerprint="m")

    def generate(self, requests):
        return [GenerateResponse(text=self.says(request)) for request in requests]

    def says(self, request):
        text = request.prompt[1].content
        texts = [text.rpartition("Reply:")[2], str(request.seed)]
        with HERE.joinpath("asked.jsonl").open("a") as file:
            file.write(json.dumps({"name": "judge", "texts": texts}) + "\\n")
        is_moody = HERE.joinpath("moody").exists()
        fails = "another" in text or ("a bad" in text and request.seed == 0)
        return "I cannot say." if is_moody and fails else GOOD
"""


def test_what_no_verdict_could_be_read_from_is_asked_again(project: pytest.Pytester, workers: list[str]) -> None:
    """And nothing else: neither other verdicts, nor what was said before one that came at the second asking."""
    project.makepyfile(moody=MOODY)
    project.path.joinpath("moody").touch()
    arguments = [*workers, "--llm-judge=python:moody:Judge", "--llm-store=store", REPORT, "equivalence.yaml"]
    assert project.runpytest(*arguments).ret == 1
    assert statuses(project) == {"j1": "correct", "j2": "correct", "j3": "unscored", "j4": "correct"}
    assert len(asked(project.path)) == 1 + 2 + 3
    project.path.joinpath("asked.jsonl").unlink()
    assert project.runpytest(*arguments).ret == 1, "it has no verdict again"
    assert [("another" in text, seed) for text, seed in asked(project.path)] == [(True, "0"), (True, "1"), (True, "2")]
    project.path.joinpath("asked.jsonl").unlink()
    project.path.joinpath("moody").unlink()
    again = project.runpytest(*arguments, "--lf")
    assert again.ret == 0, again.stdout.str()
    assert [("another" in text, seed) for text, seed in asked(project.path)] == [(True, "0")]
    assert project.runpytest(*arguments).ret == 0
    assert len(asked(project.path)) == 1
    assert statuses(project)["j3"] == "correct"


def test_judges_are_in_the_report_and_have_the_hint(project: pytest.Pytester, workers: list[str]) -> None:
    """A Python function may have changed: its verdicts are reused for a limited time only, and it is told how."""
    arguments = [*workers, "--llm-judge=python:my_judge:by_function", "--llm-store=store", REPORT, "equivalence.yaml"]
    result = project.runpytest(*arguments)
    hint = "store: judge python:my_judge:by_function: replies are kept, not reused: the model has no fingerprint; "
    assert f"{hint}--llm-store-max-age 7d reuses" in " ".join(result.stdout.str().split())
    (judge,) = report_of(project.path)["judges"]
    assert (judge["role"], judge["name"], judge["backend"]) == ("judge", "python:my_judge:by_function", "python")
    count = len(asked(project.path))
    week = project.runpytest(*arguments, "--llm-store-max-age=7d")
    week.stdout.no_fnmatch_line("*--llm-store-max-age 7d*")
    week.stdout.fnmatch_lines(["*store store: 3 of 4 samples reused*"])
    assert len(asked(project.path)) == count


def test_verdicts_on_replies_of_the_data_are_said_to_be_reused(project: pytest.Pytester) -> None:
    arguments = [*ALONE, JUDGE, "--llm-store=store", "equivalence.yaml"]
    for expected in ("*store store: 0 of 4 samples reused*", "*store store: 3 of 4 samples reused, asked *"):
        result = project.runpytest(*arguments)
        result.stdout.fnmatch_lines([expected])
        result.stdout.no_fnmatch_line("*is not asked through the store*")


def test_a_stored_verdict_is_of_its_judge(project: pytest.Pytester) -> None:
    assert project.runpytest(*ALONE, JUDGE, "--llm-store=store", "equivalence.yaml").ret == 0
    assert project.runpytest(*ALONE, f"{JUDGE}?weights=b", "--llm-store=store", "equivalence.yaml").ret == 0
    assert [len(call) for call in asked(project.path)] == [3, 3]


def test_without_records_no_verdict_is_kept(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, JUDGE, REPORT, "--llm-report-records=none", "aspects.yaml")
    assert result.ret == 0
    text = (project.path / "report.json").read_text()
    assert "because" not in text
    assert report_of(project.path)["suites"][0]["judged_by"]
    assert metrics(project)["aspects"] == 3


def test_a_secret_of_the_judge_is_not_in_the_report(project: pytest.Pytester, workers: list[str]) -> None:
    secret = "sk-planted0123456789abcdef"
    url = f"http://user:{secret}@127.0.0.1:9/v1"
    result = project.runpytest(*workers, f"--llm-judge={url}", REPORT, "equivalence.yaml")
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert secret not in text
    report = project.path / "report.json"
    assert not report.exists() or secret not in report.read_text()


def test_a_secret_of_a_python_judge_is_not_in_the_report(project: pytest.Pytester, workers: list[str]) -> None:
    secret = "sk-planted0123456789abcdef"
    project.makepyfile(
        other_judge=f"""
import json
import my_judge

class Judge(my_judge.Judge):
    def __init__(self, api_key=""):
        super().__init__("1")
        assert api_key == {secret!r}
"""
    )
    spec = f"--llm-judge=python:other_judge:Judge?api_key={secret}"
    result = project.runpytest(*workers, spec, REPORT, "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    assert secret not in result.stdout.str() + (project.path / "report.json").read_text()


@pytest.mark.parametrize(("chosen", "ids"), [("j1", ["j1"]), ("j2 or j4", ["j2", "j4"])])
def test_a_choice_of_samples(project: pytest.Pytester, workers: list[str], chosen: str, ids: Sequence[str]) -> None:
    result = project.runpytest(*workers, JUDGE, REPORT, "-k", chosen, "equivalence.yaml")
    assert result.ret == 0
    assert list(records_of(project.path)) == list(ids)
    assert sum(map(len, asked(project.path))) == len([one for one in ids if one != "j4"])


def test_last_failed(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(".yaml", replies=with_replies("good", "PROSE", "good"))
    assert project.runpytest(*workers, JUDGE, "replies.yaml").ret == 1
    result = project.runpytest(*workers, JUDGE, REPORT, "--lf", "replies.yaml")
    assert result.ret == 1
    assert statuses(project) == {"r2": "unscored"}


def test_the_first_failure_ends_a_session(project: pytest.Pytester) -> None:
    project.makefile(".yaml", replies=with_replies("good", "PROSE", "good", "good"))
    result = project.runpytest(*ALONE, JUDGE, REPORT, "-x", "replies.yaml")
    assert result.ret == 1
    assert statuses(project) == {"r1": "correct", "r2": "unscored"}


def test_an_interrupt_in_the_judge(project: pytest.Pytester) -> None:
    project.makefile(".yaml", replies=with_replies("T", "good INTERRUPT", "good"))
    result = project.runpytest_subprocess(*ALONE, JUDGE, REPORT, "replies.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert "judging.py" not in text
    assert statuses(project) == {"r1": "correct"}


def test_what_a_judge_writes_crosses_workers(project: pytest.Pytester, workers: list[str]) -> None:
    """Lone surrogates, escape sequences and commands of GitHub in its reasons."""
    project.makepyfile(
        odd_judge="""
def judge(messages):
    return '{"reason": "\\\\ud83d \\\\u001b[31m \\\\n::error::x", "equivalent": false}'
"""
    )
    result = project.runpytest(*workers, "--llm-judge=python:odd_judge:judge", REPORT, "-vv", "equivalence.yaml")
    assert result.ret == 0, result.stdout.str()
    (verdict,) = records_of(project.path)["j1"]["details"]["verdicts"]
    assert verdict["reasons"] == "\ud83d \x1b[31m \n::error::x"
    assert "\x1b[31m" not in result.stdout.str()
    assert not any(line.startswith("::error") for line in result.outlines)


FOLDER_JUDGE = """
import json
import pytest
from pytest_llmeval.types import GenerateResponse, ModelIdentity

class Judge:
    identity = ModelIdentity(name={name!r}, backend="test", fingerprint={name!r})
    def generate(self, requests):
        text = json.dumps({{"reason": {name!r}, "equivalent": {name!r} == "good"}})
        return [GenerateResponse(text=text) for _ in requests]

@pytest.fixture(scope={scope!r})
def llm_judge():
    return Judge()
"""
TWO_REPLIES = """
suite: {name}
score: equivalence
samples:
  - {{id: one, question: q, target: a, response: one of {name}}}
  - {{id: two, question: q, target: a, response: two of {name}}}
"""


def test_each_folder_has_its_own_judge(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    for name in ("good", "bad"):
        folder = llm_pytester.mkdir(name)
        (folder / "conftest.py").write_text(FOLDER_JUDGE.format(name=name, scope="session"), "utf-8")
        (folder / f"{name}.yaml").write_text(TWO_REPLIES.format(name=name), "utf-8")
    order = [f"{name}/{name}.yaml::{sample}" for sample in ("one", "two") for name in ("good", "bad")]
    llm_pytester.runpytest(*workers, *order, REPORT)
    records = report_of(llm_pytester.path)["records"]
    assert {(record["suite"], record["id"]): record["status"] for record in records} == {
        **{("good", sample): "correct" for sample in ("one", "two")},
        **{("bad", sample): "wrong" for sample in ("one", "two")},
    }
    assert {record["details"]["verdicts"][0]["reasons"] for record in records if record["suite"] == "bad"} == {"bad"}


def test_a_judge_for_each_test_judges_its_own(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    source = FOLDER_JUDGE.format(name="good", scope="function")
    llm_pytester.makeconftest(source.replace("return Judge()", "made = Judge(); made.number = 0; return made"))
    llm_pytester.makefile(".yaml", replies=TWO_REPLIES.format(name="good"))
    assert llm_pytester.runpytest(*workers, "replies.yaml", REPORT).ret == 0
    assert {record["status"] for record in report_of(llm_pytester.path)["records"]} == {"correct"}


def test_two_judges_of_one_suite_are_an_error(llm_pytester: pytest.Pytester) -> None:
    source = FOLDER_JUDGE.format(name="good", scope="function")
    other = "made = Judge(); made.identity = ModelIdentity(name=request.node.name, backend='test'); return made"
    llm_pytester.makeconftest(
        source.replace("def llm_judge()", "def llm_judge(request)").replace("return Judge()", other)
    )
    llm_pytester.makefile(".yaml", replies=TWO_REPLIES.format(name="good"))
    result = llm_pytester.runpytest(*ALONE, "replies.yaml", REPORT)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*suite 'good' was judged by one (test, *), and now by two (test, *): give it one *"])


def test_the_judge_is_known_where_the_first_sample_was_not_judged(project: pytest.Pytester, workers: list[str]) -> None:
    """What travels of a suite with its first sample comes again once its judge is there."""
    project.makeconftest(
        "import pytest\n@pytest.fixture(autouse=True)\ndef first(request):\n"
        "    if request.node.name == 'j1':\n        pytest.skip('not this one')\n"
    )
    assert project.runpytest(*workers, JUDGE, "--llm-report=before.json", "equivalence.yaml").ret == 0
    (suite,) = report_of(project.path, "before.json")["suites"]
    assert suite["judged_by"]
    other = project.runpytest(
        *workers, f"{JUDGE}?weights=b&shown=weights", "--llm-baseline=before.json", "equivalence.yaml"
    )
    other.stdout.fnmatch_lines(["*another judge: *"])


def test_a_python_judge_that_was_edited_is_another_one(llm_pytester: pytest.Pytester) -> None:
    function = "import json\ndef judge(prompt):\n    return json.dumps({'reason': 'r', 'equivalent': %s})\n"
    llm_pytester.makefile(".yaml", replies=TWO_REPLIES.format(name="edited"))
    arguments = [*ALONE, "--llm-judge=python:edited:judge", "replies.yaml"]
    llm_pytester.makepyfile(edited=function % True)
    assert llm_pytester.runpytest_subprocess(*arguments, "--llm-report=before.json").ret == 0
    llm_pytester.makepyfile(edited=function % False)
    result = llm_pytester.runpytest_subprocess(*arguments, "--llm-baseline=before.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*another judge: *python:edited:judge (python, *"])


def test_a_scorer_of_a_users_own_can_ask(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(
        """
        import json
        from pytest_llmeval.scoring.base import Scorer
        from pytest_llmeval.types import Ask, GenerateRequest, Score

        class Own(Scorer):
            name, metrics, roles = "own", ("accuracy",), frozenset(("judge",))
            def score(self, presented, responses):
                raise RuntimeError("it asks")
            def asking(self, presented, responses):
                form = '{"reason": "r", "equivalent": true}'
                (reply,) = yield Ask("judge", (GenerateRequest("Equivalent?\\n" + form),))
                return Score(status="correct", answer=reply.text)

        def pytest_llmeval_scorers():
            return {"own": Own}
        """
    )
    project.makepyfile(any_judge="def judge(prompt): return 'anything'")
    project.makefile(".yaml", own="suite: own\nscore: own\nsamples: [{question: q, target: a, response: b}]\n")
    assert project.runpytest(*workers, "--llm-judge=python:any_judge:judge", "own.yaml", REPORT).ret == 0
    (record,) = report_of(project.path)["records"]
    assert (record["answer"], record["num_judge_requests"]) == ("anything", 1)
