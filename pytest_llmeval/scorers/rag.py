"""A judge on answers that were written from retrieved contexts, and on what was retrieved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Annotated, Literal, Self, TypeAlias, TypeVar

from pydantic import Field, field_validator, model_validator

from pytest_llmeval.data.spec import FROM_LIST, each_once, refuse_here
from pytest_llmeval.models.base import JudgeSteps
from pytest_llmeval.scorers.judging import rag_verdicts as forms
from pytest_llmeval.scorers.judging.judged_scorer import MAX_REPLY, JudgedScorer, JudgedSettings, question_of
from pytest_llmeval.scorers.judging.rag_verdicts import (
    Found,
    Gathering,
    average_precision,
    closeness_of,
    number_of,
    problem_of,
    share,
    shown_verdict,
)
from pytest_llmeval.scorers.judging.verdicts import AskingVerdict, Verdict, no_verdict, verdict
from pytest_llmeval.scoring.base import Better, PreparedSample, side_by_side
from pytest_llmeval.scoring.references import no_column, quote
from pytest_llmeval.scoring.responses import reply, said_to_be_cut
from pytest_llmeval.text.documents import context_texts
from pytest_llmeval.text.wording import Keys
from pytest_llmeval.types import (
    JSON,
    GenerateResponse,
    Response,
    Role,
    Sample,
    Score,
)

__all__ = ["RagScorer", "RagSettings"]

RagMetric: TypeAlias = Literal[
    "faithfulness",
    "answer_relevance",
    "context_precision",
    "context_recall",
    "faithfulness_ragas",
    "answer_relevance_ragas",
    "context_recall_ragas",
]


class RagSettings(JudgedSettings):
    """A judge on answers that were written from retrieved contexts, and on what was retrieved."""

    kind: Literal["rag"] = "rag"
    needs_reply = False
    metrics: Annotated[tuple[RagMetric, ...], FROM_LIST] = Field(
        ("faithfulness", "answer_relevance", "context_precision", "context_recall"),
        json_schema_extra={"minItems": 1, "uniqueItems": True},
        description="What is measured. Each costs requests of its own.",
    )
    contexts: str | None = Field(
        None,
        description="The column with the retrieved texts, best first: a list of texts, or of mappings with text, "
        "content or page_content. Default: those that the model returns with its answer, else the column contexts.",
    )
    k: int | None = Field(None, ge=1, description="How many of the texts count for context_precision. Default: all.")
    questions: int = Field(
        3, ge=1, le=20, description="How many questions the judge makes of an answer, for answer_relevance."
    )
    max_tokens: int = Field(2048, ge=1, description="Tokens that a verdict, or a list of claims, may have.")

    @property
    def optional_columns(self) -> tuple[str, ...]:
        return (self.contexts or "contexts",)

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: tuple[RagMetric, ...]) -> tuple[RagMetric, ...]:
        return each_once("metric")(metrics)

    @model_validator(mode="after")
    def _of_use(self) -> Self:
        for key, metric in (("k", "context_precision"), ("questions", "answer_relevance")):
            if key in self.model_fields_set and not any(name.startswith(metric) for name in self.metrics):
                raise refuse_here(f"it is for {metric}, which is not among the metrics; remove it", key)
        return self

    def make(self) -> RagScorer:
        return RagScorer.of(self)


T = TypeVar("T")
COLUMN = "contexts"
"""The column of the contexts if the suite names none and the model has returned none."""
_Part: TypeAlias = Literal["question", "answer", "reference", "context"]

_NEEDS: Mapping[RagMetric, tuple[_Part, ...]] = MappingProxyType(
    {
        "faithfulness": ("answer", "context"),
        "answer_relevance": ("question", "answer"),
        "context_precision": ("question", "context"),
        "context_recall": ("reference", "context"),
        "faithfulness_ragas": ("answer", "context"),
        "answer_relevance_ragas": ("question", "answer"),
        "context_recall_ragas": ("reference", "context"),
    }
)

_LACKS: Mapping[_Part, str] = MappingProxyType(
    {
        "question": "there is no question",
        "answer": "the answer is empty",
        "reference": "there is no reference answer",
        "context": "there is no context",
    }
)

_BETWEEN_CHUNKS = "\n\n"
_EMPTY = Verdict(value=forms.Judged(False, "the chunk is empty"), problem=None, replies=())
_SAY_WHERE = "name the column that has them, score.rag.contexts"
_MAX_SHOWN = 500
"""Characters of a chunk that stand beside its verdict."""
_RAGAS_TEMPERATURE = 0.3
"""The temperature of requests whose replies are to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Material:
    """The texts that are judged. ``references`` are texts of which each answers the question; ``chunks`` are in rank
    order.
    """

    question: str
    answer: str
    references: tuple[str, ...]
    chunks: tuple[str, ...]

    @property
    def reference(self) -> str:
        """Return the reference whose claims are looked for."""
        return self.references[0] if self.references else ""

    @property
    def context(self) -> str:
        return _BETWEEN_CHUNKS.join(self.chunks)

    def has(self, part: _Part) -> bool:
        text: str = getattr(self, part)
        return bool(text.strip())


