"""One model in memory at a time: where the models of a session with several come from."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from pytest_llmeval.errors import LLMEvalError, ModelError
from pytest_llmeval.models.base import Model
from pytest_llmeval.text.redaction import describe

__all__ = ["ModelPool"]


class ModelPool:
    """Holds the model that was asked for last, and no other.

    ``release`` is called when the held model has to make room, before the next is loaded: who else holds it lets go.
    """

    def __init__(self, *, release: Callable[[], None]) -> None:
        self._release = release
        self._held: tuple[Hashable, Model] | None = None
        self._failed: dict[Hashable, str] = {}

    def get(self, key: Hashable, load: Callable[[], Model]) -> Model:
        """Return the model that ``key`` stands for: the one that is held, or what ``load`` returns.

        Raises what ``load`` raises; asked again, ``ModelError`` with the same message: a second attempt would take as
        long and fail again.
        """
        if self._held is not None and self._held[0] == key:
            return self._held[1]
        if key in self._failed:
            raise ModelError(self._failed[key])
        if self._held is not None:
            self._held = None
            self._release()
        try:
            model = load()
        except Exception as error:
            known = isinstance(error, LLMEvalError)
            self._failed[key] = str(error) if known else f"the model could not be loaded: {describe(error)}"
            raise
        self._held = key, model
        return model
