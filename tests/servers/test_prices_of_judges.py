"""What a judge and an embedder behind servers took is told apart from what the model took."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from pytest_llmeval.reporting.report.merge import merge_reports
from pytest_llmeval.reporting.report.report import use_of_model
from pytest_llmeval.reporting.storage.report_file import read_report
from tests.plugin.embedder_for_tests import CLOSE_SUITE, write_embedder
from tests.plugin.judge_for_tests import report_of
from tests.servers.stub import StubServer

SUITE = re.sub(r" response: \w+,", "", CLOSE_SUITE).replace("score: close", "score: both")


@pytest.mark.parametrize(
    "workers", [["-p", "no:xdist"], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=["one-process", "n2"]
)
def test_each_role_has_its_own_requests_and_price(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """One server is all three."""
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=f"{SUITE}prompt: {{template: '{{{{ question }}}}'}}\n")
    with StubServer("vllm", instant=True) as stub:
        options = [
            f"--llm-model={stub.url}?price_in=1000",
            f"--llm-judge={stub.url}?price_out=2000",
            f"--llm-embedder={stub.url}?price_in=4000",
        ]
        result = llm_pytester.runpytest(*workers, *options, "--llm-report=report.json", "close.yaml")
        num_embedded = stub.counts["/v1/embeddings"]
    assert result.ret == 0, result.stdout.str()
    report: Any = report_of(llm_pytester.path)
    (model,) = report["models"]
    judge, embedder = report["judges"]
    assert [judge["role"], embedder["role"]] == ["judge", "embedder"]
    uses = [one["use"] for one in (model, judge, embedder)]
    assert uses[2]["num_requests"] == num_embedded
    assert uses[0]["cost"] == pytest.approx(uses[0]["num_prompt_tokens"] * 1e-3)
    assert uses[1]["cost"] == pytest.approx(uses[1]["num_tokens"] * 2e-3)
    assert uses[2]["cost"] == pytest.approx(uses[2]["num_prompt_tokens"] * 4e-3)
    for record in report["records"]:
        assert record["cost"] == pytest.approx(record["num_prompt_tokens"] * 1e-3), "its own, and of no other role"
    assert report["suites"][0]["cost"] < uses[0]["cost"], "without the self-test"
    for one in (judge, embedder):
        use = one["use"]
        line = f"{one['role']} {one['name']}: {use['num_requests']:,} requests to the server, "
        (shown,) = [found for found in result.outlines if found.startswith(f"{one['role']} {stub.url}")]
        assert shown.startswith(line)
        assert "cost" in shown


def test_reports_with_judges_are_read_and_merged(llm_pytester: pytest.Pytester) -> None:
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    with StubServer("vllm", instant=True) as stub:
        for part in (1, 2):
            options = ["-p", "no:xdist", f"--llm-embedder={stub.url}", f"--llm-shard={part}/2"]
            llm_pytester.runpytest(*options, f"--llm-report=part{part}.json", "close.yaml")
    parts = [(f"part{part}.json", read_report(llm_pytester.path / f"part{part}.json")) for part in (1, 2)]
    (judge,) = merge_reports(parts).judges
    uses = [use for _, report in parts for one in report.judges if (use := use_of_model(one)) is not None]
    assert len(uses) == 2
    assert use_of_model(judge) == uses[0] + uses[1]


@pytest.mark.parametrize(
    ("judge", "words"),
    [
        ({"name": "m"}, r"judges\[0\].role: found nothing \(null\), expected text"),
        ({"role": "judge", "name": 5}, r"judges\[0\].name: found 5 \(a whole number\), expected text"),
    ],
)
def test_a_report_with_damaged_judges_is_refused(llm_pytester: pytest.Pytester, judge: Any, words: str) -> None:
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    options = ["-p", "no:xdist", "--llm-embedder=python:my_embedder:Embedder", "--llm-report=report.json"]
    assert llm_pytester.runpytest(*options, "close.yaml").ret == 0
    path = llm_pytester.path / "report.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "judges": [judge]}))
    with pytest.raises(Exception, match=words):
        read_report(path)
