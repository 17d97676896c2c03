"""Options: command line over environment over ini, and errors that name the place."""

from __future__ import annotations

import re
from pkgutil import resolve_name

import pytest

from tests.plugin.suites_for_tests import CAPITALS
from tests.support import FAKE_MODEL_CONFTEST, REPOSITORY


@pytest.fixture
def capitals(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    return llm_pytester


def collected(pytester: pytest.Pytester, *options: str) -> int:
    result = pytester.runpytest("--collect-only", "-q", *options, "capitals.yaml")
    return sum("::" in line for line in result.outlines)


def test_command_line_over_environment_over_ini(capitals: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert collected(capitals) == 3
    capitals.makeini("[pytest]\nllm_limit = 1")
    assert collected(capitals) == 1
    monkeypatch.setenv("PYTEST_LLM_LIMIT", "2")
    assert collected(capitals) == 2
    assert collected(capitals, "--llm-limit=3") == 3


def test_parsers_that_are_imported_when_their_option_is_given_exist() -> None:
    sources = (REPOSITORY / "pytest_llmeval").rglob("*.py")
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    names = re.findall(r'\b(?:_imported|_parsed_by)\("(\S+?)"\)', text)
    assert len(names) > 5
    for name in names:
        assert callable(resolve_name(f"pytest_llmeval.{name}")), name


def test_toml_with_types(capitals: pytest.Pytester) -> None:
    capitals.makepyprojecttoml(
        '[tool.pytest]\nllm_strict = true\nllm_batch_size = 2\nllm_set = ["capitals: category=null"]\n'
        'llm_limit = "first:2"'
    )
    result = capitals.runpytest("capitals.yaml")
    result.assert_outcomes(passed=1, failed=1, deselected=1)
    result.stdout.no_fnmatch_line("*by category*")


def test_flags_in_ini_and_environment(capitals: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    capitals.makeini("[pytest]\nllm_strict = true\nllm_set =\n    capitals: category=null\n    capitals: description=x")
    assert capitals.runpytest("capitals.yaml").ret == 1
    monkeypatch.setenv("PYTEST_LLM_STRICT", "0")
    assert capitals.runpytest("capitals.yaml").ret == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llm-limit=0"], "--llm-limit: expected N, N:seed=S or first:N, with N from 1 to 999,999,999, found '0'"),
        (["--llm-limit=9999999999"], "--llm-limit: expected * from 1 to 999,999,999, found '9999999999'"),
        (
            ["--llm-limit=last:3"],
            "--llm-limit: expected N, N:seed=S or first:N, with *, found 'last:3'",
        ),
        (
            ["--llm-limit=3:seed=x"],
            "--llm-limit: expected N, N:seed=S or first:N, with *, found '3:seed=x'",
        ),
        (["--llm-device=gpu"], "--llm-device: expected cpu, cuda, cuda:N or mps, found 'gpu'"),
        (["--llm-dtype=int4"], "--llm-dtype: expected auto, float32, bfloat16 or float16, found 'int4'"),
        (["--llm-batch-size=many"], "--llm-batch-size: expected a whole number above 0, found 'many'"),
        (["--llm-report-prompts=some"], "--llm-report-prompts: expected none, hash or full, found 'some'"),
        (["--llm-device=cpu", "--llm-device=mps"], "--llm-device was given 2 times ('cpu', 'mps'): give it once"),
        (["--llm-batch-size=0"], "--llm-batch-size: expected a whole number above 0, found '0'"),
        (["--llm-engine=fast"], "--llm-engine: expected auto, tree or plain, found 'fast'"),
        (["--llm-model=demo", "--llm-model-arg=lora=x"], "--llm-model-arg: unknown key 'lora'*"),
        (["--llm-model=demo", "--llm-model-arg=peft"], "--llm-model-arg 'peft': expected key=value*"),
        (["--llm-set=score=letter"], "--llm-set*score=letter*"),
        (["--llm-model=openai:gpt-5?dialect=vlm"], "--llm-model openai:*dialect: found 'vlm'; did you mean 'vllm'?"),
    ],
)
def test_what_cannot_be_used_is_said_once(capitals: pytest.Pytester, options: list[str], message: str) -> None:
    result = capitals.runpytest(*options, "capitals.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {message}"])
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


