"""The final answer of a reply, compared as mathematics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, model_validator

from pytest_llmeval.data.code_version import installed_version
from pytest_llmeval.data.spec import FROM_LIST, refuse
from pytest_llmeval.scorers.mathematics import worker as math_worker
from pytest_llmeval.scorers.mathematics.answers import (
    MAX_REPLY,
    Answer,
    Extract,
    find_answer,
    for_math_verify,
    same_text,
)
from pytest_llmeval.scorers.mathematics.lm_eval import equal_texts, normal_form, normalized_answer, published_box
from pytest_llmeval.scorers.mathematics.quantities import are_equal, in_one_base, quantity, split_unit, undressed
from pytest_llmeval.scorers.reading.stated import MAX_ANSWER, last_box
from pytest_llmeval.scoring.base import PreparedSample, ScorerSettings, SettingsScorer
from pytest_llmeval.scoring.bounded_process import BoundedProcess, Bounds, ProcessError
from pytest_llmeval.scoring.references import quote, several_or_one, target_texts
from pytest_llmeval.scoring.responses import reply, right_or_wrong, said_to_be_cut
from pytest_llmeval.types import JSON, Response, Sample, Score

__all__ = ["Comparison", "MathProcess", "MathScorer", "MathSettings", "MathVerdict", "same_time", "shared_process"]

_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|textit|textrm|mbox|mathrm|mathbf|operatorname)\s*\{([^{}]*)\}")
_WORD = re.compile(r"(?<![\\A-Za-z])(?:[A-Za-z]{2,}|[AaPp]\.?\s?[Mm]\b)")
_TIME = re.compile(r"(?:at)?(\d{1,2})(?::(\d{2}))?(?:([ap])\.?m\.?)?")
_SPACES = re.compile(r"\\(?:left|right|q?quad)(?![A-Za-z])|\\[!,;: ]|[\s~$]")


def _same_words(one: str, other: str) -> bool:
    r"""Return whether two answers, one of them words, are one text but for ``\text``, spaces, case and a full stop.

    Words are what holds a word of letters, in ``\text`` or without: ``4:30 \text{ p.m.}``, ``Monday.``
    """
    first, second = _unwrapped(one), _unwrapped(other)
    if not (_WORD.search(first) or _WORD.search(second)):
        return False
    return _bare(first) == _bare(second) != ""


def same_time(one: str, other: str) -> bool | None:
    """Return whether two times of day are the same, ``4:30 p.m.`` and ``16:30``; None where none says so by a.m. or
    p.m.

    Math-Verify takes 4:30 for 4/30 of a unit. Where one does not say a.m. or p.m., it may be either.
    """
    found = [_TIME.fullmatch(_SPACES.sub("", _unwrapped(text)).casefold()) for text in (one, other)]
    if found[0] is None or found[1] is None or not any(match[3] for match in found if match is not None):
        return None
    return not _clocks(found[0]).isdisjoint(_clocks(found[1]))


def _clocks(found: re.Match[str]) -> frozenset[tuple[int, int]]:
    """Return the hours and minutes of a day that a time can mean."""
    hour, minute = int(found[1]), int(found[2] or 0)
    if found[3]:
        return frozenset(((hour % 12 + 12 * (found[3] == "p"), minute),))
    return frozenset((each, minute) for each in ((hour, (hour + 12) % 24) if hour <= 12 else (hour,)))


def _unwrapped(text: str) -> str:
    return _TEXT_COMMAND.sub(r" \1 ", text)


def _bare(text: str) -> str:
    return _SPACES.sub("", text).rstrip(".").casefold()


MathCompare: TypeAlias = Literal["math_verify", "hendrycks", "minerva"]


class MathSettings(ScorerSettings):
    """The final mathematical expression of the reply equals that of the target."""

    kind: Literal["math"] = "math"
    compare: MathCompare = Field(
        "math_verify",
        description="What equal means: math_verify compares values (1/2 and 0.5, sets in any order, intervals); "
        "hendrycks compares texts as lm-eval's hendrycks_math does, minerva texts and then differences as its "
        "minerva_math does.",
    )
    extract: Annotated[tuple[Extract, ...] | None, FROM_LIST] = Field(
        None,
        json_schema_extra={"minItems": 1},
        description="Where the reply's answer is looked for: the first of these that finds one. boxed: the last "
        "complete \\boxed{} or \\fbox{}. answer: after the last 'answer is', 'answer:' or '####'. math: the last "
        "expression between $ $, \\( \\) or \\[ \\]. number: the last number. dollars: between the first and the "
        "last $, else the whole reply. aime: the last \\boxed{} as lm-eval's aime reads it, else dollars. minerva: "
        "between 'Final Answer: The final answer is' and '. I hope it is correct.'. whole: the whole "
        "reply. math_verify: Math-Verify searches reply and target itself. By default boxed, answer, math, number for "
        "compare math_verify; dollars for hendrycks; minerva for minerva.",
    )
    rel_tol: float | None = Field(
        None,
        ge=0,
        lt=1,
        description="How far two numbers may be apart, as a part of the larger one (0.01: 1%), also in sets, "
        "intervals, tuples and matrices; for compare math_verify. By default rational numbers are compared exactly "
        "(1/3 is not 0.33), and a decimal equals an irrational number if it is within a millionth of it.",
    )
    timeout_s: float = Field(
        5.0,
        gt=0,
        le=3600,
        description="Seconds of processor time that one comparison may take; a reply that needs more is wrong.",
    )
    memory_mb: int = Field(
        512,
        ge=64,
        description="MiB that one comparison may take beyond its libraries (on Linux; elsewhere its time alone is "
        "bounded); a reply that needs more is wrong.",
    )

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Return the key of a setting that the suite does without."""
        return ("rel_tol",) if self.rel_tol is None else ()

    @model_validator(mode="after")
    def _a_tolerance_is_for_values(self) -> MathSettings:
        if self.rel_tol is not None and (self.compare != "math_verify" or self.extract == ("math_verify",)):
            raise refuse(
                "score.math.rel_tol: found a tolerance with a published comparison, which has its own rule; remove it, "
                "or use compare: math_verify"
            )
        return self

    @model_validator(mode="after")
    def _extraction_and_comparison_agree(self) -> MathSettings:
        if self.extract is None:
            return self
        if not self.extract:
            raise refuse("score.math.extract: found an empty list, expected one name or more, such as [boxed, answer]")
        if "math_verify" in self.extract and (len(self.extract) > 1 or self.compare != "math_verify"):
            raise refuse(
                "score.math.extract: math_verify searches both reply and target: use it alone, with compare: "
                "math_verify"
            )
        return self

    def make(self) -> MathScorer:
        return MathScorer.of(self)


