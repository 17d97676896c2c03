"""What servers say of who gave their replies: a model that changes in the middle of a run is a problem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.reporting.report.merge import merge_reports
from pytest_llmeval.reporting.report.report import use_of_model
from pytest_llmeval.reporting.storage.report_file import read_report
from pytest_llmeval.types import (
    EmbeddingRequest,
    EmbeddingResponse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    ServerUse,
)
from tests.servers.conftest import Connect
from tests.servers.stub import StubServer
from tests.servers.test_server_sessions import choices_suite, report_of, run, written_suite

pytestmark = pytest.mark.usefixtures("quick_retries")

ALONE = ["-p", "no:xdist"]
Serves = Callable[[dict[str, Any]], dict[str, Any]]


def falls_back(*words: str, model: str = "cheap-1", fingerprint: str = "fp_b") -> Serves:
    """A gateway that has another model answer what holds one of these words."""

    def serves(body: dict[str, Any]) -> dict[str, Any]:
        is_other = any(word in json.dumps(body) for word in words)
        names = (model, fingerprint) if is_other else ("dear-1", "fp_a")
        return dict(zip(("model", "system_fingerprint"), names, strict=True))

    return serves


def uses_of(folder: Path) -> list[dict[str, Any]]:
    report = report_of(folder)
    return [one["use"] for one in (*report["models"], *report["judges"])]


HOSTED = ("dialect=openai", "model=demo", "api_key_env=STUB_KEY")


@pytest.fixture(autouse=True)
def _has_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STUB_KEY", "any-key")


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "vllm", "generic", "ollama"])
def test_a_reply_says_who_gave_it(connect: Connect, dialect: str) -> None:
    with StubServer(dialect, instant=True, serves=falls_back()) as stub:
        model = connect(stub, f"dialect={dialect}", "model=demo", "api_key_env=STUB_KEY")
        (reply,) = [one.result(60) for one in model.submit([GenerateRequest("Say it.", max_tokens=2)])]
        assert isinstance(reply, GenerateResponse)
        assert (reply.served_model, reply.system_fingerprint) == ("dear-1", "fp_a")
        assert model.server_use.served_models == {"dear-1": 1}, "without the self-test"


@pytest.mark.parametrize("name", [None, 5, "", ["a"]])
def test_a_server_that_does_not_say_it(connect: Connect, name: Any) -> None:
    with StubServer("vllm", instant=True, serves=lambda _: {"model": name, "system_fingerprint": name}) as stub:
        (reply,) = connect(stub).run([GenerateRequest("Say it.", max_tokens=2)])
    assert (reply.served_model, reply.system_fingerprint) == (None, None)


def test_log_likelihoods_and_embeddings_say_it_too(connect: Connect) -> None:
    with StubServer("vllm", instant=True, serves=falls_back()) as stub:
        options = [LoglikelihoodRequest("Which one?", f" {letter}") for letter in "ABC"]
        longer = [LoglikelihoodRequest("Which?", f" it is {n} or more of them") for n in range(3)]
        for reply in connect(stub).run([*options, *longer]):
            assert (reply.served_model, reply.system_fingerprint) == ("dear-1", "fp_a")
        embedder: Any = load_model(replace(parse_model_spec(stub.url), role="embedder"), ModelSettings())
        for vector in embedder.run([EmbeddingRequest(f"Text {number}") for number in range(5)]):
            assert isinstance(vector, EmbeddingResponse)
            assert vector.served_model == "dear-1"
        embedder.close()


def test_a_model_that_changes_in_the_run_is_a_problem(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = written_suite(llm_pytester, 12, chat=True)
    with StubServer("openai", instant=True, serves=falls_back("What is 7", "What is 9")) as stub:
        spec = f"openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        result = run(llm_pytester, workers, "--llm-model", spec, suite)
    assert result.ret == 1, result.stdout.str()
    text = "are of cheap-1 and of dear-1, as the server says: its numbers mix models"
    result.stdout.fnmatch_lines([f"problem: the replies of openai:demo* {text}", "*answered by cheap-1 and by dear-1*"])
    (use,) = uses_of(llm_pytester.path)
    assert use["served_models"] == {"cheap-1": 2, "dear-1": 10}
    report = report_of(llm_pytester.path)
    marked = {record["id"]: record["served_by"] for record in report["records"] if record["served_by"]}
    # Whichever came first, the others are told apart from it.
    others = {"w7", "w9"}
    assert set(marked) in (others, {record["id"] for record in report["records"]} - others)
    if set(marked) == others:
        (entry,) = marked["w7"]
        assert (entry["model"], entry["system_fingerprint"]) == ("cheap-1", "fp_b")
        assert entry["name"].startswith("openai:demo")


def test_one_model_all_along_is_no_problem(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = choices_suite(llm_pytester, 12)
    with StubServer("vllm", instant=True, serves=falls_back()) as stub:
        result = run(llm_pytester, workers, "--llm-model", stub.url, suite)
    assert result.ret == 0, result.stdout.str()
    assert not any(record["served_by"] for record in report_of(llm_pytester.path)["records"])
    (use,) = uses_of(llm_pytester.path)
    assert use["served_models"].keys() == {"dear-1"}
    assert use["system_fingerprints"].keys() == {"fp_a"}
    assert "changed in the run" not in result.stdout.str()


def test_a_changed_fingerprint_is_told_and_fails_nothing(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    suite = written_suite(llm_pytester, 8, chat=True)
    with StubServer("openai", instant=True, serves=falls_back("What is 5", model="dear-1")) as stub:
        spec = f"openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        arguments = ["--llm-model", spec, "--llm-gate=accuracy >= 0", "--llm-report=report.md", suite]
        result = run(llm_pytester, workers, *arguments)
    assert result.ret == 0, result.stdout.str()
    told = "the system_fingerprint of openai:demo* changed in the run: fp_a (7 replies), fp_b (1 replies)"
    lines = " ".join(" ".join(result.outlines).split())
    pattern = re.escape(told).replace(r"\*", r"\S*")
    assert len(re.findall(pattern, lines)) == 2, "of the servers, and beside the gate"
    assert re.search(rf"passed: written, accuracy >= 0: .{{,60}}{pattern}", lines), lines
    assert "changed in the run" in (llm_pytester.path / "report.md").read_text(encoding="utf-8")
    (gate,) = report_of(llm_pytester.path)["gates"]
    assert re.match("the system_fingerprint of openai:demo.* changed in the run", gate["notes"][0])


def test_what_is_kept_in_a_store_says_who_gave_it(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """A name that stands for another model today: half of the replies are the old one's."""
    suite = written_suite(llm_pytester, 8, chat=True)
    with StubServer("openai", instant=True, serves=lambda _: {"model": "dear-1"}) as stub:
        spec = f"openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        arguments = ["--llm-model", spec, "--llm-store=kept", "--llm-store-max-age=7d"]
        assert run(llm_pytester, workers, *arguments, "--llm-limit=4", suite).ret == 0
        stub._serves = lambda _: {"model": "dear-2"}
        again = run(llm_pytester, workers, *arguments, "--llm-limit=4", suite)
        assert again.ret == 0, again.stdout.str()
        (use,) = uses_of(llm_pytester.path)
        assert use["served_models"] == {"dear-1": 4}, "all from the store"
        mixed = run(llm_pytester, workers, *arguments, suite)
    assert mixed.ret == 1
    mixed.stdout.fnmatch_lines(["problem: the replies of openai:demo* are of dear-1 and of dear-2, *"])
    (use,) = uses_of(llm_pytester.path)
    assert use["served_models"] == {"dear-1": 4, "dear-2": 4}