def test_the_place_of_a_bad_value_is_named(capitals: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    capitals.makeini("[pytest]\nllm_limit = few")
    result = capitals.runpytest("capitals.yaml")
    result.stderr.fnmatch_lines(
        ["ERROR: llm_limit in tox.ini: expected N, N:seed=S or first:N, with N from 1 to 999,999,999, found 'few'"]
    )
    capitals.makeini("[pytest]\nllm_batch_size = few")
    assert capitals.runpytest("capitals.yaml").ret == 4
    monkeypatch.setenv("PYTEST_LLM_BATCH_SIZE", "lots")
    result = capitals.runpytest("capitals.yaml")
    result.stderr.fnmatch_lines(["ERROR: PYTEST_LLM_BATCH_SIZE: expected a whole number above 0, found 'lots'"])


@pytest.mark.parametrize(
    ("ini", "variable", "value", "message"),
    [
        ("llm_model = localhost:8000", None, "", "llm_model in tox.ini localhost:8000: *a URL without a scheme*"),
        ("", "PYTEST_LLM_MODEL", "openai:", "PYTEST_LLM_MODEL openai:: expected openai:NAME*"),
        ("", "PYTEST_LLM_SET", "score", "PYTEST_LLM_SET 'score': *"),
        ("llm_model_arg = max_length", None, "", "llm_model_arg in tox.ini 'max_length': expected key=value*"),
    ],
)
def test_the_place_of_what_another_module_refuses_is_named(
    capitals: pytest.Pytester,
    monkeypatch: pytest.MonkeyPatch,
    ini: str,
    variable: str | None,
    value: str,
    message: str,
) -> None:
    capitals.makeini(f"[pytest]\n{ini}\n")
    if variable is not None:
        monkeypatch.setenv(variable, value)
    result = capitals.runpytest("capitals.yaml")
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_rule_that_cannot_be_read_says_what_was_found_once(
    capitals: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    found = "found 'accuracy', expected a metric, >=, >, <= or <, and a number, such as 'accuracy >= 0.6' or "
    found += "'ci_low(accuracy) > 0.55'"
    result = capitals.runpytest(*workers, "--llm-gate=capitals: accuracy", "capitals.yaml")
    result.stderr.fnmatch_lines([f"ERROR: --llm-gate: {found}"])
    monkeypatch.setenv("PYTEST_LLM_GATE", "accuracy > 0\naccuracy")
    result = capitals.runpytest(*workers, "capitals.yaml")
    result.stderr.fnmatch_lines([f"ERROR: PYTEST_LLM_GATE: {found}"])
    monkeypatch.delenv("PYTEST_LLM_GATE")
    capitals.makeini("[pytest]\nllm_gate = accuracy\n")
    result = capitals.runpytest(*workers, "capitals.yaml")
    result.stderr.fnmatch_lines([f"ERROR: llm_gate in tox.ini: {found}"])


_COUNTED = """
import collections

import pytest
from pytest_llmeval.gates.options import Margin
from pytest_llmeval.models import registry, settings as model_settings
from pytest_llmeval.suites.format import overrides
from pytest_llmeval.suites.format.gates_spec import GivenGate

PARSED = collections.Counter()

def counted(parse):
    def parsed(text, *others):
        PARSED[text] += 1
        return parse(text, *others)
    return parsed

GivenGate.parse, Margin.parse = counted(GivenGate.parse), counted(Margin.parse)
overrides.parse_override = counted(overrides.parse_override)
registry.parse_model_spec = counted(registry.parse_model_spec)
model_settings.parse_model_arg = counted(model_settings.parse_model_arg)

@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config):
    with open(config.rootpath / "parsed.txt", "a") as file:
        print(dict(sorted(PARSED.items())), file=file)
"""


def test_each_process_parses_each_option_once(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    llm_pytester.runpytest("--llm-model=random", "--llm-report=main.json", "capitals.yaml")
    llm_pytester.makeconftest(_COUNTED)
    llm_pytester.makeini("[pytest]\nllm_gate = brier < 1\n")
    given = {
        "--llm-gate": "capitals: accuracy >= 0",
        "--llm-max-drop": "accuracy=0.5",
        "--llm-set": "capitals: category=null",
        "--llm-model": "random?seed=3",
        "--llm-model-arg": "max_length=99",
    }
    options = [f"{name}={value}" for name, value in given.items()]
    result = llm_pytester.runpytest_subprocess(*workers, *options, "--llm-baseline=main.json", "capitals.yaml")
    result.stdout.fnmatch_lines(["*gates*"])
    once = str(dict.fromkeys(sorted([*given.values(), "brier < 1"]), 1))
    assert (llm_pytester.path / "parsed.txt").read_text().splitlines() == [once] * (3 if "-n2" in workers else 1)


def test_set_changes_a_key(capitals: pytest.Pytester, workers: list[str]) -> None:
    options = ("--llm-set", "capitals: category=null", "--llm-set", "capitals: prompt.template='{{ question }}!'")
    result = capitals.runpytest(*workers, *options, "capitals.yaml")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*by category*")


def test_set_with_a_misspelt_key(capitals: pytest.Pytester) -> None:
    result = capitals.runpytest("--llm-set", "capitals: prompt.tempalte=x", "capitals.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*--llm-set *tempalte*did you mean*template*"])


def test_set_for_a_suite_that_is_not_there(capitals: pytest.Pytester, workers: list[str]) -> None:
    result = capitals.runpytest(*workers, "--llm-set", "captials: score=letter", "capitals.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    message = "ERROR: --llm-set 'captials: score=letter': no suite 'captials' was collected; did you mean 'capitals'?"
    result.stderr.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*passed*")
    result.stdout.no_fnmatch_line("*INTERNAL*")


def test_set_for_a_suite_of_which_no_sample_is_selected(capitals: pytest.Pytester) -> None:
    capitals.makefile(".yaml", other="suite: other\nsamples: [{question: Q, target: t}]\nscore: exact\n")
    result = capitals.runpytest_inprocess("-p", "no:xdist", "--llm-set", "other: tags=[a]", "-k", "not other")
    assert result.ret == 0
    result.stdout.no_fnmatch_line("*changed nothing*")


@pytest.mark.parametrize("where", ["ini", "lf", "no suite"])
def test_set_that_only_warns(capitals: pytest.Pytester, where: str) -> None:
    """The ini file is of every session; ``--lf`` leaves files out; without a suite there is none to name."""
    text = "captials: score=letter"
    capitals.makepyfile("def test_a(): assert False\ndef test_b(): pass")
    if where == "ini":
        capitals.makeini(f"[pytest]\nllm_set = {text}\n")
        arguments = ["-k", "not test_a"]
    elif where == "lf":
        capitals.runpytest_inprocess("-p", "no:xdist")
        arguments = ["--lf", "--llm-set", text, "--deselect", "test_set_that_only_warns.py"]
    else:
        arguments = ["--llm-set", text, "test_set_that_only_warns.py::test_b"]
    result = capitals.runpytest_inprocess("-p", "no:xdist", *arguments)
    result.stdout.fnmatch_lines(["*--llm-set 'captials: score=letter': no suite 'captials' was collected*nothing*"])
    assert result.ret in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED)


def test_set_that_only_warns_breaks_no_session_in_which_warnings_are_errors(
    capitals: pytest.Pytester, workers: list[str]
) -> None:
    capitals.makepyfile("def test_a(): pass")
    capitals.makeini("[pytest]\nllm_set = captials: score=letter\nfilterwarnings = error\n")
    result = capitals.runpytest(*workers)
    result.assert_outcomes(passed=2, warnings=1)
    result.stdout.fnmatch_lines(["*--llm-set 'captials: score=letter': no suite 'captials' was collected*nothing"])
    result.stdout.no_fnmatch_line("*INTERNAL*")


def test_help_names_every_option(llm_pytester: pytest.Pytester) -> None:
    from pytest_llmeval.plugin.settings import OPTIONS

    text = llm_pytester.runpytest("--help").stdout.str()
    for option in OPTIONS:
        assert option.flag in text
        assert option.ini in text
