"""Generation of the transformers backend, against greedy decoding by hand."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import TopKLogitsWarper, TopPLogitsWarper

from pytest_llmeval.errors import ContextLengthError, RequestError
from pytest_llmeval.models.huggingface.generation_writer import seed_of
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.reasoning import without_reasoning
from pytest_llmeval.text.reasoning import DEFAULT_TAGS, cut_behind_reasoning
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Message
from tests.models.support import load, naive_greedy
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint

PROMPTS = [
    "The capital of France is",
    "A",
    "Question: is that so?\nAnswer:",
    "One, two, three, four, five, six; the quick",
]


def written(response: object) -> GenerateResponse:
    """The response; fails on an error."""
    assert isinstance(response, GenerateResponse), response
    return response


def test_equals_greedy_by_hand(any_model: HuggingFaceModel) -> None:
    requests = [GenerateRequest(prompt, max_tokens=12) for prompt in PROMPTS]
    for request, response in zip(requests, any_model.generate(requests), strict=True):
        prompt = any_model._encoder.prompt(request.prompt)
        tokens = naive_greedy(any_model, prompt, 12)
        ended = tokens[-1] == any_model.tokenizer.eos_token_id
        assert written(response).text == any_model.tokenizer.decode(tokens, skip_special_tokens=True)
        assert written(response).num_tokens == len(tokens)
        assert written(response).num_prompt_tokens == len(prompt)
        assert written(response).finish_reason == ("stop" if ended else "length")


def test_order_and_batching_do_not_matter(any_model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> None:
    requests = [GenerateRequest(p, max_tokens=n, stop=s) for p in PROMPTS for n in (3, 9) for s in ((), ("e",))]
    together = [written(r).text for r in any_model.generate(requests)]
    backwards = [written(r).text for r in any_model.generate(requests[::-1])]
    monkeypatch.setattr(any_model.text_engine, "max_tokens", 1)
    assert together == backwards[::-1] == [written(r).text for r in any_model.generate(requests)]


def test_stop_strings(gpt2: HuggingFaceModel) -> None:
    """Each stop string that can be cut from the text ends it, in a batch in which the others go on."""
    whole = gpt2.generate(PROMPTS[0], max_tokens=20).text
    stops = [whole[i : i + n] for n in (1, 2, 5) for i in range(0, len(whole) - n, 3)]
    requests = [GenerateRequest(PROMPTS[0], max_tokens=20, stop=("\x00", stop)) for stop in stops]
    for stop, response in zip(stops, gpt2.generate(requests), strict=True):
        assert written(response).text == whole[: whole.index(stop)]
        assert written(response).finish_reason == "stop"
        assert 1 <= written(response).num_tokens <= 20


def test_stops_as_soon_as_the_stop_string_is_there(gpt2: HuggingFaceModel) -> None:
    tokens = naive_greedy(gpt2, gpt2._encoder.prompt(PROMPTS[0]), 20)
    third = gpt2.tokenizer.decode(tokens[:3])
    response = gpt2.generate(PROMPTS[0], max_tokens=20, stop=[third])
    assert (response.text, response.num_tokens, response.finish_reason) == ("", 3, "stop")


def test_a_row_that_stopped_waits_for_the_others(gpt2: HuggingFaceModel) -> None:
    texts = [gpt2.generate(p, max_tokens=20).text for p in PROMPTS]
    stop = (texts[0][4:6],)
    responses = gpt2.generate([GenerateRequest(p, max_tokens=20, stop=stop) for p in PROMPTS])
    assert [written(r).text for r in responses] == [cut_behind_reasoning(text, stop, ())[0] for text in texts]


def test_eos_ends_a_text_and_is_not_in_it(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, "gpt2"))
    tokens = naive_greedy(model, model._encoder.prompt("A"), 9)
    fourth = tokens[3]
    assert fourth not in tokens[:3]
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [fourth, 1]}))
    response = load(tmp_path).generate("A", max_tokens=9)
    assert (response.num_tokens, response.finish_reason) == (4, "stop")


def test_generation_config_of_the_checkpoint_is_left_out(tmp_path: Path, gpt2: HuggingFaceModel) -> None:
    """Penalties, sampling and lengths that a checkpoint's author likes are no part of the request."""
    make_checkpoint(tmp_path, "gpt2")
    config: dict[str, object] = {
        "do_sample": True,
        "temperature": 5.0,
        "repetition_penalty": 9.0,
        "max_length": 7,
        "num_beams": 3,
    }
    config |= {"no_repeat_ngram_size": 1, "max_new_tokens": 2, "max_length": 7, "suppress_tokens": [*range(200)]}
    (tmp_path / "generation_config.json").write_text(json.dumps(config))
    model = load(tmp_path)
    for temperature in (0.0, 0.7):
        requests = [GenerateRequest(p, max_tokens=12, temperature=temperature, seed=1) for p in PROMPTS]
        assert [written(r).text for r in model.generate(requests)] == [written(r).text for r in gpt2.generate(requests)]


