"""What the settings of every scorer have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Protocol, Self, TypeVar

from pydantic import SerializationInfo, SerializerFunctionWrapHandler, model_serializer

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.spec import Spec
from pytest_llmeval.text.wording import Keys

__all__ = ["AS_THEY_APPLY", "FileReader", "ScorerSettings"]

_T = TypeVar("_T")

AS_THEY_APPLY = {"settings": "as they apply"}
"""The context of ``model_dump`` that gives every setting that decides something, its default where none was given."""


class FileReader(Protocol):
    """Reads the files that settings name by their paths, which stand at some keys. ``SuiteError`` where it cannot."""

    def text(self, path: str, keys: Keys) -> str:
        """The whole file."""
        ...

    def value(self, path: str, keys: Keys) -> Any:
        """What a file of JSON or YAML holds."""
        ...

    def read(self, read: Callable[[Source], _T], path: str, keys: Keys) -> _T:
        """What ``read`` makes of a file."""
        ...


class ScorerSettings(Spec):
    """Base of the settings of a scorer. ``kind`` is its name in a suite."""

    kind: str

    scorer: ClassVar[str] = ""
    """The class that judges by these settings, a ``SettingsScorer``: module and name, below ``scoring``."""

    needs_options: ClassVar[bool] = False
    """Whether a sample needs options that an answer is chosen from."""

    needs_target: ClassVar[bool] = True
    """Whether a sample needs a target."""

    needs_reply: ClassVar[bool] = True
    """Tell whether a sample without a recorded reply cannot be scored in a suite whose other samples have one."""

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns that the scorer reads and that a row need not have: without one it is as if it held null."""
        return ()

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Keys that came later and say here what was so before them: they leave the fingerprints as they were."""
        return ()

    @property
    def unused(self) -> tuple[str, ...]:
        """Keys that decide nothing beside the values of the others."""
        return ()

    @model_serializer(mode="wrap")
    def _dumped(self, handler: SerializerFunctionWrapHandler, info: SerializationInfo) -> dict[str, Any]:
        """Return what fingerprints hash; with ``AS_THEY_APPLY`` as the context, what readers of a report see."""
        values: dict[str, Any] = handler(self)
        left_out = self.unused if info.context is AS_THEY_APPLY else (*self.unused, *self.unsaid)
        return {key.rstrip("_"): value for key, value in values.items() if key not in left_out}

    @property
    def why_alone(self) -> tuple[str, Keys] | None:
        """Why it cannot stand among several scorers, and the keys that say so; None where it can."""
        return None

    @property
    def needs_baseline(self) -> bool:
        """Whether replies are compared with those of the session's baseline."""
        return False

    @property
    def column_of_reply(self) -> str | None:
        """The column of another reply, with which that of the model is compared; None where there is none."""
        return None

    def by_reply(self, works: Callable[[ScorerSettings], bool]) -> str:
        """What to write in the suite for a model that gives texts only. ``works`` tries other settings instead."""
        return "use a scorer that reads a reply"

    def each(self, keys: Keys = ("score",)) -> Iterator[tuple[ScorerSettings, Keys]]:
        """These settings, or those of each of several scorers, with the keys at which they stand."""
        yield self, keys

    def with_files_read(self, files: FileReader, keys: Keys = ("score",)) -> Self:
        """The settings with what each file holds that they name by its path."""
        return self
