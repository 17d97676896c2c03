"""Variants of a suite, side by side: their tests, records, gates, baselines, and each against the first."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.cli import main
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.scripted_models import scripted_models_conftest
from tests.support import REPOSITORY, fake_model_conftest

PLAIN = """\
suite: sums
samples:
  - {id: s1, question: "1 + 1", target: 2}
  - {id: s2, question: "2 + 3", target: 5}
  - {id: s3, question: "4 + 4", target: 8}
  - {id: s4, question: "5 + 4", target: 9}
prompt: {template: "{{ question }} ="}
score: number
"""

SUITE = f"""\
{PLAIN}variants:
  short: {{prompt.template: "{{{{ question }}}}"}}
  polite: {{prompt.template: "Please: {{{{ question }}}}"}}
"""

REPLIES = {"Please: 2 + 3": "5", "Please: 4 + 4": "8", "1 + 1": "2", "2 + 3": "4", "4 + 4": "7", "5 + 4": "9"}
"""Right are s1 and s4, and for polite all."""

WORSE = {"1 + 1": "3", "2 + 3": "4", "4 + 4": "7", "5 + 4": "9"}
"""Right is s4, however it is asked."""

SAMPLES = ("s1", "s2", "s3", "s4")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(scripted_models_conftest({"big": REPLIES, "small": WORSE}))
    llm_pytester.makefile(".yaml", sums=SUITE, plain=PLAIN.replace("suite: sums", "suite: plain"))
    return llm_pytester


def read(pytester: pytest.Pytester, name: str = "out.json") -> dict[str, Any]:
    report: dict[str, Any] = json.loads((pytester.path / name).read_text(encoding="ascii"))
    return report


def collected(pytester: pytest.Pytester, *arguments: str) -> list[str]:
    result = pytester.runpytest("--collect-only", "-q", *arguments)
    return [line for line in result.outlines if "::" in line]


def right(report: Mapping[str, Any]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for record in report["records"]:
        own = found.setdefault(record["suite"], [])
        if record["status"] == "correct":
            own.append(record["id"])
    return found


def test_each_variant_is_a_suite_of_its_own(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "--llm-model=big", "--llm-report=out.json", "sums.yaml", "plain.yaml")
    assert result.ret == 0
    report = read(project)
    assert right(report) == {"sums@short": ["s1", "s4"], "sums@polite": [*SAMPLES], "plain": ["s1", "s4"]}
    assert [(suite["name"], suite["variant"], suite["path"]) for suite in report["suites"]] == [
        ("sums@short", "short", "sums.yaml::short"),
        ("sums@polite", "polite", "sums.yaml::polite"),
        ("plain", None, "plain.yaml"),
    ]
    assert {record["nodeid"] for record in report["records"] if record["id"] == "s1"} == {
        "sums.yaml::short::s1",
        "sums.yaml::polite::s1",
        "plain.yaml::s1",
    }
    assert report["problems"] == []
    (compared,) = report["variants"]
    assert (compared["suite"], compared["first"], compared["second"]) == ("sums", "sums@short", "sums@polite")
    assert (compared["metric"], compared["family"]) == ("accuracy", 1)
    assert compared["p_value"] == compared["p_adjusted"] == 0.5
    accuracy = compared["differences"]["accuracy"]
    assert (accuracy["num_gained"], accuracy["num_lost"], accuracy["n"]) == (2, 0, 4)
    assert [one["id"] for one in compared["movers"]["accuracy"]["better"]] == ["s2", "s3"]
    result.stdout.fnmatch_lines_random(["sums: 2 variants (short, polite), 8 samples, 8 requests"])
    result.stdout.fnmatch_lines(
        [
            "sums@short*4  0.500*",
            "sums@polite*4  1.000*",
            "against short, over the samples that both scored:",
            "suite  metric    n  short  polite",
            "sums   accuracy  4  0.500  1.000 (+0.500 *, +2 -0, p 0.500)",
        ]
    )
    # Of a suite's variants the first alone is in the means over suites.
    assert report["averages"][0]["macro"]["accuracy"]["value"] == pytest.approx(0.5)
    read_report(project.path / "out.json")


def test_with_several_models_the_variant_is_below_the_model(project: pytest.Pytester, workers: list[str]) -> None:
    both = ("--llm-model=big", "--llm-model=small")
    assert collected(project, *both, "sums.yaml") == [
        f"sums.yaml::{model}::{variant}::{id_}"
        for model in ("big", "small")
        for variant in ("short", "polite")
        for id_ in SAMPLES
    ]
    gates = ("--llm-gate=sums@polite: accuracy >= 0.25", "--llm-gate=sums@short: accuracy >= 0.5")
    result = project.runpytest(*workers, *both, *gates, "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines_random(
        [
            "sums: 2 variants (short, polite), 2 models, 16 samples, 16 requests",
            "sums (big) *1.000 (*",
            "sums (small) *0.250 (*",
            "FAILED sums.yaml::small::short::gate[[]accuracy >= 0.5[]]*",
        ]
    )
    report = read(project)
    assert report["problems"] == []
    assert [(suite["name"], suite["models"]) for suite in report["suites"]] == [
        ("sums@short", ["big"]),
        ("sums@short", ["small"]),
        ("sums@polite", ["big"]),
        ("sums@polite", ["small"]),
    ]
    assert [(one["model"], one["p_value"], one["p_adjusted"], one["family"]) for one in report["variants"]] == [
        ("big", 0.5, 1.0, 2),
        ("small", 1.0, 1.0, 2),
    ]
    assert [(gate["suite"], gate["model"], gate["outcome"]) for gate in report["gates"]] == [
        ("sums@short", "big", "passed"),
        ("sums@short", "small", "failed"),
        ("sums@polite", "big", "passed"),
        ("sums@polite", "small", "passed"),
    ]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["sums.yaml", "-k", "polite"], [f"sums.yaml::polite::{id_}" for id_ in SAMPLES]),
        (["sums.yaml", "-k", "polite and s2"], ["sums.yaml::polite::s2"]),
        (["sums.yaml::short"], [f"sums.yaml::short::{id_}" for id_ in SAMPLES]),
        (["sums.yaml::short::s3"], ["sums.yaml::short::s3"]),
        (["sums.yaml", "--llm-limit=1"], ["sums.yaml::short::s4", "sums.yaml::polite::s4"]),
    ],
)
def test_selections(project: pytest.Pytester, arguments: list[str], expected: list[str]) -> None:
    assert collected(project, *arguments) == expected


def test_a_sample_is_in_one_shard_with_all_variants(project: pytest.Pytester) -> None:
    """Variants are compared sample by sample, as models are."""
    shards = [collected(project, f"--llm-shard={number}/2", "sums.yaml") for number in (1, 2)]
    kept = [{tuple(nodeid.split("::")[1:]) for nodeid in shard} for shard in shards]
    for own in kept:
        assert {id_ for variant, id_ in own if variant == "short"} == {
            id_ for variant, id_ in own if variant == "polite"
        }
    assert len(kept[0]) + len(kept[1]) == 8
    draws = collected(project, "--llm-limit=2:seed=7", "sums.yaml")
    ids = [nodeid.split("::")[2] for nodeid in draws]
    assert ids[:2] == ids[2:]


def test_merged_shards_are_the_whole_run(project: pytest.Pytester) -> None:
    for number in (1, 2):
        project.runpytest("--llm-model=big", f"--llm-shard={number}/2", f"--llm-report={number}.json", "sums.yaml")
    assert project.runpytest("--llm-model=big", "--llm-report=out.json", "sums.yaml").ret == 0
    assert (
        main(["merge", *(str(project.path / f"{n}.json") for n in (1, 2)), "-o", str(project.path / "all.json")]) == 0
    )
    merged, whole = (read(project, name)["variants"] for name in ("all.json", "out.json"))
    for (one,) in (merged, whole):
        one["movers"]["accuracy"]["better"].sort(key=lambda sample: sample["id"])  # the order is that of the records
    assert merged == whole


def test_failed_variants_run_again_alone(project: pytest.Pytester, workers: list[str]) -> None:
    project.runpytest(*workers, "--llm-model=big", "sums.yaml")
    again = collected(project, "--lf", "sums.yaml")
    assert again == ["sums.yaml::short::s2", "sums.yaml::short::s3"]  # the wrong answers


def test_a_gate_on_the_suite_is_for_each_variant(project: pytest.Pytester) -> None:
    result = project.runpytest("--llm-model=big", "--llm-gate=sums: accuracy >= 0.6", "sums.yaml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["gates: 1 failed, 1 passed", "failed: sums@short, accuracy >= 0.6: *"])
    project.makefile(".yaml", own=SUITE.replace("suite: sums", "suite: own") + "gates: [accuracy >= 0.6]\n")
    result = project.runpytest("--llm-model=big", "own.yaml")
    result.stdout.fnmatch_lines(["gates: 1 failed, 1 passed"])
    result.stdout.fnmatch_lines_random(["FAILED own.yaml::short::gate[[]accuracy >= 0.6[]]*"])


def test_each_variant_has_its_own_baseline(project: pytest.Pytester, workers: list[str]) -> None:
    assert project.runpytest("--llm-model=big", "--llm-report=base.json", "sums.yaml").ret == 0
    against = ("--llm-baseline=base.json", "--llm-report=out.json")
    result = project.runpytest(*workers, "--llm-model=small", *against, "sums.yaml")
    found = {gate["suite"]: gate["regression"] for gate in read(project)["gates"] if gate["suite"]}
    assert {suite: (one["baseline"], one["current"]) for suite, one in found.items()} == {
        "sums@short": (0.5, 0.25),
        "sums@polite": (1.0, 0.25),
    }
    (project.path / "sums.yaml").write_text(SUITE.replace("polite:", "kind:"), encoding="utf-8")
    result = project.runpytest(*workers, "--llm-model=small", *against, "sums.yaml")
    assert result.ret == 1  # a variant of the baseline is gone
    told = " ".join(result.stdout.str().split())
    failed = "failed: sums@polite, accuracy vs baseline: in the baseline, and did not run"
    assert f"{failed}; --llm-compare questions compares 'sums@kind' with it, whatever the prompt" in told


def test_allowed_drops_of_a_suite_and_of_a_variant(project: pytest.Pytester) -> None:
    assert project.runpytest("--llm-model=big", "--llm-report=base.json", "sums.yaml").ret == 0
    against = ("--llm-baseline=base.json", "--llm-report=out.json", "--llm-max-drop=sums: accuracy=0.3")
    project.runpytest("--llm-model=small", *against, "--llm-max-drop=sums@polite: accuracy=0.8", "sums.yaml")
    margins = {gate["suite"]: gate["regression"]["margin"] for gate in read(project)["gates"] if gate["suite"]}
    assert margins == {"sums@short": 0.3, "sums@polite": 0.8}


def test_a_variant_of_the_command_line(project: pytest.Pytester, workers: list[str]) -> None:
    """The suite as it is written comes first, with its name and its node ids."""
    added = (
        '--llm-variant=plain: kind: prompt.template="Please: {{ question }}"',
        "--llm-variant=plain: kind: generate.max_tokens=9",
    )
    result = project.runpytest(*workers, "--llm-model=big", *added, "--llm-report=out.json", "plain.yaml")
    assert result.ret == 0
    report = read(project)
    assert right(report) == {"plain": ["s1", "s4"], "plain@kind": [*SAMPLES]}
    assert {record["nodeid"] for record in report["records"] if record["id"] == "s1"} == {
        "plain.yaml::s1",
        "plain.yaml::kind::s1",
    }
    plain, kind = report["suites"]
    assert plain["overridden"] == []
    assert kind["overridden"] == [one.partition("=")[2] for one in added]
    assert kind["asked_with"]["generate.max_tokens"] == 9
    result.stdout.fnmatch_lines_random(["plain: 2 variants (as written, kind), 8 samples, 8 requests"])
    result.stdout.fnmatch_lines(["against as written, *"])
    both = ("--llm-model=big", "--llm-model=small")
    assert collected(project, *both, *added, "plain.yaml")[:5] == [
        *(f"plain.yaml::big::{id_}" for id_ in SAMPLES),
        "plain.yaml::big::kind::s1",
    ]
    project.runpytest(*workers, *both, *added, "--llm-report=out.json", "plain.yaml")
    assert read(project)["problems"] == []
    assert [(one["first"], one["second"], one["model"]) for one in read(project)["variants"]] == [
        ("plain", "plain@kind", "big"),
        ("plain", "plain@kind", "small"),
    ]


def test_a_variant_is_added_to_those_of_the_suite(project: pytest.Pytester) -> None:
    ids = collected(project, "--llm-variant=sums: warm: generate.temperature=1", "sums.yaml", "-k", "s1")
    assert ids == ["sums.yaml::short::s1", "sums.yaml::polite::s1", "sums.yaml::warm::s1"]


def test_settings_of_the_suite_and_of_one_variant(project: pytest.Pytester) -> None:
    given = ("--llm-set=sums: generate.max_tokens=9", "--llm-set=sums@polite: generate.max_tokens=7")
    assert project.runpytest("--llm-model=big", *given, "--llm-report=out.json", "sums.yaml").ret == 0
    asked = [suite["asked_with"]["generate.max_tokens"] for suite in read(project)["suites"]]
    assert asked == [9, 7]


AGENTS = """
import json
import re

