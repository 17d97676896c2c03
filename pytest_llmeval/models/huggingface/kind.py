"""Checkpoints that transformers runs: ``--llm-model demo``, a folder, or an id of the Hugging Face hub.

Nothing here imports torch before a model is loaded.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Hashable
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.encoding import NO_TOOLS
from pytest_llmeval.models.hardware import importing_torch
from pytest_llmeval.models.huggingface.checkpoint import (
    CONFIG,
    attention_of,
    check_adapter,
    check_checkpoint,
    check_embedder,
    check_library,
    has_tools,
    tells_layers,
)
from pytest_llmeval.models.settings import CHECKPOINT_ARGS, ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.text.redaction import model_error, one_line
from pytest_llmeval.text.wording import nearest

if TYPE_CHECKING:
    from pytest_llmeval.models.huggingface.model import HuggingFaceModel

__all__ = ["Demo", "Folder", "Hub", "demo_folder", "load_backend"]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(?:/[\w.-]+)?", re.ASCII)
_LONGEST_HUB_ID = 96
_CHECKPOINTS = {"demo": "demo_model", "demo-assistant": "demo_assistant"}
"""The folders of the checkpoints that ship in the package."""
_BUILT_IN = (*_CHECKPOINTS, "random", "majority")
"""The names of models that ship here."""


def demo_folder(name: str = "demo") -> Path:
    """Return the folder of a checkpoint that ships in the package."""
    return Path(__file__).resolve().parents[2] / _CHECKPOINTS[name]


class Checkpoint(ModelKind):
    """The part that the kinds of this module have in common. ``location`` is an absolute folder, or the hub's id.

    One that is asked for embeddings is a model of sentence-transformers. Settings of the evaluated model (revision,
    dtype, ``model_args``) do not apply to it.
    """

    needs_device = True
    budgeting = "free"
    takes_replicas = True
    is_identified = True
    model_args = CHECKPOINT_ARGS.keys()

    def folder_of(self, spec: ModelSpec, settings: ModelSettings) -> Path | None:
        """Return the folder of the files; None if they are not on this machine."""
        root, subfolder = self.root_of(spec, settings), settings.model_args.get("subfolder")
        if spec.embeds:
            return root
        return root / subfolder if root is not None and root.is_dir() and isinstance(subfolder, str) else root

    def root_of(self, spec: ModelSpec, settings: ModelSettings) -> Path | None:
        """Return the folder that ``--llm-model-arg subfolder`` lies in."""
        return Path(spec.location)

    def key(self, spec: ModelSpec) -> Hashable:
        location = spec.location
        return "checkpoint", os.path.realpath(location) if os.path.isabs(location) else location

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        if spec.embeds:
            check_library(spec.name)
        self.check_files(spec, settings)
        adapter = None if spec.embeds else settings.model_args.get("peft")
        if isinstance(adapter, str) and (_is_path(adapter) or not _HUB_ID.fullmatch(adapter)):
            check_adapter(spec.name, Path(adapter).expanduser(), allow_pickle=settings.allow_pickle)

    def check_files(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """Refuse files that cannot be loaded."""
        folder = self.folder_of(spec, settings)
        assert folder is not None
        if spec.embeds:
            check_embedder(
                spec.name,
                folder,
                allow_pickle=settings.allow_pickle,
                trust_remote_code=settings.trust_remote_code,
            )
            return
        check_checkpoint(
            spec.name,
            folder,
            allow_pickle=settings.allow_pickle,
            trust_remote_code=settings.trust_remote_code,
            needs_tokenizer="tokenizer" not in settings.model_args,
        )

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # under -W error, what a library warns of at its import would end the run
            if spec.embeds:
                with importing_torch():
                    from pytest_llmeval.models.huggingface.embeddings import load_embedder

                return load_embedder(spec, settings, self.hub_id(spec))
            return load_backend(spec, settings)

    def hub_id(self, spec: ModelSpec) -> str | None:
        """Return the id on the hub; None for a folder."""
        return None

    def refuses_tools(self, spec: ModelSpec, settings: ModelSettings) -> str | None:
        """See ``ModelKind``. Nothing is known of a model that is not on this machine, or of another's tokenizer."""
        folder = None if "tokenizer" in settings.model_args else self.folder_of(spec, settings)
        return NO_TOOLS if folder is not None and folder.is_dir() and not has_tools(spec.name, folder) else None

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        """Return how log-likelihoods will be computed and why: ``log-likelihoods: tree: full attention``.

        For a model that is not on this machine yet, or whose config cannot be read, that is chosen when it is loaded.
        """
        if spec.embeds:
            return "sentence embeddings"
        return f"log-likelihoods: {_engine_of(self.folder_of(spec, settings), settings)}"


class Folder(Checkpoint):
    """A checkpoint in a folder."""

    name = "folder"
    usage = "a checkpoint folder"
    is_fallback = True

    def recognizes(self, text: str) -> bool:
        return _is_path(text)

    def parse(self, text: str) -> ModelSpec:
        return ModelSpec(name=text, kind=self, location=os.path.abspath(os.path.expanduser(text)))

    def check_files(self, spec: ModelSpec, settings: ModelSettings) -> None:
        if settings.revision is not None and not spec.embeds:
            raise OptionError(
                f"--llm-revision {settings.revision}: {spec.name} is a folder; only models on the hub have revisions"
            )
        super().check_files(spec, settings)


