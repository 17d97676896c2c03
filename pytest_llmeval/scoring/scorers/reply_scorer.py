"""What the scorers share that ask for one reply."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_llmeval.scoring.base import Presented, reply_request
from pytest_llmeval.scoring.scorers.targets import target_texts
from pytest_llmeval.suites.format.prompt_spec import GenerateSpec
from pytest_llmeval.types import Prompt, Request

__all__ = ["ReplyScorer"]


class ReplyScorer:
    """Asks for one reply, generated as the suite says, and shows a target as an example's answer."""

    __slots__ = ()

    @property
    def version(self) -> int:
        return 1

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("accuracy", "no_answer")

    @property
    def default_template(self) -> str:
        return "{{ question }}"

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """None of its own."""
        return {}

    def answer_text(self, presented: Presented) -> str:
        """The first target, as given."""
        return target_texts(presented.sample)[0]

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """One reply, generated as the suite's ``generate`` says."""
        return (reply_request(prompt, generate),)
