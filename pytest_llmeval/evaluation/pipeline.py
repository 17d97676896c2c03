"""What a suite's settings make of its scorer: filters before it, epochs around it, several side by side."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.python.custom import CustomSettings, make_custom_scorer
from pytest_llmeval.scorers.several import PartSettings, SeveralSettings
from pytest_llmeval.scoring.base import (
    Better,
    Presented,
    Scorer,
    SettingsError,
    SuiteView,
    score_without_judge,
    side_by_side,
)
from pytest_llmeval.scoring.checking import judging, shown_score
from pytest_llmeval.scoring.epochs import (
    COUNTING_REDUCTIONS,
    EpochsScorer,
    EpochsSpec,
    reduction_parts,
    reduction_problem,
)
from pytest_llmeval.scoring.filters import FilteredScorer, FilterSettings, Pipeline, make_pipeline
from pytest_llmeval.scoring.metrics.definitions import WILDCARD
from pytest_llmeval.scoring.references import quote
from pytest_llmeval.suites.loading.suite import NO_SCORERS
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import JSON, Prompt, Request, Response, Role, Sample, Score

__all__ = ["Part", "SeveralScorer", "make_scorer", "suite_scorer"]

_BELOW: Keys = ("several", "scorers")


KEYS: Keys = ("score", *_BELOW)


@dataclass(frozen=True, slots=True)
class Part:
    """One of several scorers, by its name in the suite."""

    name: str
    scorer: Scorer


@dataclass(frozen=True, slots=True)
class SeveralScorer(Scorer):
    """A scorer that asks once for all of its scorers, each of which judges.

    Status, answer and chance are those of the one that decides, and its numbers keep their names. Those of the others
    have the scorer's name before them: ``flexible.accuracy``.
    """

    deciding: Part
    others: tuple[Part, ...] = ()

    @property
    def name(self) -> str:
        return "several"

    @property
    def parts(self) -> tuple[Part, ...]:
        return (self.deciding, *self.others)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Name those of the deciding scorer, then the others', each under its scorer's name.

        Of a scorer that names none the names are open (``b.*``): see ``summary.expanded``.
        """
        if not any(part.scorer.metrics for part in self.parts):
            return ()
        others = (
            f"{part.name}.{name}"
            for part in self.others
            for name in part.scorer.metrics or (WILDCARD,)
            if name not in _COUNTS
        )
        return (*(self.deciding.scorer.metrics or (WILDCARD,)), *others)

    @property
    def better(self) -> Mapping[str, Better]:
        others = {f"{part.name}.{name}": way for part in self.others for name, way in part.scorer.better.items()}
        return {**others, **self.deciding.scorer.better}

    @property
    def default_template(self) -> str:
        return self.deciding.scorer.default_template

    def present(self, sample: Sample) -> Presented:
        """Present as the deciding scorer does, with what the others present. Raise ``ValueError``, which names the
        scorer that refuses.
        """
        parts = tuple(self._present(part, sample) for part in self.parts)
        return dataclasses.replace(parts[0], parts=parts)

    def _present(self, part: Part, sample: Sample) -> Presented:
        try:
            return part.scorer.present(sample)
        except SettingsError as error:
            raise SettingsError(str(error), (*_BELOW, part.name, "score", *error.keys)) from None
        except ValueError as error:
            raise ValueError(f"the scorer {part.name}: {error}") from None

    def variables(self, presented: Presented) -> Mapping[str, object]:
        """Return the variables of all scorers. Raise ``SettingsError`` where two give one name different values."""
        found: dict[str, object] = {}
        for part, own in self._presented(presented):
            for name, value in part.scorer.variables(own).items():
                if found.setdefault(name, value) != value:
                    raise SettingsError(
                        f"shows different {name} from {self.deciding.name}, and one prompt cannot show both; give both "
                        "the same settings, or each its own suite",
                        (*KEYS, part.name),
                    )
        return found

    def _presented(self, presented: Presented) -> Iterator[tuple[Part, Presented]]:
        """Return each scorer with what it presents, and what was rendered for all of them."""
        for part, own in zip(self.parts, presented.parts, strict=True):
            yield part, dataclasses.replace(own, prompt=presented.prompt, continuation=presented.continuation)

    def answer_text(self, presented: Presented) -> str:
        part, own = next(self._presented(presented))
        return part.scorer.answer_text(own)

    def requests(
        self, presented: Presented, prompt: Prompt, *, delimiter: str, generate: GenerateSpec
    ) -> tuple[Request, ...]:
        """Return the requests of all, which are the same. Raise ``SettingsError``, which names two that differ."""
        asked: tuple[Request, ...] = ()
        for place, (part, own) in enumerate(self._presented(presented)):
            requests = part.scorer.requests(own, prompt, delimiter=delimiter, generate=generate)
            if place == 0:
                asked = requests
            elif requests != asked:
                message = f"sends different requests from {self.deciding.name}: {_difference(requests, asked)}"
                if "max_tokens" in message and "letter" in (part.scorer.name, self.deciding.scorer.name):
                    message += ", and no max_tokens of letter's own"
                raise SettingsError(message, (*KEYS, part.name))
        return asked

    def score(self, presented: Presented, responses: Sequence[Response]) -> Score:
        return score_without_judge(self.asking(presented, responses))

    def asking(self, presented: Presented, responses: Sequence[Response]) -> JudgeSteps:
        """Ask once, and judge by all. The sample is unscored where one of the scorers cannot judge: a number of fewer
        samples would stand beside the others'.
        """
        parts = list(self._presented(presented))
        judged = yield from side_by_side([judging(part.scorer, own, responses) for part, own in parts])
        scores = {part.name: score for (part, _), score in zip(parts, judged, strict=True)}
        for name, score in scores.items():
            if score.status == "unscored":
                return Score(status="unscored", reason=f"{name}: {score.reason}")
        decided = scores[self.deciding.name]
        values, reasons = dict(decided.values), dict(decided.not_measurable)
        for part in self.others:
            values |= _prefixed(part, scores[part.name])
            reasons |= {f"{part.name}.{name}": reason for name, reason in scores[part.name].not_measurable.items()}
        shown: dict[str, JSON] = {
            name: shown_score(score, with_details=name != self.deciding.name) for name, score in scores.items()
        }
        return dataclasses.replace(
            decided, values=values, details={**decided.details, "scorers": shown}, not_measurable=reasons
        )

    def suite_problem(self, suite: SuiteView) -> tuple[str, Keys] | None:
        for part in self.parts:
            if (problem := part.scorer.suite_problem(suite)) is not None:
                message, keys = problem
                return message, (*KEYS, part.name, *keys) if keys[:1] == ("score",) else keys
        return None

    @property
    def extra_template(self) -> tuple[str, Keys] | None:
        """Return the template of all scorers which have one. Raise ``SettingsError`` where two differ: it makes one
        text.
        """
        first, template = "", None
        for part in self.parts:
            own = part.scorer.extra_template
            if own is not None and template is not None and own[0] != template[0]:
                raise SettingsError(f"scores another text after the options than {first}", (*KEYS, part.name))
            if own is not None and template is None:
                first, template = part.name, own
        return template

    @property
    def tells_right_from_wrong(self) -> bool | None:
        return self.deciding.scorer.tells_right_from_wrong

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        return [
            (text, (*_BELOW, part.name, "score", *keys))
            for part in self.parts
            for text, keys in part.scorer.warnings(samples)
        ]

    def options(self, presented: Presented) -> tuple[tuple[str, ...], tuple[int, ...]]:
        part, own = next(self._presented(presented))
        return part.scorer.options(own)

    @property
    def is_about_data(self) -> bool:
        return any(part.scorer.is_about_data for part in self.parts)

    @property
    def reads_documents(self) -> bool:
        return all(part.scorer.reads_documents for part in self.parts)

    @property
    def roles(self) -> frozenset[Role]:
        return frozenset(role for part in self.parts for role in part.scorer.roles)

    def judges(self) -> list[str]:
        return [text for part in self.parts for text in part.scorer.judges()]

    def versions(self) -> list[JSON]:
        return [[part.name, *part.scorer.versions()] for part in self.parts]


