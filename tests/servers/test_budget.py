"""Money that is paid for models behind servers: budgets, and the cost of log-likelihoods."""

from __future__ import annotations

import math

import pytest

from pytest_llmeval.models.servers.model import ServerModel
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse
from tests.plugin.judge_for_tests import report_of
from tests.servers.conftest import Connect
from tests.servers.stub import StubServer
from tests.servers.test_server_sessions import choices_suite, written_suite

WORKERS = pytest.mark.parametrize(
    "workers", [["-p", "no:xdist"], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=["one-process", "n2"]
)
PRICES = "?price_in=1000&price_out=1000"


@WORKERS
def test_a_server_is_asked_no_more(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = written_suite(llm_pytester, number=120)
    with StubServer("vllm", instant=True) as stub:
        options = [f"--llm-model={stub.url}{PRICES}", "--llm-report=report.json"]
        whole = llm_pytester.runpytest(*workers, *options, "--llm-budget=1000", suite)
        assert whole.ret == 0, whole.stdout.str()
        needed = _paid_as_counted_by_the_server(llm_pytester)
        part = llm_pytester.runpytest(*workers, *options, f"--llm-budget={0.8 * needed:.6f}", suite)
    assert part.ret == 1
    assert 0 < _paid_as_counted_by_the_server(llm_pytester) <= 0.8 * needed
    records = report_of(llm_pytester.path)["records"]
    unscored = [record for record in records if record["status"] == "unscored"]
    assert 0 < len(unscored) < len(records)
    assert all("not asked: the next reply could pass the budget of" in record["reason"] for record in unscored)


def _paid_as_counted_by_the_server(pytester: pytest.Pytester) -> float:
    """What the session has paid, which is the cost of all tokens that the server has counted, self-tests included."""
    report = report_of(pytester.path)
    (model,) = report["models"]
    use, budget = model["use"], report["budget"]
    assert budget["cost"] == pytest.approx(use["cost"])
    assert budget["num_tokens"] == use["num_prompt_tokens"] + use["num_tokens"]
    cost: float = budget["cost"]
    return cost


def test_log_likelihoods_cost_what_the_server_has_counted(connect: Connect) -> None:
    requests = [
        LoglikelihoodRequest(f"Question {n}: which?\nAnswer:", f" {letter}") for n in range(3) for letter in "AB"
    ]
    with StubServer("generic", instant=True) as stub:
        model: ServerModel = connect(stub, "price_in=1000", "price_out=5000")
        before = model.server_use.cost
        answers = [future.result(timeout=60) for future in model.submit(requests)]
        after = model.server_use.cost
    assert before is not None
    assert after is not None
    costs = [answer.cost for answer in answers if isinstance(answer, LoglikelihoodResponse) and answer.cost is not None]
    assert math.fsum(costs) == pytest.approx(after - before)


def test_a_gate_on_cost_sees_log_likelihoods_of_a_store(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = choices_suite(llm_pytester, 4)
    costs = []
    with StubServer("vllm", instant=True) as stub:
        for price in (1000, 2000):
            model = f"--llm-model={stub.url}?price_in={price}&price_out={price}"
            store = ["--llm-store=kept", "--llm-store-max-age=1d", "--llm-gate=sum(cost) <= 1000"]
            result = llm_pytester.runpytest(*workers, model, *store, "--llm-report=report.json", suite)
            assert result.ret == 0, result.stdout.str()
            costs.append(math.fsum(one["cost"] for one in report_of(llm_pytester.path)["records"]))
    assert costs[1] == pytest.approx(2 * costs[0])
