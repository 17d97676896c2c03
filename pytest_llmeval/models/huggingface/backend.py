"""Which class runs a checkpoint."""

from __future__ import annotations

from pytest_llmeval.models.huggingface.device import Threads
from pytest_llmeval.models.huggingface.encoder_decoder import HuggingFaceEncoderDecoderModel
from pytest_llmeval.models.huggingface.loading import load_checkpoint
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec

__all__ = ["load_backend"]


def load_backend(spec: ModelSpec, settings: ModelSettings) -> HuggingFaceModel:
    """Load weights and tokenizer. Raises ``ModelError`` or ``OptionError``, each in one line."""
    threads = None if settings.num_workers is None else Threads(settings.num_workers)
    loaded = load_checkpoint(spec, settings)
    is_encoder_decoder = loaded.model.config.is_encoder_decoder
    model = (HuggingFaceEncoderDecoderModel if is_encoder_decoder else HuggingFaceModel)(spec, settings, loaded)
    if not is_encoder_decoder:
        model.check_engine()
    if settings.device == "cpu":
        model.threads = threads
    return model
