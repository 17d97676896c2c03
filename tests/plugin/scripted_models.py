"""Several scripted models in place of those that ``--llm-model`` would load: the plugin's own way to them, no torch."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["loads", "scripted_models_conftest"]

_LOG = "loads.jsonl"

_CONFTEST = '''
"""Models that answer from a script, loaded by name."""

import gc
import json
import os
import weakref
from pathlib import Path

import pytest

from pytest_llmeval.errors import ModelError, RequestError
from pytest_llmeval.models.huggingface.kind import Hub
from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse, ModelIdentity

SCRIPTS = json.loads(@SCRIPTS@)
LOG = Path(__file__).with_name(@LOG@)
ALIVE = weakref.WeakSet()


class Scripted:
    def __init__(self, name):
        self.identity = ModelIdentity(name=name, backend="script", fingerprint=name)
        self.script = SCRIPTS[name]

    def loglikelihood(self, requests):
        return [self.answer(request, request.context, self.score) for request in requests]

    def generate(self, requests):
        return [self.answer(request, request.prompt, self.write) for request in requests]

    def answer(self, request, prompt, reply):
        found = next((text for part, text in self.script.items() if part in prompt), "")
        return RequestError(found[6:]) if found.startswith("error:") else reply(request, found)

    def score(self, request, likely):
        loglikelihood = -1.0 if request.continuation.strip() == likely else -5.0
        return LoglikelihoodResponse(loglikelihood=loglikelihood, num_tokens=1)

    def write(self, request, text):
        return GenerateResponse(text=text, num_prompt_tokens=1, num_tokens=1)


class Scripts(Hub):
    """In place of a checkpoint."""

    name = "script"
    is_fallback = False

    def recognizes(self, text):
        return text in SCRIPTS

    def check(self, spec, settings):
        pass

    def load(self, spec, settings):
        model = spec.name
        gc.collect()
        entry = {"model": model, "alive": sorted(other.identity.name for other in ALIVE), "pid": os.getpid()}
        with LOG.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\\n")
        if "cannot load" in SCRIPTS[model]:
            raise ModelError(f"model {model}: " + SCRIPTS[model]["cannot load"])
        loaded = Scripted(model)
        ALIVE.add(loaded)
        return loaded


def pytest_llmeval_models():
    return [Scripts()]


@pytest.fixture(scope="session")
def llm_device():
    return "cpu"
'''


def scripted_models_conftest(scripts: Mapping[str, Mapping[str, str]]) -> str:
    """Source of a conftest.py with the models of ``scripts``, by name as ``--llm-model`` gives it.

    Each maps a part of the prompt to the reply, or to the option that is likeliest; ``error:…`` is a ``RequestError``
    in the reply's place. The key ``cannot load`` holds the message of the ``ModelError`` that loading raises.
    """
    data = {model: dict(script) for model, script in scripts.items()}
    return _CONFTEST.replace("@SCRIPTS@", repr(json.dumps(data))).replace("@LOG@", repr(_LOG))


def loads(folder: Path) -> list[dict[str, Any]]:
    """What the conftest.py in ``folder`` loaded, in order: ``model``, the models still ``alive``, and ``pid``."""
    path = folder / _LOG
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]
