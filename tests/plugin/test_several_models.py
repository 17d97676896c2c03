"""``--llm-model`` given several times: every suite on each model, one loaded at a time, and how they compare."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.scripted_models import loads, scripted_models_conftest
from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest

BIG = {**CAPITALS_LIKELY, **SUMS_REPLIES}
"""q1, q2, s1 and s4 right."""

SMALL = {"France": "Rome", "Italy": "Rome", "Norway": "Oslo", "1 + 1": "2", "2 + 3": "5"}
"""q2, q3, s1 and s2 right."""

MODELS = ("--llm-model=org/big", "--llm-model=small")


@pytest.fixture
def both(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(scripted_models_conftest({"org/big": BIG, "small": SMALL}))
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    return llm_pytester


def read(pytester: pytest.Pytester) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / "out.json").read_text(encoding="ascii"))
    return report


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


def test_every_suite_runs_on_every_model(both: pytest.Pytester, workers: list[str]) -> None:
    result = both.runpytest(*workers, *MODELS, "--llm-report=out.json", "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    report = read(both)
    found = {(record["suite"], record["model"], record["id"]): record["status"] for record in report["records"]}
    right = {key for key, status in found.items() if status == "correct"}
    assert len(found) == len(report["records"]) == 14
    assert {(model, sample) for _, model, sample in right} == {
        *(("org/big", sample) for sample in ("q1", "q2", "s1", "s4")),
        *(("small", sample) for sample in ("q2", "q3", "s1", "s2")),
    }
    assert [
        (suite["name"], suite["models"], suite["num_expected"], suite["num_scored"]) for suite in report["suites"]
    ] == [
        ("capitals", ["org/big"], 3, 3),
        ("capitals", ["small"], 3, 3),
        ("sums", ["org/big"], 4, 4),
        ("sums", ["small"], 4, 4),
    ]
    assert [model["name"] for model in report["models"]] == ["org/big", "small"]
    assert report["options"]["model"] == ["org/big", "small"]
    assert report["problems"] == []
    assert {record["nodeid"] for record in report["records"] if record["id"] == "q1"} == {
        "capitals.yaml::big::q1",
        "capitals.yaml::small::q1",
    }


def test_a_model_makes_room_before_the_next_is_loaded(both: pytest.Pytester) -> None:
    assert both.runpytest(*MODELS, "capitals.yaml", "sums.yaml").ret == 0
    assert [(load["model"], load["alive"]) for load in loads(both.path)] == [("org/big", []), ("small", [])]


def test_a_failed_sample_keeps_no_model_alive(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": {"5 + 4": "error:too hot"}, "b": {}}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    llm_pytester.runpytest_subprocess("--llm-model=a", "--llm-model=b", "sums.yaml").assert_outcomes(passed=0, failed=1)
    assert [load["alive"] for load in loads(llm_pytester.path)] == [[], []]


def test_each_worker_holds_one_model(both: pytest.Pytester) -> None:
    both.runpytest("-n2", *MODELS, "capitals.yaml", "sums.yaml")
    found = loads(both.path)
    assert all(load["alive"] == [] for load in found)
    assert len({(load["model"], load["pid"]) for load in found}) == len(found), "a worker loaded a model twice"


def test_the_same_numbers_with_and_without_workers(both: pytest.Pytester) -> None:
    reports = []
    for workers in (["-p", "no:xdist"], ["-n2"], ["-n", "3", "--dist", "loadscope"]):
        both.runpytest(*workers, *MODELS, "--llm-report=out.json", "capitals.yaml", "sums.yaml")
        report = read(both)
        for key in ("digest", "created", "seconds"):
            del report[key]
        reports.append(report)
    assert reports[0] == reports[1] == reports[2]


def test_comparison(both: pytest.Pytester, workers: list[str]) -> None:
    result = both.runpytest(*workers, *MODELS, "--llm-report=out.json", "capitals.yaml", "sums.yaml")
    result.stdout.fnmatch_lines(
        [
            "suite*n  accuracy*",
            "capitals (big)*3  0.667*",
            "capitals (small)*3  0.667*",
            "against big, over the samples that both scored: value (difference [[]95% interval],*",
            "suite     metric    n  big    small",
            "capitals  accuracy  3  0.667  0.667 (+0.000 [[]-0.692, 0.692], +1 -1)",
            "sums      accuracy  4  0.500  0.500 (+0.000 [[]-0.604, 0.604], +1 -1)",
            "by category *",
            "capitals (big)",
            "capitals (small)",
        ]
    )
    capitals, sums = read(both)["comparisons"]
    assert (capitals["suite"], capitals["first"], capitals["second"]) == ("capitals", "org/big", "small")
    accuracy = capitals["differences"]["accuracy"]
    assert (accuracy["n"], accuracy["num_gained"], accuracy["num_lost"]) == (3, 1, 1)
    assert (accuracy["first"], accuracy["second"], accuracy["difference"]) == (
        pytest.approx(2 / 3),
        pytest.approx(2 / 3),
        0,
    )
    assert set(sums["differences"]) == {"accuracy"}, "counts are not compared"
    assert {name: found["p_value"] for name, found in sums["differences"].items()} == {"accuracy": 1.0}
    assert all(found["p_value"] is not None for found in capitals["differences"].values())
    assert 0 < capitals["differences"]["brier"]["p_value"] <= 1
    page = both.runpytest(*workers, *MODELS, "--llm-report=out.html", "--llm-report=out.md", "capitals.yaml")
    assert page.ret == 0
    assert ", +1 -1, p 1.000)" in (both.path / "out.md").read_text("utf-8")
    shown = (both.path / "out.html").read_text("utf-8")
    assert "Changes of each suite" in shown
    assert "sign-flip test" in shown


def test_a_narrow_terminal_gets_a_table_for_each_model(both: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    result = both.runpytest(*MODELS, "capitals.yaml")
    result.stdout.fnmatch_lines(
        [
            "against big, *",
            "suite     metric    n  big",
            "-*",
            "capitals  accuracy  3  0.667",
            "",
            "suite     small",
            "-*",
            "capitals  0.667 (+0 *",
        ]
    )


def test_a_sample_that_one_model_could_not_answer_is_not_compared(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": BIG, "b": {**SMALL, "4 + 4": "error:too hot"}}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = (*workers, "--llm-model=a", "--llm-model=b", "--llm-report=out.json", "sums.yaml")
    assert llm_pytester.runpytest(*arguments).ret == 1
    report = read(llm_pytester)
    assert [(suite["num_expected"], suite["num_scored"]) for suite in report["suites"]] == [(4, 4), (4, 3)]
    (comparison,) = report["comparisons"]
    accuracy = comparison["differences"]["accuracy"]
    assert (accuracy["n"], accuracy["num_gained"], accuracy["num_lost"]) == (3, 1, 1)


def test_three_models_are_compared_with_the_first(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": BIG, "b": SMALL, "c": {}}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = [f"--llm-model={name}" for name in "abc"]
    result = llm_pytester.runpytest(*workers, *models, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 0
    pairs = [(one["first"], one["second"]) for one in read(llm_pytester)["comparisons"]]
    assert pairs == [("a", "b"), ("a", "c")]
    result.stdout.fnmatch_lines(["sums   accuracy  4  0.500  0.500 (+0.000 *, +1 -1)  0.000 (-0.500 *, +0 -2)"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["capitals.yaml::small"], [f"capitals.yaml::small::q{number}" for number in (1, 2, 3)]),
        (["capitals.yaml::small::q2"], ["capitals.yaml::small::q2"]),
        (["capitals.yaml", "-k", "big and q3"], ["capitals.yaml::big::q3"]),
        (
            ["capitals.yaml", "sums.yaml", "-k", "q1 or s1"],
            ["capitals.yaml::big::q1", "sums.yaml::big::s1", "capitals.yaml::small::q1", "sums.yaml::small::s1"],
        ),
    ],
)
def test_selection(both: pytest.Pytester, arguments: list[str], expected: list[str]) -> None:
    assert collected(both, *MODELS, *arguments) == expected


def test_one_model_alone_has_no_level(both: pytest.Pytester) -> None:
    assert collected(both, "--llm-model=small", "capitals.yaml::q2") == ["capitals.yaml::q2"]
    result = both.runpytest("--llm-model=small", "--llm-report=out.json", "capitals.yaml")
    assert result.ret == 0
    assert read(both)["comparisons"] == []
    result.stdout.no_fnmatch_line("against *")
    assert [load["model"] for load in loads(both.path)] == ["small"]


def test_a_selected_model_is_the_only_one_that_is_loaded(both: pytest.Pytester, workers: list[str]) -> None:
    result = both.runpytest(*workers, *MODELS, "--llm-report=out.json", "-k", "small", "capitals.yaml")
    assert result.ret == 0
    assert {load["model"] for load in loads(both.path)} == {"small"}
    assert [(suite["models"], suite["num_expected"]) for suite in read(both)["suites"]] == [(["small"], 3)]


def test_last_failed_runs_wrong_answers_of_each_model(both: pytest.Pytester, workers: list[str]) -> None:
    both.runpytest(*workers, *MODELS, "capitals.yaml", "sums.yaml")
    result = both.runpytest(*workers, *MODELS, "--lf", "--llm-report=out.json", "capitals.yaml", "sums.yaml")
    assert result.ret == 0
    assert [record["nodeid"] for record in read(both)["records"]] == [
        "capitals.yaml::big::q3",
        "sums.yaml::big::s2",
        "sums.yaml::big::s3",
        "capitals.yaml::small::q1",
        "sums.yaml::small::s3",
        "sums.yaml::small::s4",
    ]


def test_failed_first_stays_within_a_model(both: pytest.Pytester) -> None:
    both.runpytest(*MODELS, "capitals.yaml")
    assert [nodeid[len("capitals.yaml::") :] for nodeid in collected(both, *MODELS, "--ff", "capitals.yaml")] == [
        "big::q3",
        "big::q1",
        "big::q2",
        "small::q1",
        "small::q2",
        "small::q3",
    ]


@pytest.mark.parametrize("limit", ["2", "first:2"])
def test_a_limit_takes_the_same_samples_for_each_model(both: pytest.Pytester, workers: list[str], limit: str) -> None:
    options = (*workers, *MODELS, f"--llm-limit={limit}", "--llm-report=out.json", "sums.yaml")
    assert both.runpytest(*options).ret == 0
    samples: dict[str, list[str]] = {}
    for record in read(both)["records"]:
        samples.setdefault(record["model"], []).append(record["id"])
    assert samples["org/big"] == samples["small"]
    assert len(samples["small"]) == 2


def test_a_model_that_cannot_be_loaded_fails_its_own_samples(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": BIG, "b": {"cannot load": "no weights"}, "c": SMALL}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = [f"--llm-model={name}" for name in "abc"]
    result = llm_pytester.runpytest(*workers, *models, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.no_fnmatch_line("*Traceback*")
    report = read(llm_pytester)
    assert [(suite["models"], suite["num_expected"], suite["num_scored"]) for suite in report["suites"]] == [
        (["a"], 4, 4),
        (["b"], 4, 0),
        (["c"], 4, 4),
    ]
    unscored = [record for record in report["records"] if record["status"] == "unscored"]
    assert {(record["model"], record["reason"]) for record in unscored} == {("b", "model b: no weights")}
    assert len(unscored) == 4
    assert [(one["first"], one["second"]) for one in report["comparisons"]] == [("a", "c")]
    tried = [load["pid"] for load in loads(llm_pytester.path) if load["model"] == "b"]
    assert len(tried) == len(set(tried)), "a model that cannot be loaded is tried once"


def test_the_first_model_that_has_scores_is_what_others_are_compared_with(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"a": {"cannot load": "no"}, "b": BIG, "c": SMALL}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = [f"--llm-model={name}" for name in "abc"]
    result = llm_pytester.runpytest(*models, "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["sums (a)*0/4*", "against b, *", "suite*b *c"])


def test_what_cannot_be_is_refused_before_the_run(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=demo", "--llm-model=./missing", "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines(["ERROR: model ./missing: there is no folder *missing"])
    result.stdout.no_fnmatch_line("*::*")


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (["demo", "demo"], "ERROR: --llm-model demo was given twice: *"),
        (["./here", "here"], "ERROR: --llm-model ./here and --llm-model here are the same model: give it once"),
        (["demo", " "], "ERROR: --llm-model: expected some text, found ' '"),
    ],
)
def test_one_model_twice_is_a_mistake(llm_pytester: pytest.Pytester, models: list[str], message: str) -> None:
    llm_pytester.mkdir("here")
    llm_pytester.makefile(".yaml", sums=SUMS)
    result = llm_pytester.runpytest(*(f"--llm-model={model}" for model in models), "sums.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([message])


def test_models_from_ini_and_environment(both: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    both.makeini("[pytest]\nllm_model =\n    org/big\n    small")
    assert len(collected(both, "sums.yaml")) == 8
    monkeypatch.setenv("PYTEST_LLM_MODEL", "small\n")
    assert len(collected(both, "sums.yaml")) == 4
    monkeypatch.setenv("PYTEST_LLM_MODEL", "small\norg/big\n")
    assert collected(both, "sums.yaml")[0] == "sums.yaml::small::s1"
    assert collected(both, "--llm-model=org/big", "sums.yaml")[0] == "sums.yaml::s1"


def test_folders_of_one_name(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(scripted_models_conftest({"./runs/one/last": BIG, "./runs/two/last": SMALL}))
    llm_pytester.makefile(".yaml", sums=SUMS)
    models = ("--llm-model=./runs/one/last", "--llm-model=./runs/two/last")
    arguments = (*workers, *models, "--llm-report=out.json", "sums.yaml::two/last::s1")
    assert llm_pytester.runpytest(*arguments).ret == 0
    (record,) = read(llm_pytester)["records"]
    assert (record["nodeid"], record["model"]) == ("sums.yaml::two/last::s1", "./runs/two/last")


def test_a_worker_that_dies_loses_one_models_sample(llm_pytester: pytest.Pytester) -> None:
    conftest = scripted_models_conftest({"a": BIG, "b": {**SMALL, "2 + 3": "die"}})
    conftest += """
