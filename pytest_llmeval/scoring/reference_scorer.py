"""What the scorers share that compare a reply with reference texts."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

from pytest_llmeval.scoring.base import Presented, reply_request
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.scoring.targets import several_or_one, target_texts
from pytest_llmeval.suites.schema import GenerateSpec
from pytest_llmeval.types import Prompt, Request, Response, Sample, Score

__all__ = ["ReferenceScorer"]


class ReferenceScorer(ABC):
    """Asks for one reply, and gives it numbers by its references, with no right or wrong.

    An empty reply has the numbers that its metrics give to no words, which is 0 for most, and is counted as no answer.
    """

    __slots__ = ()

    @property
    def version(self) -> int:
        return 1

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    @abstractmethod
    def values(self, text: str, references: Sequence[str]) -> Mapping[str, float]:
        """The sample's numbers by name: metrics, and ingredients of corpus metrics."""

    def present(self, sample: Sample) -> Presented:
        """A target is a text or a list of texts, the references. ``ValueError`` for another kind of target."""
        texts = target_texts(sample)
        return Presented(sample=sample, references=texts, target=several_or_one(texts))

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first reference, as given."""
        return presented.references[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One reply, generated as the suite's ``generate`` says."""
        return (reply_request(prompt, generate),)

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        """The reply's numbers; the reply itself, without white space at its ends, is the answer."""
        text = reply(responses)
        return Score(
            status="scored",
            answer=text.strip() or None,
            no_answer=not text.strip(),
            values=self.values(text, presented.references),
        )
