"""What every part of the suite format is made of."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = ["FROM_LIST", "Spec", "expected_here", "one_key_schema", "refuse", "refuse_here", "unknown_key", "whole"]

# Strict mode takes no list for a tuple, and YAML has lists only. The entries stay strict.
FROM_LIST = Field(strict=False)


def whole(pattern: str) -> str:
    """A regular expression for JSON Schema that matches whole texts: ``$`` lets a line feed follow."""
    return f"^(?:{pattern})(?![\\s\\S])"


def refuse(message: str) -> PydanticCustomError:
    """What a validator raises: ``message`` is the whole sentence, with the keys."""
    return PydanticCustomError("llmeval", "{message}", {"message": message})


def refuse_here(message: str, *keys: str | int) -> PydanticCustomError:
    """What a validator raises that does not know where in a suite it stands: the keys are put before ``message``.

    ``keys`` lead on from the validated value to what is wrong in it.
    """
    return PydanticCustomError("llmeval_here", "{message}", {"message": message, "keys": keys})


def expected_here(expected: str) -> PydanticCustomError:
    """What a validator raises for a value of another kind than ``expected``."""
    return PydanticCustomError("llmeval_expected", "{expected}", {"expected": expected})


def unknown_key(*keys: str | int) -> PydanticCustomError:
    """What a validator raises for a key that is not one of the format; ``keys`` as in ``refuse_here``."""
    return PydanticCustomError("llmeval_unknown_key", "unknown key", {"keys": keys})


def one_key_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """JSON Schema of a mapping with one of these keys."""
    own = {"properties": properties, "additionalProperties": False}
    return {"type": "object", **own, "minProperties": 1, "maxProperties": 1}


class Spec(BaseModel):
    """Base of all parts of the format: unknown keys are errors, types are not coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