class RagScorer(JudgedScorer[RagSettings]):
    """Each metric is a number from the verdicts on a sample, or not measurable; one that did not come unscores it."""

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.settings.metrics

    @property
    def better(self) -> Mapping[str, Better]:
        return {}

    @property
    def roles(self) -> frozenset[Role]:
        has_relevance = any(name.startswith("answer_relevance") for name in self.metrics)
        return frozenset(("judge", "embedder") if has_relevance else ("judge",))

    def warnings(self, samples: Sequence[Sample]) -> list[tuple[str, Keys]]:
        lacking: Mapping[_Part, tuple[bool, str]] = {
            "question": (all(self._lacks_question(sample) for sample in samples), "a question"),
            "reference": (all(sample.target is None for sample in samples), "a target"),
            "context": (all(self._lacks_contexts(sample) for sample in samples), f"contexts ({_SAY_WHERE})"),
        }
        found: list[tuple[str, Keys]] = []
        for part, (is_lacking, what) in lacking.items():
            wanting = [name for name in self.settings.metrics if part in _NEEDS[name]]
            if wanting and samples and is_lacking:
                text = (
                    f"no sample has {what}, without which {wanting[0]} is not measurable: leave it out of the metrics"
                )
                found.append((text, ("rag", "metrics")))
        return found

    def variables(self, presented: PreparedSample) -> Mapping[str, object]:
        """Return an empty question for a reply that is there already: no model is shown the prompt."""
        return {"question": ""} if self._lacks_question(presented.sample) else {}

    def _lacks_question(self, sample: Sample) -> bool:
        return sample.response is not None and not sample.question and sample.variables.get("question") is None

    def _lacks_contexts(self, sample: Sample) -> bool:
        """Tell whether a recorded reply came without contexts, and its row has none either."""
        return sample.response is not None and COLUMN not in sample.variables and self.settings.contexts is None

    def present(self, sample: Sample) -> PreparedSample:
        """Check the sample. ``ValueError`` for contexts that are no texts, and for want of the column that is named."""
        if self._needs_contexts:
            name = self.settings.contexts
            if name is not None and name not in sample.variables:
                raise no_column(sample, name)
            self._of_column(sample)
        return super().present(sample)

    @property
    def _needs_contexts(self) -> bool:
        return any("context" in _NEEDS[name] for name in self.settings.metrics)

    def _of_column(self, sample: Sample) -> tuple[str, ...] | None:
        """Return the contexts that the data hold; None where they have no such column."""
        name = self.settings.contexts or COLUMN
        if name not in sample.variables:
            return None
        try:
            return context_texts(sample.variables[name])
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None

    def asking(self, presented: PreparedSample, responses: Sequence[Response]) -> JudgeSteps:
        """Return all metrics at the same time. Unscored unless there are all verdicts, and all embeddings."""
        answer, own = reply(responses), _contexts_of(responses[0])
        chunks = own if own is not None and self.settings.contexts is None else self._of_column(presented.sample)
        if chunks is None and self._needs_contexts and presented.sample.response is None:
            reason = f"the model returned no contexts with its answer, and the data have no column {quote(COLUMN)}"
            return Score(status="unscored", reason=f"{reason}: {_SAY_WHERE}")
        material = _Material(
            question=question_of(presented),
            answer=answer[:MAX_REPLY],
            references=tuple(text for text in presented.references if text.strip()),
            chunks=chunks or (),
        )
        metrics = self.settings.metrics
        judged = yield from side_by_side([self._judging(name, material) for name in metrics])
        found = dict(zip(metrics, judged, strict=True))
        verdicts: list[JSON] = [{"metric": name, **said} for name, one in found.items() for said in one.verdicts]
        details: dict[str, JSON] = {"verdicts": verdicts, **_said(answer, material)}
        problem = next((one.problem for one in found.values() if one.problem is not None), None)
        if problem is not None:
            return no_verdict(problem, details)
        values: dict[str, float] = {name: one.value for name, one in found.items() if one.value is not None}
        return Score(
            status="scored",
            answer=", ".join(f"{name} {value:.3g}" for name, value in values.items()) or None,
            values=values,
            details=details,
            not_measurable={name: one.reason for name, one in found.items() if one.reason is not None},
        )

    def _judging(self, metric: RagMetric, material: _Material) -> Gathering[Found]:
        lacking = next((part for part in _NEEDS[metric] if not material.has(part)), None)
        if lacking is not None:
            return Found(reason=_LACKS[lacking])
        makers: Mapping[RagMetric, Callable[[_Material], Gathering[Found]]] = {
            "faithfulness": lambda one: self._supported_claims(one, "answer", self._one_by_one),
            "faithfulness_ragas": lambda one: self._supported_claims(one, "answer", self._together),
            "context_recall": lambda one: self._supported_claims(one, "reference", self._one_by_one),
            "context_recall_ragas": self._attributed_sentences,
            "context_precision": self._relevant_chunks,
            "answer_relevance": self._relevance,
            "answer_relevance_ragas": self._relevance_as_ragas,
        }
        return (yield from makers[metric](material))

    def _verdict(self, form: forms.Form[T], *parts: tuple[str, str]) -> AskingVerdict[T]:
        return verdict(self.request_on(parts, form.task, form.schema), form.read)

    # Claims, and whether the context supports them

    def _supported_claims(
        self,
        material: _Material,
        part: Literal["answer", "reference"],
        decide: Callable[[_Material, Sequence[str]], Gathering[Found]],
    ) -> Gathering[Found]:
        text = material.answer if part == "answer" else material.reference
        claims = yield from self._verdict(forms.CLAIMS, ("Question", material.question), ("Answer", text))
        shown = shown_verdict(claims, {"asked": "claims"}, lambda texts: {"value": [*texts]})
        if claims.value is None:
            return Found(problem=claims.problem, verdicts=(shown,))
        if not claims.value:
            whose = "answer" if part == "answer" else "reference answer"
            return Found(reason=f"the {whose} makes no claim", verdicts=(shown,))
        found = yield from decide(material, claims.value)
        return found.after(shown)

    def _one_by_one(self, material: _Material, claims: Sequence[str]) -> Gathering[Found]:
        # The context comes first: a server that keeps the beginnings of prompts reads it once.
        context = ("Context", material.context[:MAX_REPLY])
        found = yield from side_by_side([self._verdict(forms.SUPPORTED, context, ("Claim", claim)) for claim in claims])
        verdicts = tuple(
            shown_verdict(one, {"asked": "supported", "claim": claim}, _yes_or_no)
            for claim, one in zip(claims, found, strict=True)
        )
        return number_of(found, verdicts, share)

    def _together(self, material: _Material, claims: Sequence[str]) -> Gathering[Found]:
        numbered = [(f"Claim {number}", claim) for number, claim in enumerate(claims, 1)]
        form = forms.supported_together(len(claims))
        found = yield from self._verdict(form, ("Context", material.context[:MAX_REPLY]), *numbered)
        shown = shown_verdict(
            found,
            {"asked": "supported"},
            lambda value: {
                "value": [
                    {"claim": claim, "value": one.holds, "reasons": one.reason}
                    for claim, one in zip(claims, value, strict=True)
                ]
            },
        )
        if found.value is None:
            return Found(problem=found.problem, verdicts=(shown,))
        return Found(value=share([one.holds for one in found.value]), verdicts=(shown,))

    def _attributed_sentences(self, material: _Material) -> Gathering[Found]:
        found = yield from self._verdict(
            forms.ATTRIBUTED_SENTENCES,
            ("Question", material.question),
            ("Context", material.context[:MAX_REPLY]),
            ("Answer", material.reference),
        )
        shown = shown_verdict(
            found,
            {"asked": "attributed sentences"},
            lambda value: {
                "value": [{"sentence": one.text, "value": one.holds, "reasons": one.reason} for one in value]
            },
        )
        if found.value is None:
            return Found(problem=found.problem, verdicts=(shown,))
        if not found.value:
            return Found(reason="the reference answer has no sentence", verdicts=(shown,))
        return Found(value=share([one.holds for one in found.value]), verdicts=(shown,))

    # Chunks

    def _relevant_chunks(self, material: _Material) -> Gathering[Found]:
        """Judge each chunk. An empty one has its rank, is of no use, and needs no verdict."""
        references = [("Reference answer", text) for text in material.references]
        chunks = material.chunks[: self.settings.k]
        parts = [("Question", material.question), *references]
        asked = [chunk for chunk in chunks if chunk.strip()]
        found = yield from side_by_side(
            [self._verdict(forms.RELEVANT, *parts, ("Text", chunk[:MAX_REPLY])) for chunk in asked]
        )
        left = iter(found)
        ranked = [next(left) if chunk.strip() else _EMPTY for chunk in chunks]
        verdicts = tuple(
            shown_verdict(one, {"asked": "relevant", "rank": rank, "chunk": chunk[:_MAX_SHOWN]}, _yes_or_no)
            for rank, (chunk, one) in enumerate(zip(chunks, ranked, strict=True), 1)
        )
        return number_of(ranked, verdicts, average_precision)

    # Questions

    def _relevance(self, material: _Material) -> Gathering[Found]:
        made = yield from self._verdict(forms.questions(self.settings.questions), ("Answer", material.answer))
        shown = shown_verdict(made, {"asked": "questions"}, lambda texts: {"value": [*texts]})
        if made.value is None:
            return Found(problem=made.problem, verdicts=(shown,))
        found = yield from closeness_of(material.question, made.value)
        return found.after(shown)

    def _relevance_as_ragas(self, material: _Material) -> Gathering[Found]:
        """Return one asking for each question. Where each of them finds the answer noncommittal, it is worth 0."""
        count, temperature = self.settings.questions, self.settings.temperature
        if count > 1:
            temperature = max(temperature, _RAGAS_TEMPERATURE)
        form, part = forms.COMMITTED_QUESTION, ("Answer", material.answer)
        requests = [self.request_on([part], form.task, form.schema, number=number) for number in range(count)]
        found = yield from side_by_side(
            [verdict(replace(request, temperature=temperature), form.read) for request in requests]
        )
        shown = tuple(shown_verdict(one, {"asked": "question"}, _question) for one in found)
        made = [one.value for one in found if one.value is not None]
        if len(made) < len(found):
            return Found(problem=problem_of(found), verdicts=shown)
        if all(one.is_noncommittal for one in made):
            return Found(value=0.0, verdicts=shown)
        closeness = yield from closeness_of(material.question, [one.text for one in made])
        return closeness.after(*shown)


def _yes_or_no(one: forms.Judged) -> dict[str, JSON]:
    return {"value": one.holds, "reasons": one.reason}


def _question(one: forms.Question) -> dict[str, JSON]:
    return {"value": one.text, "noncommittal": one.is_noncommittal}


def _contexts_of(response: Response) -> tuple[str, ...] | None:
    return response.contexts if isinstance(response, GenerateResponse) else None


def _said(answer: str, material: _Material) -> dict[str, JSON]:
    """Return the names of the texts that were cut for the judge."""
    size = len(material.context)
    context: dict[str, JSON] = {"context_chars": size, "judged_context_chars": MAX_REPLY} if size > MAX_REPLY else {}
    return {**said_to_be_cut(answer, MAX_REPLY), **context}
