"""The tree against lm-eval 0.4.13, against the plain path, and against rows that are scored alone."""

from __future__ import annotations

import dataclasses
import importlib.util
import random
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.checkpoint import Attention
from pytest_llmeval.models.huggingface.forward import Outcome, Runner
from pytest_llmeval.models.huggingface.loglikelihood import Engine
from pytest_llmeval.models.huggingface.loglikelihood_tree import TreeScorer, _without_cudnn
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.types import LoglikelihoodRequest, LoglikelihoodResponse
from tests.models.architectures_for_tests import ARCHITECTURES, make_model, tiers
from tests.models.support import one_line_of
from tests.properties import examples

HEADER = "Answer the questions.\n\nQ: Which town lies by the sea?\nA: Brighton\n\n"
QUESTIONS = ["Which river runs through Ulm?", "Is it late?", "What is two and two, and who says so?", "Why"]
CHOICES = [" the Danube", " A", " B", " nobody knows, I am afraid", " 4", "\n", " the Dan"]
REQUESTS = [
    *(LoglikelihoodRequest(f"{HEADER}Q: {question}\nA:", choice) for question in QUESTIONS for choice in CHOICES),
    LoglikelihoodRequest(f"{HEADER}Q: Why", "?"),  # its context is the beginning of others
    LoglikelihoodRequest(f"{HEADER}Q: Why\nA: ", "A"),  # white space at the end moves
    LoglikelihoodRequest(f"{HEADER}Q: Why\nA:", " A"),  # asked already
    LoglikelihoodRequest("", "Answer the"),
    LoglikelihoodRequest("Quite another text", " altogether, é\u4e16\U0001f600"),
]
NAMES = sorted(ARCHITECTURES)
TREES = [name for name in NAMES if ARCHITECTURES[name][1] == "tree"]
WINDOWED = [name for name in TREES if name.endswith(("_window_8", "_chunk_8"))]


def loglikelihoods(responses: Sequence[object]) -> list[float]:
    """Their numbers; fails on an error."""
    assert all(isinstance(response, LoglikelihoodResponse) for response in responses), responses
    return [response.loglikelihood for response in responses if isinstance(response, LoglikelihoodResponse)]


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed")
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("name", tiers(name for name in NAMES if name != "llama_dynamic"))
def test_equals_lm_eval(name: str) -> None:
    """Request by request, within 1e-4 in float32, on the path that the rule chooses.

    Dynamic rotary angles are left out: in transformers, and so in lm-eval, they depend on the texts that came before.
    """
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    ours = make_model(name)
    assert ours.engine.name == ARCHITECTURES[name][1], ours.engine.reason
    # Rows of one: where padding would disturb a model (recurrent layers), lm-eval is right alone.
    theirs: Any = HFLM(pretrained=ours.model, tokenizer=ours.tokenizer, batch_size=1, backend="causal")
    expected = theirs.loglikelihood(
        [
            Instance(request_type="loglikelihood", doc={}, arguments=(r.context, r.continuation), idx=0)
            for r in REQUESTS
        ],
        disable_tqdm=True,
    )
    responses = ours.loglikelihood(REQUESTS)
    assert loglikelihoods(responses) == pytest.approx([value for value, _ in expected], abs=1e-4, rel=0)
    is_greedy = [r.is_greedy for r in responses if isinstance(r, LoglikelihoodResponse)]
    assert is_greedy == [greedy for _, greedy in expected]


@pytest.mark.parametrize("name", tiers(WINDOWED))
def test_a_wrong_mask_would_show(name: str) -> None:
    """The sequences are long enough for windows of 8: with one mask for all layers the numbers are far off."""
    model = make_model(name)
    right = loglikelihoods(model.loglikelihood(REQUESTS))
    assert max(len(model.tokenizer.encode(request.context)) for request in REQUESTS) > 40
    tree = model.engine._tree
    tree._attention = dataclasses.replace(tree._attention, window=None)
    tree.clear()
    wrong = loglikelihoods(model.loglikelihood(REQUESTS))
    assert max(abs(a - b) for a, b in zip(right, wrong, strict=True)) > 1e-2


