"""A scorer or test that says of a sample that a metric has no meaning there, and one that leaves the metric out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest

SUITE = """
suite: jokes
samples:
  - {id: a, question: one, target: "1", kind: x}
  - {id: b, question: two, target: "2", kind: x}
  - {id: c, question: three, target: "3", kind: y}
  - {id: d, question: four, target: "4", kind: y}
category: kind
score: wit
gates: ["wit >= 0.8", "category.x.wit >= 0.8"]
"""
SCORER = """
from pytest_llmeval import NotMeasurable

def wit(reply):
    if reply == "none":
        return {LACKING}
    return {"wit": float(reply)}

wit.metrics = ("wit",)

def pytest_llmeval_scorers():
    return {"wit": wit}
"""
REPLIES = {"one": "1", "two": "none", "three": "1", "four": "none"}


def run(project: pytest.Pytester, lacking: str, *arguments: str) -> pytest.RunResult:
    project.makeconftest(fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", lacking))
    project.makefile(".yaml", jokes=SUITE)
    return project.runpytest(*arguments, "--llm-report=out.json", "jokes.yaml")


def report(project: pytest.Pytester) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((project.path / "out.json").read_text())
    return found


def test_it_is_counted_with_its_reason_and_closes_no_gate(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    result = run(llm_pytester, 'NotMeasurable("it makes no joke")', *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "jokes: wit not measurable 2 (it makes no joke)",
            "passed: jokes, wit >= 0.8: wit 1.000*, n 2",
            "*wit is not measurable on 2 of 4 samples",
        ]
    )
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {"wit": {"it makes no joke": 2}}
    assert suite["categories"]["x"]["not_measurable"] == {"wit": {"it makes no joke": 1}}
    assert (suite["num_scored"], suite["metrics"]["wit"]["n"]) == (4, 2)
    records = {record["id"]: record for record in report(llm_pytester)["records"]}
    assert [records[id]["not_measurable"] for id in "ab"] == [{}, {"*": "it makes no joke"}]
    assert llm_pytester.run("llmeval", "gate", "out.json").ret == 0
    assert (
        llm_pytester.run("llmeval", "compare", "out.json", "out.json", "--gate-mode", "margin").ret == 1
    )  # wit: better?
    shown = llm_pytester.run("llmeval", "show", "out.json", "--id", "b")
    shown.stdout.fnmatch_lines(["*not measurable: *: it makes no joke"])


@pytest.mark.parametrize(
    ("lacking", "counted", "shown"),
    [
        ('{"accuracy": 1, "faith": NotMeasurable("no claim")}', "faith", "faith not measurable 3 (no claim)"),
        ('NotMeasurable("no claim")', "*", "not measurable 3 (no claim)"),
    ],
)
def test_on_every_sample(llm_pytester: pytest.Pytester, lacking: str, counted: str, shown: str) -> None:
    """Then no score has the metric's name: it comes from the reasons."""
    scorer = f"from pytest_llmeval import NotMeasurable\ndef mine(reply): return {lacking}\n"
    scorer += "def pytest_llmeval_scorers(): return {'mine': mine}\n"
    llm_pytester.makeconftest(fake_model_conftest(replies={"q": "x"}) + scorer)
    rows = ", ".join(f"{{id: {id}, question: q, target: x, kind: {id > 'a'}}}" for id in "abc")
    llm_pytester.makefile(".yaml", claims=f"suite: claims\nsamples: [{rows}]\ncategory: kind\nscore: mine\n")
    gates = [f"--llm-gate={text} >= 0.5" for text in ("faith", "claims: faith", "category.True.faith", "macro.faith")]
    result = llm_pytester.runpytest("-pno:xdist", *gates, "--llm-report=out.json", "--llm-report=out.md", "claims.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines([f"claims: {shown}"])
    assert f"Counts: {shown}" in (llm_pytester.path / "out.md").read_text(encoding="utf-8")
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {counted: {"no claim": 3}}
    assert [gate["reason"] for gate in report(llm_pytester)["gates"]] == [
        "faith is not measurable on 3 of 3 samples (no claim)",
        "category.True.faith is not measurable on 2 of 2 samples (no claim)",
        "macro.faith is not measurable on 3 of 3 samples (no claim)",
    ]
    again = llm_pytester.run("llmeval", "gate", "out.json", "--gate", "faith >= 0.5")
    again.stdout.fnmatch_lines(["failed: claims, faith >= 0.5: faith is not measurable on 3 of 3 samples (no claim)"])


def test_a_metric_that_is_left_out_fails_its_gates(llm_pytester: pytest.Pytester) -> None:
    result = run(llm_pytester, '{"other": 1.0}', "-pno:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*wit is missing on 2 of 4 scored samples*"])
    assert [gate["outcome"] for gate in report(llm_pytester)["gates"]] == ["failed", "failed"]
    assert report(llm_pytester)["suites"][0]["not_measurable"] == {}
    gate = llm_pytester.run("llmeval", "gate", "out.json", "--gate", "wit >= 0")
    assert gate.ret == 1
    assert "wit is missing on 2 of 4 scored samples" in " ".join(gate.stdout.str().split())


