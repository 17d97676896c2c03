"""One scorer of a suite with the filters before it and the epochs around it."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scoring.base import Better, PreparedSample, Scorer, SettingsError, side_by_side
from pytest_llmeval.scoring.epochs import EpochsSpec, reduced_better, reduced_metrics, reduced_score
from pytest_llmeval.scoring.filters import FilterChain, FilterError
from pytest_llmeval.scoring.metrics.definitions import definition
from pytest_llmeval.scoring.metrics.sample_values import contradiction
from pytest_llmeval.scoring.metrics.summary import why_not_measurable, with_numbers
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.scoring.score_checks import judging, never_right
from pytest_llmeval.scoring.turns import judging_turns
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    JSON,
    Ask,
    ConversationRequest,
    EarlierReply,
    GenerateRequest,
    GenerateResponse,
    Prompt,
    Request,
    Response,
    Sample,
    Score,
    Status,
)

__all__ = ["FILTERED", "FILTER_KEYS", "TURN_KEYS", "Part"]

FILTER_KEYS: Keys = ("filters",)
TURN_KEYS: Keys = ("prompt", "turns")
_EPOCHS: Keys = ("epochs",)
FILTERED = "FilteredScorer"
"""The name of filters among the versions of a scorer, before their own version."""
FILTERS_VERSION = 1
EPOCHS_VERSION = 1
"""Numbers that go up when filters, or epochs, judge the same responses otherwise; part of a suite's fingerprint."""