def test_sampling_is_a_function_of_the_request(gpt2: HuggingFaceModel) -> None:
    requests = [GenerateRequest(p, max_tokens=8, temperature=1.0, seed=s) for p in PROMPTS for s in (0, 1)]
    torch.manual_seed(5)
    state = torch.random.get_rng_state()
    first = [written(r).text for r in gpt2.generate(requests)]
    assert torch.equal(torch.random.get_rng_state(), state)
    assert first == [written(gpt2.generate([r])[0]).text for r in requests]
    assert first[0] != first[1]


def test_sampling_follows_the_softmax(gpt2: HuggingFaceModel) -> None:
    """400 single tokens at temperature 2: each text's share is within 5 standard errors of its probability."""
    prompt = gpt2._encoder.prompt("The")
    with torch.no_grad():
        probabilities = (gpt2.model(torch.tensor([prompt])).logits[0, -1] / 2).softmax(-1)
    requests = [GenerateRequest("The", max_tokens=1, temperature=2.0, seed=seed) for seed in range(400)]
    texts = [written(r).text for r in gpt2.generate(requests)]
    expected: dict[str, float] = {}
    for token, p in enumerate(probabilities.tolist()):
        text = gpt2.tokenizer.decode([token], skip_special_tokens=True)  # halves of a character all decode alike
        expected[text] = expected.get(text, 0.0) + p
    for text, p in sorted(expected.items(), key=lambda item: -item[1])[:5]:
        assert abs(texts.count(text) / len(texts) - p) < 5 * math.sqrt(p * (1 - p) / len(texts))


def test_seeds_differ_by_prompt_and_epoch() -> None:
    seeds = [seed_of(0, (1, 2)), seed_of(0, (12,)), seed_of(1, (1, 2)), seed_of(0, (1, 2, 3)), seed_of(0, (1, 2), 1)]
    assert len(set(seeds)) == 5
    assert seed_of(0, (1, 2), 0) == seed_of(0, (1, 2)) == 851224590600329910
    assert 0 <= seed_of(-1, ()) < 2**63


def test_epochs_are_drawn_anew(gpt2: HuggingFaceModel) -> None:
    """Epoch 0 is what a request without an epoch gives; a greedy text is the same in all."""
    requests = [GenerateRequest(PROMPTS[0], max_tokens=8, temperature=1.5, epoch=epoch) for epoch in range(5)]
    texts = [written(r).text for r in gpt2.generate(requests)]
    assert texts == [written(gpt2.generate([r])[0]).text for r in requests]
    assert texts[0] == gpt2.generate(PROMPTS[0], max_tokens=8, temperature=1.5).text
    assert len(set(texts)) == 5
    greedy = gpt2.generate([GenerateRequest(PROMPTS[0], max_tokens=8, epoch=epoch) for epoch in range(3)])
    assert len({written(r).text for r in greedy}) == 1


def test_top_p_keeps_what_transformers_keeps(gpt2: HuggingFaceModel) -> None:
    """Of 300 draws all are among the tokens that TopPLogitsWarper leaves after the temperature, and each of these that
    is likely enough is drawn.
    """
    prompt = gpt2._encoder.prompt("The")
    with torch.no_grad():
        logits = gpt2.model(torch.tensor([prompt])).logits[0, -1].double() / 0.8
    kept = TopPLogitsWarper(0.5)(torch.tensor([prompt]), logits[None])[0]
    probabilities = kept.softmax(-1)
    allowed = {gpt2.tokenizer.decode([i], skip_special_tokens=True) for i in kept.isfinite().nonzero()[:, 0].tolist()}
    requests = [GenerateRequest("The", max_tokens=1, temperature=0.8, top_p=0.5, seed=seed) for seed in range(300)]
    texts = {written(r).text for r in gpt2.generate(requests)}
    assert texts <= allowed
    assert len(allowed) < len(logits) / 2
    for i in (probabilities > 0.05).nonzero()[:, 0].tolist():
        assert gpt2.tokenizer.decode([i], skip_special_tokens=True) in texts


