"""Helpers that the tests of all folders share: a scripted model for plugin tests, and a clean environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["FAKE_MODEL_CONFTEST", "REPOSITORY", "clean_environment", "fake_model_conftest", "model_calls"]

REPOSITORY = Path(__file__).resolve().parent.parent

_CALLS = "model_calls.jsonl"

_CONFTEST = '''
"""A model that answers from a script, in place of the plugin's own."""

import hashlib
import json
import os
from pathlib import Path

import pytest

from pytest_llmeval.errors import RequestError
from pytest_llmeval.models.base import ModelIdentity
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse

SCRIPT = json.loads(@SCRIPT@)
CALLS = Path(__file__).with_name(@CALLS@)


def log(method, prompts):
    with CALLS.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"method": method, "prompts": prompts, "pid": os.getpid()}) + "\\n")


def as_text(prompt):
    return prompt if isinstance(prompt, str) else "\\n".join(f"{turn.role}: {turn.content}" for turn in prompt)


def first_match(table, text):
    return next((value for part, value in table.items() if part in text), None)


class FakeModel:
    identity = ModelIdentity(name="fake", backend="script", fingerprint="fake")

    def __init__(self):
        log("load", [])

    def loglikelihood(self, requests):
        log("loglikelihood", [as_text(request.context) + request.continuation for request in requests])
        return [self._answer(request.context, self._score, request) for request in requests]

    def loglikelihood_rolling(self, requests):
        log("loglikelihood_rolling", [request.text for request in requests])
        return [self._answer(request.text, self._score_text, request) for request in requests]

    def generate(self, requests):
        log("generate", [as_text(request.prompt) for request in requests])
        return [self._answer(request.prompt, self._write, request) for request in requests]

    def _answer(self, prompt, answer, request):
        text = as_text(prompt)
        if first_match(dict.fromkeys(SCRIPT["kills"], True), text):
            os._exit(1)
        if (message := first_match(SCRIPT["raises"], text)) is not None:
            raise RuntimeError(message)
        if (message := first_match(SCRIPT["errors"], text)) is not None:
            return RequestError(message)
        return answer(text, request)

    def _score(self, text, request):
        digest = hashlib.sha256((text + "\\0" + request.continuation).encode("utf-8", "surrogatepass")).digest()
        loglikelihood = -2.0 - 8.0 * int.from_bytes(digest[:4], "big") / 2**32
        if first_match(SCRIPT["likely"], text) == request.continuation.strip():
            loglikelihood = -0.5
        num_tokens = max(1, len(request.continuation.split()))
        return LoglikelihoodResponse(
            loglikelihood=loglikelihood * num_tokens, num_tokens=num_tokens, num_context_tokens=len(text.split())
        )

    def _score_text(self, text, request):
        words = [len(word) for word in text.split()]
        return LoglikelihoodResponse(loglikelihood=-1.0 * sum(words), num_tokens=len(words), num_context_tokens=1)

    def _write(self, text, request):
        reply = first_match(SCRIPT["replies"], text)
        reply = SCRIPT["default_reply"] if reply is None else reply
        return GenerateResponse(text=reply, num_prompt_tokens=len(text.split()), num_tokens=len(reply.split()))


@pytest.fixture(scope="session")
def llm_model():
    return FakeModel()
'''


def fake_model_conftest(
    *,
    replies: Mapping[str, str] | None = None,
    likely: Mapping[str, str] | None = None,
    errors: Mapping[str, str] | None = None,
    raises: Mapping[str, str] | None = None,
    kills: Sequence[str] = (),
    default_reply: str = "",
) -> str:
    """Source of a conftest.py whose ``llm_model`` is a scripted model: no torch, no weights, always the same.

    Each table maps a part of the prompt to what happens; the first part that the prompt contains decides.

    A whole text has a loglikelihood of -1 for each of its characters that is not white space.

    :param replies: what is generated; ``default_reply`` where nothing matches.
    :param likely: the continuation (stripped) with the highest logprob per token, -0.5. All others get one from a hash
        of context and continuation, between -10 and -2 per token; a token is a word.
    :param errors: the message of a ``RequestError`` in that request's place.
    :param raises: the message of a ``RuntimeError`` that fails the whole call.
    :param kills: ends the process at once, as a segmentation fault would.
    """
    script = {
        "replies": dict(replies or {}),
        "likely": dict(likely or {}),
        "errors": dict(errors or {}),
        "raises": dict(raises or {}),
        "kills": list(kills),
        "default_reply": default_reply,
    }
    return _CONFTEST.replace("@SCRIPT@", repr(json.dumps(script))).replace("@CALLS@", repr(_CALLS))


FAKE_MODEL_CONFTEST = fake_model_conftest()
"""The scripted model with an empty script: likelihoods from a hash, empty replies."""


def model_calls(folder: Path, method: str | None = None) -> list[dict[str, Any]]:
    """What the scripted model in ``folder``'s conftest.py was asked: one entry for each call, in order.

    Keys: ``method`` (``load``, ``loglikelihood``, ``loglikelihood_rolling``, ``generate``; only those of ``method`` if
    given), ``prompts`` (with the continuation, where there is one) and ``pid``, which tells workers apart. Empty if no
    model was made.
    """
    path = folder / _CALLS
    if not path.exists():
        return []
    calls = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [call for call in calls if method in (None, call["method"])]


_INHERITED = ("PYTEST_", "PYTHON", "GITHUB_", "LLMEVAL_", "HF_", "TRANSFORMERS_", "COV_CORE_")
_COLOURS_AND_CI = ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR", "PY_COLORS", "TOX_ENV_DIR")


def clean_environment() -> dict[str, str]:
    """The environment without what would change a pytest run inside a test; offline, with a fixed terminal width.

    ``pytester`` does its own part beside this (home folder, temporary folder).
    """
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_INHERITED) and name not in _COLOURS_AND_CI
    }
    return environment | {
        "COLUMNS": "120",
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "OMP_NUM_THREADS": "1",  # threads that wait for each other on busy cores take ten times as long
        "PYTHONHASHSEED": "0",
        "PYTHONIOENCODING": "utf-8",
    }