_COUNTS = ("correct", "total")
"""Metrics that count samples by what the deciding scorer says of them."""


def _prefixed(part: Part, score: Score) -> dict[str, float]:
    """Return the score's numbers under the scorer's name, and whether it held no answer, which no other field says."""
    values = dict(score.values)
    if "no_answer" in part.scorer.metrics or score.no_answer:
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
) -> Scorer:
    """The scorer of a suite with what the suite puts around it; ``custom`` are those registered from Python, by name.

    Each of several scorers has filters and epochs of its own, so that each reduces its own judgements.
    ``SettingsError`` says in one line what cannot be used.
    """
    pipeline = make_pipeline(filters)
    if not isinstance(settings, SeveralSettings):
        made = _made(settings, custom, ("score",))
        _check_reductions(epochs, made, ("epochs", "reduce"))
        return _surrounded(made, pipeline, _FILTERS, epochs, not_measurable)
    parts = {}
    for name, part in settings.scorers.items():
        keys = (*KEYS, name)
        own = make_pipeline(part.filters, (*keys, "filters"))
        reduced = _reduced(epochs, part, keys)
        if part.score.why_alone is not None:
            message, own_keys = part.score.why_alone
            raise SettingsError(message, (*keys, "score", *own_keys))
        inner = _made(part.score, custom, (*keys, "score"))
        _check_reductions(reduced, inner, ("epochs", "reduce") if part.reduce is None else (*keys, "reduce"))
        where = (*keys, "filters") if own else _FILTERS
        prefix = "" if name == settings.deciding else f"{name}."
        numbers = {key.removeprefix(prefix): one for key, one in not_measurable.items() if key.startswith(prefix)}
        parts[name] = Part(name, _surrounded(inner, pipeline + own, where, reduced, numbers))
    deciding = parts.pop(settings.deciding)
    return SeveralScorer(deciding, tuple(parts.values()))


