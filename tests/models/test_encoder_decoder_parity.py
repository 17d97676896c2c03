"""Encoder-decoder models against lm-eval 0.4.13's ``HFLM`` with its backend ``seq2seq``, and many architectures."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.huggingface.kind import Folder
from pytest_llmeval.models.huggingface.loading import LoadedCheckpoint, quiet
from pytest_llmeval.models.huggingface.model import HuggingFaceEncoderDecoderModel, HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.types import (
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    Message,
)
from tests.models.support import load
from tests.tiny_models import CHAT_TEMPLATE, make_checkpoint, make_tokenizer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # lm-eval's own and its libraries'
]
needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None, reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'"
)

CONTEXTS = [
    "The capital of France is",
    "The capital of France is ",
    "Question: is that so?\nAnswer:\n\n",
    "A\u00a0",
    "<s>Begins with BOS:",
    "</s>Begins with EOS:",
    "",
    " \n",
    "def add(a, b):\n    ",
    "é\u4e16\U0001f600 " * 5,
]
CONTINUATIONS = [
    " Paris",
    "Paris",
    " the quick brown fox jumps over the lazy dog.",
    "\n",
    "é",
    "</s>",
    " A",
    " B",
    " C",
]


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One class with relative positions and one with learned positions, each with its kind of tokenizer."""
    return make_checkpoint(tmp_path_factory.mktemp(request.param), request.param, chat_template=CHAT_TEMPLATE, seed=5)


@pytest.fixture(scope="module")
def ours(folder: Path) -> HuggingFaceModel:
    """Our model."""
    return load(folder)


def lm_eval_model(folder: Path, **settings: Any) -> Any:
    """lm-eval's."""
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=str(folder), device="cpu", dtype="float32", **settings)
    assert model.backend == "seq2seq"
    return model


def instance(kind: str, *arguments: Any) -> Any:
    """A request of lm-eval's."""
    from lm_eval.api.instance import Instance

    return Instance(request_type=kind, doc={}, arguments=arguments, idx=0)


@needs_lm_eval
@pytest.mark.parametrize("add_bos", [None, True, False])
def test_loglikelihoods(folder: Path, add_bos: bool | None) -> None:
    theirs = lm_eval_model(folder, batch_size=3, add_bos_token=add_bos)
    ours = load(folder, model_args={} if add_bos is None else {"add_bos": add_bos})
    assert ours.max_length == theirs.max_length
    # Without special tokens white space is an empty input of the encoder, which stops lm-eval; ours is BOS or EOS.
    contexts = [context for context in CONTEXTS if add_bos is not False or context != " \n"]
    pairs = [(context, continuation) for context in contexts for continuation in CONTINUATIONS]
    responses = ours.loglikelihood([LoglikelihoodRequest(*pair) for pair in pairs])
    # What has no token of its own stops lm-eval.
    refused = {pair for pair, response in zip(pairs, responses, strict=True) if isinstance(response, RequestError)}
    assert {continuation.strip() for _, continuation in refused} <= {"", "</s>"}
    answered = [pair for pair in pairs if pair not in refused]
    assert len(answered) >= 70
    expected = theirs.loglikelihood([instance("loglikelihood", *pair) for pair in answered], disable_tqdm=True)
    found = dict(zip(pairs, responses, strict=True))
    for pair, (loglikelihood, is_greedy) in zip(answered, expected, strict=True):
        response = found[pair]
        assert isinstance(response, LoglikelihoodResponse), (pair, response)
        assert response.loglikelihood == pytest.approx(loglikelihood, abs=2e-5, rel=1e-6), pair
        assert response.is_greedy == is_greedy, pair