def test_hand_written_tests_say_it(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makepyfile(
        test_tone="""
        import pytest
        from pytest_llmeval import NotMeasurable

        def test_tone(llm_record):
            llm_record(suite="tone", id=1, score=0.5, values={"wit": 1.0})
            llm_record(suite="tone", id=2, score=NotMeasurable("no reply"), values={"wit": NotMeasurable("no joke")})
            for empty in (NotMeasurable(""), NotMeasurable(None)):
                with pytest.raises(ValueError, match="expected text"):
                    llm_record(suite="tone", id=3, score=empty)
        """
    )
    gates = ("--llm-gate", "tone: score >= 0.5", "--llm-gate", "tone: wit >= 1")
    result = llm_pytester.runpytest("-pno:xdist", *gates, "--llm-report=out.json")
    assert result.ret == 0
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {"score": {"no reply": 1}, "wit": {"no joke": 1}}


COUNTED = "not_measurable: {wit: 0}\n"


def test_a_suite_says_what_it_counts_as(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """In the mean, in categories, in gates and in a comparison with a baseline, in a session and on its report."""
    llm_pytester.makeconftest(
        fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", 'NotMeasurable("it makes no joke")')
    )
    llm_pytester.makefile(".yaml", jokes=SUITE + COUNTED)
    result = llm_pytester.runpytest(*workers, "--llm-report=out.json", "jokes.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(
        [
            "jokes: where not measurable wit counts as 0*",
            "failed: jokes, wit >= 0.8: wit 0.500*, n 4: below 0.8",
            "failed: jokes, category.x.wit >= 0.8: category.x.wit 0.500*, n 2: below 0.8",
        ]
    )
    (suite,) = report(llm_pytester)["suites"]
    assert suite["not_measurable"] == {}
    assert suite["settings"]["not_measurable"] == {"wit": 0.0}
    (record,) = (record for record in report(llm_pytester)["records"] if record["id"] == "b")
    assert (record["values"], record["not_measurable"]) == ({"wit": 0.0}, {"*": "it makes no joke"})
    assert llm_pytester.run("llmeval", "gate", "out.json").ret == 1


def test_it_is_part_of_the_scorer_where_it_is_used(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(
        fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", 'NotMeasurable("it makes no joke")')
    )
    llm_pytester.makefile(".yaml", jokes=SUITE.replace("gates:", "#"))
    prints = {}
    for name, more in {"without": "", "empty": "not_measurable: {}\n", "zero": COUNTED}.items():
        (llm_pytester.path / "jokes.yaml").write_text(SUITE.replace("gates:", "#") + more)
        assert llm_pytester.runpytest("-pno:xdist", f"--llm-report={name}.json", "jokes.yaml").ret == 0
        (suite,) = json.loads((llm_pytester.path / f"{name}.json").read_text())["suites"]
        prints[name] = suite["fingerprint"]
    assert prints["without"] == prints["empty"] != prints["zero"]
    result = llm_pytester.run("llmeval", "compare", "without.json", "zero.json", "--max-drop=wit=0.1")
    assert result.ret == 1
    assert "the scorer (not_measurable: none -> " in " ".join(result.stdout.str().split())


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("not_measurable: {wits: 0}", "not_measurable.wits: the suite has no metric 'wits'; did you mean 'wit'?"),
        ("not_measurable: {wit: none}", "not_measurable.wit: found 'none' (text), expected a number"),
        ("not_measurable: 0", "not_measurable: found 0 (a whole number), expected a mapping"),
        ("score: choice\nnot_measurable: {brier: 2}", "not_measurable.brier: found 2, expected a number from 0 to 1"),
        ("score: choice\nnot_measurable: {ece: 1}", "not_measurable.ece: a sample has no value of its own of ece"),
        ("score: choice\nnot_measurable: {ties: 1}", "not_measurable.ties: a sample has no value of its own of ties"),
    ],
)
def test_what_it_cannot_count_as(llm_pytester: pytest.Pytester, key: str, message: str) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", "0"))
    suite = 'suite: s\nsamples: [{id: a, question: one, choices: ["1", "2"], target: "1"}]\n'
    llm_pytester.makefile(".yaml", s=f"{suite}{'' if 'score:' in key else 'score: wit'}\n{key}\n")
    result = llm_pytester.runpytest("-pno:xdist", "s.yaml")
    assert result.ret == 2
    assert message in " ".join(result.stdout.str().split())


def test_each_of_several_replies_counts(llm_pytester: pytest.Pytester) -> None:
    """One epoch of two that makes no joke is a 0 in the sample's mean, and wrong where a threshold says so."""
    llm_pytester.makeconftest(SCORER.replace("{LACKING}", 'NotMeasurable("no joke")'))
    llm_pytester.makepyfile(agents="def joke(prompt, epoch):\n    return '1' if epoch else 'none'\n")
    suite = "suite: s\nsamples: [{id: a, question: one, target: x}]\nscore: wit\ngenerate: {temperature: 1}\n"
    epochs = "epochs: {count: 2, reduce: [mean, all], threshold: 0.5}\n"
    for more, expected in (
        ("epochs: 2\n", {"wit": 1.0}),
        (f"epochs: 2\n{COUNTED}", {"wit": 0.5}),
        (epochs + COUNTED, {"wit": 0.5, "all.wit": 0.0}),
    ):
        llm_pytester.makefile(".yaml", s=suite + more)
        arguments = ("-pno:xdist", "--llm-model=python:agents:joke", "s.yaml", "--llm-report=out.json")
        assert llm_pytester.runpytest(*arguments).ret == 0
        (record,) = report(llm_pytester)["records"]
        assert record["values"] == expected


def test_searches_and_one_of_several_scorers(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(
        ".yaml",
        search="""
        suite: search
        samples:
          - {id: a, question: q, qrels: {d1: 1}, response: [d1]}
          - {id: b, question: q, qrels: {}, response: [d1]}
        score: retrieval
        not_measurable: {ndcg@10: 1, recall@10: 0.5}
        """,
        both="""
        suite: both
        samples: [{id: a, question: one, target: "1"}, {id: b, question: two, target: "2"}]
        score: {several: {scorers: {first: {score: exact}, second: {score: wit}}}}
        not_measurable: {second.wit: 0.25}
        """,
    )
    llm_pytester.makeconftest(
        fake_model_conftest(replies=REPLIES) + SCORER.replace("{LACKING}", 'NotMeasurable("no joke")')
    )
    assert llm_pytester.runpytest("-pno:xdist", "--llm-report=out.json").ret == 0
    suites = {suite["name"]: suite for suite in report(llm_pytester)["suites"]}
    found = {name: (metric["value"], metric["n"]) for name, metric in suites["search"]["metrics"].items()}
    assert (found["ndcg@10"], found["recall@10"]) == ((0.5, 2), (0.25, 2))
    assert suites["both"]["metrics"]["second.wit"]["value"] == 0.625


def test_a_mark_says_it_for_hand_written_tests(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    tests = """
        import pytest
        from pytest_llmeval import NotMeasurable

        pytestmark = pytest.mark.llm_suite("tone"{MORE})

        @pytest.mark.parametrize("number", range(10))
        def test_tone(llm_record, number):
            wit = NotMeasurable("no joke") if number < {LACKING} else 1.0
            llm_record(suite="tone", id=number, score=1, values={"wit": wit})
        """

    def ran(more: str, lacking: int, *arguments: str) -> pytest.RunResult:
        source = tests.replace("{MORE}", more).replace("{LACKING}", str(lacking))
        llm_pytester.makepyfile(test_tone=source)
        return llm_pytester.runpytest(*workers, *arguments)

    assert ran("", 0, "--llm-report=base.json").ret == 0
    assert ran("", 6, "--llm-report=out.json").ret == 0
    assert report(llm_pytester)["suites"][0]["metrics"]["wit"]["n"] == 4
    gates = ("--llm-gate=tone: wit >= 0.5", "--llm-require-gates")
    assert "needs a share of 0.9" in " ".join(ran("", 6, *gates).stdout.str().split())
    assert ran(", min_measurable=0.4", 6, *gates).ret == 0
    result = ran(", not_measurable={'wit': 0}", 6, *gates, "--llm-report=out.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["failed: tone, wit >= 0.5: wit 0.400*, n 10: below 0.5"])
    assert report(llm_pytester)["suites"][0]["settings"] == {"not_measurable": {"wit": 0.0}}
    assert report(llm_pytester)["collected"] == []
    assert llm_pytester.run("llmeval", "gate", "out.json", "--gate", "wit >= 0.4").ret == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("not_measurables={}", "llm_suite: unknown argument 'not_measurables'; did you mean 'not_measurable'?"),
        ("not_measurable=1", "llm_suite: not_measurable must map metric names to numbers, found 1"),
        ("not_measurable={'accuracy': 2}", "llm_suite: accuracy must be from 0 to 1, found 2"),
        ("min_measurable=90", "llm_suite: min_measurable must be a number from 0 to 1, found 90"),
    ],
)
def test_marks_that_cannot_be_used(llm_pytester: pytest.Pytester, arguments: str, message: str) -> None:
    llm_pytester.makepyfile(
        f"""
        import pytest

        @pytest.mark.llm_suite("tone", {arguments})
        def test_it(llm_record):
            llm_record(suite="tone", id=1, correct=True)
        """
    )
    result = llm_pytester.runpytest("-pno:xdist")
    assert result.ret == 1
    assert message in " ".join(result.stdout.str().split())


def test_marks_of_one_suite_that_differ(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(
        """
        import pytest

        @pytest.mark.llm_suite("tone", min_measurable=0.5)
        def test_a(llm_record):
            llm_record(suite="tone", id="a", correct=True)

        @pytest.mark.llm_suite("tone", min_measurable=0.4)
        def test_b(llm_record):
            llm_record(suite="tone", id="b", correct=True)
        """
    )
    result = llm_pytester.runpytest("-pno:xdist")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["problem: suite 'tone' has two marks llm_suite with different settings*"])


MISSPELT = "problem: suite 'jokes': not_measurable has 'wi', and no score has such a metric; did you mean 'wit'?"


@pytest.mark.parametrize("lacking", ['NotMeasurable("none")', '{"wit": NotMeasurable("none")}'])
def test_a_name_that_no_score_has_is_a_problem(llm_pytester: pytest.Pytester, workers: list[str], lacking: str) -> None:
    """What metrics the scorer has is known from its scores alone; a part of them need not have each."""
    scorer = SCORER.replace("{LACKING}", lacking).replace('wit.metrics = ("wit",)', "")
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES) + scorer)
    suite = SUITE.replace("gates:", "#")

    def ran(counted: str, *arguments: str) -> pytest.RunResult:
        llm_pytester.makefile(".yaml", jokes=f"{suite}{counted}")
        return llm_pytester.runpytest(*workers, "jokes.yaml", *arguments)

    assert ran(COUNTED).ret == 0
    assert ran("not_measurable: {wi: 0}\n", "--deselect=jokes.yaml::b").ret == 0
    result = ran("not_measurable: {wi: 0}\n", "--llm-report=out.json")
    assert result.ret == 1
    assert MISSPELT in " ".join(result.stdout.str().split())
    assert MISSPELT.removeprefix("problem: ") in report(llm_pytester)["problems"]
    for number in (1, 2):
        assert ran("not_measurable: {wi: 0}\n", f"--llm-shard={number}/2", f"--llm-report={number}.json").ret == 0
    merged = llm_pytester.run("llmeval", "merge", "1.json", "2.json", "-o", "merged.json")
    assert merged.ret == 1
    assert MISSPELT in " ".join((merged.stdout.str() + merged.stderr.str()).split())


