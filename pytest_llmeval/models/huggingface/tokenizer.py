"""Loads a tokenizer without its model, for a model that runs elsewhere."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from pytest_llmeval.models.threads import waiting_briefly
from pytest_llmeval.text.redaction import describe, model_error

__all__ = ["load_tokenizer"]


def load_tokenizer(model: str, location: str) -> Any:
    """Return the tokenizer of a folder or a hub id, for the model that the user calls ``model``. Raises
    ``ModelError``.
    """
    with waiting_briefly(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # under -W error, what a library warns of at its import would end the run
        import transformers

        from pytest_llmeval.models.huggingface.loading import quiet
    folder = Path(location).expanduser()
    try:
        with quiet():
            tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder) if folder.is_dir() else location)
    except Exception as error:  # transformers, the hub: each has its own
        raise model_error(model, f"cannot load a tokenizer from {location} ({describe(error)})") from error
    # Where the files are missing, transformers makes an empty tokenizer and says nothing.
    if len(tokenizer) <= len(tokenizer.all_special_tokens):
        raise model_error(model, f"{location} has no tokenizer")
    return tokenizer