_FILTERS: Keys = ("filters",)


def _surrounded(
    inner: Scorer, pipeline: Pipeline, keys: Keys, epochs: EpochsSpec | None, not_measurable: Mapping[str, float]
) -> Scorer:
    scorer = FilteredScorer(inner, pipeline, keys) if pipeline else inner
    if epochs is None:
        return scorer
    return EpochsScorer(scorer, epochs.count, epochs.reduce, epochs.vote, epochs.threshold, dict(not_measurable))


def _reduced(epochs: EpochsSpec | None, part: PartSettings, keys: Keys) -> EpochsSpec | None:
    """The suite's epochs with the reductions of one of several scorers."""
    if part.reduce is None:
        return epochs
    if epochs is None:
        raise SettingsError("found it in a suite without epochs; add epochs, such as epochs: 8", (*keys, "reduce"))
    problem = reduction_problem(part.reduce, epochs.count)
    if problem is not None:
        raise SettingsError(problem, (*keys, "reduce"))
    return epochs.model_copy(update={"reduce": part.reduce})


def _check_reductions(epochs: EpochsSpec | None, scorer: Scorer, keys: Keys) -> None:
    """Right replies can only be counted where the scorer says which are, or a threshold does."""
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
    """The scorer of settings that stand at ``keys``, which ``SettingsError`` then names."""
    try:
        return make_scorer(settings, custom)
    except SettingsError as error:
        raise SettingsError(str(error), (*keys, *error.keys)) from None
    except ValueError as error:
        raise SettingsError(str(error), keys) from None


def make_scorer(settings: ScoreSettings, custom: Mapping[str, Callable[..., Any]] = NO_SCORERS) -> Scorer:
    """The scorer of a suite; ``custom`` are those registered from Python, by name.

    ``ValueError`` says in one line why these settings cannot be used; the keys of a ``SettingsError`` lead on from
    those of ``settings``.
    """
    if isinstance(settings, SeveralSettings):
        return suite_scorer(settings, custom)
    if isinstance(settings, CustomSettings):
        return make_custom_scorer(settings, custom)
    return settings.make()
