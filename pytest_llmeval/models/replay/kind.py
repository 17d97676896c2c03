"""``--llm-model replay:FILE``: replies from a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable
from pathlib import Path

from pytest_llmeval.data.files import Source, open_bytes
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.models.base import Model
from pytest_llmeval.models.settings import ModelSettings
from pytest_llmeval.models.specs import ModelKind, ModelSpec
from pytest_llmeval.text.redaction import model_error

__all__ = ["Replay"]


class Replay(ModelKind):
    """The location is the file; the arguments say which columns hold what."""

    name = "replay"
    usage = "replay:FILE"
    example = "replay:outputs.jsonl"
    has_secrets = False  # ?key= leads to the rows of a JSON file
    budgeting = "free"
    checks_suites = True
    roles = ()  # it answers samples, not prompts

    def parse(self, text: str) -> ModelSpec:
        from pytest_llmeval.models.replay.file import ReplayArguments

        spec = super().parse(text)
        ReplayArguments.of(spec.arguments, spec.name)
        return spec

    def key(self, spec: ModelSpec) -> Hashable:
        return self.name, os.path.realpath(spec.location), repr(sorted(spec.arguments.items()))

    def check(self, spec: ModelSpec, settings: ModelSettings) -> None:
        from pytest_llmeval.models.replay.file import ReplayArguments, ReplyProblem, replay_format

        source = _source(spec)
        try:
            replay_format(source, ReplayArguments.of(spec.arguments, spec.name).format)
            with open_bytes(source, max_bytes=sys.maxsize, too_large=""):
                pass
        except (ReplyProblem, SuiteError) as problem:
            raise model_error(spec.name, str(problem)) from None

    def load(self, spec: ModelSpec, settings: ModelSettings) -> Model:
        from pytest_llmeval.models.replay.file import ReplayArguments
        from pytest_llmeval.models.replay.model import load_replay

        try:
            return load_replay(spec.name, _source(spec), ReplayArguments.of(spec.arguments, spec.name))
        except SuiteError as error:
            raise model_error(spec.name, str(error)) from None

    def describe(self, spec: ModelSpec, settings: ModelSettings) -> str:
        return "replies from a file"


def _source(spec: ModelSpec) -> Source:
    return Source(Path(spec.location).expanduser(), spec.location)