def log(prompt):
    with open("asked.jsonl", "a") as file:
        file.write(json.dumps(prompt) + "\\n")
    return f"It is {sum(map(int, re.findall('[0-9]', prompt)))}."

def one(prompt):
    return log(prompt)

async def several(prompt):
    import asyncio

    await asyncio.sleep(0.01)
    return log(prompt)
"""
JUDGED = f"""\
{PLAIN}variants:
  number: {{score: number}}
  text: {{score: exact}}
  digit: {{score: exact, filters: [{{regex: "[0-9]"}}]}}
"""


@pytest.mark.parametrize("model", ["python:agents:one", "python:agents:several?max_connections=8"])
def test_a_variant_that_judges_in_another_way_asks_nothing_new(
    project: pytest.Pytester, workers: list[str], model: str
) -> None:
    """Of a model that is asked one by one, and of one that is asked ahead, before it has answered."""
    project.makepyfile(agents=AGENTS)
    project.makefile(".yaml", judged=JUDGED)
    given = (f"--llm-model={model}", "--llm-report=out.json", "judged.yaml")
    store = ("--llm-store=store", "--llm-store-max-age=1d")
    result = project.runpytest(*workers, *given, *store)
    assert result.ret == 0
    assert right(read(project)) == {"sums@number": [*SAMPLES], "sums@text": [], "sums@digit": [*SAMPLES]}
    result.stdout.fnmatch_lines_random(
        [
            "sums: 3 variants (number, text, digit), 12 samples, 12 requests, 4 of them different",
            "sums@text against number: not compared: the scorer differs",
            "sums@digit against number: not compared: the scorer differs",
        ]
    )
    asked = (project.path / "asked.jsonl").read_text("utf-8").splitlines()
    # Two workers may ask for the same at the same time.
    assert len(asked) == 4 if "-n2" not in workers else len(set(asked)) == 4 <= len(asked) <= 8
    result = project.runpytest(*workers, *given, *store)
    assert read(project)["store"]["num_reused"] == 12
    assert (project.path / "asked.jsonl").read_text("utf-8").splitlines() == asked


def test_listing_tests_says_how_many_requests_there_are(project: pytest.Pytester) -> None:
    for options in (["--llm-model=big"], []):
        listed = project.runpytest("--collect-only", *options, "sums.yaml", "plain.yaml").outlines
        assert [line for line in listed if " request" in line] == [
            "sums: 2 variants (short, polite), 8 samples, 8 requests"
        ]
    assert not [line for line in project.runpytest("--collect-only", "plain.yaml").outlines if " request" in line]
    # Without a model, the samples are skipped.
    (project.path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    assert not [line for line in project.runpytest().outlines if " request" in line]


def test_show_finds_all_variants_of_a_suite(project: pytest.Pytester, capsys: pytest.CaptureFixture[str]) -> None:
    files = ("sums.yaml", "plain.yaml")
    assert project.runpytest("--llm-model=big", "--llm-report=out.json", *files).ret == 0
    capsys.readouterr()

    def shown(*arguments: str) -> str:
        assert main(["show", str(project.path / "out.json"), *arguments]) == 0
        return capsys.readouterr().out

    whole, one = shown("--suite", "sums"), shown("--suite", "sums@polite")
    assert [name in whole for name in ("sums@short", "sums@polite", "against short", "plain")] == [True] * 3 + [False]
    assert [name in one for name in ("sums@short", "sums@polite", "against short")] == [False, True, True]
    assert shown("--suite", "sums", "--samples", "all").count("(sums@") == 8
    assert shown("--suite", "sums@short", "--id", "s1").count("(sums@") == 1
    assert main(["show", str(project.path / "out.json"), "--suite", "sums@kind"]) != 0
    assert "the report has no suite 'sums@kind'; expected one of sums, sums@short" in capsys.readouterr().err


def test_the_page_and_markdown_have_the_matrix(project: pytest.Pytester) -> None:
    written = ("--llm-report=out.md", "--llm-report=out.html", "--llm-report=out.json")
    assert (
        project.runpytest(
            "--llm-model=big", "--llm-variant=sums: warm: generate.temperature=1", *written, "sums.yaml"
        ).ret
        == 0
    )
    shown = (project.path / "out.md").read_text("utf-8")
    assert "Against short, over the samples that both scored: " in shown
    assert "two-sided p by Holm over 2 tests" in shown
    assert "| suite | metric | n | short | polite | warm |" in shown
    assert "sums: accuracy of polite against short: 0 samples worse, 2 better, 2 the same" in shown
    page = (project.path / "out.html").read_text("utf-8")
    assert "Against short" in page


def test_a_variant_of_other_questions_says_that_it_is_not_compared(
    project: pytest.Pytester, workers: list[str]
) -> None:
    variants = "variants: {here: {generate.max_tokens: 9}, less: {samples.2.target: 7}, none: {score: exact}}"
    (project.path / "sums.yaml").write_text(f"{PLAIN}{variants}\n", encoding="utf-8")
    written = [f"--llm-report=out.{ending}" for ending in ("json", "md", "html")]
    result = project.runpytest(*workers, "--llm-model=big", *written, "sums.yaml")
    result.stdout.fnmatch_lines(["sums   accuracy  3  *"])
    lines = [
        "sums@less against here: 1 of 4 samples left out, whose question or target differs",
        "sums@none against here: not compared: the scorer differs",
    ]
    result.stdout.fnmatch_lines(lines)
    assert [one["note"] for one in read(project)["variants"]] == [line.partition(": ")[2] for line in lines]
    assert [len(one["differences"]) > 0 for one in read(project)["variants"]] == [True, False]
    for ending in ("md", "html"):
        shown = (project.path / f"out.{ending}").read_text("utf-8")
        assert all(line.partition(": ")[2] in shown for line in lines)
    read_report(project.path / "out.json")


@pytest.mark.parametrize(
    ("variants", "expected"),
    [
        ("{short: {}}", "variants.short: it names no key to change, such as {generate.temperature: 0.3}"),
        ("{short: }", "variants.short: *expected a mapping of keys to values*"),
        ("{not: {score: exact}}", "variants.not: found the name 'not', which is an operator in pytest's -k"),
        ("{1: {score: exact}}", "found 1 (a whole number) as a key, expected text; put it in quotes"),
        ("{a: {score: exact}, a: {score: number}}", "found the key 'a' twice, first in line 9; remove one"),
        ("{a: {samples.9.target: 3}}", "variant a: samples is a list of 4, expected the number of an entry, *"),
        ("{-x: {score: exact}}", "*found the name '-x', expected letters, digits, '_', '-' and '.'*"),
        ("{short: {suite: other}}", "*the name of a suite cannot be set"),
        ("{short: {variants.a: {}}}", "*variants cannot be set*"),
        ("{short: {promt.template: x}}", "sums.yaml:9: variant short: *promt*"),
        ("{short: {prompt.templat: x}}", "sums.yaml:9: variant short: *templat*template*"),
        (
            "{a: {generate.temperature: 1}, b: {generate: {temperature: 1}}}",
            "variants.b: it asks and judges the same as the variant 'a': remove one",
        ),
    ],
)
def test_variants_that_cannot_be(project: pytest.Pytester, variants: str, expected: str) -> None:
    (project.path / "sums.yaml").write_text(f"{PLAIN}variants: {variants}\n", encoding="utf-8")
    result = project.runpytest("--llm-model=big", "sums.yaml")
    assert result.ret == 2
    lines = [line for line in result.outlines if line.startswith("sums.yaml:9: ")]
    assert len(lines) == 1, result.outlines
    pytest.LineMatcher(lines).fnmatch_lines(
        [expected if expected.startswith(("*", "sums")) else f"sums.yaml:9: {expected}"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--llm-variant=plain: kind"], "--llm-variant 'plain: kind': expected 'SUITE: NAME: KEY=VALUE'*"),
        (["--llm-variant=plain: a b: x=1"], "--llm-variant 'plain: a b: x=1': found the name 'a b', expected *"),
        (["--llm-variant=plain: kind: score="], "--llm-variant 'plain: kind: score=': the value is missing*"),
        (
            ["--llm-variant=plan: kind: generate.temperature=1"],
            "--llm-variant 'plan: kind: *': no suite 'plan' was collected; did you mean 'plain'?",
        ),
        (["--llm-gate=plain@polite: accuracy >= 0.6"], "--llm-gate 'plain@polite: *': suite 'plain' has no variants"),
        (
            ["--llm-gate=sums@polit: accuracy >= 0.6"],
            "--llm-gate 'sums@polit: *': suite 'sums' has no variant 'polit'; did you mean 'polite'?",
        ),
        (["--llm-set=plain@a: generate.max_tokens=9"], "--llm-set 'plain@a: *': suite 'plain' has no variants"),
    ],
)
def test_options_that_fit_no_variant(
    project: pytest.Pytester, workers: list[str], arguments: list[str], expected: str
) -> None:
    result = project.runpytest(*workers, "--llm-model=big", *arguments, "plain.yaml", "sums.yaml")
    assert result.ret == 4
    pytest.LineMatcher([line for line in result.errlines if line]).fnmatch_lines([f"*{expected}"])


@pytest.mark.parametrize(
    ("name", "models", "expected"),
    [
        ("s2", ["big"], "node ids have this name for the sample 's2': rename the variant"),
        (
            "small",
            ["big", "small"],
            "node ids have this name for the model 'small': rename the variant",
        ),
    ],
)
def test_names_that_are_taken(project: pytest.Pytester, name: str, models: list[str], expected: str) -> None:
    given = [f"--llm-model={model}" for model in models]
    added = f"plain: {name}: generate.temperature=1"
    result = project.runpytest(*given, f"--llm-variant={added}", "plain.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"plain.yaml:1: --llm-variant '{added}': {expected}"])


def test_a_variant_of_the_command_line_that_changes_nothing(project: pytest.Pytester) -> None:
    added = "plain: same: generate.temperature=0"
    result = project.runpytest("--llm-model=big", f"--llm-variant={added}", "plain.yaml")
    assert result.ret == 2
    message = "it asks and judges the same as the suite as it is written: remove one"
    result.stdout.fnmatch_lines([f"plain.yaml:1: --llm-variant '{added}': {message}"])


def test_the_name_of_a_variant_may_be_that_of_a_suite(project: pytest.Pytester) -> None:
    project.makefile(".yaml", zz=PLAIN.replace("suite: sums", "suite: sums@polite"))
    result = project.runpytest("--llm-model=big", "sums.yaml", "zz.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*'sums@polite' is also the name of sums.yaml*: rename one of them"])


def test_samples_are_read_once_where_the_rows_are_the_same(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pytest_llmeval.suites.loading import loader, mapping

    made: list[object] = []
    make: Callable[..., Any] = mapping.make_sample

    def counted(*given: object, **settings: object) -> object:
        made.append(given)
        return make(*given, **settings)

    monkeypatch.setattr(loader, "make_sample", counted)
    assert len(collected(project, "sums.yaml")) == 8
    assert len(made) == 4


SHOTS = """\
suite: shots
dataset: {path: rows.jsonl}
prompt:
  template: "Question: {{ question }} Answer:"
  fewshot: {count: 4, path: shots.jsonl, sampler: first_n}
