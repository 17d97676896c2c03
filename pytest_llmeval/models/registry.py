"""The table of the kinds of models, and the way from what the user wrote after ``--llm-model`` to a model.

Parsing and checking import neither torch nor transformers, so that the controller can refuse a run before it starts.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

from pytest_llmeval.errors import LLMEvalError, OptionError
from pytest_llmeval.models.base import Backend, Model, NamedModel
from pytest_llmeval.models.endpoints import LAUNCH
from pytest_llmeval.models.guessing import Guessing
from pytest_llmeval.models.huggingface.kind import Demo, Folder, Hub
from pytest_llmeval.models.python.kind import PythonCode
from pytest_llmeval.models.replay.kind import Replay
from pytest_llmeval.models.servers.kind import Anthropic, NotAURL, Ollama, OpenAI, Server
from pytest_llmeval.models.servers.launched import LaunchedLlamaCpp, LaunchedVLLM
from pytest_llmeval.models.settings import MODEL_ARGS, ModelSettings, check_device
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.roles import ROLES, Role
from pytest_llmeval.text.redaction import describe, model_error, one_line
from pytest_llmeval.text.wording import nearest, relative_path

__all__ = [
    "KINDS",
    "calling",
    "check_model",
    "check_model_args",
    "foreign_code",
    "load_model",
    "parse_model_spec",
    "with_kinds",
]

_NAME = re.compile(r"[a-z][a-z0-9_-]+")


KINDS: tuple[ModelKind, ...] = (
    Demo(),
    NotAURL(),
    Hub(),
    Folder(),
    Replay(),
    PythonCode(),
    Guessing("random"),
    Guessing("majority"),
    Server(),
    OpenAI(),
    Anthropic(),
    Ollama(),
    LaunchedVLLM(),
    LaunchedLlamaCpp(),
)
"""The kinds of models that ship here, in the order in which messages list them."""


def with_kinds(added: Iterable[object]) -> tuple[ModelKind, ...]:
    """Return the table with kinds from elsewhere. Raises ``OptionError`` for a name that is taken or cannot be a
    prefix.
    """
    kinds = list(KINDS)
    for kind in added:
        if not isinstance(kind, ModelKind):
            if isinstance(kind, type):
                found = f"the class {kind.__name__}, expected an object: {kind.__name__}()"
            else:
                found = f"a {type(kind).__name__}, expected a ModelKind"
            raise OptionError(f"pytest_llmeval_models: found {found}")
        name = getattr(kind, "name", "")
        if not _NAME.fullmatch(str(name)):
            raise OptionError(
                f"pytest_llmeval_models: {_class_of(kind)} has the name {name!r}, expected two or more of a-z, 0-9, "
                "- and _, beginning with a letter"
            )
        if taken := next((known for known in kinds if known.name == name), None):
            raise OptionError(
                f"pytest_llmeval_models: two kinds of models are called {name!r}: {_class_of(taken)} and "
                f"{_class_of(kind)}; rename one of them"
            )
        kinds.append(kind)
    return tuple(kinds)


def _class_of(kind: ModelKind) -> str:
    return f"{type(kind).__module__}.{type(kind).__qualname__}"


@contextmanager
def foreign_code(what: str) -> Iterator[None]:
    """Run code of another package or a conftest.py: an error of it becomes an ``OptionError`` that names it and the
    line.
    """
    try:
        yield
    except LLMEvalError:
        raise
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{relative_path(Path(place.filename))}:{place.lineno}"
        raise OptionError(f"{what} failed: {describe(error)} ({where})") from error


def calling(kind: ModelKind, method: str) -> AbstractContextManager[None]:
    """Return a context for calls of this method: an error in our own kinds keeps its traceback, in others it is one
    line.
    """
    return nullcontext() if kind in KINDS else foreign_code(f"{_class_of(kind)}.{method}")


def parse_model_spec(text: str, kinds: Sequence[ModelKind] = KINDS, role: Role | None = None) -> ModelSpec:
    """Return the model that ``--llm-model TEXT``, or the option of a role, names.

    A text that names an existing folder, or is written as a path (``./x``, ``/x``, ``~/x``, two separators), is a
    folder; whether it can be loaded is ``check_model``'s to say. Raises ``OptionError`` for what no kind recognizes.
    """
    name = text.strip()
    for kind in sorted(kinds, key=lambda kind: kind.is_fallback):
        with calling(kind, "recognizes"):
            is_known = bool(name) and kind.recognizes(name)
        if is_known:
            with calling(kind, "parse"):
                spec = kind.parse(name)
            if not isinstance(spec, ModelSpec):
                raise OptionError(f"{_class_of(kind)}.parse returned a {type(spec).__name__}, expected a ModelSpec")
            if role is not None and role not in kind.roles:
                raise OptionError(f"--llm-model {spec.name}: {_usage(kind)} cannot be {ROLES[role].with_article}")
            return replace(spec, role=role)
    usages = [usage for usage in map(_usage, kinds) if usage]
    problem = f"--llm-model {one_line(name)!r}" if name else "--llm-model is empty"
    beginnings = [usage.partition(":")[0] for usage in usages if re.match(r"[a-z-]+:(?!//)", usage)]
    begun, colon, rest = one_line(name).partition(":")
    if colon and not rest.startswith("//") and (near := nearest(begun, beginnings)) is not None:
        raise OptionError(f"{problem}: there is no kind {begun!r}; did you mean {near}:{rest}?")
    hint = ""
    if len(kinds) == len(KINDS) and re.match(r"[a-z][a-z0-9_-]+:(?!//)", name):
        hint = "; a conftest.py adds kinds only from the rootdir, or from a folder named on the command line"
    raise OptionError(f"{problem}: expected {', '.join(usages[:-1])} or {usages[-1]}{hint}")


def _usage(kind: ModelKind) -> str:
    with calling(kind, "shown_usage"):
        return kind.shown_usage()


def check_model(spec: ModelSpec, settings: ModelSettings) -> None:
    """Refuse, within milliseconds, a model that cannot be loaded.

    Raises ``OptionError`` for a device that no machine has, and ``ModelError`` for a folder, a snapshot in the
    hub's cache or an adapter that cannot be loaded, a file of replies that is not there, a Python module that is not
    found. A hub model that is not in the cache passes, unless the hub is switched off (``HF_HUB_OFFLINE=1``).
    """
    check_device(settings)
    with calling(spec.kind, "check"):
        try:
            spec.kind.check(spec, settings)
        except OSError as error:
            raise model_error(spec.name, f"cannot read its files: {error}") from None


def check_model_args(specs: Sequence[ModelSpec], settings: ModelSettings) -> None:
    """Raise ``OptionError`` for a setting of ``--llm-model-arg`` that means nothing for any of the session's models."""
    known = [spec.kind.model_args for spec in specs]
    for key, value in settings.model_args.items() if specs else ():
        if all(taken is not None and key not in taken for taken in known):
            names = ", ".join(spec.name for spec in specs)
            shown = f"{LAUNCH}{next(iter(value))}" if key == "launch" and isinstance(value, dict) else key
            meaning = MODEL_ARGS.get(key, "a setting of a server that the session starts")
            raise OptionError(f"--llm-model-arg {shown}: means nothing for {names} ({meaning})")


def load_model(spec: ModelSpec, settings: ModelSettings) -> Model:
    """Load the model. Raises ``ModelError`` or ``OptionError``, in one line unless code of the user's failed.

    A checkpoint takes seconds, and imports torch; nothing else does.
    """
    check_model(spec, settings)
    model = spec.kind.load(spec, settings)
    return model if isinstance(model, Backend | NamedModel) else NamedModel(model, spec.name)
