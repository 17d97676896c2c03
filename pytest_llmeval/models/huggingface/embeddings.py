"""Sentence-embedding models that sentence-transformers runs in this process: ``--llm-embedder ID_OR_FOLDER``."""

from __future__ import annotations

import functools
import importlib.metadata
import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import huggingface_hub
import sentence_transformers
import torch

from pytest_llmeval.errors import ContextLengthError, LLMEvalError, RequestError
from pytest_llmeval.models.base import Backend, Failed
from pytest_llmeval.models.encoding import check_encodable
from pytest_llmeval.models.findings import fingerprint_files
from pytest_llmeval.models.huggingface.checkpoint import UNUSED, check_embedder, deciding_files
from pytest_llmeval.models.huggingface.device import Threads, is_out_of_memory, resolve_device, resolve_dtype
from pytest_llmeval.models.huggingface.loading import explain, quiet
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec
from pytest_llmeval.types import IS_KNOWN, JSON, EmbeddingRequest, EmbeddingResponse, ModelIdentity

__all__ = ["SentenceEmbedder", "load_embedder"]

_LOG = logging.getLogger("pytest_llmeval")
_BATCH_SIZE = 32
_LONGEST = 1_000_000
"""The most tokens that count as a limit. Tokenizers that know none say a larger number."""


def load_embedder(spec: ModelSpec, settings: ModelSettings, hub_id: str | None) -> SentenceEmbedder:
    """Load what ``spec`` names: the hub's ``hub_id``, or a folder where that is None. Raises ``ModelError``.

    The snapshot of the hub is loaded as a folder: all of its files are those of one commit.
    """
    device = resolve_device(settings.device)
    pickle, code = settings.allow_pickle, settings.trust_remote_code
    try:
        with quiet():
            folder = Path(spec.location)
            if hub_id is not None:
                unused = [*UNUSED, *(() if pickle else ("*.bin",))]
                folder = Path(huggingface_hub.snapshot_download(hub_id, ignore_patterns=unused))
            check_embedder(spec.name, folder, allow_pickle=pickle, trust_remote_code=code)
            model = sentence_transformers.SentenceTransformer(
                str(folder),
                device=device,
                trust_remote_code=code,
                local_files_only=True,
                model_kwargs={"dtype": resolve_dtype(None, device), "use_safetensors": None if pickle else True},
            )
    except LLMEvalError:
        raise
    except Exception as error:  # transformers, the hub, safetensors, torch: each has its own
        _LOG.debug("loading %s failed", spec.name, exc_info=error)
        raise explain(error, spec, settings) from error
    return SentenceEmbedder(spec, settings, model.eval(), folder, is_of_hub=hub_id is not None)


class SentenceEmbedder(Backend):
    """A model of sentence-transformers. A text that is longer than it reads is refused, and not cut."""

    def __init__(
        self, spec: ModelSpec, settings: ModelSettings, model: Any, folder: Path, *, is_of_hub: bool = False
    ) -> None:
        self._spec = spec
        self._batch_size = settings.batch_size or _BATCH_SIZE
        self._model = model
        self._folder = folder
        self._is_of_hub = is_of_hub
        self._threads: Threads | None = None
        if settings.device == "cpu" and settings.num_workers is not None:
            self._threads = Threads(settings.num_workers)

    @property
    def max_length(self) -> int | None:
        """Return how many tokens it reads of a text; None if it knows no limit."""
        length = self._model.max_seq_length
        return length if isinstance(length, int) and length <= _LONGEST else None

    @functools.cached_property
    def identity(self) -> ModelIdentity:  # type: ignore[override]
        """Return what the report says of this model; its first use reads the model's files to hash them."""
        dtype = next((str(one.dtype).removeprefix("torch.") for one in self._model.parameters()), None)
        files = deciding_files(self._spec.name, self._folder)
        has_weights = any(path.suffix in (".safetensors", ".bin") for _, path in files)
        settings: dict[str, JSON] = {"backend": "sentence-transformers", "dtype": dtype, "max_length": self.max_length}
        return ModelIdentity(
            name=self._spec.name,
            backend="sentence-transformers",
            revision=self._folder.name if self._is_of_hub else None,
            dtype=dtype,
            device=str(self._model.device),
            fingerprint=fingerprint_files(files, settings) if has_weights else None,
            details={
                **({IS_KNOWN: True} if has_weights else {}),
                "num_parameters": sum(one.numel() for one in self._model.parameters()),
                "max_length": self.max_length,
                "sentence_transformers": importlib.metadata.version("sentence-transformers"),
                "transformers": importlib.metadata.version("transformers"),
                "torch": str(torch.__version__),
            },
        )

    def run_embed(self, requests: Sequence[EmbeddingRequest]) -> list[EmbeddingResponse | Failed]:
        """Embed each text once; a text that cannot be has a ``RequestError`` in its place."""
        if self._threads is not None:
            self._threads.adapt()
        started = time.perf_counter()
        texts = list(dict.fromkeys(request.text for request in requests))
        with quiet():
            counts = {text: self._count(text) for text in texts}
            sound = [text for text in texts if not isinstance(counts[text], RequestError)]
            vectors = dict(zip(sound, self._encode(sound, self._batch_size), strict=True))
        seconds = (time.perf_counter() - started) / max(1, len(requests))
        answers: list[EmbeddingResponse | Failed] = []
        for request in requests:
            count, vector = counts[request.text], vectors.get(request.text, ())
            if isinstance(count, RequestError):
                answers.append(count)
            elif not all(map(math.isfinite, vector)):
                answers.append(RequestError("the embedder gave numbers that are not finite"))
            else:
                answers.append(
                    EmbeddingResponse(
                        vector=tuple(vector), num_prompt_tokens=count, seconds=seconds, is_timed=len(requests) == 1
                    )
                )
        return answers

    def _count(self, text: str) -> int | RequestError:
        """Return how many tokens the text has, with the prompt that the model puts before each; 0 if its tokenizer
        does not say.
        """
        try:
            check_encodable(text)
        except RequestError as error:
            return error
        tokenizer = getattr(self._model, "tokenizer", None)
        if not callable(tokenizer):
            return 0
        prompt = self._model.prompts.get(self._model.default_prompt_name) or ""
        num_tokens = len(tokenizer(prompt + text, truncation=False)["input_ids"])
        if self.max_length is not None and num_tokens > self.max_length:
            return ContextLengthError(num_tokens=num_tokens, max_tokens=self.max_length)
        return num_tokens

    def _encode(self, texts: Sequence[str], batch_size: int) -> list[list[float]]:
        if not texts:
            return []
        try:
            found = self._model.encode(list(texts), batch_size=batch_size, show_progress_bar=False)
        except Exception as error:
            if batch_size == 1 or not is_out_of_memory(error):
                raise
        else:
            vectors: list[list[float]] = found.tolist()
            return vectors
        return self._encode(texts, batch_size // 2)  # not where the error is handled: it holds what took the memory
