"""What every part of the suite format is made of."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

__all__ = ["FROM_LIST", "Spec", "refuse"]

# Strict mode takes no list for a tuple, and YAML has lists only. The entries stay strict.
FROM_LIST = Field(strict=False)


def refuse(message: str) -> PydanticCustomError:
    """What a validator raises: ``message`` is the whole sentence, with the keys."""
    return PydanticCustomError("llmeval", "{message}", {"message": message})


class Spec(BaseModel):
    """Base of all parts of the format: unknown keys are errors, types are not coerced, values do not change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)
