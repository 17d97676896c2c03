"""Sessions of pytest with models behind servers: what a user sees, with and without workers of pytest-xdist."""

from __future__ import annotations

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.stub import StubServer
from tests.support import REPOSITORY

pytestmark = pytest.mark.usefixtures("quick_retries")

_KEY = "sk-planted-0123456789abcdef"
_CSQA = REPOSITORY / "example_suites" / "csqa"


def choices_suite(pytester: pytest.Pytester, number: int = 40, name: str = "sums") -> str:
    """A suite of lettered options, which asks for log-likelihoods."""
    samples = [
        {"id": f"s{n}", "question": f"What is {n} + {n}?", "choices": ["A", "B", "C"], "target": n % 3}
        for n in range(number)
    ]
    template = "Question: {{ question }}\nA. 1\nB. 2\nC. 3\nAnswer:"
    suite = {"suite": name, "samples": samples, "prompt": {"template": template}, "score": "choice"}
    pytester.makefile(".yaml", **{name: yaml.safe_dump(suite, sort_keys=False)})
    return f"{name}.yaml"


def written_suite(pytester: pytest.Pytester, number: int = 40, chat: bool = False, name: str = "written") -> str:
    """A suite of written answers."""
    samples = [{"id": f"w{n}", "question": f"What is {n} + 1?", "target": str(n + 1)} for n in range(number)]
    prompt = {"template": "Question: {{ question }}\nAnswer:", "chat": chat}
    suite = {"suite": name, "samples": samples, "prompt": prompt, "score": "exact", "generate": {"max_tokens": 4}}
    pytester.makefile(".yaml", **{name: yaml.safe_dump(suite, sort_keys=False)})
    return f"{name}.yaml"


def run(pytester: pytest.Pytester, workers: list[str], *arguments: str) -> pytest.RunResult:
    return pytester.runpytest(*workers, "--llm-report=report.json", *arguments)


def report_of(folder: Path) -> Any:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def scored_once(folder: Path, number: int) -> None:
    """Every sample has one record, and a score."""
    records = report_of(folder)["records"]
    assert Counter(record["id"] for record in records).most_common(1)[0][1] == 1
    assert len(records) == number
    assert {record["status"] for record in records} <= {"correct", "wrong"}


@pytest.fixture(scope="session")
def demo_server() -> Iterator[StubServer]:
    """Made before ``llm_pytester`` is, which stops this process from loading torch."""
    with StubServer("vllm") as stub:
        yield stub


@pytest.mark.forks_torch
def test_the_numbers_of_a_session_are_the_local_models_own(
    demo_server: StubServer, llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    suite = str(_CSQA / "csqa_choice.yaml")
    models = ["--llm-model", demo_server.url, "--llm-model", "demo"]
    report = "--llm-report=report.json"
    result = llm_pytester.runpytest_subprocess(*workers, report, *models, "--llm-limit=12", suite)
    assert result.ret == 0, result.stdout.str()
    records = report_of(llm_pytester.path)["records"]
    by_model: dict[str, dict[str, Any]] = {}
    for record in records:
        by_model.setdefault(record["model"], {})[record["id"]] = record
    one, other = by_model[demo_server.url], by_model["demo"]
    assert one.keys() == other.keys()
    assert len(one) == 12
    for name, record in one.items():
        assert record["answer"] == other[name]["answer"]
        assert record["values"] == pytest.approx(other[name]["values"], abs=1e-4)


def test_two_servers_are_compared_in_one_session(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = choices_suite(llm_pytester, 12)
    with StubServer("vllm", instant=True) as one, StubServer("llama-server", instant=True) as other:
        models = ["--llm-model", one.url, "--llm-model", other.url]
        result = run(llm_pytester, workers, *models, suite)
    assert result.ret == 0, result.stdout.str()
    assert one.num_questions >= 12
    assert other.num_questions >= 12
    assert len(report_of(llm_pytester.path)["records"]) == 24


def test_the_header_says_what_the_self_test_found(llm_pytester: pytest.Pytester) -> None:
    suite = choices_suite(llm_pytester, 3)
    with StubServer("vllm", instant=True) as stub:
        result = run(llm_pytester, ["-p", "no:xdist"], "--llm-model", stub.url, suite)
    result.stdout.fnmatch_lines(["*vllm*demo*self-test: text, chat, log-likelihoods*"])
    (model,) = report_of(llm_pytester.path)["models"]
    assert model["details"]["self_test"]["log-likelihoods"] == "works"


@pytest.mark.parametrize(
    ("dialect", "setting", "is_known"),
    [
        ("generic", {"repetition_penalty": 1.2}, False),
        ("generic", {"temperature": 1.0, "top_k": 5}, False),
        ("generic", {"top_k": 5}, True),  # without sampling it does nothing
        ("vllm", {"repetition_penalty": 1.2}, True),
    ],
)
def test_a_setting_that_a_server_is_not_known_to_have_refuses_the_suite_once(
    dialect: str, setting: dict[str, Any], is_known: bool, llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    suite = written_suite(llm_pytester, 4)
    path = llm_pytester.path / suite
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), "generate": setting}, sort_keys=False))
    with StubServer("vllm", instant=True) as stub:
        result = run(llm_pytester, workers, "--llm-model", f"{stub.url}?dialect={dialect}#demo", suite)
    shown = result.stdout.str()
    if is_known:
        assert len(report_of(llm_pytester.path)["records"]) == 4, shown
        return
    name = "top_k" if "top_k" in setting else "repetition_penalty"
    assert result.ret in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.TESTS_FAILED), shown  # with -n another
    problem = "this server's API (generic) is not known to have it; leave it out*"
    result.stdout.fnmatch_lines([f"written.yaml:*: generate.{name}: http*#demo: {problem}"])
    assert len([one for one in shown.splitlines() if one.startswith("written.yaml:")]) == 1, shown
    assert "Traceback" not in shown
    assert not report_of(llm_pytester.path)["records"], shown