def pytest_runtest_call(item):
    if item.nodeid.endswith("b::s2"):
        os._exit(1)
"""
    llm_pytester.makeconftest(conftest)
    llm_pytester.makefile(".yaml", sums=SUMS)
    arguments = ("-n2", "--llm-model=a", "--llm-model=b", "--llm-report=out.json", "sums.yaml")
    assert llm_pytester.runpytest(*arguments).ret == 1
    report = read(llm_pytester)
    assert len(report["records"]) == 8
    assert [(record["model"], record["id"]) for record in report["records"] if record["status"] == "unscored"] == [
        ("b", "s2")
    ]
    assert [(suite["models"], suite["num_scored"]) for suite in report["suites"]] == [(["a"], 4), (["b"], 3)]


def test_a_folder_with_a_model_of_its_own_runs_once(both: pytest.Pytester, workers: list[str]) -> None:
    folder = both.mkdir("own")
    (folder / "conftest.py").write_text(fake_model_conftest(replies=SUMS_REPLIES))
    (folder / "own.yaml").write_text(SUMS.replace("suite: sums", "suite: own"))
    result = both.runpytest(*workers, *MODELS, "--llm-report=out.json", "own", "sums.yaml")
    assert result.ret == 0
    report = read(both)
    assert [(suite["name"], suite["models"], suite["num_expected"]) for suite in report["suites"]] == [
        ("own", ["fake"], 4),
        ("sums", ["org/big"], 4),
        ("sums", ["small"], 4),
    ]
    assert {record["nodeid"] for record in report["records"] if record["model"] == "fake"} == {
        f"own/own.yaml::s{number}" for number in (1, 2, 3, 4)
    }
    assert [one["suite"] for one in report["comparisons"]] == ["sums"]


WRAPPER = """
import pytest

