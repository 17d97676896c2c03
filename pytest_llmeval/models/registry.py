"""The table of the kinds of models, and the way from what the user wrote after ``--llm-model`` to a model.

Parsing and checking import neither torch nor transformers, so that the controller can refuse a run before it starts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pytest_llmeval.errors import OptionError
from pytest_llmeval.models.base import Backend, Model, NamedModel
from pytest_llmeval.models.guessing import Guessing
from pytest_llmeval.models.huggingface.kind import Demo, Folder, Hub
from pytest_llmeval.models.python.kind import PythonCode
from pytest_llmeval.models.replay.kind import Replay
from pytest_llmeval.models.settings import ModelSettings, check_device
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.text.redaction import model_error, one_line

__all__ = ["KINDS", "check_model", "load_model", "parse_model_spec", "with_kinds"]

_NAME = re.compile(r"[a-z][a-z0-9_-]+")


class _Reserved(ModelKind):
    """A name that a later version has a use for."""

    usage = ""

    def __init__(self, name: str) -> None:
        self.name = name

    def parse(self, text: str) -> ModelSpec:
        raise OptionError(f"--llm-model {one_line(text)}: {self.name}: models are not available in this version")


KINDS: tuple[ModelKind, ...] = (
    Demo(),
    Hub(),
    Folder(),
    Replay(),
    PythonCode(),
    Guessing("random"),
    Guessing("majority"),
    _Reserved("openai"),
)
"""In the order in which messages list them."""


def with_kinds(added: Iterable[object]) -> tuple[ModelKind, ...]:
    """The table with kinds from elsewhere. Raises ``OptionError`` for a name that is taken or cannot be a prefix."""
    kinds = list(KINDS)
    for kind in added:
        if not isinstance(kind, ModelKind):
            if isinstance(kind, type):
                found = f"the class {kind.__name__}, expected an object: {kind.__name__}()"
            else:
                found = f"a {type(kind).__name__}, expected a ModelKind"
            raise OptionError(f"pytest_llmeval_models: found {found}")
        name = getattr(kind, "name", "")
        if not _NAME.fullmatch(name):
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


def parse_model_spec(text: str, kinds: Sequence[ModelKind] = KINDS) -> ModelSpec:
    """What ``--llm-model TEXT`` means.

    A text that names an existing folder, or is written as a path (``./x``, ``/x``, ``~/x``, two separators), is a
    folder; whether it can be loaded is ``check_model``'s to say. Raises ``OptionError`` for what no kind recognizes.
    """
    name = text.strip()
    for kind in sorted(kinds, key=lambda kind: kind.is_fallback):
        if name and kind.recognizes(name):
            return kind.parse(name)
    *usages, last = filter(None, (kind.shown_usage() for kind in kinds))
    problem = f"--llm-model {one_line(name)!r}" if name else "--llm-model is empty"
    raise OptionError(f"{problem}: expected {', '.join(usages)} or {last}")


def check_model(spec: ModelSpec, settings: ModelSettings) -> None:
    """Refuse, within milliseconds, a model that cannot be loaded.

    Raises ``OptionError`` for a device that no machine has, and ``ModelError`` for a folder, a snapshot in the
    hub's cache or an adapter that cannot be loaded, a file of replies that is not there, a Python module that is not
    found. A hub model that is not in the cache passes, unless the hub is switched off (``HF_HUB_OFFLINE=1``).
    """
    check_device(settings)
    try:
        spec.kind.check(spec, settings)
    except OSError as error:
        raise model_error(spec.name, f"cannot read its files: {error}") from None


def load_model(spec: ModelSpec, settings: ModelSettings) -> Model:
    """Load the model. Raises ``ModelError`` or ``OptionError``, in one line unless code of the user's failed.

    A checkpoint takes seconds, and imports torch; nothing else does.
    """
    check_model(spec, settings)
    model = spec.kind.load(spec, settings)
    return model if isinstance(model, Backend | NamedModel) else NamedModel(model, spec.name)
