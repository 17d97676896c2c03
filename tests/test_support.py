"""The scripted model keeps the Protocol and its script: plugin tests stand on it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import Model, identify
from pytest_llmeval.types import GenerateRequest, GenerateResponse, LoglikelihoodRequest, LoglikelihoodResponse, Message
from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest, model_calls


def make(folder: Path, source: str = FAKE_MODEL_CONFTEST) -> Any:
    names: dict[str, Any] = {"__file__": str(folder / "conftest.py"), "__name__": "conftest"}
    exec(compile(source, "conftest.py", "exec"), names)
    return names["FakeModel"]()


def test_is_a_model(tmp_path: Path) -> None:
    model = make(tmp_path)
    assert isinstance(model, Model)
    assert identify(model).name == "fake"


def test_loglikelihoods_come_from_context_and_continuation_alone(tmp_path: Path) -> None:
    requests = [LoglikelihoodRequest("a", " b"), LoglikelihoodRequest("a", " c d"), LoglikelihoodRequest("x", " b")]
    first = make(tmp_path).loglikelihood(requests)
    again = make(tmp_path).loglikelihood(requests[::-1])[::-1]
    assert first == again
    assert len({response.loglikelihood for response in first}) == 3
    assert [response.num_tokens for response in first] == [1, 2, 1]
    assert all(-10 <= response.loglikelihood / response.num_tokens <= -2 for response in first)


def test_script(tmp_path: Path) -> None:
    model = make(
        tmp_path,
        fake_model_conftest(
            replies={"Q1": "yes", "Q2": 'a "quoted"\nline \\ 🙂'},
            likely={"Q3": "Paris"},
            errors={"Q4": "too long"},
            raises={"Q5": "out of memory"},
            default_reply="none",
        ),
    )
    assert [response.text for response in model.generate([GenerateRequest(text) for text in ("Q1", "Q2", "Q9")])] == [
        "yes",
        'a "quoted"\nline \\ 🙂',
        "none",
    ]
    assert model.generate([GenerateRequest((Message(role="user", content="Q1"),))])[0].text == "yes"
    paris, rome = model.loglikelihood([LoglikelihoodRequest("Q3", " Paris"), LoglikelihoodRequest("Q3", " Rome")])
    assert paris.loglikelihood == -0.5 > rome.loglikelihood
    bad, good = model.generate([GenerateRequest("Q4"), GenerateRequest("Q1")])
    assert isinstance(bad, RequestError)
    assert str(bad) == "too long"
    assert isinstance(good, GenerateResponse)
    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        model.generate([GenerateRequest("Q1"), GenerateRequest("Q5")])


def test_calls_are_logged(tmp_path: Path) -> None:
    assert model_calls(tmp_path) == []
    model = make(tmp_path)
    (response,) = model.loglikelihood([LoglikelihoodRequest("a", " b")])
    assert isinstance(response, LoglikelihoodResponse)
    model.generate([GenerateRequest("p"), GenerateRequest("q")])
    assert [call["method"] for call in model_calls(tmp_path)] == ["load", "loglikelihood", "generate"]
    assert [call["prompts"] for call in model_calls(tmp_path, "generate")] == [["p", "q"]]
    assert model_calls(tmp_path, "loglikelihood")[0]["prompts"] == ["a b"]
