"""Checks that the tree is right for a model: its scores are compared with plain ones before they are used.

The result of a check is remembered, with everything that decides what the tree and the plain path compute
(``self_check_key``).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import math
import operator
import os
import platform
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from transformers import masking_utils
from transformers.integrations import sdpa_attention

from pytest_llmeval.data.code_version import installed_version
from pytest_llmeval.errors import RequestError
from pytest_llmeval.models import encoding
from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.huggingface.forward import Outcome
from pytest_llmeval.models.huggingface.loglikelihood import Engine
from pytest_llmeval.models.settings import ModelSettings

__all__ = ["SelfCheckComparison", "compare", "self_check", "self_check_key"]


_TOLERANCE = 1e-4
"""The bound in float32: the largest difference found among 40 architectures is below 1e-5."""
_LONGEST_MATH = 2048
"""The most tokens of a text whose attention is computed as one matrix, which takes memory of their square."""
_LONGEST_CHECK = 256
"""The most tokens of a check: a window or a switch beyond them is left to the audit, whose texts are a suite's own."""


@dataclass(frozen=True, slots=True)
class SelfCheckComparison:
    """The largest difference (nats) between the tree and the plain path, over ``num_requests`` that were compared.

    ``tolerance`` is that of the request with the largest difference; ``is_close``: each keeps to its own.
    """

    largest_difference: float
    tolerance: float
    num_requests: int
    is_close: bool


def compare(
    engine: Engine,
    pairs: Mapping[int, EncodedPair],
    dtype: torch.dtype,
    plain: Mapping[int, Outcome | RequestError] | None = None,
) -> SelfCheckComparison:
    """Score ``pairs`` by the tree and, unless that is known, plain.

    In float32 the two may differ by 1e-4, by a hundred-thousandth of a long text's loglikelihood if that is more. In
    coarser dtypes they may differ by one rounding of every logprob, or three times as much as plain scoring differs
    from itself (``_noise``): a request as much as the noisiest, and their mean as much as the mean. A request that has
    a number on one path alone is as far off as can be; one that has none on either is not compared.
    """
    by_tree = engine.score(pairs)
    plain = engine.score(pairs, plain=True) if plain is None else plain
    rounding, noise = 1e-5, [0.0]
    if dtype != torch.float32:
        alone = engine.score(pairs, plain=True, alone=True)
        rounding = max(rounding, float(torch.finfo(dtype).eps))
        noise = _noise(engine, pairs, plain, alone)
        plain = alone
    found = [
        (_difference(by_tree[key], plain[key]), max(_TOLERANCE, rounding * _size(plain[key])))
        for key in pairs
        if not (isinstance(by_tree[key], RequestError) and isinstance(plain[key], RequestError))
    ]
    most, mean = 3 * max(noise), 3 * sum(noise) / len(noise)
    is_close = all(one <= max(most, allowed) for one, allowed in found)
    is_close = is_close and sum(one for one, _ in found) <= sum(max(mean, allowed) for _, allowed in found)
    largest, allowed = max(found, default=(0.0, _TOLERANCE))
    return SelfCheckComparison(largest, max(most, allowed), len(found), is_close)


def _noise(
    engine: Engine,
    pairs: Mapping[int, EncodedPair],
    plain: Mapping[int, Outcome | RequestError],
    alone: Mapping[int, Outcome | RequestError],
) -> list[float]:
    """Return, for each pair, how much the score of its row by itself (``alone``) differs from that in a padded batch
    (``plain``), or by other code for attention, if that is more.

    On some devices padding makes no difference by itself. A score that is no number says nothing of the rounding.
    """
    short = {key: pair for key, pair in pairs.items() if len(pair.context) + len(pair.continuation) <= _LONGEST_MATH}
    with sdpa_kernel(SDPBackend.MATH):
        by_math = engine.score(short, plain=True, alone=True)
    noise = []
    for key, own in alone.items():
        gaps = [_difference(other[key], own) for other in (plain, by_math) if key in other]
        noise.append(max(filter(math.isfinite, gaps), default=0.0))
    return noise or [0.0]


