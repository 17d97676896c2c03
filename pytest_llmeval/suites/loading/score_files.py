"""The files that a suite's ``score`` names: a template, a schema, relevance judgements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from pytest_llmeval.data.files import Source, read_text
from pytest_llmeval.data.yaml_reader import read_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import JSON

__all__ = ["ScoreFiles"]

_T = TypeVar("_T")

_MAX_TEMPLATE_BYTES = 1_000_000


@dataclass(frozen=True, slots=True)
class ScoreFiles:
    """Reads the files that a suite's ``score`` names; what is wrong with one is said at the line that names it."""

    suite: Suite

    def text(self, path: str, keys: Keys) -> str:
        return self.read(
            lambda source: read_text(source, max_bytes=_MAX_TEMPLATE_BYTES, too_large="check that it is a template"),
            path,
            keys,
        )

    def value(self, path: str, keys: Keys) -> JSON:
        return self.read(lambda source: read_yaml(source, too_large="check that it is a schema").value, path, keys)

    def read(self, read: Callable[[Source], _T], path: str, keys: Keys) -> _T:
        try:
            return read(self.suite.origin.source.beside(path))
        except SuiteError as error:
            raise self.suite.error(str(error), keys=keys) from None