@pytest.mark.parametrize("fault", ["echo-ignored", "shifted"])
def test_a_server_with_wrong_numbers_scores_nothing(
    fault: str, llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    suite = choices_suite(llm_pytester, 6)
    with StubServer("vllm", instant=True, faults=[fault]) as stub:
        result = run(llm_pytester, workers, "--llm-model", stub.url, suite)
    assert result.ret != 0
    assert not any(record["status"] in ("correct", "wrong") for record in report_of(llm_pytester.path)["records"])


def test_a_server_without_logprobs_is_told_of_the_letter_scorer(llm_pytester: pytest.Pytester) -> None:
    suite = choices_suite(llm_pytester, 3)
    with StubServer("ollama", instant=True) as stub:
        result = run(llm_pytester, ["-p", "no:xdist"], "--llm-model", stub.url, suite)
    assert result.ret != 0
    assert "letter" in result.stdout.str() + result.stderr.str()
    assert stub.num_questions < 10


def test_under_errors_every_sample_is_scored_once(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = choices_suite(llm_pytester, 60)
    with StubServer("vllm", instant=True) as stub:
        stub.faults["errors-30"] = 0.3
        result = run(llm_pytester, workers, "--llm-model", stub.url, suite)
    assert result.ret == 0, result.stdout.str()
    scored_once(llm_pytester.path, 60)
    assert stub.statuses[500] > 5
    (model,) = report_of(llm_pytester.path)["models"]
    retries = sum(model["use"]["retries"].values())
    assert retries == stub.statuses[500]
    # Where the question whether it is the same server fails, the request that waits for it is tried again unsent.
    num_sent_again = retries - model["use"]["retries"].get("not ready", 0)
    assert model["use"]["num_requests"] == sum(seen.method == "POST" for seen in stub.seen) - num_sent_again


@pytest.mark.parametrize(
    "fault",
    [
        *("cut-body:0.2", "not-json:0.2", "twice:0.2", "429-no-retry-after:0.2"),
        pytest.param("429:0.2", marks=pytest.mark.slow),  # which says to wait for seconds
    ],
)
def test_a_reply_that_is_none_is_asked_for_again(fault: str, llm_pytester: pytest.Pytester) -> None:
    suite = written_suite(llm_pytester, 20)
    with StubServer("vllm", instant=True, faults=[fault]) as stub:
        result = run(llm_pytester, ["-p", "no:xdist"], "--llm-model", stub.url, suite)
    assert result.ret == 0, result.stdout.str()
    scored_once(llm_pytester.path, 20)


def test_a_worker_that_is_killed_leaves_each_sample_scored_once(llm_pytester: pytest.Pytester) -> None:
    suite = choices_suite(llm_pytester, 60)
    llm_pytester.makeconftest(
        f"""
        import os, signal, threading, time

        def pytest_runtest_setup(item):
            if item.name == "s20" and not os.path.exists("killed"):
                open("killed", "w").close()
                os.kill(os.getpid(), {int(signal.SIGKILL)})
        """
    )
    with StubServer("vllm", instant=True, delay_s=0.01) as stub:
        result = run(llm_pytester, ["-n2"], "--llm-model", stub.url, suite)
    assert (llm_pytester.path / "killed").exists()
    assert result.ret == 0, result.stdout.str()
    scored_once(llm_pytester.path, 60)


def test_a_replica_that_dies_leaves_its_requests_to_the_other(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    suite = choices_suite(llm_pytester, 80)
    last = 80 if "-n2" in workers else 40  # behind the self-test of each worker
    with (
        StubServer("vllm", instant=True, delay_s=0.005) as one,
        StubServer("vllm", instant=True, delay_s=0.005, faults=[f"dies-after:{last}"]) as other,
    ):
        result = run(llm_pytester, workers, "--llm-model", f"{one.url}?base_url={other.url}", suite)
    assert result.ret == 0, result.stdout.str()
    scored_once(llm_pytester.path, 80)
    assert other.num_questions > last
    (model,) = report_of(llm_pytester.path)["models"]
    (ended,) = model["use"]["ended"]
    assert ended.startswith(f"{other.url}: does not answer")
    result.stdout.fnmatch_lines([f"a replica is missing: {other.url}: does not answer: *"])


def test_one_server_is_not_asked_more_at_once_than_allowed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = written_suite(llm_pytester, 60)
    with StubServer("vllm", instant=True, delay_s=0.05) as stub:
        result = run(llm_pytester, workers, "--llm-model", f"{stub.url}?max_connections=5", suite)
    assert result.ret == 0, result.stdout.str()
    assert 2 <= stub.max_open <= 5


# Keys


def everything(result: pytest.RunResult, folder: Path) -> str:
    """All that a session wrote: on the terminal and into files."""
    texts = [result.stdout.str(), result.stderr.str()]
    texts += [path.read_text(encoding="utf-8", errors="replace") for path in folder.rglob("*") if path.is_file()]
    return "\n".join(texts)


@pytest.mark.parametrize("fault", ["", "unauthorized", "errors-30:1", "redirect", "not-json", "content-null"])
def test_no_key_is_written_anywhere(
    fault: str, llm_pytester: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = written_suite(llm_pytester, 4, chat=True)
    monkeypatch.setenv("STUB_KEY", _KEY)
    everywhere = ["--junitxml=junit.xml", "--log-file=log.txt", "--log-file-level=DEBUG", "--log-level=DEBUG"]
    everywhere += ["--showlocals", "--tb=long", "-vv", "-rA", "--llm-report-prompts=full", "-s"]
    faults = [fault] if fault and not fault.startswith(("errors", "not-json")) else []
    with StubServer("openai", instant=True, key=_KEY, name="gpt-stub", faults=faults) as stub:
        model = f"openai:gpt-stub?base_url={stub.url}&api_key_env=STUB_KEY"
        if fault.startswith(("errors", "not-json")):
            model += "&timeout=2"
            stub.faults[fault.partition(":")[0]] = 0.6
        result = run(llm_pytester, workers, *everywhere, "--llm-model", model, suite)
        headers = [seen.headers.get("authorization") for seen in stub.seen if seen.path.endswith("/chat/completions")]
    assert f"Bearer {_KEY}" in headers or fault in ("redirect", "unauthorized"), "the key is used"
    written = everything(result, llm_pytester.path)
    assert _KEY not in written
    assert _KEY[3:20] not in written


def test_no_key_is_left_by_a_session_that_was_killed(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    suite = written_suite(llm_pytester, 8, chat=True)
    monkeypatch.setenv("STUB_KEY", _KEY)
    llm_pytester.makeconftest(
        f"""
        import os

        def pytest_runtest_setup(item):
            if item.name == "w5":
                os.kill(os.getpid(), {int(signal.SIGKILL)})
        """
    )
    with StubServer("openai", instant=True, key=_KEY, name="gpt-stub") as stub:
        model = f"openai:gpt-stub?base_url={stub.url}&api_key_env=STUB_KEY"
        result = llm_pytester.runpytest_subprocess("--llm-report=report.json", "--llm-model", model, suite)
    journal = (llm_pytester.path / "report.json.journal").read_text(encoding="utf-8")
    assert journal.count('{"record"') == 5
    assert '{"use"' in journal
    assert _KEY[3:20] not in everything(result, llm_pytester.path)


def test_a_key_goes_to_no_other_host(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = written_suite(llm_pytester, 2, chat=True)
    monkeypatch.setenv("STUB_KEY", _KEY)
    monkeypatch.setenv("OPENAI_API_KEY", _KEY)
    with (
        StubServer("openai", instant=True, name="gpt-stub") as elsewhere,
        StubServer("openai", instant=True, faults=["redirect"], elsewhere=elsewhere.url) as stub,
        StubServer("vllm", instant=True) as own,
    ):
        run(llm_pytester, [], "--llm-model", f"openai:gpt-stub?base_url={stub.url}&api_key_env=STUB_KEY", suite)
        run(llm_pytester, [], "--llm-model", own.url, suite)
    assert all("authorization" not in seen.headers for seen in [*elsewhere.seen, *own.seen])


# Bad input: one line


def refusal(pytester: pytest.Pytester, model: str) -> str:
    """What a session says that cannot have its model. One line, and no traceback."""
    suite = choices_suite(pytester, 2)
    result = run(pytester, ["-p", "no:xdist"], "--llm-model", model, suite)
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    return text


def test_a_url_without_a_scheme(llm_pytester: pytest.Pytester) -> None:
    assert "http://localhost:8000/v1" in refusal(llm_pytester, "localhost:8000/v1")


def test_nobody_listens(llm_pytester: pytest.Pytester) -> None:
    with socket.socket() as taken:  # so that no other process can listen there meanwhile
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        assert url in refusal(llm_pytester, url)


@pytest.mark.slow
def test_a_host_that_does_not_answer(llm_pytester: pytest.Pytester) -> None:
    with socket.socket() as full:  # its queue is full, and nothing takes from it
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        url = f"http://127.0.0.1:{port}/v1"
        assert url in refusal(llm_pytester, url)
        for one in waiting:
            one.close()


def test_a_page_of_html(llm_pytester: pytest.Pytester) -> None:
    with StubServer("vllm", instant=True, faults=["html"]) as stub:
        text = refusal(llm_pytester, stub.url)
    assert stub.url in text
    assert "HTML" in text


def test_a_missing_variable(llm_pytester: pytest.Pytester) -> None:
    assert "NO_SUCH_KEY" in refusal(llm_pytester, "http://127.0.0.1:1/v1?api_key_env=NO_SUCH_KEY")


def test_a_name_with_a_typo(llm_pytester: pytest.Pytester) -> None:
    with StubServer("vllm", instant=True, name="llama-3.1-8b") as stub:
        assert "llama-3.1-8b" in refusal(llm_pytester, f"{stub.url}#lama-3.1-8b")


def test_a_wrong_key_stops_the_model(llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_KEY", "sk-other")
    with StubServer("vllm", instant=True, key=_KEY) as stub:
        text = refusal(llm_pytester, f"{stub.url}?api_key_env=STUB_KEY")
    assert "401" in text
    assert stub.num_questions == 0


def test_a_quota_that_is_used_up_stops_the_model(llm_pytester: pytest.Pytester) -> None:
    suite = written_suite(llm_pytester, 30)
    with StubServer("vllm", instant=True) as stub:
        stub.faults["quota"] = 1.0
        result = run(llm_pytester, ["-p", "no:xdist"], "--llm-model", stub.url, suite)
    assert result.ret != 0
    assert "quota" in result.stdout.str() + result.stderr.str()
    assert stub.num_questions < 20, "nothing is asked again and again"


def test_the_samples_of_a_model_that_stopped_are_unscored(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """The quota ends with a question and not with a test: all may be answered before a slow session runs that one."""
    suite = written_suite(llm_pytester, 60)
    asked: list[Any] = []
    with StubServer("vllm", instant=True, delay_s=0.02) as stub:
        answer = stub.wire.routes["POST", "/v1/completions"]

        def completions(body: dict[str, Any]) -> Any:
            asked.extend([body] if "What is" in str(body) else [])  # self-tests ask something else
            if len(asked) >= 20:
                stub.faults["quota"] = 1.0
            return answer(body)

        stub.wire.routes["POST", "/v1/completions"] = completions
        result = run(llm_pytester, workers, "--llm-model", f"{stub.url}?max_connections=2", suite)
    assert result.ret == 1, result.stdout.str()
    report = report_of(llm_pytester.path)
    assert report["stopped"].startswith("the model stopped: ")
    assert "quota is exhausted" in report["stopped"]
    statuses = Counter(record["status"] for record in report["records"])
    assert statuses.total() == 60
    assert statuses["unscored"] > 0
    (found,) = report["suites"]
    assert found["num_unscored"] == statuses["unscored"]


def test_the_environment_is_left_as_it_was() -> None:
    assert "STUB_KEY" not in os.environ


def test_a_long_wait_is_said_where_there_is_no_terminal(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Once a minute in each process, however many requests wait; the controller has tested the server."""
    llm_pytester.makeconftest("from pytest_llmeval.models.servers import client\nclient.LONGEST_RETRY_AFTER_S = 0.01\n")
    suite = written_suite(llm_pytester, number=8)
    with StubServer("vllm", instant=True, faults=["429:0.5"], retry_after="300") as stub:
        result = llm_pytester.runpytest_subprocess(*workers, "--llm-model", stub.url, suite)
    lines = [line for line in (*result.outlines, *result.errlines) if "Retry-After" in line]
    assert 1 <= len(lines) <= (3 if "-n2" in workers else 1)
    assert set(lines) == {
        f"{stub.url}: 429: Rate limit reached for requests; Retry-After is 300 s, trying again in 0 s"
    }