def _size(outcome: Outcome | RequestError) -> float:
    if isinstance(outcome, RequestError) or not math.isfinite(outcome.loglikelihood):
        return 0.0
    return abs(outcome.loglikelihood)


def _difference(one: Outcome | RequestError, other: Outcome | RequestError) -> float:
    if isinstance(one, RequestError) or isinstance(other, RequestError):
        return 0.0 if isinstance(one, RequestError) and isinstance(other, RequestError) else math.inf
    a, b = one.loglikelihood, other.loglikelihood
    if a == b or (math.isnan(a) and math.isnan(b)):
        return 0.0
    difference = abs(a - b)
    return math.inf if math.isnan(difference) else difference


def self_check(engine: Engine, model: Any, *, max_length: int | None) -> str | None:
    """Return why the tree cannot be used for this model; None if a small tree of random tokens is right.

    The tree reaches beyond a window or a chunk that is short enough; a longer one is the audit's.
    """
    vocabulary = getattr(model.config.get_text_config(), "vocab_size", None) or 2
    window = engine.attention.window
    depth = 24 if window is None or 2 * window.size + 8 > _LONGEST_CHECK else max(24, 2 * window.size + 8)
    depth = min(depth, max_length or depth, engine.attention.max_positions or depth)
    if depth < 8:
        return None
    pairs = _random_pairs(vocabulary, depth)
    try:
        plain = engine.score(pairs, plain=True)
        found = compare(engine, pairs, model.dtype, plain)
        if found.is_close and found.num_requests == len(pairs):
            # once more as in a large call, where a header is cached and attention comes in blocks
            with engine.in_small_steps(max(8, depth // 2 - 2)):
                found = compare(engine, pairs, model.dtype, plain)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError, KeyError, NotImplementedError) as error:
        return f"the tree cannot be run on it ({type(error).__name__})"
    if found.is_close and found.num_requests < len(pairs):
        return "in a check at loading, the device had too little memory for a small tree"
    if not found.is_close:
        return f"in a check at loading, the tree differed by {found.largest_difference:.1e}"
    return None


def _random_pairs(vocabulary: int, depth: int) -> dict[int, EncodedPair]:
    """Return a header, three questions, two choices each, of random tokens; the deepest reaches ``depth``."""
    draw = random.Random(0)

    def tokens(count: int) -> tuple[int, ...]:
        return tuple(draw.randrange(vocabulary) for _ in range(count))

    header = tokens(depth // 2)
    pairs: list[EncodedPair] = []
    for question_length in (1, depth // 8, depth - depth // 2 - 4):
        question = tokens(max(1, question_length))
        choices: Sequence[tuple[int, ...]] = [tokens(1), tokens(4)]
        pairs += [EncodedPair(header + question, choice) for choice in choices]
    return dict(enumerate(pairs))


_LIBRARIES = (
    "accelerate",
    "autoawq",
    "bitsandbytes",
    "compressed-tensors",
    "fbgemm-gpu-genai",
    "gptqmodel",
    "hqq",
    "kernels",
    "optimum",
    "peft",
    "pytest-llmeval-suites",
    "torchao",
    "transformers",
    "triton",
)
"""Distributions that, beside torch, decide which code computes a model, if they are installed."""
_VARIABLES = (
    "DNNL_DEFAULT_FPMATH_MODE",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_DEFAULT_FPMATH_MODE",
    "ONEDNN_MAX_CPU_ISA",
)
"""Variables of the environment by which a library below torch rounds otherwise."""
_PRECISIONS = (
    *("fp32_precision", "cuda.matmul.fp32_precision"),
    *("cudnn.fp32_precision", "cudnn.conv.fp32_precision", "cudnn.rnn.fp32_precision"),
    *("mkldnn.fp32_precision", "mkldnn.matmul.fp32_precision", "mkldnn.conv.fp32_precision"),
    "mkldnn.rnn.fp32_precision",
)
"""Settings of ``torch.backends``, since torch 2.9: once one of them is set, the older getters may raise
``RuntimeError``.
"""
_REDUCTIONS = (
    "allow_fp16_reduced_precision_reduction",
    "allow_bf16_reduced_precision_reduction",
    "allow_fp16_accumulation",
)
"""Settings of ``torch.backends.cuda.matmul``."""


def self_check_key(model: Any, fingerprint: str | None, max_length: int | None, settings: ModelSettings) -> str | None:
    """Return a hash (hex) of the conditions; None if they cannot be known, and each process checks for itself.

    ``fingerprint`` is of the weights and of what changes responses (dtype, attention, quantisation). The number of the
    device does not count, its name does.
    """
    if fingerprint is None or settings.trust_remote_code:
        return None
    try:
        conditions = {
            "fingerprint": fingerprint,
            "versions": {"torch": str(torch.__version__)} | {name: installed_version(name) for name in _LIBRARIES},
            "code": _own_code(),
            "device": [model.device.type, _device_name(model.device), platform.platform()],
            "dtype": str(model.dtype),
            "attention": getattr(model.config, "_attn_implementation", None),
            "class": [type(model).__module__, type(model).__name__, _sources(type(model))],
            "max_length": max_length,
            "batch_size": settings.batch_size,
            "precision": _precision(),
            "attention_kernels": {name: _is_enabled(name) for name in ("flash", "mem_efficient", "math", "cudnn")},
            "environment": {name: os.environ.get(name) for name in _VARIABLES},
        }
        return hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()
    except Exception:  # a getter of torch or of a device raises what it likes; checking once more costs little
        return None


def _precision() -> dict[str, Any]:
    """Return all that torch lets a user set, and that changes how the same kernels round."""
    found: dict[str, Any] = {name: _setting(name) for name in _PRECISIONS}
    if found["cuda.matmul.fp32_precision"] is None:
        found |= {"matmul": torch.get_float32_matmul_precision(), "cudnn": torch.backends.cudnn.allow_tf32}
    found |= {name: _setting(f"cuda.matmul.{name}") for name in _REDUCTIONS}
    return found | {
        "cudnn_version": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "mkldnn_enabled": torch.backends.mkldnn.enabled,
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def _setting(name: str) -> str | bool | None:
    """Return a setting of ``torch.backends``; None if this torch does not have it."""
    try:
        found: str | bool = operator.attrgetter(name)(torch.backends)
    except AttributeError:
        return None
    return found


def _is_enabled(kernel: str) -> bool | None:
    """Return whether torch may use this attention kernel; None if this torch does not know it."""
    enabled = getattr(torch.backends.cuda, f"{kernel}_sdp_enabled", None)
    return None if enabled is None else bool(enabled())


def _device_name(device: torch.device) -> str:
    """Return what the device calls itself, where its part of torch says so; else the processor."""
    name = getattr(getattr(torch, device.type, None), "get_device_name", None)
    return _processor() if name is None else str(name(device))


def _processor() -> str:
    """Return the kind of processor, with the instructions that torch's kernels are chosen by."""
    return f"{platform.system()} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}"


def _sources(model_class: type) -> list[str | None]:
    """Return hashes of the files that define the class, its masks and its attention: transformers may be edited in
    place, and keeps its version.
    """
    return [_source(of) for of in (model_class, masking_utils, sdpa_attention)]


def _source(of: type | ModuleType) -> str | None:
    path = inspect.getsourcefile(of)
    return None if path is None else hashlib.sha256(Path(path).read_bytes()).hexdigest()


@functools.cache
def _own_code() -> str:
    """Return a hash of all modules of ``models/huggingface``, and of ``models/encoding.py``.

    They decide what both paths compute and how they are compared, and an installation in development changes and keeps
    its version.
    """
    digest = hashlib.sha256(Path(encoding.__file__).read_bytes())
    root = Path(__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(f"\n{path.relative_to(root).as_posix()}\n".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()