def test_replicas_that_answer_as_two_models_are_a_problem(llm_pytester: pytest.Pytester) -> None:
    suite = written_suite(llm_pytester, 16)
    with (
        StubServer("vllm", instant=True, serves=lambda _: {"model": "one"}, num_slots=1) as first,
        StubServer("vllm", instant=True, serves=lambda _: {"model": "two"}, num_slots=1) as second,
    ):
        spec = f"{first.url}?base_url={second.url}&max_connections=1"
        result = run(llm_pytester, ALONE, "--llm-model", spec, suite)
    assert result.ret == 1, result.stdout.str()
    result.stdout.fnmatch_lines(["problem: the replies of * are of one and of two, *"])


JUDGED = """\
suite: judged
samples:
  - {id: a, question: Say a., response: alpha, target: Alpha!}
  - {id: b, question: Say b., response: beta, target: Beta!}
  - {id: c, question: Say c., response: gamma, target: Gamma!}
score: {equivalence: {math: false}}
"""


def says(_: dict[str, Any]) -> str:
    return '{"reason": "r", "equivalent": true}'


def test_a_judge_that_changes_in_the_run_is_a_problem(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makefile(".yaml", judged=JUDGED)
    with StubServer("openai", instant=True, says=says, serves=falls_back("beta")) as stub:
        judge = f"--llm-judge=openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        result = run(llm_pytester, workers, judge, "judged.yaml")
    assert result.ret == 1, result.stdout.str()
    result.stdout.fnmatch_lines(["problem: the replies of the judge openai:demo* are of cheap-1 and of dear-1, *"])
    marked = {one["id"]: one["served_by"] for one in report_of(llm_pytester.path)["records"] if one["served_by"]}
    assert set(marked) in ({"b"}, {"a", "c"})
    assert {entry["role"] for entries in marked.values() for entry in entries} == {"judge"}


def test_a_judge_that_is_another_model_than_in_the_baseline_is_refused(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", judged=JUDGED)
    with StubServer("openai", instant=True, says=says, serves=falls_back()) as stub:
        judge = f"--llm-judge=openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        run(llm_pytester, ALONE, judge, "judged.yaml", "--llm-report=old.json")
        same = run(llm_pytester, ALONE, judge, "judged.yaml", "--llm-baseline=old.json")
        assert "another judge" not in same.stdout.str()
        stub._serves = falls_back("Say")
        other = run(llm_pytester, ALONE, judge, "judged.yaml", "--llm-baseline=old.json")
    assert other.ret == 1
    told = "another judge: the model of the judge openai:demo*, as the server says, was dear-1 and is cheap-1"
    assert re.search(told.replace("*", ".*"), " ".join(other.stdout.str().split())), other.stdout.str()


def test_a_model_that_is_another_one_than_in_the_baseline_is_told(llm_pytester: pytest.Pytester) -> None:
    """It may be what is compared: both names stand beside the gate."""
    suite = written_suite(llm_pytester, 8, chat=True)
    with StubServer("openai", instant=True, serves=falls_back()) as stub:
        spec = f"openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        run(llm_pytester, ALONE, "--llm-model", spec, suite, "--llm-report=old.json")
        stub._serves = falls_back("What")
        run(llm_pytester, ALONE, "--llm-model", spec, suite, "--llm-baseline=old.json")
    (gate,) = report_of(llm_pytester.path)["gates"]
    notes = "; ".join(gate["notes"])
    assert re.search(r"the model of openai:demo\S*, as the server says, was dear-1 and is cheap-1", notes)
    assert re.search(r"the system_fingerprint of openai:demo\S*, as the server says, was fp_a and is fp_b", notes)


def test_one_that_no_longer_says_who_it_is_is_told(llm_pytester: pytest.Pytester) -> None:
    """A judge is not refused for it: nothing says that it is another one."""
    llm_pytester.makefile(".yaml", judged=JUDGED)
    suite = written_suite(llm_pytester, 8, chat=True)
    with StubServer("openai", instant=True, says=says, serves=falls_back()) as stub:
        spec = f"openai:demo?base_url={stub.url}&api_key_env=STUB_KEY"
        given = ["--llm-model", spec, "--llm-judge", spec, suite, "judged.yaml"]
        run(llm_pytester, ALONE, *given, "--llm-report=old.json")
        stub._serves = lambda _: {"model": None, "system_fingerprint": None}
        run(llm_pytester, ALONE, *given, "--llm-baseline=old.json")
    told = {gate["suite"]: "; ".join(gate["notes"]) for gate in report_of(llm_pytester.path)["gates"]}
    names = r"as the server says, was dear-1, and now it names none"
    assert re.search(rf"the model of openai:demo\S*, {names}", told["written"])
    assert re.search(rf"the model of the judge openai:demo\S*, {names}", told["judged"])
    assert "another judge" not in str(report_of(llm_pytester.path)["gates"])


def test_parts_of_a_run_that_two_models_answered_are_a_problem_together(llm_pytester: pytest.Pytester) -> None:
    suite = written_suite(llm_pytester, 8, chat=True)
    for part, name in ((1, "dear-1"), (2, "dear-2")):
        with StubServer("openai", instant=True, serves=falls_back("What", model=name)) as stub:
            spec = f"openai:demo?api_key_env=STUB_KEY&base_url={stub.url}"
            llm_pytester.makeconftest(
                f"""
                import pytest
                from pytest_llmeval.models.registry import load_model, parse_model_spec
                from pytest_llmeval.models.settings import ModelSettings
                from dataclasses import replace

                @pytest.fixture(scope="session")
                def llm_model():
                    model = load_model(parse_model_spec({spec!r}), ModelSettings())
                    model.identity = replace(model.identity, name="hosted")
                    yield model
                    model.close()
                """
            )
            result = llm_pytester.runpytest(*ALONE, f"--llm-shard={part}/2", f"--llm-report=p{part}.json", suite)
            assert result.ret == 0, result.stdout.str()
    parts = [(name, read_report(llm_pytester.path / name)) for name in ("p1.json", "p2.json")]
    merged = merge_reports(parts)
    assert merged.problems == (
        "the replies of hosted are of dear-1 and of dear-2, as the server says: its numbers mix models",
    )
    assert merged.exit_code == 1


def test_an_old_report_says_nothing_of_it() -> None:
    use = {"num_requests": 3, "retries": {}, "num_prompt_tokens": 1, "num_tokens": 1, "cost": None}
    found = use_of_model({"name": "m", "use": {**use, "left_out": [], "ended": []}})
    assert isinstance(found, ServerUse)
    assert (found.served_models, found.system_fingerprints) == ({}, {})


# Replicas without logprobs


def test_replicas_without_logprobs_are_compared_by_greedy_replies(connect: Connect) -> None:
    with StubServer("openai", instant=True) as one, StubServer("openai", instant=True) as same:
        connect(one, f"base_url={same.url}", *HOSTED)
    with StubServer("openai", instant=True) as one, StubServer("openai") as other:
        with pytest.raises(ModelError, match=r"no replicas of one model: after '.*' http.* writes '.*' and http.* '"):
            connect(one, f"base_url={other.url}", *HOSTED)
        assert one.num_questions <= 10


def test_a_replica_that_is_not_the_same_twice_shows_nothing(connect: Connect) -> None:
    """A server that draws all the same, or rounds in another way each time."""
    with StubServer("openai", instant=True) as one, StubServer("openai", instant=True) as other:
        answer, count = other.wire.answer, [0]

        def drawn(method: str, path: str, headers: Any, body: Any) -> Any:
            reply = answer(method, path, headers, body)
            if path.endswith("/chat/completions"):
                count[0] += 1
                reply["choices"][0]["message"]["content"] = f"text {count[0]}"
            return reply

        other.wire.answer = drawn  # type: ignore[method-assign]
        connect(one, f"base_url={other.url}", *HOSTED)
