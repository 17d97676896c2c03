"""Which engine will compute a model's log-likelihoods, as far as its files tell before it is loaded."""

from __future__ import annotations

import json
from pathlib import Path

from pytest_llmeval.models.huggingface.architectures import attention_of, tells_layers
from pytest_llmeval.models.huggingface.checkpoint import CONFIG
from pytest_llmeval.models.huggingface.hub_cache import cached_snapshot
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelSpec

__all__ = ["describe_engine"]


def describe_engine(spec: ModelSpec, settings: ModelSettings) -> str:
    """The engine and why, in a few words: ``tree: full attention``.

    A model that is not on this machine yet is judged when it has been loaded, as is one whose config cannot be read.
    """
    if settings.engine == "plain":
        return "plain: asked for"
    unknown = "chosen when it is loaded"
    folder = Path(spec.location) if spec.kind == "folder" else cached_snapshot(spec.location, settings.revision)
    if folder is None:
        return unknown
    subfolder = settings.model_args.get("subfolder")
    try:
        config = json.loads(
            (folder / subfolder if isinstance(subfolder, str) else folder).joinpath(CONFIG).read_bytes()
        )
    except (OSError, ValueError):
        return unknown
    if not isinstance(config, dict) or not tells_layers(config):
        return unknown
    if config.get("auto_map") and settings.trust_remote_code:
        return "plain: code that comes with the checkpoint"
    attention = attention_of(config)
    if settings.engine == "tree" and attention.kind == "other":
        return f"tree: asked for, and impossible: {attention.reason}"
    return f"{'plain' if attention.kind == 'other' else 'tree'}: {attention.reason}"
