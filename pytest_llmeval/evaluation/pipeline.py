"""The pipeline of a suite: its scorers, each with the filters before it and the epochs around it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_llmeval.errors import ModelError
from pytest_llmeval.models.base import Failed, JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.several import PartSettings, SeveralSettings
from pytest_llmeval.scoring.base import (
    Better,
    PreparedSample,
    Scorer,
    ScorerSettings,
    SettingsError,
    SuiteView,
    score_without_judge,
    side_by_side,
)
from pytest_llmeval.scoring.custom import CustomSettings, make_custom_scorer
from pytest_llmeval.scoring.epochs import (
    COUNTING_REDUCTIONS,
    EpochsSpec,
    reduced_better,
    reduced_metrics,
    reduced_score,
    reduction_parts,
    reduction_problem,
)
from pytest_llmeval.scoring.filters import FilterChain, FilterError, FilterSettings, make_filters
from pytest_llmeval.scoring.metrics.definitions import WILDCARD, definition
from pytest_llmeval.scoring.metrics.sample_values import contradiction
from pytest_llmeval.scoring.metrics.summary import why_not_measurable, with_numbers
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.responses import reply
from pytest_llmeval.scoring.score_checks import judging, never_right, shown_score
from pytest_llmeval.scoring.turns import judging_turns
from pytest_llmeval.suites.loading.suite import NO_SCORERS
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
    Role,
    Sample,
    Score,
    Status,
)

__all__ = ["Part", "Pipeline", "make_scorer", "suite_scorer"]

_SCORERS: Keys = ("several", "scorers")
_FILTERS: Keys = ("filters",)
_EPOCHS: Keys = ("epochs",)
_TURNS: Keys = ("prompt", "turns")
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
    filter_keys: Keys = _FILTERS
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
            sample = dataclasses.replace(sample, earlier=earlier)
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
        return dataclasses.replace(presented, turns=tuple(turns))

    def of_turn(self, place: int) -> Part:
        """Return the part with the scorer that judges this turn of a conversation."""
        own = self.turn_scorers.get(place)
        return self if own is None else dataclasses.replace(self, scorer=own)

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
                    raise SettingsError(message, (*_TURNS, place, "score"))
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
        return tuple(dataclasses.replace(request, epoch=epoch) for epoch in range(count) for request in replies)

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
            dataclasses.replace(response, text=left or "")
            for response in responses
            if isinstance(response, GenerateResponse)
        ]
        score = yield from judging(self.scorer, presented, filtered)
        if left is None:
            score = never_right(score)
        if score.status not in ("correct", "unscored") and not (left or "").strip():  # one that is expected is right
            score = dataclasses.replace(score, no_answer=True, answer=None)
        if left not in (text, score.answer):
            score = dataclasses.replace(score, details={**score.details, "filtered": left})
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
        return dataclasses.replace(score, status=status)


def _is_unfinished(response: Response) -> bool:
    return isinstance(response, GenerateResponse) and response.is_unfinished


@dataclass(frozen=True, slots=True)
class Pipeline(Scorer):
    """A suite's scorers: the only one, or several that judge one reply, the first of which decides.

    Status, answer and chance are those of the one that decides, and its numbers keep their names. Those of the others
    have the scorer's name before them: ``flexible.accuracy``.
    """

    parts: tuple[Part, ...]
    deciding: Part = field(init=False)
    """The part whose status is the sample's."""
    name: str = field(init=False)
    version: int = field(init=False)
    default_template: str = field(init=False)
    tells_right_from_wrong: bool | None = field(init=False)
    scores_recorded_replies: bool = field(init=False)
    reads_documents: bool = field(init=False)
    roles: frozenset[Role] = field(init=False)
    _is_several: bool = field(init=False)

    def __post_init__(self) -> None:
        scorers = [part.scorer for part in self.parts]
        found = {
            "deciding": self.parts[0],
            "name": "several" if self.parts[0].name else scorers[0].name,
            "version": 1 if self.parts[0].name else scorers[0].version,
            "default_template": scorers[0].default_template,
            "tells_right_from_wrong": scorers[0].tells_right_from_wrong,
            "scores_recorded_replies": any(scorer.scores_recorded_replies for scorer in scorers),
            "reads_documents": all(scorer.reads_documents for scorer in scorers),
            "roles": frozenset(role for scorer in scorers for role in scorer.roles),
            "_is_several": bool(self.parts[0].name),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _below(self, part: Part, keys: Keys) -> Keys:
        """Return the ``keys`` of a part's scorer as keys of the suite, without the leading ``score``."""
        return (*_SCORERS, part.name, "score", *keys) if self._is_several else keys

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name the metrics of the deciding scorer, then the others', each under its scorer's name.

        If a scorer names none, a wildcard stands for them (``b.*``), which ``summary.expanded`` replaces.
        """
        if not any(part.metrics for part in self.parts):
            return ()
        others = (
            f"{part.name}.{name}"
            for part in self.parts[1:]
            for name in part.metrics or (WILDCARD,)
            if name not in _COUNTS
        )
        return (*(self.deciding.metrics or (WILDCARD,)), *others)

    @property
    def better(self) -> Mapping[str, Better]:
        others = {f"{part.name}.{name}": way for part in self.parts[1:] for name, way in part.better.items()}
        return {**others, **self.deciding.better}

    def present(self, sample: Sample) -> PreparedSample:
        """Present as the deciding scorer does, with what the others present. Raise ``ValueError``, which names the
        scorer that refuses.
        """
        if not self._is_several:
            return self.deciding.present(sample)
        parts = tuple(self._present(part, sample) for part in self.parts)
        return dataclasses.replace(parts[0], parts=parts)

    def _present(self, part: Part, sample: Sample) -> PreparedSample:
        try:
            return part.present(sample)
        except SettingsError as error:
            raise SettingsError(str(error), self._below(part, error.keys)) from None
        except ValueError as error:
            raise ValueError(f"the scorer {part.name}: {error}") from None

    def with_turns(self, presented: PreparedSample, samples: Sequence[Sample | None]) -> PreparedSample:
        """Return what was presented of a sample with what is presented of its turns, each a sample with a target of its
        own; None for a turn that is not scored. Raise as ``present`` does.
        """
        if not self._is_several:
            return self.deciding.with_turns(presented, samples)
        parts = [part.with_turns(own, samples) for part, own in zip(self.parts, presented.parts, strict=True)]
        return dataclasses.replace(presented, turns=parts[0].turns, parts=tuple(parts))

    def _presented(self, presented: PreparedSample) -> Iterator[tuple[Part, PreparedSample]]:
        """Yield each part with what it presents, and what was rendered for all of them."""
        if not self._is_several:
            yield self.deciding, presented
            return
        for part, own in zip(self.parts, presented.parts, strict=True):
            yield (
                part,
                dataclasses.replace(
                    own,
                    prompt=presented.prompt,
                    continuation=presented.continuation,
                    requests=presented.requests,
                ),
            )

    def variables(self, presented: PreparedSample) -> Mapping[str, object]:
        """Return the variables of all scorers. Raise ``SettingsError`` where two give one name different values."""
        found: dict[str, object] = {}
        for part, own in self._presented(presented):
            for name, value in part.scorer.variables(own).items():
                if found.setdefault(name, value) != value:
                    raise SettingsError(
                        f"shows different {name} from {self.deciding.name}, and one prompt cannot show both; give both "
                        "the same settings, or each its own suite",
                        ("score", *_SCORERS, part.name),
                    )
        return found

    def answer_text(self, presented: PreparedSample) -> str:
        part, own = next(self._presented(presented))
        return part.scorer.answer_text(own)

    def requests(
        self, presented: PreparedSample, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Return the requests of all, which are the same. Raise ``SettingsError``, which names two that differ."""
        asked: tuple[Request, ...] = ()
        for place, (part, own) in enumerate(self._presented(presented)):
            requests = part.requests(own, prompt, delimiter=delimiter, generate=generate)
            if place == 0:
                asked = requests
            elif requests != asked:
                message = f"sends different requests from {self.deciding.name}: {_difference(requests, asked)}"
                # The scorer letter has a max_tokens of its own, which is the difference if the suite has none.
                if "max_tokens" in message and "letter" in (part.scorer.name, self.deciding.scorer.name):
                    message += ", and no max_tokens of letter's own"
                raise SettingsError(message, ("score", *_SCORERS, part.name))
        return asked

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        return score_without_judge(self.asking(presented, responses))

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Judge by all scorers. The sample is unscored if one of them cannot judge, so that all numbers are of the same
        samples.
        """
        if not self._is_several:
            return (yield from self.deciding.asking(presented, responses))
        parts = list(self._presented(presented))
        judged = yield from side_by_side([part.asking(own, responses) for part, own in parts])
        scores = {part.name: score for (part, _), score in zip(parts, judged, strict=True)}
        for name, score in scores.items():
            if score.status == "unscored":
                return Score(status="unscored", reason=f"{name}: {score.reason}")
        decided = judged[0]
        values, reasons = dict(decided.values), dict(decided.not_measurable)
        for part in self.parts[1:]:
            values |= _prefixed(part, scores[part.name])
            reasons |= {f"{part.name}.{name}": reason for name, reason in scores[part.name].not_measurable.items()}
        shown: dict[str, JSON] = {
            name: shown_score(score, with_details=name != self.deciding.name) for name, score in scores.items()
        }
        return dataclasses.replace(
            decided, values=values, details={**decided.details, "scorers": shown}, not_measurable=reasons
        )

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        for place, scorer in self.deciding.turn_scorers.items():
            if (problem := scorer.suite_problem(suite)) is not None:
                return problem[0], (*_TURNS, place, *problem[1])
        for part in self.parts:
            if (problem := part.scorer.suite_problem(suite)) is not None:
                message, keys = problem
                is_below = self._is_several and keys[:1] == ("score",)
                return message, ("score", *_SCORERS, part.name, *keys) if is_below else keys
        return None

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        """Return the template of the scorers that have one. Raise ``SettingsError`` if two differ, since the text that
        it makes is scored for all of them.
        """
        first, template = "", None
        for part in self.parts:
            own = part.scorer.extra_template
            if own is not None and template is not None and own[0] != template[0]:
                raise SettingsError(
                    f"scores another text after the options than {first}", ("score", *_SCORERS, part.name)
                )
            if own is not None and template is None:
                first, template = part.name, own
        return template

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        return [(text, self._below(part, keys)) for part in self.parts for text, keys in part.scorer.warnings(samples)]

    def options(self, presented: PreparedSample) -> tuple[tuple[str, ...], tuple[int, ...]]:
        part, own = next(self._presented(presented))
        return part.scorer.options(own)

    def judges(self) -> list[str]:
        return [text for part in self.parts for text in part.scorer.judges()]

    def versions(self) -> list[JSON]:
        if not self._is_several:
            return self.deciding.versions()
        return [[part.name, *part.versions()] for part in self.parts]


_COUNTS = ("correct", "total")
"""Metrics that count samples by what the deciding scorer says of them."""


def _prefixed(part: Part, score: Score) -> dict[str, float]:
    """Return the score's numbers under the scorer's name, and whether it held no answer, which no other field says."""
    values = dict(score.values)
    if "no_answer" in part.metrics or score.no_answer:
        values["no_answer"] = float(score.no_answer)
    return {f"{part.name}.{name}": value for name, value in values.items()}


def _difference(requests: Sequence[Request], others: Sequence[Request]) -> str:
    """Say in a few words what differs between the requests of two scorers."""
    kinds = [{type(request) for request in some} for some in (requests, others)]
    if kinds[0] != kinds[1]:
        return "one judges a reply, and the other compares loglikelihoods"
    if len(requests) != len(others):
        return f"{len(requests)} requests where the other has {len(others)}"
    first, second = next(pair for pair in zip(requests, others, strict=True) if pair[0] != pair[1])
    name = next(
        field.name for field in dataclasses.fields(first) if getattr(first, field.name) != getattr(second, field.name)
    )
    advice = "; set generate.max_tokens" if name == "max_tokens" else ""
    return f"{name} {quote(getattr(first, name))} where the other has {quote(getattr(second, name))}{advice}"


def suite_scorer(
    settings: ScoreSettings,
    custom: Mapping[str, Callable[..., Any]] = NO_SCORERS,
    *,
    filters: Sequence[FilterSettings] = (),
    epochs: EpochsSpec | None = None,
    not_measurable: Mapping[str, float] = MappingProxyType({}),
    turns: Mapping[int, ScorerSettings] = MappingProxyType({}),
) -> Pipeline:
    """Return the scorers of a suite with what the suite puts around them; ``custom`` are those registered from Python.
    ``turns`` are settings of scorers that judge turns of a conversation, by their places.

    Each of several scorers has filters and epochs of its own, so that each reduces its own judgements.
    Raise ``SettingsError``, which says in one line what cannot be used.
    """
    chain = make_filters(filters)
    if not isinstance(settings, SeveralSettings):
        scorer = _made(settings, custom, ("score",))
        _check_reductions(epochs, scorer, ("epochs", "reduce"))
        own_of_turns = {place: _of_turn(one, custom, (*_TURNS, place, "score")) for place, one in turns.items()}
        return Pipeline((Part("", scorer, chain, _FILTERS, epochs, dict(not_measurable), own_of_turns),))
    if turns:
        message = "several scorers judge every scored turn; write true in place of a scorer of its own"
        raise SettingsError(message, (*_TURNS, next(iter(turns)), "score"))
    parts = {}
    for name, part in settings.scorers.items():
        keys = ("score", *_SCORERS, name)
        own = make_filters(part.filters, (*keys, "filters"))
        reduced = _reduced(epochs, part, keys)
        if part.score.why_alone is not None:
            message, own_keys = part.score.why_alone
            raise SettingsError(message, (*keys, "score", *own_keys))
        scorer = _made(part.score, custom, (*keys, "score"))
        _check_reductions(reduced, scorer, ("epochs", "reduce") if part.reduce is None else (*keys, "reduce"))
        where = (*keys, "filters") if own else _FILTERS
        prefix = "" if name == settings.deciding else f"{name}."
        numbers = {key.removeprefix(prefix): one for key, one in not_measurable.items() if key.startswith(prefix)}
        parts[name] = Part(name, scorer, chain + own, where, reduced, numbers)
    deciding = parts.pop(settings.deciding)
    return Pipeline((deciding, *parts.values()))


def _of_turn(settings: ScorerSettings, custom: Mapping[str, Callable[..., Any]], keys: Keys) -> Scorer:
    """Return the scorer of a turn. Raise ``SettingsError`` for one that needs more than a reply and a target."""
    scorer = _made(settings, custom, keys)
    if settings.why_alone is not None or settings.runs_code or scorer.roles:
        message = f"{scorer.name} needs more than a reply, which only the suite's own score gets; write true here"
        raise SettingsError(message, keys)
    return scorer


def _reduced(epochs: EpochsSpec | None, part: PartSettings, keys: Keys) -> EpochsSpec | None:
    """Return the suite's epochs with the reductions of one of several scorers."""
    if part.reduce is None:
        return epochs
    if epochs is None:
        raise SettingsError("found it in a suite without epochs; add epochs, such as epochs: 8", (*keys, "reduce"))
    problem = reduction_problem(part.reduce, epochs.count)
    if problem is not None:
        raise SettingsError(problem, (*keys, "reduce"))
    return epochs.model_copy(update={"reduce": part.reduce})


def _check_reductions(epochs: EpochsSpec | None, scorer: Scorer, keys: Keys) -> None:
    """Raise ``SettingsError`` if right replies are to be counted and neither scorer nor threshold says which are."""
    if epochs is None or scorer.tells_right_from_wrong is None:
        return
    if scorer.tells_right_from_wrong:
        if epochs.threshold is not None:
            message = f"{scorer.name} itself decides which replies are right; remove it"
            raise SettingsError(message, ("epochs", "threshold"))
        return
    if epochs.threshold is not None:
        return
    for name in epochs.reduce:
        if reduction_parts(name)[0] in COUNTING_REDUCTIONS:
            raise SettingsError(
                f"{name} counts right replies, and {scorer.name} does not decide whether a reply is right; use mean, "
                "mode or first, or set epochs.threshold, the lowest number of a right reply",
                keys,
            )


def _made(settings: ScoreSettings, custom: Mapping[str, Callable[..., Any]], keys: Keys) -> Scorer:
    """Return the scorer of settings that stand at ``keys``, which ``SettingsError`` then names."""
    try:
        return make_scorer(settings, custom)
    except SettingsError as error:
        raise SettingsError(str(error), (*keys, *error.keys)) from None
    except ValueError as error:
        raise SettingsError(str(error), keys) from None


def make_scorer(settings: ScoreSettings, custom: Mapping[str, Callable[..., Any]] = NO_SCORERS) -> Scorer:
    """Return the scorer with these settings; ``custom`` are those registered from Python, by name.

    ``ValueError`` says in one line why these settings cannot be used; the keys of a ``SettingsError`` lead on from
    those of ``settings``.
    """
    if isinstance(settings, SeveralSettings):
        return suite_scorer(settings, custom)
    if isinstance(settings, CustomSettings):
        return make_custom_scorer(settings, custom)
    return settings.make()
