"""Which class runs a checkpoint."""

from __future__ import annotations

from pytest_llmeval.models.huggingface.encoder_decoder import HuggingFaceEncoderDecoderModel
from pytest_llmeval.models.huggingface.loading import load_checkpoint
from pytest_llmeval.models.huggingface.model import HuggingFaceModel
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec

__all__ = ["load_backend"]


def load_backend(spec: ModelSpec, settings: ModelSettings) -> HuggingFaceModel:
    """Load weights and tokenizer. Raises ``ModelError`` or ``OptionError``, each in one line."""
    loaded = load_checkpoint(spec, settings)
    if loaded.model.config.is_encoder_decoder:
        return HuggingFaceEncoderDecoderModel(spec, settings, loaded)
    model = HuggingFaceModel(spec, settings, loaded)
    model.check_engine()
    return model
