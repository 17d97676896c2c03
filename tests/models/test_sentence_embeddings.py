"""A sentence-embedding model that runs here: a tiny one of random weights, made on the spot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.errors import ContextLengthError, ModelError, RequestError
from pytest_llmeval.models.registry import load_model, parse_model_spec
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.types import EmbeddingRequest, GenerateRequest
from tests.plugin.embedder_for_tests import CLOSE_SUITE, write_embedder
from tests.plugin.judge_for_tests import records_of, report_of
from tests.tiny_models import make_embedder, make_hub_cache

TEXTS = ["the capital of france", "yes", "question what is the answer", "the quick brown fox", "yes", ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_embedder(tmp_path_factory.mktemp("embedder"))


def load(folder: Path | str, **settings: Any) -> Any:
    return load_model(parse_model_spec(str(folder), role="embedder"), ModelSettings(device="cpu", **settings))


@pytest.fixture(scope="module")
def model(folder: Path) -> Any:
    return load(folder)


def embedded(model: Any, *texts: str) -> list[Any]:
    found: list[Any] = model.embed([EmbeddingRequest(text) for text in texts])
    return found


def test_numbers_are_those_of_transformers(model: Any, folder: Path) -> None:
    """Mean of the last layer over the tokens, of length 1: by hand."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, bert = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    for text, found in zip(TEXTS, embedded(model, *TEXTS), strict=True):
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = bert(**inputs).last_hidden_state[0]
        mean = states.mean(dim=0)
        assert found.vector == pytest.approx((mean / mean.norm()).tolist(), abs=1e-6)
        assert found.num_prompt_tokens == inputs["input_ids"].shape[1]
        assert all(type(number) is float for number in found.vector)


def test_equal_texts_have_one_embedding_and_batches_change_little(folder: Path, model: Any) -> None:
    found = embedded(model, *TEXTS)
    assert found[1].vector == found[4].vector
    for one, other in zip(found, embedded(load(folder, batch_size=1), *TEXTS), strict=True):
        assert one.vector == pytest.approx(other.vector, abs=1e-6)
    assert model.embed(TEXTS[0]).is_timed
    assert not found[0].is_timed


def test_a_text_that_does_not_fit_is_refused_and_not_cut(model: Any) -> None:
    one, long, surrogate, other = embedded(model, "yes", "the " * 40, "\ud800", "no")
    assert isinstance(long, ContextLengthError)
    assert (long.num_tokens, long.max_tokens) == (42, 32)
    assert isinstance(surrogate, RequestError)
    assert len(one.vector) == len(other.vector) == 16


def test_the_prompt_of_the_model_is_counted(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    config = copy / "config_sentence_transformers.json"
    text = config.read_text().replace('"default_prompt_name": null', '"default_prompt_name": "query"')
    config.write_text(text.replace('"query": ""', '"query": "quick "'))
    prompted = load(copy)
    one, plain = prompted.embed("yes"), load(folder)
    assert one.num_prompt_tokens == plain.embed("yes").num_prompt_tokens + 1
    assert one.vector == pytest.approx(plain.embed("quick yes").vector, abs=1e-6)
    assert prompted.identity.fingerprint != plain.identity.fingerprint


def test_the_identity_is_that_of_the_weights(folder: Path, model: Any, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "README.md").write_text("other words")
    same, other = load(copy), load(make_embedder(tmp_path / "other", seed=1))
    identity = model.identity
    assert (identity.backend, identity.dtype, identity.device) == ("sentence-transformers", "float32", "cpu")
    assert identity.revision is None
    assert identity.details["max_length"] == 32
    assert same.identity.fingerprint == identity.fingerprint != other.identity.fingerprint
    assert embedded(same, *TEXTS)[0].vector == embedded(model, *TEXTS)[0].vector


@pytest.mark.parametrize(("name", "repo"), [("org/tiny", "org/tiny"), ("tiny", "sentence-transformers/tiny")])
def test_a_model_in_the_cache_of_the_hub(
    folder: Path, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, repo: str
) -> None:
    from huggingface_hub import constants

    make_hub_cache(tmp_path, repo, folder)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    cached = load(name, revision="the-evaluated-model's")
    assert cached.identity.revision == "0" * 40
    assert cached.identity.fingerprint == model.identity.fingerprint
    assert cached.embed("yes").vector == model.embed("yes").vector


def test_it_writes_nothing(model: Any) -> None:
    with pytest.raises(ModelError, match="the backend sentence-transformers has no method generate"):
        model.generate([GenerateRequest("a")])


def test_weights_that_are_missing(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    (copy / "model.safetensors").unlink()
    with pytest.raises(ModelError) as caught:
        load(copy)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "workers", [["-p", "no:xdist"], pytest.param(["-n2"], marks=pytest.mark.slow)], ids=["one-process", "n2"]
)
def test_a_session_with_it(llm_pytester: pytest.Pytester, workers: list[str], folder: Path) -> None:
    write_embedder(llm_pytester)
    llm_pytester.makefile(".yaml", close=CLOSE_SUITE)
    shutil.copytree(folder, llm_pytester.path / "tiny")
    arguments = [*workers, "--llm-embedder=./tiny", "--llm-device=cpu", "--llm-store=kept", "close.yaml"]
    result = llm_pytester.runpytest(*arguments, "--llm-report=report.json")
    assert result.ret == 0, result.stdout.str()
    result.stdout.fnmatch_lines(["llm-embedder: ./tiny (sentence embeddings)"])
    (judged_by,) = report_of(llm_pytester.path)["suites"][0]["judged_by"]
    assert judged_by.startswith("the embedder ./tiny (sentence-transformers, float32, ")
    values = {name: record["values"]["closeness"] for name, record in records_of(llm_pytester.path).items()}
    assert all(-1 <= value < 1 for value in values.values())
    again = llm_pytester.runpytest(*arguments, "--llm-report=report.json")
    again.stdout.fnmatch_lines(["store kept: 3 of 3 samples reused, *"])
    assert values == {name: record["values"]["closeness"] for name, record in records_of(llm_pytester.path).items()}