Comparison = Literal["math_verify", "searched", "minerva"]

_WAYS: Mapping[MathCompare, tuple[Extract, ...]] = MappingProxyType(
    {
        "math_verify": ("boxed", "answer", "math", "number"),
        "hendrycks": ("dollars",),
        "minerva": ("minerva",),
    }
)

_ONE = Answer("1", "whole")
_EXTRA = "install it with: pip install 'pytest-llmeval-suites[math]'"


class MathScorer(SettingsScorer[MathSettings]):
    """A scorer that is right if the reply's answer equals that of a target. ``of`` makes it, and checks that the
    libraries are there.

    What is compared by value is compared in a process with bounds. A reply on which that runs out of time or memory
    has not given the answer: it is wrong, and ``details`` say why. A target that does so by itself leaves the sample
    unscored, for that is the suite's mistake.
    """

    @classmethod
    def of(cls, settings: MathSettings) -> MathScorer:
        """Raise ``ValueError`` where a library that these settings need is not installed."""
        if settings.compare != "hendrycks":
            _check_libraries(settings.compare)
        return cls(settings)

    @property
    def ways(self) -> tuple[Extract, ...]:
        return self.settings.extract or _WAYS[self.settings.compare]

    @property
    def version(self) -> int:
        """Return 3, which compares rational numbers exactly, with their units; 2 finds a number as version 2 of
        ``number`` does.
        """
        if self.settings.compare == "math_verify" and not self._searches_itself:
            return 3
        return 2 if "number" in self.ways else 1

    def present(self, sample: Sample) -> PreparedSample:
        r"""Read a target: a number, LaTeX, a worked solution that ends in ``\boxed{}``, or a list of these, any of
        which is right.

        Raise ``ValueError`` for a target without an answer, and for one that is longer than an answer can be.
        """
        texts = target_texts(sample)
        answers = [self._expected(text) for text in texts]
        if self._searches_itself:
            return PreparedSample(sample=sample, references=texts, target=several_or_one(answers))
        return PreparedSample(sample=sample, references=tuple(answers), target=several_or_one(answers))

    def score(self, presented: PreparedSample, responses: Sequence[Response]) -> Score:
        """Judge accuracy; a reply in which no answer is found is wrong. Details say how it was found and read, and
        why it is wrong.
        """
        text = reply(responses)
        if self._searches_itself:
            answer = Answer(text[-MAX_REPLY:], "math_verify") if text.strip() else None
        else:
            answer = find_answer(text, self.ways)
        cut = said_to_be_cut(text, MAX_REPLY)
        if answer is None:
            return right_or_wrong(False, None, details={"why": f"no answer found by {', '.join(self.ways)}", **cut})
        details: dict[str, JSON] = {}
        is_right = False
        shown = None if self._searches_itself else answer.text
        is_too_much = False
        for reference in presented.references:
            verdict = self._text_verdict(reference, answer)
            if verdict is None:
                if is_too_much:
                    continue  # it would take as much for every other target
                verdict = self._value_verdict(reference, answer)
                is_too_much = verdict.problem is not None
            # A target that cannot be compared with 1 either is at fault itself.
            if verdict.problem is not None and (fault := self._fault(reference)) is not None:
                return Score(status="unscored", answer=shown, reason=f"target {quote(reference)}: {fault}")
            details = {"extracted_by": answer.by, **_details(verdict), **cut}
            shown = verdict.reply if self._searches_itself else answer.text
            is_right = verdict.equal
            if is_right:
                break
        return right_or_wrong(is_right, shown, details=details, vote=self._vote(shown))

    def _vote(self, answer: str | None) -> str | None:
        r"""Return one form for ``1/2``, ``0.5``, ``\frac{1}{2}`` and ``\dfrac12``, by their texts alone.

        It is the same for right and for wrong answers, so that neither gathers more votes than the other.
        """
        if answer is None:
            return None
        if self.settings.compare == "hendrycks":
            return normal_form(answer)  # for it 1/4 is not 0.25
        form = normalized_answer(answer) if self.settings.compare == "minerva" else normal_form(answer)
        number = quantity(form)
        return form if number is None else f"{number.value.numerator:x}/{number.value.denominator:x}"

    @property
    def _searches_itself(self) -> bool:
        return self.ways == ("math_verify",)

    def _expected(self, text: str) -> str:
        box = last_box if self.settings.compare == "math_verify" else published_box
        boxed = box(text[-MAX_REPLY:])
        if boxed is not None:
            answer = boxed
        else:
            found = find_answer(text, ("answer",)) if self.settings.compare == "math_verify" else None
            answer = text if found is None else found.text
        if not answer.strip():
            raise ValueError(f"target {quote(text)} has no answer to compare with")
        if len(answer) > MAX_ANSWER:
            raise ValueError(f"target {quote(text)} is longer than the {MAX_ANSWER} characters that an answer can have")
        return answer

    def _fault(self, reference: str) -> str | None:
        """Return why a target cannot be compared, whatever the reply; None where it can."""
        return (self._text_verdict(reference, _ONE) or self._value_verdict(reference, _ONE)).problem

    def _text_verdict(self, reference: str, answer: Answer) -> MathVerdict | None:
        """Return what the texts say: equal ones are equal, also where nothing can be computed. It is None where values
        decide.
        """
        match self._comparison:
            case None:
                return MathVerdict(equal_texts(answer.text, reference))
            case "searched":
                return None
        if self._comparison == "minerva":
            one, other = self._comparable(reference, answer)
            return MathVerdict(True) if one == other != "" else None
        return self._plain_verdict(reference, answer.text)

    def _plain_verdict(self, reference: str, answer: str) -> MathVerdict | None:
        """Judge what needs no algebra: equal texts, times of day, numerals with a base, rational numbers, and units."""
        if same_text(reference, answer):
            return MathVerdict(True)
        for decided in (same_time(reference, answer), in_one_base(reference, answer)):
            if decided is not None:
                return MathVerdict(decided)
        expected, found = quantity(reference), quantity(answer)
        if expected is not None and found is not None:
            equal = are_equal(expected, found, self.settings.rel_tol)
            if equal is not None:
                return MathVerdict(equal, str(expected.value), str(found.value))
        units = [split_unit(undressed(text))[1] for text in (reference, answer)]
        if all(units) and not any(unit in units[1] for unit in units[0]):
            return MathVerdict(False, note="their units differ")
        is_same = _same_words(reference, answer) or same_text(for_math_verify(reference), for_math_verify(answer))
        return MathVerdict(True) if is_same else None

    def _value_verdict(self, reference: str, answer: Answer) -> MathVerdict:
        """Return what the process says."""
        assert self._comparison is not None
        one, other = self._comparable(reference, answer)
        return shared_process().compare(self._comparison, one, other, self._bounds, self.settings.rel_tol)

    def _comparable(self, reference: str, answer: Answer) -> tuple[str, str]:
        """Return target and answer as they are compared."""
        match self._comparison:
            case "math_verify":
                return for_math_verify(reference), for_math_verify(answer.text)
            case "minerva":
                return normalized_answer(reference), normalized_answer(answer.text)
        return reference, answer.text

    @property
    def _comparison(self) -> Comparison | None:
        """Return how values are compared; None where only texts are."""
        if self.settings.compare == "hendrycks":
            return None
        if self._searches_itself:
            return "searched"
        return "minerva" if self.settings.compare == "minerva" else "math_verify"

    @property
    def _bounds(self) -> Bounds:
        return Bounds(self.settings.timeout_s, self.settings.memory_mb, "score.math")