def test_a_name_that_no_score_can_have_is_none(llm_pytester: pytest.Pytester) -> None:
    """Where nothing is measurable on any sample, no score has to name it."""
    scorer = 'from pytest_llmeval import NotMeasurable\ndef mine(reply): return NotMeasurable("no claim")\n'
    scorer += "def pytest_llmeval_scorers(): return {'wit': mine}\n"
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES) + scorer)
    llm_pytester.makefile(".yaml", jokes=SUITE.replace("gates:", "#") + COUNTED)
    assert llm_pytester.runpytest("-pno:xdist", "jokes.yaml").ret == 0


@pytest.mark.parametrize(("name", "code"), [("wi", 1), ("wit", 0), ("score", 0)])
def test_a_mark_whose_name_no_record_has_is_a_problem(
    llm_pytester: pytest.Pytester, workers: list[str], name: str, code: int
) -> None:
    llm_pytester.makepyfile(
        f"""
        import pytest
        from pytest_llmeval import NotMeasurable

        @pytest.mark.llm_suite("jokes", not_measurable={{{name!r}: 0}})
        @pytest.mark.parametrize("number", range(4))
        def test_it(llm_record, number):
            values = {{"wit": NotMeasurable("none") if number else 1.0}}
            llm_record(suite="jokes", id=number, score=1, values=values)
        """
    )
    result = llm_pytester.runpytest(*workers)
    assert result.ret == code
    assert (MISSPELT in " ".join(result.stdout.str().split())) == (code == 1)
    assert llm_pytester.runpytest(*workers, "-k", "1").ret == 0


