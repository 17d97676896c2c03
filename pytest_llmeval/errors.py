"""Errors that a user can cause.

``str(error)`` of each is the whole message: it says what is wrong, where, and what to do. Code that catches one prints
it without a traceback. Any other exception is a defect of ours, or of the model under test.
"""

from __future__ import annotations

import os
from typing import Literal

__all__ = [
    "ContextLengthError",
    "LLMEvalError",
    "LeftOutError",
    "ModelError",
    "ModelStoppedError",
    "OptionError",
    "RefusedError",
    "ReportError",
    "RequestError",
    "SuiteError",
]


class LLMEvalError(Exception):
    """Base of all errors that are explained to the user in one message."""


class OptionError(LLMEvalError):
    """An option, ini value or environment variable that cannot be used."""


class SuiteError(LLMEvalError):
    """A suite file, or data that it names, that cannot be used.

    ``str()`` is ``file:line: message``; the line is left out where none is known.
    """

    def __init__(self, message: str, *, path: str | os.PathLike[str], line: int | None = None) -> None:
        self.message = message
        self.path = os.fspath(path)
        self.line = line
        super().__init__(message, self.path, line)

    def __str__(self) -> str:
        where = self.path if self.line is None else f"{self.path}:{self.line}"
        return f"{where}: {self.message}"


class ModelError(LLMEvalError):
    """A model that cannot be loaded, or that does not do what the model Protocol promises."""


class ModelStoppedError(ModelError):
    """A model that answers nothing more in this session, such as a server that refuses the key: it is not asked again.

    If it is the session's only model, the session ends.
    """


class RequestError(LLMEvalError):
    """One request that a model cannot answer. It belongs to one sample and never to its neighbours."""


class LeftOutError(RequestError):
    """A sample that the model leaves out on request: it is skipped, and neither wrong nor unscored."""


class ContextLengthError(RequestError):
    """A request with more tokens than the model's context holds.

    ``num_tokens`` is what the request needs (prompt and continuation, or prompt and new tokens); ``max_tokens`` is what
    the model holds. For an encoder-decoder model, ``part`` says which side it is: the encoder reads the prompt, the
    decoder the continuation or new tokens.
    """

    def __init__(
        self, *, num_tokens: int, max_tokens: int, part: Literal["context", "encoder", "decoder"] = "context"
    ) -> None:
        self.num_tokens = num_tokens
        self.max_tokens = max_tokens
        self.part = part
        super().__init__(num_tokens, max_tokens)

    def __str__(self) -> str:
        what = {"context": "request", "encoder": "prompt", "decoder": "answer"}[self.part]
        return (
            f"the {what} needs {self.num_tokens} tokens and the model's {self.part} holds {self.max_tokens}: "
            f"{self.num_tokens - self.max_tokens} too many (nothing was truncated)"
        )


class ReportError(LLMEvalError):
    """A report that cannot be written or read."""


class RefusedError(Exception):
    """A template that asks for more memory or time than it can need, or that is surely a mistake."""
