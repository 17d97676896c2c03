"""From what the user wrote after ``--llm-model`` to a model: parse, check cheaply, load.

Parsing and checking import neither torch nor transformers, so that the controller can refuse a run before it starts.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Literal, cast

from pytest_llmeval.data.files import Source, open_bytes
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.huggingface.checkpoint import check_adapter, check_checkpoint
from pytest_llmeval.models.huggingface.hub_cache import cached_snapshot, is_offline
from pytest_llmeval.models.python.importing import missing_module, split_target
from pytest_llmeval.models.settings import ModelSettings, check_settings
from pytest_llmeval.models.specs import _HUB_ID, ModelSpec, _is_path
from pytest_llmeval.models.threads import waiting_briefly
from pytest_llmeval.text.redaction import model_error, one_line

__all__ = ["check_model", "load_model"]


def check_model(spec: ModelSpec, settings: ModelSettings) -> None:
    """Refuse, within milliseconds, a model that cannot be loaded.

    Raises ``OptionError`` for settings that no model can have, and ``ModelError`` for a folder, a snapshot in the
    hub's cache or an adapter that cannot be loaded, a file of replies that is not there, a Python module that is not
    found. A hub model that is not in the cache passes, unless the hub is switched off (``HF_HUB_OFFLINE=1``).
    """
    check_settings(settings)
    try:
        match spec.kind:
            case "replay":
                _check_replay(spec)
            case "python":
                problem = missing_module(split_target(spec.location, spec.name)[0])
                if problem is not None:
                    raise model_error(spec.name, problem)
            case "folder" | "hub":
                _check_files(spec, settings)
    except OSError as error:
        raise model_error(spec.name, f"cannot read its files: {error}") from None


def _check_replay(spec: ModelSpec) -> None:
    from pytest_llmeval.models.replay.file import ReplyProblem, replay_format

    source = _replies_source(spec)
    try:
        replay_format(source)
        with open_bytes(source, max_bytes=sys.maxsize, too_large=""):
            pass
    except (ReplyProblem, SuiteError) as problem:
        raise model_error(spec.name, str(problem)) from None


def _replies_source(spec: ModelSpec) -> Source:
    return Source(Path(spec.location).expanduser(), spec.location)


def _check_files(spec: ModelSpec, settings: ModelSettings) -> None:
    if spec.kind == "folder":
        if settings.revision is not None:
            raise OptionError(
                f"--llm-revision {settings.revision}: {spec.name} is a folder, and revisions are the hub's"
            )
        folder = Path(spec.location)
        if folder.is_dir():
            folder = _with_subfolder(folder, settings)
        _check(spec, folder, settings)
    else:
        snapshot = cached_snapshot(spec.location, settings.revision)
        if snapshot is None and is_offline():
            at = f" at revision {one_line(settings.revision)}" if settings.revision else ""
            raise model_error(
                spec.name,
                f"not in the hub's cache{at}, and HF_HUB_OFFLINE forbids to download it; "
                f"unset it, or give a folder (./{spec.name} does not exist)",
            )
        if snapshot is not None and is_offline():
            _check(spec, _with_subfolder(snapshot, settings), settings)
    adapter = settings.model_args.get("peft")
    if isinstance(adapter, str) and (_is_path(adapter) or not _HUB_ID.fullmatch(adapter)):
        check_adapter(spec.name, Path(adapter).expanduser(), allow_pickle=settings.allow_pickle)


def _with_subfolder(folder: Path, settings: ModelSettings) -> Path:
    subfolder = settings.model_args.get("subfolder")
    return folder / subfolder if isinstance(subfolder, str) else folder


def _check(spec: ModelSpec, folder: Path, settings: ModelSettings) -> None:
    check_checkpoint(
        spec.name,
        folder,
        allow_pickle=settings.allow_pickle,
        trust_remote_code=settings.trust_remote_code,
        needs_tokenizer="tokenizer" not in settings.model_args,
    )


def load_model(spec: ModelSpec, settings: ModelSettings) -> Model:
    """Load the model. Raises ``ModelError`` or ``OptionError``, in one line unless code of the user's failed.

    A checkpoint takes seconds, and imports torch; nothing else does.
    """
    check_model(spec, settings)
    match spec.kind:
        case "replay":
            from pytest_llmeval.models.replay.file import ReplayArguments
            from pytest_llmeval.models.replay.model import load_replay

            arguments = ReplayArguments.of(spec.arguments, spec.name)
            try:
                return load_replay(spec.name, _replies_source(spec), arguments)
            except SuiteError as error:
                raise model_error(spec.name, str(error)) from None
        case "python":
            from pytest_llmeval.models.python.model import load_python

            return load_python(spec.name, *split_target(spec.location, spec.name), spec.arguments)
        case "guessing":
            from pytest_llmeval.models.guessing import GuessingModel

            seed = spec.arguments["seed"]
            return GuessingModel(spec.name, cast("Literal['random', 'majority']", spec.location), cast("int", seed))
    with (
        waiting_briefly(),
        warnings.catch_warnings(),
    ):  # under -W error, what a library warns of at its import would end the run
        warnings.simplefilter("ignore")
        from pytest_llmeval.models.huggingface.backend import load_backend

    return load_backend(spec, settings)
