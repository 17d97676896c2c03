"""What a replica says of itself before it is asked anything: all of a model's have to say the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_llmeval.types import ModelIdentity

__all__ = ["Handshake", "disagreement"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handshake:
    """``versions`` are those of the packages that decide numbers, by name; None where one is not installed.

    ``place`` names the machine, ``has_audit``: the model audits its fast path. ``num_at_once`` is how many calls a
    model makes at a time that is called for each request by itself; None for one that answers many in one pass.
    """

    place: str
    identity: ModelIdentity
    versions: Mapping[str, str | None]
    has_audit: bool = False
    num_at_once: int | None = None
    properties: Mapping[str, str | None] = field(init=False)
    """All that has to be the same."""

    def __post_init__(self) -> None:
        identity = self.identity
        found: dict[str, str | None] = {
            **self.versions,
            "name": identity.name,
            "backend": identity.backend,
            "revision": identity.revision,
            "dtype": identity.dtype,
            "device": None if identity.device is None else identity.device.partition(":")[0],
            "weights and settings": identity.fingerprint,
        }
        object.__setattr__(self, "properties", found)


def disagreement(one: Handshake, other: Handshake) -> str | None:
    """What differs between two replicas, with what each has; None where they agree."""
    names = [*one.properties, *(name for name in other.properties if name not in one.properties)]
    found = [
        f"{name} ({_shown(one.properties.get(name))} on {one.place}, {_shown(other.properties.get(name))} on "
        f"{other.place})"
        for name in names
        if one.properties.get(name) != other.properties.get(name)
    ]
    return ", ".join(found) or None


def _shown(value: str | None) -> str:
    """A hash in its first digits."""
    if value is None:
        return "none"
    return value[:12] if len(value) == 64 else value