@needs_lm_eval
@pytest.mark.parametrize("stop", [(), ("o",), ("w", "Q")])
def test_greedy_texts(folder: Path, ours: HuggingFaceModel, stop: tuple[str, ...]) -> None:
    # In a batch lm-eval pads on the left, which shifts BART's positions. It also stops where the name of a
    # special token, which is in no text, has a stop string ("e" in "<extra_id_0>"): ours have no letter of such names.
    theirs = lm_eval_model(folder, batch_size=1)
    names = "".join(theirs.tokenizer.all_special_tokens)
    assert not any(letter in names for text in stop for letter in text)
    settings = {"until": list(stop), "max_gen_toks": 16, "do_sample": False}
    expected = theirs.generate_until([instance("generate_until", c, settings) for c in CONTEXTS], disable_tqdm=True)
    # It gives the decoder as many tokens more as the prompt has, and counts the one that starts the text.
    requests = [GenerateRequest(c, max_tokens=len(ours._encoder.prompt(c)) + 15, stop=stop) for c in CONTEXTS]
    for context, response, text in zip(CONTEXTS, ours.generate(requests), expected, strict=True):
        assert isinstance(response, GenerateResponse), (context, response)
        assert response.text == text, context
    assert len(set(expected)) > 3


@needs_lm_eval
def test_chats(folder: Path, ours: HuggingFaceModel) -> None:
    theirs = lm_eval_model(folder, batch_size=1)
    text = theirs.apply_chat_template([{"role": "user", "content": "Is that so?"}])
    ((loglikelihood, _),) = theirs.loglikelihood([instance("loglikelihood", text, " yes")], disable_tqdm=True)
    (response,) = ours.loglikelihood([LoglikelihoodRequest((Message(role="user", content="Is that so?"),), " yes")])
    assert isinstance(response, LoglikelihoodResponse)
    assert response.loglikelihood == pytest.approx(loglikelihood, abs=2e-5)


_STACKS = {f"{side}_{k}": n for side in ("encoder", "decoder") for k, n in (("layers", 2), ("ffn_dim", 64))}
_HEADS = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
_BART = {"d_model": 32, "max_position_embeddings": 256, "decoder_start_token_id": 1, **_STACKS, **_HEADS}
_T5 = {"d_model": 32, "d_ff": 64, "d_kv": 8, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 2}
_GEMMA = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "sliding_window": 4,
    "layer_types": ["sliding_attention", "full_attention"],
    "vocab_size": 384,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 2,
}
_CONFIGS: dict[str, dict[str, Any]] = {
    "t5": _T5,
    "mt5": _T5,
    "umt5": _T5,
    "longt5": {**_T5, "local_radius": 4, "encoder_attention_type": "local"},
    "longt5 global": {**_T5, "local_radius": 4, "global_block_size": 4, "encoder_attention_type": "transient-global"},
    "switch_transformers": {
        **_T5,
        "num_decoder_layers": 2,
        "num_sparse_encoder_layers": 1,
        "num_sparse_decoder_layers": 1,
        "num_experts": 4,
    },
    "bart": _BART,
    "mbart": _BART,
    "plbart": _BART,
    "mvp": _BART,
    "pegasus": _BART,
    "pegasus_x": {**_BART, "block_size": 4, "num_global_tokens": 2},
    "marian": {**_BART, "decoder_vocab_size": 384},
    "blenderbot": _BART,
    "blenderbot-small": _BART,
    "m2m_100": _BART,
    "led": {
        **_BART,
        "max_encoder_position_embeddings": 256,
        "max_decoder_position_embeddings": 256,
        "attention_window": 4,
    },
    "nllb-moe": {**_BART, "num_experts": 4, "encoder_sparse_step": 2, "decoder_sparse_step": 2},
    "bigbird_pegasus": {**_BART, "attention_type": "original_full"},
    "fsmt": {**_BART, "src_vocab_size": 384, "tgt_vocab_size": 384, "langs": ["a", "b"]},
    "prophetnet": {
        "hidden_size": 32,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "num_encoder_layers": 2,
        "num_decoder_layers": 2,
        "num_encoder_attention_heads": 4,
        "num_decoder_attention_heads": 4,
        "max_position_embeddings": 256,
        "decoder_start_token_id": 1,
    },
    "t5gemma": {"encoder": _GEMMA, "decoder": {**_GEMMA, "cross_attention_hidden_size": 32}},
}
_SHIFT_OTHERWISE = ("mbart", "plbart", "fsmt")
"""lm-eval leaves it to the class what the decoder is fed first, and these begin with the continuation's last token (or,
in a batch, with padding), which gives the answer away. Ours begins with ``decoder_start_token_id``, as ``generate``."""