@dataclass(frozen=True, slots=True)
class Part:
    """A scorer with what a suite puts around it: ``filters`` of each reply before it is judged, and ``epochs``.

    ``name`` is the scorer's among several, empty for the only one. ``filter_keys`` are where its filters stand in the
    suite. ``not_measurable`` has, by metric, the number that the reply of an epoch counts as if the scorer says that
    the metric is not measurable on it. ``turn_scorers`` judge turns of a conversation, by their places, in place of
    ``scorer``.
    """

    name: str
    scorer: Scorer
    filters: FilterChain = field(default_factory=FilterChain)
    filter_keys: Keys = FILTER_KEYS
    epochs: EpochsSpec | None = None
    not_measurable: Mapping[str, float] = field(default_factory=dict)
    turn_scorers: Mapping[int, Scorer] = field(default_factory=dict)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Return the names of the metrics; none if the scorer names none."""
        own = self._metrics_of_a_reply
        return own if self.epochs is None else reduced_metrics(self.epochs.reduce, own)

    @property
    def _metrics_of_a_reply(self) -> tuple[str, ...]:
        own = self.scorer.metrics
        return tuple(dict.fromkeys((*own, "no_answer"))) if own and self.filters else own

    @property
    def better(self) -> Mapping[str, Better]:
        """Return the better directions of metrics that are the scorer's own."""
        own = self.scorer.better
        return own if self.epochs is None else reduced_better(self.epochs.reduce, own)

    def versions(self) -> list[JSON]:
        """Return names and versions of the scorer and of what is around it, as fingerprints have them."""
        # "FilteredScorer" and "EpochsScorer" were classes once: with other names every fingerprint would change.
        found = self.scorer.versions()
        if self.turn_scorers:
            found = [*found, ["turns", *([place, *one.versions()] for place, one in self.turn_scorers.items())]]
        if self.filters:
            found = [FILTERED, FILTERS_VERSION, *found]
        return found if self.epochs is None else ["EpochsScorer", EPOCHS_VERSION, *found]

    def present(self, sample: Sample) -> PreparedSample:
        """Present the sample as the scorer does. The baseline's reply, if it has one, goes through the same filters.

        Raise ``ValueError`` for a sample without choices that a filter looks at.
        """
        if self.filters.needs_choices is not None and not sample.choices:
            raise ValueError(f"{self.filters.needs_choices} looks at the sample's choices, and it has none")
        earlier = sample.earlier
        if self.filters and earlier is not None and earlier.text is not None:
            try:
                earlier = EarlierReply(self.filters(earlier.text, sample.choices) or "", earlier.problem)
            except FilterError as error:
                earlier = EarlierReply(problem=str(error))
            sample = replace(sample, earlier=earlier)
        return self.scorer.present(sample)

    def with_turns(self, presented: PreparedSample, samples: Sequence[Sample | None]) -> PreparedSample:
        """Return what was presented with what is presented of each turn. Raise as ``present`` does, with the turn."""
        turns: list[PreparedSample | None] = []
        for place, sample in enumerate(samples):
            try:
                turns.append(None if sample is None else self.of_turn(place).present(sample))
            except ValueError as error:
                if isinstance(error, SettingsError):
                    raise
                raise ValueError(f"turn {place + 1} of {len(samples)}: {error}") from None
        return replace(presented, turns=tuple(turns))

    def of_turn(self, place: int) -> Part:
        """Return the part with the scorer that judges this turn of a conversation."""
        own = self.turn_scorers.get(place)
        return self if own is None else replace(self, scorer=own)

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Return what the scorer asks, once for each epoch. Raise ``SettingsError`` if that cannot be filtered, or if
        the replies of all epochs would be equal.
        """
        asked = self.scorer.requests(presented, prompt, delimiter=delimiter, generate=generate)
        for place, scorer in self.turn_scorers.items():
            if (own := presented.turns[place]) is not None:
                found = scorer.requests(own, prompt, delimiter=delimiter, generate=generate)
                if not all(isinstance(request, GenerateRequest) for request in found):
                    message = f"{scorer.name} compares log-likelihoods, and a turn is asked for a reply"
                    raise SettingsError(message, (*TURN_KEYS, place, "score"))
        if self.filters and (len(asked) != 1 or not isinstance(asked[0], GenerateRequest)):
            raise SettingsError(
                f"the scorer {self.scorer.name} uses no reply that could be filtered; remove the filters, or use a "
                "scorer that judges a reply",
                self.filter_keys,
            )
        if self.epochs is None:
            return asked
        count = self.epochs.count
        replies = [request for request in asked if isinstance(request, GenerateRequest)]
        if len(replies) != len(asked) or not replies:
            raise SettingsError(
                f"the scorer {self.scorer.name} compares loglikelihoods, which would be the same {count} times; "
                "remove epochs, or use a scorer that judges a reply",
                _EPOCHS,
            )
        if count > 1 and any(request.temperature == 0 for request in replies):
            raise SettingsError(
                f"every sample is asked {count} times, and at temperature 0 all replies are the same; set "
                "generate.temperature above 0 (where replies are read from a file or made by a program, it changes "
                "nothing)",
                _EPOCHS,
            )
        return tuple(replace(request, epoch=epoch) for epoch in range(count) for request in replies)

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge the responses of all epochs. The sample is unscored if the reply of one epoch is."""
        epochs = self.epochs
        if epochs is None:
            return (yield from self._judged_reply(presented, responses))[0]
        size = len(responses) // epochs.count
        if size * epochs.count != len(responses) or not size:
            raise ModelError(f"expected as many responses for each of {epochs.count} epochs, found {len(responses)}")
        replies = [responses[epoch * size : (epoch + 1) * size] for epoch in range(epochs.count)]
        judged = yield from side_by_side([self._judged_reply(presented, one) for one in replies])
        scores = [self._decided(with_numbers(score, self.not_measurable), epochs.threshold) for score, _ in judged]
        for epoch, score in enumerate(scores, 1):
            if score.status == "unscored":
                return Score(status="unscored", reason=f"epoch {epoch} of {epochs.count}: {score.reason}")
        if epochs.vote == "text":
            votes = [left for _, left in judged]
        else:
            votes = [score.answer if score.vote is None else score.vote for score, _ in judged]
        return reduced_score(epochs.reduce, scores, votes)

    def _judged_reply(
        self, presented: PreparedSample, responses: Sequence[Response]
    ) -> Generator[Ask, Sequence[Response | Failed], tuple[Score, str | None]]:
        """Return the score of one reply, or of a conversation, and what the filters leave of the last reply; None if
        that holds no answer.
        """
        request = presented.requests[0] if presented.requests else None
        if not isinstance(request, ConversationRequest):
            return (yield from self._judged_turn(presented, responses))
        return (
            yield from judging_turns(
                presented,
                request,
                responses,
                lambda place, turn, replies: self.of_turn(place)._judged_turn(turn, replies),
                self.turn_scorers,
            )
        )

    def _judged_turn(
        self, presented: PreparedSample, responses: Sequence[Response]
    ) -> Generator[Ask, Sequence[Response | Failed], tuple[Score, str | None]]:
        """Return the score of one reply, and what the filters leave of it; None if it holds no answer."""
        if not self.filters:
            score = yield from judging(self.scorer, presented, responses)
            votes_by_text = self.epochs is not None and self.epochs.vote == "text"
            return score, reply(responses) if votes_by_text and not any(map(_is_unfinished, responses)) else None
        text = reply(responses)
        try:
            left = self.filters(text, presented.sample.choices)
        except FilterError as error:
            return Score(status="unscored", reason=str(error)), None
        # Where the filters leave nothing, the scorer judges an empty text: it may give a number for that.
        filtered = [
            replace(response, text=left or "") for response in responses if isinstance(response, GenerateResponse)
        ]
        score = yield from judging(self.scorer, presented, filtered)
        if left is None:
            score = never_right(score)
        if score.status not in ("correct", "unscored") and not (left or "").strip():  # one that is expected is right
            score = replace(score, no_answer=True, answer=None)
        if left not in (text, score.answer):
            score = replace(score, details={**score.details, "filtered": left})
        return score, left

    def _decided(self, score: Score, threshold: float | None) -> Score:
        """Return the score; if it is a number and there is a ``threshold``, that makes it right or wrong.

        It is unscored if an accuracy that the scorer gave contradicts the threshold.
        """
        if threshold is None or score.status != "scored":
            return score
        names = (*self._metrics_of_a_reply, *score.values)  # the first of the scorer's own metrics is compared
        name = next((name for name in names if name in score.values or why_not_measurable(score, name)), None)
        if name is None or name not in score.values:
            return score
        value = score.values[name]
        lower = definition(name, self.scorer.better).higher_is_better is False
        status: Status = "correct" if (value <= threshold if lower else value >= threshold) else "wrong"
        if (found := contradiction(status, score.values)) is not None:
            return Score(status="unscored", reason=f"epochs.threshold gave {found}")
        return replace(score, status=status)


def _is_unfinished(response: Response) -> bool:
    return isinstance(response, GenerateResponse) and response.is_unfinished