@pytest.mark.parametrize("name", tiers(WINDOWED))
def test_the_check_at_loading_finds_a_wrong_mask(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that the config keeps to itself ends on the plain path."""
    right = loglikelihoods(make_model(name).loglikelihood(REQUESTS))
    monkeypatch.setattr(
        "pytest_llmeval.models.huggingface.loglikelihood.attention_of",
        lambda config: Attention(kind="full", reason="as it seems"),
    )
    if name != "mistral_window_8":  # it takes one mask, so there is no mapping to be left out
        monkeypatch.setattr(
            "pytest_llmeval.models.huggingface.loglikelihood.attention_of",
            lambda config: Attention(
                kind="full", reason="as it seems", layer_types=tuple(dict.fromkeys(config["layer_types"]))
            ),
        )
    model = make_model(name)
    assert model.engine.name == "plain"
    assert "check at loading" in model.engine.reason
    assert loglikelihoods(model.loglikelihood(REQUESTS)) == pytest.approx(right, abs=1e-4)


@pytest.mark.parametrize("name", ["gpt2", "gemma3_window_8"])
def test_the_check_at_loading_finds_a_wrong_cache(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small trees fit into one step, which reads no cache: the check makes its steps smaller."""
    masks = TreeScorer._additive

    def forgetful(self: TreeScorer, sees: torch.Tensor) -> torch.Tensor:
        num_tokens, num_keys = sees.shape
        if num_keys > num_tokens:
            sees = sees.clone()
            sees[:, num_keys - num_tokens - 1] = False  # the last token that is cached
        return masks(self, sees)

    monkeypatch.setattr(TreeScorer, "_additive", forgetful)
    model = make_model(name)
    assert model.engine.name == "plain"
    assert "check at loading" in model.engine.reason


def test_what_the_tree_cannot_do_is_refused_where_it_was_asked_for() -> None:
    with pytest.raises(ModelError) as caught:
        make_model("bloom", engine="tree")
    assert "ALiBi" in one_line_of(caught.value)
    assert make_model("gpt2", engine="plain").engine.name == "plain"


# Random trees


@pytest.fixture(scope="module", params=["gpt2", "gemma3_window_8", "mistral_window_8", "mixtral"])
def model(request: pytest.FixtureRequest) -> HuggingFaceModel:
    """Full attention, windows in some layers, windows in all, experts."""
    return make_model(request.param)


@st.composite
def pairs(draw: st.DrawFn) -> dict[int, EncodedPair]:
    """Requests with headers in common, duplicates, one-token and long options."""
    random_tokens = random.Random(draw(st.integers(0, 1000)))
    header = [random_tokens.randrange(60) for _ in range(draw(st.integers(1, 40)))]
    found = []
    for _ in range(draw(st.integers(1, 6))):
        question = header[: draw(st.integers(1, len(header)))]
        question += [random_tokens.randrange(60) for _ in range(draw(st.integers(0, 12)))]
        found += [
            EncodedPair(tuple(question), tuple(random_tokens.randrange(60) for _ in range(length)))
            for length in draw(st.lists(st.sampled_from([1, 1, 2, 5, 20]), min_size=1, max_size=4))
        ]
    return dict(enumerate(found + found[: draw(st.integers(0, 3))]))


def numbers(outcomes: dict[int, Outcome | RequestError]) -> list[tuple[float, bool]]:
    """Loglikelihood and greediness by request."""
    found = [outcomes[key] for key in sorted(outcomes)]
    assert all(isinstance(one, Outcome) for one in found)
    return [(one.loglikelihood, one.is_greedy) for one in found if isinstance(one, Outcome)]


@pytest.mark.slow
@settings(max_examples=examples(40), suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    requests=pairs(),
    max_tokens=st.sampled_from([1, 3, 16, 64, 512]),
    max_scored=st.sampled_from([1, 4, 999]),
    block_tokens=st.sampled_from([1, 10, 96]),
)
def test_tree_plain_and_one_by_one_agree(
    model: HuggingFaceModel, requests: dict[int, EncodedPair], max_tokens: int, max_scored: int, block_tokens: int
) -> None:
    """Whatever is kept from the examples before."""
    engine = model.engine
    engine._budget = dataclasses.replace(
        engine._budget, max_tokens=max_tokens, max_scored=max_scored, block_tokens=block_tokens
    )
    by_tree = numbers(engine.score(requests))
    plain = numbers(engine.score(requests, plain=True))
    alone = numbers(engine.score(requests, plain=True, alone=True))
    assert [value for value, _ in by_tree] == pytest.approx([value for value, _ in alone], abs=1e-4)
    assert [value for value, _ in plain] == pytest.approx([value for value, _ in alone], abs=1e-4)
    assert [greedy for _, greedy in by_tree] == [greedy for _, greedy in alone]


@pytest.mark.parametrize("name", tiers(TREES))
def test_blocks_change_nothing(name: str) -> None:
    """Questions behind a header that does not fit with them, each a block of its own, and all in one."""
    model = make_model(name)
    requests = [request for n in range(3) for request in chunk(model, "rivers", range(n, n + 2))]
    found = []
    for block_tokens in (1, 10_000):
        model.engine._tree.clear()
        model.engine._budget = dataclasses.replace(model.engine._budget, max_tokens=50, block_tokens=block_tokens)
        found.append(loglikelihoods(model.loglikelihood(requests)))
    assert found[0] == pytest.approx(found[1], abs=1e-4)
    assert found[0] == pytest.approx(loglikelihoods(make_model(name, engine="plain").loglikelihood(requests)), abs=1e-4)


def test_blocks_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention is asked for single blocks, and not for the whole row; a view as mask is an error on some cards."""
    from transformers.integrations.sdpa_attention import sdpa_attention_forward

    widths = []

    def watching(module: Any, query: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        widths.append(query.shape[2])
        mask = args[2]
        assert (mask.is_contiguous(), mask.data_ptr() % 16) == (True, 0)
        return sdpa_attention_forward(module, query, *args, **kwargs)

    monkeypatch.setattr("pytest_llmeval.models.huggingface.loglikelihood_tree.sdpa_attention_forward", watching)
    model = make_model("llama")
    model.engine._budget = dataclasses.replace(model.engine._budget, max_tokens=64, block_tokens=1)
    model.loglikelihood(chunk(model, "rivers", range(10)))
    assert sum(width < 12 for width in widths) >= 10


def test_kernels_that_were_switched_off_stay_off() -> None:
    cuda: Any = torch.backends.cuda
    cuda.enable_flash_sdp(False)
    try:
        with _without_cudnn():
            assert (cuda.flash_sdp_enabled(), cuda.cudnn_sdp_enabled(), cuda.math_sdp_enabled()) == (False, False, True)
        assert not cuda.flash_sdp_enabled()
    finally:
        cuda.enable_flash_sdp(True)


# What is kept between calls


def count_tokens(model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Tokens of each forward pass from now on."""
    counts: list[int] = []
    forward = model.model.forward

    def counting(**inputs: Any) -> Any:
        counts.append(inputs["input_ids"].numel())
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", counting)
    return counts


def chunk(model: HuggingFaceModel, subject: str, numbers: Sequence[int]) -> list[LoglikelihoodRequest]:
    """Questions behind a header of a subject, which is too long to be packed with them."""
    header = f"Questions about {subject}. " * 8
    return [LoglikelihoodRequest(f"{header}Question {n}:", choice) for n in numbers for choice in (" A", " B")]


def test_headers_are_computed_once_for_all_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    model.engine._budget = dataclasses.replace(model.engine._budget, max_tokens=64)
    expected = [
        loglikelihoods(make_model("gpt2", engine="plain").loglikelihood(chunk(model, subject, range(4))))
        for subject in ("rivers", "towns")
    ]
    counts = count_tokens(model, monkeypatch)
    found = [loglikelihoods(model.loglikelihood(chunk(model, subject, range(4)))) for subject in ("rivers", "towns")]
    first = sum(counts)
    assert found == [pytest.approx(one, abs=1e-4) for one in expected]
    counts.clear()
    again = [loglikelihoods(model.loglikelihood(chunk(model, subject, range(4)))) for subject in ("rivers", "towns")]
    assert again == [pytest.approx(one, abs=1e-4) for one in expected]
    assert sum(counts) < first / 3


def test_what_is_kept_stays_within_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    model.engine._budget = dataclasses.replace(model.engine._budget, max_tokens=64)
    paths = model.engine._tree._paths
    paths._max_bytes = 150_000  # about two headers
    plain = make_model("gpt2", engine="plain")
    for subject in ("rivers", "towns", "lakes", "hills", "rivers", "lakes"):
        requests = chunk(model, subject, range(4))
        assert loglikelihoods(model.loglikelihood(requests)) == pytest.approx(
            loglikelihoods(plain.loglikelihood(requests)), abs=1e-4
        )
        held = sum(
            tensor.untyped_storage().nbytes()
            for cache in paths._left.values()
            for layer in cache.layers
            for tensor in (layer.keys, layer.values)
        )
        assert held <= 150_000


# When something goes wrong


def test_out_of_memory_makes_smaller_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    expected = loglikelihoods(model.loglikelihood(REQUESTS))
    model.engine._tree.clear()
    forward = model.model.forward
    refused = []

    def small(**inputs: Any) -> Any:
        if inputs["input_ids"].numel() > 40:
            refused.append(inputs["input_ids"].numel())
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", small)
    assert loglikelihoods(model.loglikelihood(REQUESTS)) == pytest.approx(expected, abs=1e-4)
    assert refused
    refused.clear()
    model.loglikelihood(REQUESTS)
    assert not refused, "what has once been too much is not tried again"


def test_a_request_that_never_fits_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    forward = model.model.forward

    def short(**inputs: Any) -> Any:
        if int(inputs["position_ids"].max()) > 60:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", short)
    requests = [
        LoglikelihoodRequest("A", " B"),
        LoglikelihoodRequest("A" + " b" * 90, " B"),
        LoglikelihoodRequest("A b c", " B C"),
    ]
    fits, long, also_fits = model.loglikelihood(requests)
    assert isinstance(long, RequestError)
    assert "too little memory" in str(long)
    assert isinstance(fits, LoglikelihoodResponse)
    assert isinstance(also_fits, LoglikelihoodResponse)


def test_one_request_that_never_fits_does_not_slow_the_others_down(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    before = model.engine._budget
    forward = model.model.forward

    def short(**inputs: Any) -> Any:
        if int(inputs["position_ids"].max()) > 60:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return forward(**inputs)

    monkeypatch.setattr(model.model, "forward", short)
    assert isinstance(model.loglikelihood([LoglikelihoodRequest("A" + " b" * 90, " B")])[0], RequestError)
    assert model.engine._budget == before


def test_a_defect_leaves_no_broken_cache_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    requests = chunk(model, "rivers", range(4))
    expected = loglikelihoods(model.loglikelihood(requests))
    with monkeypatch.context() as patch:
        patch.setattr(model.model.lm_head, "forward", lambda hidden: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.loglikelihood(requests)
    assert loglikelihoods(model.loglikelihood(requests)) == pytest.approx(expected, abs=1e-4)


def test_progress_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")
    model.engine._budget = dataclasses.replace(model.engine._budget, max_tokens=32)
    told: list[tuple[int, int]] = []
    model.on_progress = lambda done, total: told.append((done, total))
    model.loglikelihood([*REQUESTS, LoglikelihoodRequest("a", "")])
    assert told == sorted(told)
    assert told[-1] == (len(REQUESTS) + 1, len(REQUESTS) + 1)
    assert len(told) > 3


# The audit


def test_audit_of_a_model_that_is_right() -> None:
    model = make_model("gpt2")
    asked, use = model.audit([*REQUESTS, LoglikelihoodRequest("a", "")])
    assert asked is model
    assert (use.engine, use.num_audited) == ("tree", len(REQUESTS))
    assert use.largest_difference is not None
    assert use.largest_difference < 1e-4


def test_audit_of_a_plain_model() -> None:
    model = make_model("bloom")
    asked, use = model.audit(REQUESTS)
    assert asked is model
    assert (use.engine, use.num_audited) == ("plain", 0)
    assert "ALiBi" in use.reason


def test_audit_finds_what_only_long_texts_show() -> None:
    """A window of 200 tokens that the engine does not know of: short texts agree, and the suite's longest does not."""
    model = make_model("mistral_window_200")
    tree = model.engine._tree
    tree._attention = dataclasses.replace(tree._attention, window=None)
    asked, use = model.audit(REQUESTS[:4])
    assert (asked is model, use.engine) == (True, "tree")
    long = [LoglikelihoodRequest("So it goes on. " * 18, choice) for choice in (" and on", " A")]
    asked, use = model.audit([*REQUESTS[:4], *long])
    assert use.engine == "plain"
    assert "audit" in use.reason
    assert len(model.tokenizer.encode(long[0].context)) > 210
    reference = make_model("mistral_window_200", engine="plain")
    assert loglikelihoods(asked.loglikelihood(long)) == pytest.approx(
        loglikelihoods(reference.loglikelihood(long)), abs=1e-4
    )
    assert asked.identity.name == model.identity.name


def test_half_precision_is_allowed_its_own_noise() -> None:
    model = make_model("llama")
    model.model.to(torch.bfloat16)
    asked, use = model.audit(REQUESTS)
    assert asked is model
    assert use.largest_difference is not None
    assert use.tolerance is not None
    assert 0 < use.largest_difference <= use.tolerance


def test_engine_of_a_model_with_foreign_attention() -> None:
    model = make_model("gpt2")
    model.model.config._attn_implementation = "flash_attention_2"
    engine = Engine(Runner(model.model, model.tokenizer, None))
    assert engine.name == "plain"
    assert "flash_attention_2" in engine.reason


def test_a_number_on_one_path_alone_is_no_agreement(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("gpt2")

    def too_large(*args: Any, **kwargs: Any) -> Any:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("pytest_llmeval.models.huggingface.loglikelihood.score_rows", too_large)
    asked, use = model.audit(REQUESTS)
    assert asked is not model
    assert use.engine == "plain"


# The vocabulary projection in pieces


@pytest.mark.parametrize(
    "name", tiers(["gpt2", "gemma2_window_8", "granite", "bloom", "mamba", "opt", "recurrent_gemma"])
)
def test_projecting_in_pieces_changes_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the model caps or scales its logits."""
    model = make_model(name, engine="plain")
    expected = loglikelihoods(model.loglikelihood(REQUESTS))
    sizes = []
    head = model.model.get_output_embeddings()
    head.register_forward_hook(lambda module, arguments, output: sizes.append(output.shape[0] * output.shape[1]))
    for max_scored in (1, 3, 40):
        model.engine._budget = dataclasses.replace(model.engine._budget, max_scored=max_scored)
        sizes.clear()
        assert loglikelihoods(model.loglikelihood(REQUESTS)) == pytest.approx(expected, abs=1e-5)
        assert max(sizes) <= max(max_scored, len(REQUESTS))


# Rotary angles that follow the longest position of a call


@pytest.mark.parametrize("name", ["llama_dynamic", "phi3_longrope"])
def test_neighbours_beyond_the_switch_change_nothing(name: str) -> None:
    """Short and long texts in one call get what each gets alone; those beyond the switch are scored plain."""
    model = make_model(name)
    assert model.engine.attention.max_positions == 60
    long = [LoglikelihoodRequest("So it goes on. " * n, choice) for n in (8, 9, 11) for choice in (" and on", " A")]
    requests = [*REQUESTS, *long]
    together = loglikelihoods(model.loglikelihood(requests))
    alone = [loglikelihoods(make_model(name, engine="plain").loglikelihood([one]))[0] for one in requests]
    assert together == pytest.approx(alone, abs=1e-4)
    assert max(len(model.tokenizer.encode(request.context)) for request in long) > 70