"""


COUNTING = """
from pytest_llmeval.models.huggingface.generation import RowsWriter
from pytest_llmeval.models.huggingface.loglikelihood_tree import TreeScorer


def count(kind, name, number):
    method = getattr(kind, name)

    def counted(self, *given):
        with open("computed.txt", "a") as file:
            print(number(*given), file=file)
        return method(self, *given)

    setattr(kind, name, counted)


count(TreeScorer, "_forward", lambda step, cache: len(step.tokens) if step.stays else 0)
count(RowsWriter, "_read_header", lambda tokens, known=None: len(tokens) - len(known.tokens if known else ()))
"""


MAKE = "from pathlib import Path; from tests.tiny_models import make_checkpoint; "


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Made by another process: this one does not load torch."""
    folder = tmp_path_factory.mktemp("gpt2")
    make = f"{MAKE}make_checkpoint(Path({str(folder)!r}), max_length=1024)"
    subprocess.run([sys.executable, "-c", make], check=True, cwd=REPOSITORY, capture_output=True)
    return folder


@pytest.mark.forks_torch
@pytest.mark.parametrize(
    ("keys", "variants"),
    [
        ("choices: [yes, no]\nscore: choice\n", "{a: {score: choice}, b: {score: {choice: {normalize: sum}}}}"),
        pytest.param(
            "choices: [yes, no]\nscore: choice\n",
            "{a: {score: choice}, b: {prompt.fewshot.count: 5}}",
            marks=pytest.mark.slow,
        ),
        ("score: exact\ngenerate: {max_tokens: 2}\n", "{a: {score: exact}, b: {generate.max_tokens: 3}}"),
    ],
)
def test_the_header_that_variants_share_is_computed_once(
    checkpoint: Path, llm_pytester: pytest.Pytester, keys: str, variants: str
) -> None:
    """Of what is kept for later prompts, only the header is long; one that is longer needs the rest alone."""
    llm_pytester.makeconftest(COUNTING)
    shown = [{"id": f"x{n}", "question": f"Is {n} a number that is even?", "target": "yes"} for n in range(5)]
    asked = [{"id": f"q{n}", "question": f"Is {n}?", "target": "no"} for n in range(20)]
    for name, rows in (("shots", shown), ("rows", asked)):
        (llm_pytester.path / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    (llm_pytester.path / "shots.yaml").write_text(f"{SHOTS}{keys}variants: {variants}\n", encoding="utf-8")
    assert llm_pytester.runpytest_subprocess("-p", "no:xdist", f"--llm-model={checkpoint}", "shots.yaml").ret == 0
    computed = map(int, (llm_pytester.path / "computed.txt").read_text("utf-8").split())
    assert len([number for number in computed if number > 60]) == 1


def test_a_variant_whose_worker_dies_keeps_its_name(project: pytest.Pytester) -> None:
    project.makeconftest(fake_model_conftest(replies=REPLIES, kills=["Please: 2 + 3"]))
    result = project.runpytest("-n2", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    lost = [(record["suite"], record["id"]) for record in read(project)["records"] if record["status"] == "unscored"]
    assert lost == [("sums@polite", "s2")]


def test_a_benchmark_in_python_has_variants(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_sums="""
        from pytest_llmeval import Benchmark

        class Sums(Benchmark):
            prompt = {"template": "{{ question }}"}
            variants = {"polite": {"prompt.template": "Please: {{ question }}"}, "short": {"generate.max_tokens": 9}}

            def load(self):
                return [{"id": "s2", "question": "2 + 3", "target": "5"}]
        """
    )
    given = ("--llm-model=big", "test_sums.py")
    assert collected(project, *given) == [f"test_sums.py::Sums::{name}::s2" for name in ("polite", "short")]
    assert project.runpytest(*given, "--llm-report=out.json").ret == 0
    assert right(read(project)) == {"Sums@polite": ["s2"], "Sums@short": []}


def test_a_key_of_a_variant_that_is_given_twice(llm_pytester: pytest.Pytester) -> None:
    """The last one would win in silence; two keys of a variant, and a key of two variants, are meant."""
    llm_pytester.makefile(".yaml", s="suite: s\nscore: exact\nsamples: [{question: a, target: b}]\n")
    hot, cold = "--llm-variant=s: hot: generate.temperature=1", "--llm-variant=s: cold: generate.temperature=0.5"
    again = "--llm-variant=s: hot: generate.temperature=2"
    result = llm_pytester.runpytest("-p", "no:xdist", hot, cold, again, "s.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        ["*--llm-variant 's: hot: generate.temperature': it was given twice, and has one value*"]
    )
    result = llm_pytester.runpytest(
        *("-p", "no:xdist", "--collect-only", hot, cold, "--llm-variant=s: hot: generate.max_tokens=8", "s.yaml")
    )
    assert result.ret == 0
