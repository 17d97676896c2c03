"""The stub server itself: its numbers are the demo model's, its faults do what they are named for."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit

import pytest

from tests.servers.numbers_of_stub import FAULTS
from tests.servers.stub import StubServer
from tests.servers.wires import WIRES
from tests.support import REPOSITORY

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # what an HTTPError holds open

_IDS = [0, 395, 17, 60, 70, 80]


def ask(url: str, body: dict[str, Any] | None = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any]:
    """The status of one request, and its JSON."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status, json.load(reply)
    except HTTPError as error:
        with error:
            return error.code, json.load(error)


def echoed(stub: StubServer, prompt: object = _IDS) -> list[float | None]:
    """The logprobs of an echoed prompt."""
    body = {"model": "demo", "prompt": prompt, "echo": True, "logprobs": 1, "max_tokens": 0, "temperature": 0}
    _, reply = ask(f"{stub.url}/completions", body)
    found: list[float | None] = reply["choices"][0]["logprobs"]["token_logprobs"]
    return found


@pytest.mark.parametrize("dialect", ["vllm", "sglang", "generic"])
def test_echoed_logprobs_are_those_of_the_demo_model(dialect: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from tests.servers.language_models import DEMO

    logits = AutoModelForCausalLM.from_pretrained(DEMO, dtype=torch.float32)(torch.tensor([_IDS])).logits[0]
    expected = logits.double().log_softmax(-1)[range(len(_IDS) - 1), _IDS[1:]].tolist()
    with StubServer(dialect) as stub:
        found = echoed(stub)
        assert found[0] is None
        assert found[1:] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("fault", ["shifted", "no-bos", "doubled-bos", "nulls", "wrong-count", "ids-as-text"])
def test_a_fault_of_numbers_changes_them(fault: str) -> None:
    with StubServer("vllm", instant=True) as right, StubServer("vllm", instant=True, faults=[fault]) as wrong:
        assert echoed(right) == echoed(right)
        assert echoed(wrong) != echoed(right)


def test_order_dependence_needs_an_earlier_prompt() -> None:
    with (
        StubServer("vllm", instant=True) as right,
        StubServer("vllm", instant=True, faults=["order-dependent"]) as wrong,
    ):
        assert echoed(wrong) == echoed(right)
        assert echoed(wrong, [*_IDS[:4], 99, 98]) != echoed(right, [*_IDS[:4], 99, 98])


def test_llama_cpp_python_has_a_row_too_far_without_a_bos() -> None:
    with StubServer("llama-cpp-python") as right, StubServer("llama-cpp-python", faults=["no-bos"]) as wrong:
        assert echoed(right, "One two three")[0] is None
        assert echoed(wrong, "One two three")[1:3] != pytest.approx(echoed(right, "One two three")[1:3], abs=1.0)


def test_a_share_of_errors_is_another_one_at_the_second_try() -> None:
    with StubServer("vllm", instant=True, faults=["errors-30"]) as stub:
        for number in range(40):
            body = {"model": "demo", "prompt": [0, number], "max_tokens": 1}
            while ask(f"{stub.url}/completions", body)[0] == 500:
                pass
        assert stub.statuses[200] == 40
        assert 5 < stub.statuses[500] < 35


def test_a_body_that_is_cut_and_a_server_that_dies() -> None:
    with StubServer("vllm", instant=True, faults=["cut-body", "dies-after:1"]) as stub:
        address = urlsplit(stub.url)
        body = json.dumps({"model": "demo", "prompt": [0, 1], "max_tokens": 1})
        for expected in (http.client.IncompleteRead, (http.client.RemoteDisconnected, ConnectionError)):
            connection = http.client.HTTPConnection(str(address.hostname), int(address.port or 0), timeout=10)
            connection.request("POST", "/v1/completions", body)
            with pytest.raises(expected):
                connection.getresponse().read()
            connection.close()


@pytest.mark.parametrize("dialect", sorted(WIRES))
def test_each_dialect_lists_its_model(dialect: str) -> None:
    with StubServer(dialect, instant=True, key="secret") as stub:
        headers = {"Authorization": "Bearer secret", "x-api-key": "secret", "anthropic-version": "2023-06-01"}
        assert ask(f"{stub.url}/models", headers=headers)[1]["data"][0]["id"] == stub.wire.name
        if dialect != "ollama":
            wrong = {**headers, "Authorization": "Bearer x", "x-api-key": "x"}
            assert ask(f"{stub.url}/models", headers=wrong)[0] == 401


def test_as_a_process_it_prints_its_url_and_what_it_saw() -> None:
    command = [sys.executable, "-m", "tests.servers.stub", "--dialect", "sglang", "--instant"]
    with subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        ask(f"{url}/models")
        assert ask(url.removesuffix("/v1") + "/stub")[1]["counts"] == {"/v1/models": 1, "/stub": 1}
        process.terminate()


def test_every_fault_is_explained() -> None:
    assert all(FAULTS.values())
    with pytest.raises(ValueError, match="unknown fault 'shiftd'"):
        StubServer("vllm", instant=True, faults=["shiftd"])