@pytest.fixture(params=sorted(_CONFIGS))
def architecture(request: pytest.FixtureRequest) -> tuple[str, HuggingFaceModel]:
    """A model of the architecture, with wide random weights."""
    import transformers

    name = request.param
    tokenizer = make_tokenizer(adds_bos=True, adds_eos=True)
    ids = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
    settings = {"vocab_size": len(tokenizer), **ids, "forced_eos_token_id": None, **_CONFIGS[name]}
    config: Any = transformers.AutoConfig.for_model(name.split()[0], **settings)
    auto: Any = transformers.AutoModelForSeq2SeqLM
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = auto.from_config(config).eval()
        for parameter in module.parameters():
            if parameter.dim() > 1:
                parameter.data.normal_(0, 0.25)
    loaded = LoadedCheckpoint(
        model=module, tokenizer=tokenizer, folder=Path(), tokenizer_folder=Path(), adapter_folder=None, revision=None
    )
    spec = ModelSpec(name=name, kind=Folder(), location=".")
    return name, HuggingFaceEncoderDecoderModel(spec, ModelSettings(device="cpu"), loaded)


@needs_lm_eval
def test_architectures(architecture: tuple[str, HuggingFaceModel]) -> None:
    """Batches give what lm-eval gives one by one, whatever the class makes of masks, positions and the encoder's
    output.
    """
    name, model = architecture
    contexts = ["The capital of France is", "Q: x\nA: ", "a b c d e f g h i j k l m n o p q r s t", ""]
    pairs = [(context, continuation) for context in contexts for continuation in (" Paris", " yes, it is", " A", "B")]
    responses = model.loglikelihood([LoglikelihoodRequest(*pair) for pair in pairs])
    if name in _SHIFT_OTHERWISE:
        expected = [directly(model, *pair) for pair in pairs]
    else:
        requests = [instance("loglikelihood", *pair) for pair in pairs]
        expected = lm_eval_model_of(model).loglikelihood(requests, disable_tqdm=True)
    for pair, response, (loglikelihood, is_greedy) in zip(pairs, responses, expected, strict=True):
        assert isinstance(response, LoglikelihoodResponse), (pair, response)
        assert response.loglikelihood == pytest.approx(loglikelihood, abs=1e-4), pair
        assert response.is_greedy == is_greedy, pair


def directly(model: HuggingFaceModel, context: str, continuation: str) -> tuple[float, bool]:
    """One forward pass over one request."""
    pair = model._encoder.pair(context, continuation)
    fed = [model.model.config.decoder_start_token_id, *pair.continuation[:-1]]
    with torch.no_grad():
        logits = model.model(
            input_ids=torch.tensor([pair.context]), decoder_input_ids=torch.tensor([fed]), use_cache=False
        ).logits[0]
    logprobs = logits.double().log_softmax(-1)
    tokens = torch.tensor(pair.continuation)
    return float(logprobs.gather(1, tokens[:, None]).sum()), bool((logprobs.argmax(-1) == tokens).all())


def lm_eval_model_of(model: HuggingFaceModel) -> Any:
    """lm-eval's, around the same module."""
    from lm_eval.models.huggingface import HFLM

    theirs = HFLM(pretrained=model.model, tokenizer=model.tokenizer, batch_size=1)
    assert theirs.backend == "seq2seq"
    return theirs


def test_texts_of_architectures(architecture: tuple[str, HuggingFaceModel]) -> None:
    _, model = architecture
    prompts = ["The capital of France is", "A", "Question: is that so?\nAnswer:"]
    requests = [GenerateRequest(prompt, max_tokens=8) for prompt in prompts]
    for request, together in zip(requests, model.generate(requests), strict=True):
        (alone,) = model.generate([request])
        assert isinstance(alone, GenerateResponse), alone
        assert isinstance(together, GenerateResponse)
        assert together.text == alone.text
