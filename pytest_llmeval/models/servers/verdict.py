"""The verdict of a server's self-test: what it can be asked for, and why not for the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_llmeval.models.encoding import EncodedPair
from pytest_llmeval.models.servers.dialect import TextPair
from pytest_llmeval.types import JSON

__all__ = ["MOST_NOISE", "TOLERANCE", "Compared", "Probe", "ServerVerdict", "merged"]

TOLERANCE = 1e-3
"""The most nats between two logprobs of one token; servers that compute in float32 stay far below it."""
MOST_NOISE = 0.25
_MOST_MEAN_NOISE = 0.05
"""The noise that half precision may add: at one token, and on average. Every fault looked for is larger."""


@dataclass(slots=True)
class Compared:
    """The differences between the two numbers of each token."""

    differences: list[float] = field(default_factory=list)

    def add(self, one: Sequence[float], other: Sequence[float]) -> None:
        self.differences += [abs(a - b) for a, b in zip(one, other, strict=True)]

    @property
    def largest(self) -> float:
        return max(self.differences, default=0.0)

    @property
    def is_close(self) -> bool:
        mean = sum(self.differences) / max(1, len(self.differences))
        return self.largest <= TOLERANCE or (self.largest <= MOST_NOISE and mean <= _MOST_MEAN_NOISE)


@dataclass(frozen=True, slots=True)
class Probe:
    """A text whose logprobs (nats) are known."""

    pair: EncodedPair | TextPair
    logprobs: tuple[float, ...]

    def difference(self, other: Probe) -> str | None:
        """Return what is different; None if both could come from one model."""
        if len(self.logprobs) != len(other.logprobs):
            return f"its tokens are {len(other.logprobs)} and not {len(self.logprobs)}"
        compared = Compared()
        compared.add(self.logprobs, other.logprobs)
        return None if compared.is_close else f"the logprob of a token differs by {compared.largest:.2g}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerVerdict:
    """The verdict on what a server can be asked for: None for what works, else the reason.

    ``embeds``: it was tried whether it gives ``embeddings``, and nothing else.
    ``uses_next``: the logprobs of several tokens after one prompt come from one request, and are right.
    ``counts_tokens``: the server counts the tokens of a text prompt as our tokenizer does, so that a prompt that was
    cut shows. ``largest_difference`` (nats) was found between echo and generation, and between two orders. ``probe``
    has the logprobs of one fixed text, which those of another model (on a replica, or behind the URL later) are not.
    """

    text: str | None = None
    chat: str | None = None
    loglikelihood: str | None = None
    embeddings: str | None = None
    embeds: bool = False
    uses_next: bool = False
    counts_tokens: bool = False
    scores: str | None = None
    largest_difference: float | None = None
    notes: tuple[str, ...] = ()
    probe: Probe | None = None

    def refusal(self, method: str) -> str | None:
        """Return why a method of ``Model`` is refused, None if it works. Whole texts need token ids."""
        if method == "embed":
            return self.embeddings
        if method == "generate":
            return self.text if self.chat is not None else None
        if method == "loglikelihood_rolling" and self.loglikelihood is None and self.scores == "text":
            return "this server's echo gives no logprob for the first token of a text"
        return self.loglikelihood

    @property
    def does_nothing(self) -> bool:
        """Return whether all is refused."""
        return len(self.refusals) == len(self._abilities())

    def as_json(self) -> dict[str, JSON]:
        """Return for each ability, as the report has it, ``works`` or the reason why not."""
        found: dict[str, JSON] = {
            name: "works" if reason is None else f"refused: {reason}" for name, reason in self._abilities()
        }
        if self.largest_difference is not None:
            found["largest_difference"] = self.largest_difference
        if self.notes:
            found["notes"] = list(self.notes)
        return found

    def summary(self) -> str:
        """Return the part of pytest's header: ``text, chat, log-likelihoods (echo and generation within 2e-05)``."""
        works = [name for name, reason in self._abilities() if reason is None]
        line = "self-test: " + (", ".join(works) or "nothing works")
        if self.loglikelihood is None and self.largest_difference is not None:
            line += f" (echo and generation within {self.largest_difference:.0e})"
        return "; ".join([line, *self.refusals, *self.notes])

    @property
    def refusals(self) -> list[str]:
        """Return ``no text: REASON`` for each that is refused."""
        return [f"no {name}: {reason}" for name, reason in self._abilities() if reason is not None]

    def _abilities(self) -> Sequence[tuple[str, str | None]]:
        if self.embeds:
            return (("embeddings", self.embeddings),)
        return (("text", self.text), ("chat", self.chat), ("log-likelihoods", self.loglikelihood))


def merged(verdicts: Mapping[str, ServerVerdict]) -> ServerVerdict:
    """Return one verdict of all replicas, by URL: what one of them cannot do is refused with its name."""
    known = list(verdicts.values())
    if len(known) == 1:
        return known[0]

    def reason(name: str) -> str | None:
        return next((f"{url}: {r}" for url, v in verdicts.items() if (r := getattr(v, name)) is not None), None)

    differences = [v.largest_difference for v in known if v.largest_difference is not None]
    loglikelihood = reason("loglikelihood")
    if known[0].embeds:
        return replace(known[0], embeddings=reason("embeddings"))
    for url, verdict in verdicts.items() if loglikelihood is None else ():
        assert known[0].probe is not None
        assert verdict.probe is not None
        if difference := known[0].probe.difference(verdict.probe):
            loglikelihood = f"{url} has other weights: of one text {difference}"
            break
    return ServerVerdict(
        text=reason("text"),
        chat=reason("chat"),
        loglikelihood=loglikelihood,
        uses_next=all(v.uses_next for v in known),
        counts_tokens=all(v.counts_tokens for v in known),
        scores=known[0].scores if loglikelihood is None else None,
        largest_difference=max(differences, default=None),
        notes=tuple(dict.fromkeys(note for v in known for note in v.notes)),
        probe=known[0].probe,
    )
