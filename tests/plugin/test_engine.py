"""What a session says of how log-likelihoods were computed, and the audit before a suite's first answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.plugin.suites_for_tests import CAPITALS, CAPITALS_LIKELY, SUMS, SUMS_REPLIES
from tests.support import fake_model_conftest, model_calls

_AUDITED = '''

from pytest_llmeval.types import EngineUse


class Plain:
    """Scores as its model does, and says so."""

    def __init__(self, model):
        self._model = model
        self.identity = model.identity

    def loglikelihood(self, requests):
        log("plain", [])
        return self._model.loglikelihood(requests)


class Audited(FakeModel):
    def audit(self, requests):
        log("audit", [as_text(request.context) for request in requests])
        difference = @DIFFERENCE@
        facts = dict(num_audited=len(requests), largest_difference=difference, tolerance=1e-4)
        if difference > 1e-4:
            return Plain(self), EngineUse(engine="plain", reason="the tree differed by 2.0 in the audit", **facts)
        return self, EngineUse(engine="tree", reason="full attention", **facts)


@pytest.fixture(scope="session")
def llm_model():
    return Audited()
'''


def audited_conftest(difference: float) -> str:
    """A scripted model whose fast path is off by ``difference``."""
    script = fake_model_conftest(likely=CAPITALS_LIKELY, replies=SUMS_REPLIES)
    return script + _AUDITED.replace("@DIFFERENCE@", repr(difference))


def engines(folder: Path) -> dict[str, Any]:
    """The report's word on each suite's engine."""
    return {suite["name"]: suite["engine"] for suite in json.loads((folder / "r.json").read_text())["suites"]}


def test_a_suite_is_audited_before_it_is_answered(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    longer = CAPITALS.replace("Capital of Norway?", "Capital of Norway, a kingdom in the north?")
    llm_pytester.makeconftest(audited_conftest(3e-6))
    llm_pytester.makefile(".yaml", capitals=longer, sums=SUMS)
    result = llm_pytester.runpytest_subprocess(*workers, "capitals.yaml", "sums.yaml", "--llm-report=r.json")
    result.stdout.fnmatch_lines(
        ["log-likelihoods: tree (full attention); 4 requests were also scored plain, and differed by at most 3e-06"]
    )
    assert engines(llm_pytester.path) == {
        "capitals": {
            "engine": "tree",
            "reason": "full attention",
            "num_audited": 4,
            "largest_difference": 3e-6,
            "tolerance": 1e-4,
        },
        "sums": None,
    }
    calls = model_calls(llm_pytester.path)
    for pid in {call["pid"] for call in calls if call["method"] == "loglikelihood"}:
        of_process = [call for call in calls if call["pid"] == pid and call["method"] in ("audit", "loglikelihood")]
        assert of_process[0]["method"] == "audit"
        assert [call["method"] for call in of_process].count("audit") == 1
        assert all("kingdom" in prompt for prompt in of_process[0]["prompts"]), "the longest sample is audited"


def test_a_suite_that_fails_its_audit_is_scored_plain(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(audited_conftest(2.0))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest_subprocess(*workers, "capitals.yaml", "--llm-report=r.json")
    result.stdout.fnmatch_lines(["log-likelihoods: plain (the tree differed by 2.0 in the audit); *at most 2e+00"])
    result.assert_outcomes(passed=2)
    assert engines(llm_pytester.path)["capitals"]["engine"] == "plain"
    calls = model_calls(llm_pytester.path)
    assert sum(call["method"] == "plain" for call in calls) == sum(call["method"] == "loglikelihood" for call in calls)


def test_a_model_without_an_audit_says_nothing(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(likely=CAPITALS_LIKELY))
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest_subprocess("capitals.yaml", "--llm-report=r.json")
    result.stdout.no_fnmatch_line("*log-likelihoods*")
    assert engines(llm_pytester.path) == {"capitals": None}


@pytest.mark.forks_torch
def test_the_header_tells_the_engine(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest_subprocess("--llm-model=demo", "--collect-only", "capitals.yaml")
    result.stdout.fnmatch_lines(["llm-model: demo (log-likelihoods: tree: full attention)"])
    result = llm_pytester.runpytest_subprocess("--llm-model=demo", "--llm-engine=plain", "--collect-only")
    result.stdout.fnmatch_lines(["llm-model: demo (log-likelihoods: plain: requested)"])


@pytest.mark.forks_torch
def test_the_header_of_a_model_whose_config_says_little(llm_pytester: pytest.Pytester) -> None:
    odd = '{"model_type": "gpt2", "layer_types": 7, "rope_scaling": {"type": ["y"]}}'
    for number, config in enumerate(["{", "[]", '{"model_type": "bloom"}', '{"model_type": "brand_new"}', odd]):
        folder = llm_pytester.mkdir(f"model{number}")
        (folder / "config.json").write_text(config)
    expected = [
        "chosen when it is loaded",
        "chosen when it is loaded",
        "plain: ALiBi positions",
        "plain: brand_new has not been checked",
        "tree: full attention",
    ]
    for number, words in enumerate(expected):
        result = llm_pytester.runpytest_subprocess(f"--llm-model=./model{number}", "--collect-only")
        result.stdout.fnmatch_lines([f"llm-model: ./model{number} (log-likelihoods: {words})"])


def test_an_engine_that_does_not_exist(llm_pytester: pytest.Pytester) -> None:
    result = llm_pytester.runpytest_subprocess("--llm-model=demo", "--llm-engine=treee")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--llm-engine*expected*auto*tree*plain*treee*"])


@pytest.mark.slow
@pytest.mark.forks_torch
def test_both_engines_on_the_demo_model(llm_pytester: pytest.Pytester) -> None:
    """Equal scores; the tree cannot be asked of what is generated, and nobody does."""
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    found = {}
    for engine in ("plain", "tree", "auto"):
        result = llm_pytester.runpytest_subprocess(
            "--llm-model=demo", f"--llm-engine={engine}", "--llm-report=r.json", "capitals.yaml"
        )
        assert result.ret == 0
        records = json.loads((llm_pytester.path / "r.json").read_text())["records"]
        found[engine] = [value for record in records for value in record["details"]["loglikelihoods"]]
    assert found["tree"] == pytest.approx(found["plain"], abs=1e-4)
    assert found["tree"] == found["auto"]