def test_top_p_in_a_batch_is_top_p_alone(any_model: HuggingFaceModel) -> None:
    requests = [GenerateRequest(p, max_tokens=6, temperature=1.5, top_p=t) for p in PROMPTS for t in (0.1, 0.6, 1.0)]
    together = [written(r).text for r in any_model.generate(requests)]
    assert together == [written(any_model.generate([r])[0]).text for r in requests]
    smallest = GenerateRequest(PROMPTS[0], max_tokens=6, temperature=1.5, top_p=1e-9)
    assert written(any_model.generate([smallest])[0]).text == any_model.generate(PROMPTS[0], max_tokens=6).text


def theirs(model: HuggingFaceModel, prompt: str, **settings: object) -> str:
    """What transformers' own ``generate`` writes after one prompt, in at most 16 tokens."""
    tokens = torch.tensor([model._encoder.prompt(prompt)])
    settings |= {"attention_mask": torch.ones_like(tokens)}  # else it takes BOS for padding
    with torch.no_grad():
        made = model.model.generate(
            tokens, max_new_tokens=16, pad_token_id=0, eos_token_id=model.tokenizer.eos_token_id, **settings
        )
    return str(model.tokenizer.decode(made[0, tokens.shape[1] :], skip_special_tokens=True))


@pytest.mark.parametrize("penalty", [1.1, 2.0, 0.8])
def test_a_penalty_of_repetition_is_transformers_own(any_model: HuggingFaceModel, penalty: float) -> None:
    """Greedy decoding too, in a batch with texts that have none."""
    requests = [GenerateRequest(p, max_tokens=16, repetition_penalty=one) for p in PROMPTS for one in (penalty, 1.0)]
    texts = [written(response).text for response in any_model.generate(requests)]
    assert texts[::2] == [theirs(any_model, prompt, do_sample=False, repetition_penalty=penalty) for prompt in PROMPTS]
    assert texts[1::2] == [written(any_model.generate([one])[0]).text for one in requests[1::2]]


def test_top_k_keeps_what_transformers_keeps(gpt2: HuggingFaceModel) -> None:
    prompt = gpt2._encoder.prompt("The")
    with torch.no_grad():
        logits = gpt2.model(torch.tensor([prompt])).logits[0, -1]
    allowed = {gpt2.tokenizer.decode([i], skip_special_tokens=True) for i in logits.topk(4).indices.tolist()}
    requests = [GenerateRequest("The", max_tokens=1, temperature=2.0, top_k=4, seed=seed) for seed in range(100)]
    assert {written(r).text for r in gpt2.generate(requests)} == allowed
    greedy, plain = gpt2.generate([GenerateRequest("The", top_k=4, max_tokens=5), GenerateRequest("The", max_tokens=5)])
    assert written(greedy).text == written(plain).text, "without sampling it does nothing"


def test_top_k_comes_before_top_p(gpt2: HuggingFaceModel) -> None:
    """As in transformers: what is left by top-k has its probabilities anew when top-p looks at them."""
    prompt = torch.tensor([gpt2._encoder.prompt("The")])
    with torch.no_grad():
        logits = gpt2.model(prompt).logits[0, -1].double()[None] / 2.0
    kept = TopPLogitsWarper(0.7)(prompt, TopKLogitsWarper(5)(prompt, logits))[0]
    allowed = {gpt2.tokenizer.decode([i], skip_special_tokens=True) for i in kept.isfinite().nonzero()[:, 0].tolist()}
    requests = [GenerateRequest("The", max_tokens=1, temperature=2.0, top_k=5, top_p=0.7, seed=s) for s in range(200)]
    assert {written(r).text for r in gpt2.generate(requests)} == allowed
    assert len(allowed) < 5


def test_prompt_and_new_tokens_must_fit(gpt2: HuggingFaceModel) -> None:
    fits, too_long, far_too_long = gpt2.generate(
        [GenerateRequest("!" * n, max_tokens=28) for n in (100, 101, 300)],
    )
    assert written(fits).num_prompt_tokens == 100
    assert isinstance(too_long, ContextLengthError)
    assert (too_long.num_tokens, too_long.max_tokens) == (129, 128)
    assert isinstance(far_too_long, ContextLengthError)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (GenerateRequest("a", max_tokens=0), "max_tokens is 0"),
        (GenerateRequest("a", temperature=math.nan), "temperature is nan"),
        (GenerateRequest("a", temperature=-1.0), "temperature is -1.0"),
        (GenerateRequest("Hi", max_tokens=2, top_p=0.0), "top_p is 0.0: expected a number above 0, at most 1"),
        (GenerateRequest("Hi", max_tokens=2, top_p=math.nan), "top_p is nan"),
        (GenerateRequest("Hi", max_tokens=2, top_k=-1), "top_k is -1: expected 1 or more, or 0 for all tokens"),
        (
            GenerateRequest("Hi", max_tokens=2, repetition_penalty=0.0),
            "repetition_penalty is 0.0: expected a number abov",
        ),
        (GenerateRequest("Hi", max_tokens=2, repetition_penalty=math.inf), "repetition_penalty is inf"),
        (GenerateRequest("\udfff", max_tokens=2), "U+DFFF"),
        (GenerateRequest((Message(role="user", content="Hi"),), max_tokens=2), "no chat template"),
    ],
)
def test_bad_requests_leave_their_neighbours_alone(
    gpt2: HuggingFaceModel, request_: GenerateRequest, words: str
) -> None:
    bad, good = gpt2.generate([request_, GenerateRequest("a", max_tokens=2)])
    assert isinstance(bad, RequestError)
    assert words in str(bad)
    assert "\n" not in str(bad)
    assert isinstance(good, GenerateResponse)