class Wrapped:
    def __init__(self, model):
        self.model = model
    def generate(self, requests):
        return self.model.generate(requests)

@pytest.fixture
def llm_model(llm_model):
    return Wrapped(llm_model)
"""


def test_a_conftest_can_wrap_each_model(both: pytest.Pytester, workers: list[str]) -> None:
    folder = both.mkdir("wrapped")
    (folder / "conftest.py").write_text(WRAPPER)
    (folder / "sums.yaml").write_text(SUMS)
    assert both.runpytest(*workers, *MODELS, "--llm-report=out.json", "wrapped").ret == 0
    report = read(both)
    found = {(record["model"], record["id"]) for record in report["records"] if record["status"] == "correct"}
    assert found == {("org/big", "s1"), ("org/big", "s4"), ("small", "s1"), ("small", "s2")}
    assert [model["name"] for model in report["models"]] == ["org/big", "small"]


def test_a_plugin_can_wrap_each_model_or_replace_all(both: pytest.Pytester, workers: list[str]) -> None:
    both.makepyfile(wrapping=WRAPPER, replacing=fake_model_conftest(replies=SUMS_REPLIES))
    both.makeini("[pytest]\npythonpath = .")
    own = (both.path / "conftest.py").read_text()
    for plugin, models in (("wrapping", {"org/big", "small"}), ("replacing", {"fake"})):
        both.makeconftest(f"pytest_plugins = [{plugin!r}]\n{own}")
        assert both.runpytest(*workers, *MODELS, "--llm-report=out.json", "sums.yaml").ret == 0
        assert {record["model"] for record in read(both)["records"]} == models


def test_a_conftest_that_imports_all_of_a_module_replaces_no_model(both: pytest.Pytester, workers: list[str]) -> None:
    own = (both.path / "conftest.py").read_text()
    both.makeconftest(f"from math import *\n{own}")
    assert both.runpytest(*workers, *MODELS, "--llm-report=out.json", "sums.yaml").ret == 0
    assert {record["model"] for record in read(both)["records"]} == {"org/big", "small"}


def test_suites_of_one_name_are_still_an_error(both: pytest.Pytester) -> None:
    both.makefile(".yaml", other=SUMS)
    result = both.runpytest(*MODELS, "sums.yaml", "other.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*'sums' is also the name of*"])


def test_show_prompts(both: pytest.Pytester) -> None:
    result = both.runpytest(*MODELS, "--llm-show-prompts", "capitals.yaml::small::q1")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["capitals.yaml::small::q1", "*Capital of France?*"])
    assert loads(both.path) == []


def test_stepwise_goes_on_where_it_stopped(both: pytest.Pytester) -> None:
    """In the order that ran, which is that of the models: nothing that has not run is taken for passed."""
    arguments = [*MODELS, "--llm-strict", "--sw", "capitals.yaml", "sums.yaml"]
    first = both.runpytest(*arguments)
    assert first.ret == pytest.ExitCode.INTERRUPTED
    num_passed = first.parseoutcomes().get("passed", 0)
    left = both.runpytest(*arguments, "--collect-only", "-q")
    assert left.parseoutcomes()["deselected"] == num_passed
    assert sum("::" in line for line in left.outlines) == 14 - num_passed


def test_the_header_names_all_models(both: pytest.Pytester) -> None:
    both.runpytest(*MODELS, "--collect-only", "sums.yaml").stdout.fnmatch_lines(
        [
            "llm-model: org/big (*)",
            "llm-model: small (*)",
            "*<SuiteFile sums.yaml>",
            "*<SuiteModel big>",
            "*<SampleItem s1>",
        ]
    )