class Demo(Folder):
    """A checkpoint that ships in the package: ``demo``, or ``demo-assistant``, which chats."""

    name = usage = "demo"
    is_fallback = False

    def recognizes(self, text: str) -> bool:
        return text in _CHECKPOINTS

    def parse(self, text: str) -> ModelSpec:
        return ModelSpec(name=text, kind=self, location=str(demo_folder(text)))


class Hub(Checkpoint):
    """A checkpoint on the hub, ``org/name`` or ``name``."""

    name = "hub"
    usage = "a Hugging Face id (org/name)"
    is_fallback = True

    def recognizes(self, text: str) -> bool:
        is_id = _HUB_ID.fullmatch(text) and len(text) <= _LONGEST_HUB_ID and "--" not in text and ".." not in text
        return bool(is_id) and not _is_path(text)

    def parse(self, text: str) -> ModelSpec:
        return ModelSpec(name=text, kind=self, location=text)

    def root_of(self, spec: ModelSpec, settings: ModelSettings) -> Path | None:
        """Return the snapshot in the hub's cache."""
        import huggingface_hub  # takes half a second

        revision = None if spec.embeds else settings.revision
        try:
            folder = huggingface_hub.snapshot_download(self.hub_id(spec), revision=revision, local_files_only=True)
        except (OSError, ValueError):  # it is not there
            return None
        return Path(folder)

    def hub_id(self, spec: ModelSpec) -> str:
        """Return the id on the hub. A bare name of an embedder is one that sentence-transformers publishes, as for the
        library.
        """
        is_bare = spec.embeds and "/" not in spec.location
        return f"sentence-transformers/{spec.location}" if is_bare else spec.location

    def check_files(self, spec: ModelSpec, settings: ModelSettings) -> None:
        """See ``Checkpoint``. Files that can still be downloaded are checked when they are loaded."""
        from huggingface_hub import constants

        near = None if spec.embeds or "/" in spec.location else nearest(spec.location, _BUILT_IN)
        if near is not None and self.root_of(spec, settings) is None:
            # The hub would be asked several times, for half a minute. New ids there have a slash.
            raise model_error(
                spec.name,
                f"neither a folder nor in the hub's cache; did you mean {near}? (An id of the hub is org/name.)",
            )
        if not constants.HF_HUB_OFFLINE:
            return
        if self.root_of(spec, settings) is None:
            revision = None if spec.embeds else settings.revision
            at = f" at revision {one_line(revision)}" if revision else ""
            raise model_error(
                spec.name,
                f"not in the hub's cache{at}, and HF_HUB_OFFLINE forbids downloading it; "
                f"unset it, or give a folder (./{spec.name} does not exist)",
            )
        super().check_files(spec, settings)


def load_backend(spec: ModelSpec, settings: ModelSettings) -> HuggingFaceModel:
    """Load weights and tokenizer. Raises ``ModelError`` or ``OptionError``, each in one line."""
    with importing_torch():
        from pytest_llmeval.models.huggingface.device import Threads
        from pytest_llmeval.models.huggingface.loading import load_checkpoint
        from pytest_llmeval.models.huggingface.model import HuggingFaceEncoderDecoderModel, HuggingFaceModel

    threads = None if settings.num_workers is None else Threads(settings.num_workers)
    loaded = load_checkpoint(spec, settings)
    is_encoder_decoder = loaded.model.config.is_encoder_decoder
    model = (HuggingFaceEncoderDecoderModel if is_encoder_decoder else HuggingFaceModel)(spec, settings, loaded)
    if not is_encoder_decoder:
        model.check_engine()
    if settings.device == "cpu":
        model.threads = threads
    return model


def _engine_of(folder: Path | None, settings: ModelSettings) -> str:
    if settings.engine == "plain":
        return "plain: requested"
    unknown = "chosen when it is loaded"
    if folder is None:
        return unknown
    try:
        config = json.loads(folder.joinpath(CONFIG).read_bytes())
    except (OSError, ValueError):
        return unknown
    if not isinstance(config, dict) or not tells_layers(config):
        return unknown
    if config.get("auto_map") and settings.trust_remote_code:
        return "plain: code that comes with the checkpoint"
    attention = attention_of(config)
    if settings.engine == "tree" and attention.kind == "other":
        return f"tree: requested, but impossible: {attention.reason}"
    return f"{'plain' if attention.kind == 'other' else 'tree'}: {attention.reason}"


def _is_path(name: str) -> bool:
    separators = {os.sep, os.altsep or os.sep}
    if name in {".", ".."} or name[0] in {"~", *separators}:
        return True
    if "://" in name:
        return False
    if any(name.startswith((f".{s}", f"..{s}")) or name.endswith(s) for s in separators):
        return True
    if sum(name.count(s) for s in separators) > 1:
        return True
    return os.path.exists(name)