def test_empty_prompt(llama: HuggingFaceModel, gpt2: HuggingFaceModel) -> None:
    for model in (llama, gpt2):
        assert model.generate("", max_tokens=3).num_prompt_tokens == 1


def test_chat(llama: HuggingFaceModel) -> None:
    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Hi"))
    plain = llama.generate("<system>Be brief.\n<user>Hi\n<assistant>", max_tokens=6)
    assert llama.generate(turns, max_tokens=6).text == plain.text
    assert llama.loglikelihood(turns, " x").loglikelihood == pytest.approx(
        llama.loglikelihood("<system>Be brief.\n<user>Hi\n<assistant>", " x").loglikelihood
    )
    (refused,) = llama.generate([GenerateRequest(turns[::-1], max_tokens=6)])
    assert isinstance(refused, RequestError)
    assert "system comes first" in str(refused)


def test_not_a_number_is_an_error(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, "gpt2"))
    with torch.no_grad():
        model.model.transformer.wte.weight[model.tokenizer.encode("?")[0]] = math.nan
        model.model.lm_head.weight = torch.nn.Parameter(model.model.lm_head.weight.nan_to_num(0.0).clone())
    for temperature in (0.0, 1.0):
        bad, good = model.generate([GenerateRequest(p, max_tokens=3, temperature=temperature) for p in ("a?", "a!")])
        assert isinstance(bad, RequestError)
        assert "not finite" in str(bad)
        assert isinstance(good, GenerateResponse)


def test_short_form_takes_one_stop_string(gpt2: HuggingFaceModel) -> None:
    """A string is one stop string, and no sequence of its letters."""
    whole = gpt2.generate("A", max_tokens=20).text
    assert gpt2.generate("A", max_tokens=20, stop=whole[4:8]).text == whole[: whole.index(whole[4:8])]


def test_a_chat_template_that_opens_the_reasoning(tmp_path: Path) -> None:
    """The tag stands in the prompt: the text is as without tags, and beside it is one that begins with the tag."""
    opens = CHAT_TEMPLATE.replace("<assistant>{% endif %}", "<assistant><think>\n{% endif %}")
    model = load(make_checkpoint(tmp_path, "gpt2", chat_template=opens))
    prompt = (Message(role="user", content="Six times seven?"),)
    plain = GenerateRequest(prompt, max_tokens=12)
    usual = replace(plain, reasoning=DEFAULT_TAGS)
    first, second = model.generate([plain, usual])
    assert isinstance(first, GenerateResponse)
    assert isinstance(second, GenerateResponse)
    assert (second.text, second.tagged) == (first.text, f"<think>{first.text}") == (first.text, first.tagged)
    assert without_reasoning(plain, first).text == first.text
    found = without_reasoning(usual, second)
    assert (found.text, found.reasoning, found.is_unfinished) == ("", first.text.strip(), True)
    inside = first.text[3:6]
    cut, going_on = model.generate([replace(plain, stop=(inside,)), replace(usual, stop=(inside,))])
    assert isinstance(cut, GenerateResponse)
    assert isinstance(going_on, GenerateResponse)
    assert (cut.text, cut.finish_reason) == (first.text[: first.text.index(inside)], "stop")
    assert (going_on.text, going_on.finish_reason) == (first.text, "length")
    assert model.identity.details["tags_of_reasoning"] == "<think> opened by the chat template"


def test_a_model_without_such_a_template_is_known_as_before(tmp_path: Path) -> None:
    model = load(make_checkpoint(tmp_path, "gpt2", chat_template=CHAT_TEMPLATE))
    assert "tags_of_reasoning" not in model.identity.details
    (found,) = model.generate([GenerateRequest("A", max_tokens=3, reasoning=DEFAULT_TAGS)])
    assert isinstance(found, GenerateResponse)
    assert found.tagged is None