AGENTS = """
def all_jokes(prompt): return "1"
def few_jokes(prompt): return "1" if int(prompt) < 6 else "none"
"""
TWENTY = "suite: jokes\nsamples:\n" + "".join(f"- {{id: j{n}, question: '{n}', target: x}}\n" for n in range(20))


@pytest.mark.parametrize("more", ["", COUNTED])
def test_measurements_that_vanish_fail_a_comparison(
    llm_pytester: pytest.Pytester, workers: list[str], more: str
) -> None:
    """In both directions, required or not, and on saved reports; as a worse number where the suite gives it one."""
    scorer = SCORER.replace("{LACKING}", 'NotMeasurable("no joke")') + "\nwit.better = {'wit': 'higher'}\n"
    llm_pytester.makeconftest(scorer)
    llm_pytester.makepyfile(agents=AGENTS)
    llm_pytester.makefile(".yaml", jokes=f"{TWENTY}score: wit\n{more}")

    def ran(model: str, *arguments: str) -> pytest.RunResult:
        return llm_pytester.runpytest(*workers, f"--llm-model=python:agents:{model}_jokes", "jokes.yaml", *arguments)

    for first, second, sides in (
        ("all", "few", "now: 14, in the baseline: 0"),
        ("few", "all", "now: 0, in the baseline: 14"),
    ):
        assert ran(first, f"--llm-report={first}.json").ret == 0
        expected = f"wit is not measurable on one side of 14 of 20 pairs ({sides})"
        if more:
            expected = "wit 1.000 -> 0.300" if second == "few" else "wit 0.300 -> 1.000"
        for arguments in ((), ("--llm-require-gates",)):
            result = ran(second, f"--llm-baseline={first}.json", *arguments, f"--llm-report={second}.json")
            assert result.ret == (0 if more and second == "all" else 1)
            assert expected in " ".join(result.stdout.str().split())
        result = llm_pytester.run("llmeval", "compare", f"{first}.json", f"{second}.json")
        assert expected in " ".join(result.stdout.str().split())
