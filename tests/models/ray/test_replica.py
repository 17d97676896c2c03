"""What a replica does in its own process, what it says of itself, and what it is given of its machine."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import pickle
import re
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import (
    ContextLengthError,
    LeftOutError,
    ModelError,
    ModelStoppedError,
    OptionError,
    RequestError,
)
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.ray import model as loading_module
from pytest_llmeval.models.ray.cluster import Needs, find_needs, machines_in_words
from pytest_llmeval.models.ray.model import check_replicas, load_replicas, this_machine
from pytest_llmeval.models.ray.replica import Handshake, Loading, Replica, disagreement
from pytest_llmeval.models.registry import parse_model_spec
from pytest_llmeval.models.settings import ModelSettings, ReplicaSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.text.reasoning import DEFAULT_TAGS
from pytest_llmeval.types import (
    EngineUse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    ModelIdentity,
    Request,
)


class Scripted:
    """Fails for prompts that say so, as a whole call."""

    identity = ModelIdentity(name="scripted", backend="test")

    def __init__(self) -> None:
        self.calls: list[int] = []

    def generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
        self.calls.append(len(requests))
        if any("breaks" in str(request.prompt) for request in requests):
            raise RuntimeError("CUDA error: device-side assert triggered")
        if any("raises" in str(request.prompt) for request in requests):
            raise ValueError("no such tensor")
        return [self._reply(str(request.prompt)) for request in requests]

    def _reply(self, prompt: str) -> GenerateResponse | RequestError:
        if "long" in prompt:
            return ContextLengthError(num_tokens=9, max_tokens=8)
        return LeftOutError("not this one") if "out" in prompt else GenerateResponse(text=prompt.upper())

    def loglikelihood(self, requests: Sequence[LoglikelihoodRequest]) -> list[LoglikelihoodResponse]:
        return [LoglikelihoodResponse(loglikelihood=-1.0, num_tokens=1) for _ in requests]


class Kind(ModelKind):
    name = "scripted"

    def __init__(self, model: object) -> None:
        self.model = model

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        if isinstance(self.model, Exception):
            raise self.model
        return self.model  # type: ignore[return-value]


def made(model: object, folder: Path) -> Replica:
    spec = ModelSpec(name="m", kind=Kind(model), location="")
    return Replica(Loading(spec=spec, settings=ModelSettings(), folder=str(folder)), " (a1b2)")


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Scripted:
    monkeypatch.chdir(tmp_path)
    return Scripted()


def texts(*prompts: str) -> list[list[Request]]:
    return [[GenerateRequest(prompt)] for prompt in prompts]


def test_a_chunk_is_one_call_of_each_kind(model: Scripted, tmp_path: Path) -> None:
    replica = made(model, tmp_path)
    replica.load()
    mixed: list[list[Request]] = [[GenerateRequest("a"), LoglikelihoodRequest("x", "y")], [GenerateRequest("b")]]
    answers = replica.answer(0, mixed, None)
    assert answers is not None
    first, second, third = [one for answer in answers if isinstance(answer, list) for one in answer]
    assert [type(one) for one in (first, second, third)] == [GenerateResponse, LoglikelihoodResponse, GenerateResponse]
    assert model.calls == [2]


def test_a_reply_that_was_cut_in_its_reasoning_is_asked_for_again(tmp_path: Path) -> None:
    class Stopping(Scripted):
        def generate(self, requests: Sequence[GenerateRequest]) -> list[Any]:
            self.calls.append(len(requests))
            whole = "<think>a STOP b</think>c STOP d"
            return [GenerateResponse(text=whole.split("STOP")[0] if one.stop else whole) for one in requests]

    stopping = Stopping()
    replica = made(stopping, tmp_path)
    replica.load()
    plain = GenerateRequest("a", stop=("STOP",))
    answers = replica.answer(0, [[plain], [replace(plain, reasoning=DEFAULT_TAGS)]], None)
    assert answers is not None
    found = [one.text for answer in answers if isinstance(answer, list) for one in answer if hasattr(one, "text")]
    assert found == ["<think>a ", "<think>a STOP b</think>c "]
    assert stopping.calls == [2, 1]


def test_a_sample_that_fails_the_call_is_found(model: Scripted, tmp_path: Path) -> None:
    replica = made(model, tmp_path)
    replica.load()
    answers = replica.answer(0, texts("a", "raises", "b"), None)
    assert answers is not None
    assert answers[0] == [GenerateResponse(text="A")]
    assert isinstance(answers[1], ModelError)
    assert str(answers[1]).startswith("model m: ValueError: no such tensor (on ")
    assert answers[2] == [GenerateResponse(text="B")]
    assert model.calls == [3, 1, 1, 1]


def test_errors_that_a_model_raises_stay_what_they_are(model: Scripted, tmp_path: Path) -> None:
    """As in one process: a request's own error is its sample's, and a model that has stopped is not asked again."""
    replica = made(model, tmp_path)
    replica.load()

    def fail(requests: Sequence[GenerateRequest]) -> list[Any]:
        prompts = {str(request.prompt) for request in requests}
        raise RequestError("too odd") if "odd" in prompts else ModelStoppedError("no key")

    model.generate = fail  # type: ignore[method-assign]
    answers: Any = pickle.loads(pickle.dumps(replica.answer(0, texts("odd", "even"), None)))
    assert [(type(one), str(one)) for one in answers[0]] == [(RequestError, "too odd")]
    assert (type(answers[1]), str(answers[1])) == (ModelStoppedError, "no key")


def test_answers_survive_the_way_to_the_session(model: Scripted, tmp_path: Path) -> None:
    replica = made(model, tmp_path)
    handshake = replica.load()
    assert disagreement(pickle.loads(pickle.dumps(handshake)), handshake) is None
    answers: Any = pickle.loads(pickle.dumps(replica.answer(0, texts("long", "out"), None)))
    assert type(answers[0][0]) is RequestError
    assert "the request needs 9 tokens and the model's context holds 8" in str(answers[0][0])
    assert type(answers[1][0]) is LeftOutError


def test_a_lost_device_ends_the_process(
    model: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ended(BaseException):
        pass

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(os, "_exit", end)
    replica = made(model, tmp_path)
    replica.load()
    with pytest.raises(Ended):
        replica.answer(0, texts("a", "breaks"), None)
    assert "the device is lost" in caplog.text


def test_chunks_are_given_back_until_they_are_begun(model: Scripted, tmp_path: Path) -> None:
    replica = made(model, tmp_path)
    replica.load()
    assert replica.withdraw(2)
    replica.answer(1, texts("a"), None)
    assert not replica.withdraw(1)
    assert replica.answer(2, texts("b"), None) is None
    assert replica.withdraw(3)
    assert replica.answer(3, texts("c"), None) is None
    assert replica.answer(4, texts("d"), None) == [[GenerateResponse(text="D")]]
    assert model.calls == [1, 1]


def test_what_cannot_be_loaded_names_the_machine(tmp_path: Path, model: Scripted) -> None:
    with pytest.raises(ModelError, match=r"^model m: gone \(on .* \(a1b2\)\)$"):
        made(ModelError("model m: gone"), tmp_path).load()
    with pytest.raises(ModelError, match=r"^model m: ValueError: bad \(on "):
        made(ValueError("bad"), tmp_path).load()


def test_models_that_are_asked_by_sample_are_refused(tmp_path: Path, model: Scripted) -> None:
    model.prepare = model.answer_samples = lambda *arguments: None  # type: ignore[attr-defined]
    with pytest.raises(ModelError, match="--llm-ray is for models that answer prompts in their own process"):
        made(model, tmp_path).load()


def test_replicas_have_to_agree_on_all_that_decides_numbers() -> None:
    identity = ModelIdentity(name="m", backend="huggingface", dtype="float32", device="cuda:0", fingerprint="a" * 64)
    one = Handshake(place="a", identity=identity, versions={"torch": "2.13.0", "transformers": "5.23.0"})
    assert disagreement(one, replace(one, place="b", identity=replace(identity, device="cuda:1"))) is None
    others = {
        "dtype (float32 on a, bfloat16 on b)": replace(identity, dtype="bfloat16"),
        "device (cuda on a, cpu on b)": replace(identity, device="cpu"),
        "weights and settings (aaaaaaaaaaaa on a, bbbbbbbbbbbb on b)": replace(identity, fingerprint="b" * 64),
        "name (m on a, m2 on b)": replace(identity, name="m2"),
        "backend (huggingface on a, test on b)": replace(identity, backend="test"),
        "revision (none on a, 12ab on b)": replace(identity, revision="12ab"),
    }
    for text, other in others.items():
        assert disagreement(one, replace(one, place="b", identity=other)) == text
    without = replace(one, place="b", versions={"torch": "2.13.0", "transformers": None})
    assert disagreement(one, without) == "transformers (5.23.0 on a, none on b)"
    more = replace(one, place="b", versions={**one.versions, "numpy": "3.0"})
    assert disagreement(one, more) == "numpy (none on a, 3.0 on b)"


def test_the_handshake_tells_versions_of_all_that_decides_numbers(model: Scripted, tmp_path: Path) -> None:
    versions = made(model, tmp_path).load().versions
    assert set(versions) == {"pytest-llmeval-suites", "torch", "transformers", "tokenizers"}
    assert versions["torch"] == importlib.metadata.version("torch")


def test_code_is_found_where_the_session_finds_it(
    model: Scripted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    there = tmp_path / "there"
    there.mkdir()
    spec = ModelSpec(name="m", kind=Kind(model), location="")
    paths = (str(there), sys.path[0], str(tmp_path))
    Replica(Loading(spec=spec, settings=ModelSettings(), folder=str(there), import_paths=paths)).load()
    assert Path.cwd() == there
    assert sys.path[:2] == [str(there), str(tmp_path)]
    Replica(Loading(spec=spec, settings=ModelSettings(), folder=str(tmp_path / "nowhere"))).load()
    assert Path.cwd() == there


def test_a_model_tells_that_it_audits_itself_and_scores_plain_where_that_is_asked(
    model: Scripted, tmp_path: Path
) -> None:
    assert not made(model, tmp_path).load().has_audit
    plain = Scripted()
    model.audit = lambda requests: (plain, EngineUse(engine="plain", reason=f"{len(requests)} differ"))  # type: ignore[attr-defined]
    model.as_plain = lambda: plain  # type: ignore[attr-defined]
    replica = made(model, tmp_path)
    assert replica.load().has_audit
    assert replica.audit([GenerateRequest("a")]).reason == "1 differ"
    replica.answer(0, texts("a"), None)
    replica.answer(1, texts("b", "c"), "plain")
    assert (model.calls, plain.calls) == ([1], [2])


def test_a_package_ray_that_is_not_whole_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytest_llmeval.models.ray.actors", None)
    with pytest.raises(ModelError, match=r"^--llm-ray: the package ray cannot be imported: \w+Error: "):
        load_replicas(parse_model_spec("demo"), ModelSettings(), ReplicaSettings(address="local"), chunk_size=4)


@pytest.mark.parametrize(
    ("given", "machines", "device", "expected"),
    [
        ({}, [{"CPU": 8.0}], None, Needs(1, 8, 0.0)),
        ({}, [{"CPU": 8.0}, {"CPU": 4.0}], None, Needs(2, 4, 0.0)),
        ({"count": 4}, [{"CPU": 8.0}, {"CPU": 8.0}], None, Needs(4, 4, 0.0)),
        ({"count": 16}, [{"CPU": 2.0}], None, Needs(16, 1, 0.0)),
        ({"count": 2, "cpus": 3}, [{"CPU": 2.0}], None, Needs(2, 3, 0.0)),
        ({}, [{"CPU": 64.0, "GPU": 8.0}, {"CPU": 64.0, "GPU": 4.0}], None, Needs(12, 1, 1.0)),
        ({"gpus": 0.5}, [{"CPU": 64.0, "GPU": 2.0}], None, Needs(4, 1, 0.5)),
        ({"gpus": 2.0}, [{"CPU": 64.0, "GPU": 8.0}], "cuda", Needs(4, 1, 2.0)),
        ({}, [{"CPU": 16.0, "GPU": 8.0}], "cpu", Needs(1, 16, 0.0)),
        ({}, [{"CPU": 0.0}, {"CPU": 4.0}], None, Needs(1, 4, 0.0)),
        ({}, [{}], None, Needs(1, 1, 0.0)),
    ],
)
def test_what_is_not_given_is_found(
    given: dict[str, Any], machines: list[dict[str, float]], device: str | None, expected: Needs
) -> None:
    assert find_needs(ReplicaSettings(address="auto", **given), machines, device=device) == expected


def test_needs_and_machines_in_words() -> None:
    assert Needs(2, 1, 0.0).of_each == "1 CPU"
    assert Needs(2, 8, 0.5).of_each == "8 CPUs and 0.5 GPUs"
    machines = [{"CPU": 4.0}, {"CPU": 4.0}, {"CPU": 64.0, "GPU": 1.0}]
    assert machines_in_words(machines) == "1 with 64 CPUs and 1 GPU, 2 with 4 CPUs"
    assert machines_in_words([{"CPU": float(count)} for count in range(4)]) == (
        "1 with 3 CPUs, 1 with 2 CPUs, 1 with 1 CPU, …"
    )
    assert machines_in_words([]) == "no machine"


def test_more_gpus_than_this_machine_has_are_refused_before_ray_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(loading_module, "this_machine", lambda: {"CPU": 2, "GPU": 1})
    replicas = ReplicaSettings(address="local", count=2, gpus=1.0)
    with pytest.raises(OptionError) as caught:
        load_replicas(parse_model_spec("demo"), ModelSettings(), replicas, chunk_size=4)
    assert str(caught.value) == ("--llm-ray local: GPUs needed: 2 (replicas: 2, GPUs of each: 1), on this machine: 1")


def test_this_machine_has_a_core() -> None:
    assert this_machine()["CPU"] >= 1


def test_without_ray_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError) as caught:
        check_replicas([parse_model_spec("demo")], ModelSettings(), ReplicaSettings(address="local"))
    assert str(caught.value) == "--llm-ray needs the package ray: pip install 'pytest-llmeval-suites[ray]'"


def test_ray_chooses_the_gpus() -> None:
    with pytest.raises(OptionError, match="with --llm-ray, Ray chooses the GPUs: give cuda"):
        check_replicas([parse_model_spec("demo")], ModelSettings(device="cuda:1"), ReplicaSettings(address="local"))


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (ReplicaSettings(address="local", count=129), "replicas: 129, more than 64 for each core of this machine (2)"),
        (ReplicaSettings(address="local", cpus=3), "CPUs of each replica: 3, on this machine: 2"),
        (ReplicaSettings(address="local", gpus=1), "GPUs needed: 1 (replicas: 1, GPUs of each: 1), on this machine: 0"),
    ],
)
def test_a_machine_has_room_for_some(monkeypatch: pytest.MonkeyPatch, asked: ReplicaSettings, message: str) -> None:
    monkeypatch.setattr("pytest_llmeval.models.ray.model.this_machine", lambda: {"CPU": 2, "GPU": 0})
    with pytest.raises(OptionError, match=re.escape(message)):
        check_replicas([parse_model_spec("demo")], ModelSettings(), asked)
    check_replicas([parse_model_spec("demo")], ModelSettings(), dataclasses.replace(asked, address="auto"))


def test_as_many_as_fit_are_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_llmeval.models.ray.model.this_machine", lambda: {"CPU": 2, "GPU": 0})
    check_replicas([parse_model_spec("demo")], ModelSettings(), ReplicaSettings(address="local", count=128, cpus=2))