def _details(verdict: MathVerdict) -> dict[str, JSON]:
    """Return how the two were read, and why they are not equal where no value says so."""
    found: dict[str, JSON] = {"parsed": verdict.reply, "parsed_target": verdict.target}
    why = verdict.problem or verdict.note
    return {name: value for name, value in {**found, "why": why}.items() if value is not None}


def _check_libraries(compare: MathCompare) -> None:
    if installed_version("math-verify") is None:
        raise ValueError(f"math with compare: {compare} needs Math-Verify; {_EXTRA}")
    antlr = installed_version("antlr4-python3-runtime")
    if compare == "minerva" and not (antlr or "").startswith(("4.11", "4.12", "4.13")):
        found = "which is not installed" if antlr is None else f"and not {antlr}"
        raise ValueError(
            "math with compare: minerva reads LaTeX with sympy, which needs antlr4-python3-runtime 4.11 to 4.13, "
            f"{found}; {_EXTRA}"
        )


@dataclass(frozen=True, slots=True)
class MathVerdict:
    """A judgement of whether two expressions are equal, with what each was read as (None: as text only).

    ``note`` says what a library could not do with them. ``problem`` says why they were not compared at all: for want of
    time or memory, or because the process ended or did not start. ``equal`` is then False.
    """

    equal: bool
    target: str | None = None
    reply: str | None = None
    note: str | None = None
    problem: str | None = None


class MathProcess(BoundedProcess):
    """A process that compares one pair at a time; a second thread waits."""

    def __init__(self) -> None:
        super().__init__(lambda: str(math_worker.__file__), "compares mathematics")

    def compare(
        self, comparison: Comparison, target: str, reply: str, bounds: Bounds, rel_tol: float | None = None
    ) -> MathVerdict:
        """Compare a target and a reply. Never raises for what they hold: ``problem`` says what went wrong.

        ``rel_tol`` is how far numbers may be apart, for ``math_verify`` alone.
        """
        arguments = {"target": target, "reply": reply, **({} if rel_tol is None else {"rel_tol": rel_tol})}
        try:
            return MathVerdict(**self.compute(comparison, arguments, bounds))
        except ProcessError as error:
            return MathVerdict(False, problem=str(error))


@cache
def shared_process() -> MathProcess:
    """Return the comparing process of this process, whatever the number of suites and scorers.

    It is the only thing kept for all: a scorer is a frozen value, and a process of its own for each would cost every
    suite a second and a hundred megabytes. It holds no result; a comparison is the same in any process.
    """
    return MathProcess()
