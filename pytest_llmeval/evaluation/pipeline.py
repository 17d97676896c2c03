"""The scorers of a suite: how they are made of its settings, and how several judge one reply."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pytest_llmeval.evaluation.part import FILTER_KEYS, TURN_KEYS, Part
from pytest_llmeval.models.base import JudgeSteps
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
    reduction_parts,
    reduction_problem,
)
from pytest_llmeval.scoring.filters import FilterSettings, make_filters
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.scoring.score_checks import shown_score
from pytest_llmeval.suites.loading.suite import NO_SCORERS
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    JSON,
    Prompt,
    Request,
    Response,
    Role,
    Sample,
    Score,
)

__all__ = ["Pipeline", "make_scorer", "suite_scorer"]

_SCORERS: Keys = ("several", "scorers")


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
                return problem[0], (*TURN_KEYS, place, *problem[1])
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
        own_of_turns = {place: _of_turn(one, custom, (*TURN_KEYS, place, "score")) for place, one in turns.items()}
        return Pipeline((Part("", scorer, chain, FILTER_KEYS, epochs, dict(not_measurable), own_of_turns),))
    if turns:
        message = "several scorers judge every scored turn; write true in place of a scorer of its own"
        raise SettingsError(message, (*TURN_KEYS, next(iter(turns)), "score"))
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
        where = (*keys, "filters") if own else FILTER_KEYS
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
