"""What stands after ``?`` in a model's name: ``python:agents:crew?planning=true&k=3``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import unquote

from pytest_llmeval.data.files import Source
from pytest_llmeval.errors import OptionError, SuiteError
from pytest_llmeval.text.redaction import redact
from pytest_llmeval.text.wording import expected_one_of, quoted
from pytest_llmeval.types import JSON

__all__ = ["check_names", "hide_secrets", "is_secret_name", "parse_arguments", "split_arguments"]

_SECRET = frozenset(
    ("key", "apikey", "token", "secret", "password", "passwd", "credential", "credentials", "signature", "auth")
)


def split_arguments(text: str) -> tuple[str, str]:
    """What stands before the first ``?`` and what after it; empty where there is none."""
    location, _, arguments = text.partition("?")
    return location, arguments


def parse_arguments(text: str, model: str) -> dict[str, JSON]:
    """``planning=true&k=3`` → ``{"planning": True, "k": 3}``: values are typed as YAML scalars are, the rest is text.

    ``%26`` stands for ``&``. Raises ``OptionError`` that names ``model`` for a part without ``=``, and a name twice.
    """
    values: dict[str, JSON] = {}
    for part in text.split("&") if text else ():
        name, equals, value = part.partition("=")
        name = unquote(name).strip()
        if not equals or not name:
            raise OptionError(
                f"--llm-model {model}: found {quoted(part)} after '?', expected name=value, several with '&' between "
                "them"
            )
        if name in values:
            raise OptionError(f"--llm-model {model}: found {name!r} twice after '?', expected it once")
        values[name] = _scalar(unquote(value))
    return values


def _scalar(text: str) -> JSON:
    from pytest_llmeval.data.yaml_reader import parse_yaml  # brings a library that most runs have no need of here

    try:
        value = parse_yaml(text, Source(Path(), "")).value
    except SuiteError:
        return text
    return text if isinstance(value, list | dict) else value


def check_names(values: Mapping[str, JSON], known: Iterable[str], model: str) -> None:
    """Raise ``OptionError`` for an argument that ``model`` does not take, with the nearest one that it does."""
    for name in values:
        if name not in known:
            raise OptionError(f"--llm-model {model}: there is no argument {name!r}{expected_one_of(name, known)}")


def is_secret_name(name: str) -> bool:
    """Whether an argument of this name holds a secret: ``api_key``, ``token``, not ``max_tokens``."""
    words = re.split(r"[^a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    return not _SECRET.isdisjoint(words)


def hide_secrets(model: str) -> str:
    """A model's name as anybody may read it: ``***`` for the arguments that have a secret's name."""
    location, mark, arguments = model.partition("?")
    shown = []
    for part in arguments.split("&"):
        name, equals, _ = part.partition("=")
        shown.append(f"{name}=***" if equals and is_secret_name(unquote(name)) else part)
    return redact(f"{location}{mark}{'&'.join(shown)}", {})
