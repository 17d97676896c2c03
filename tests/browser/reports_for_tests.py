"""Reports for the tests in a browser: one of every kind of sample, hostile ones, and large ones.

Their numbers are computed from their records, as those of a session are.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, overload

from pytest_llmeval.gates.decide import decide
from pytest_llmeval.gates.earlier_reports import EarlierReports
from pytest_llmeval.gates.options import BaselineSettings, GateOptions, Selection
from pytest_llmeval.reporting.report.records import Record, SuiteInfo, without_texts
from pytest_llmeval.reporting.report.report import GateOutcome, GateResult, Report, group_of_record
from pytest_llmeval.reporting.report.summaries import GroupRecords, with_suites
from pytest_llmeval.reporting.writers.formats import format_of
from pytest_llmeval.scoring.metrics.calibration import calibration_values, softmax
from pytest_llmeval.types import JSON, EngineUse

__all__ = [
    "LargeRecords",
    "against_baseline",
    "assembled",
    "hostile_models",
    "hostile_names",
    "hostile_report",
    "large_report",
    "plain_report",
    "write_page",
]

MODELS = ("small-model", "large-model")


def write_page(report: Report, folder: Path, name: str = "report.html") -> Path:
    """The report as ``--llm-report`` writes it."""
    path = folder / name
    found = format_of(path)
    assert found is not None
    found.write(report, path)
    return path


def assembled(
    records: Sequence[Record], infos: Sequence[SuiteInfo], models: Sequence[str] = MODELS, **values: Any
) -> Report:
    """The report of a session of these models that gave these records, with its numbers."""
    compared = tuple(models) if len(models) > 1 else ()
    by_name = {info.name: info for info in infos}
    own: dict[tuple[str, str | None], list[Record]] = {}
    for record in records:
        own.setdefault(group_of_record(record, compared), []).append(without_texts(record))
    groups = {
        (suite, model): GroupRecords(
            records=members, info=by_name[suite], num_expected=len(members), model=model or models[0], engine=_ENGINE
        )
        for (suite, model), members in own.items()
    }
    options: dict[str, JSON] = {"model": list(models)}
    known: dict[str, Any] = {
        "created": "2026-03-01T12:00:00+00:00",
        "seconds": 83.5,
        "exit_code": 0,
        "environment": {"python": "3.11.9", "platform": "Linux", "versions": {"pytest": "9.0.0", "torch": "2.9.0"}},
        "models": tuple({"name": name, "device": "cpu", "dtype": "float32"} for name in models),
        "options": options,
    }
    problems = list(values.pop("problems", ()))
    bare = Report(
        **{**known, **values, "options": {**options, **values.get("options", {})}}, suites=(), records=records
    )
    return with_suites(bare, groups, compared, problems)


_ENGINE = EngineUse(engine="tree", reason="audited", num_audited=8, largest_difference=1.5e-6, tolerance=0.02)


# One of each kind

CITIES = ("Alba", "Brin", "Corda", "Dulm", "Esk", "Faro", "Gant", "Hove")
CAPITALS = SuiteInfo(
    name="capitals",
    path="suites/capitals.yaml",
    description="Which city is the capital?",
    scorer="choice",
    metrics=("accuracy", "brier", "nll", "ece"),
    gates={"accuracy >= 0.3": 12, "accuracy >= 0.95": 13},
)
ESSAYS = SuiteInfo(
    name="essays",
    path="suites/essays.yaml",
    description="Short essays, judged by a rubric.",
    scorer="rubric",
    judged_by=("judge-model",),
    metrics=("rubric",),
)
ERRANDS = SuiteInfo(
    name="errands",
    path="suites/errands.yaml",
    description="An agent runs errands, four times each.",
    scorer="exact",
    metrics=("accuracy", "pass@1", "pass@2", "pass@4"),
)


def capitals(model: str, count: int = 130) -> Iterator[Record]:
    """Questions with four options and their probabilities; a few could not be scored."""
    draw = random.Random(f"capitals {model}")
    skill = {"small-model": 0.7, "large-model": 1.4}.get(model, 1.0)
    for number in range(count):
        order = random.Random(number).sample(CITIES, 4)
        right = number % 4
        scores = [draw.gauss(0, 1) + (skill if place == right else 0) for place in range(4)]
        place = max(range(4), key=scores.__getitem__)
        is_right = place == right
        record = Record(
            suite="capitals",
            id=f"capital-{number:03}",
            nodeid=f"suites/capitals.yaml::capital-{number:03}",
            model=model,
            status="correct" if is_right else "wrong",
            category=("north", "south", "islands")[number % 3],
            question=f"Which city is the capital of country {number}?",
            prompt=f"Answer with a city.\n\nQuestion: Which city is the capital of country {number}?\nAnswer:",
            choices=tuple(order),
            target=order[right],
            answer=order[place],
            values={
                "accuracy": float(is_right),
                "brier": sum((p - (at == right)) ** 2 for at, p in enumerate(softmax(scores))) / 4,
                **calibration_values(scores, [right]),
            },
            chance=0.25,
            details={"loglikelihoods": [*scores], "probabilities": [*softmax(scores)], "right": [right]},
            num_prompt_tokens=20,
            num_tokens=4,
            seconds=0.01 + draw.random() / 100,
            is_timed=True,
            cost=0.0001 * (1 + number % 3),
        )
        if number % 40 == 39:
            reason = "the model raised RequestError: the prompt has 9 tokens too many"
            record = replace(record, status="unscored", reason=reason, answer=None, values={}, details={})
        yield record


def essays(model: str, count: int = 12) -> Iterator[Record]:
    """Texts with verdicts and their reasons: scored, neither right nor wrong."""
    draw = random.Random(f"essays {model}")
    for number in range(count):
        given = [draw.random() < 0.6 for _ in range(4)]
        verdicts: list[JSON] = [
            {"metric": name, "value": "pass" if passed else "fail", "reasons": f"It {said}."}
            for name, passed, said in zip(
                ("polite", "short", "true", "complete"),
                given,
                ("says please", "has three sentences", "agrees with the source", "leaves nothing out"),
                strict=True,
            )
        ]
        yield Record(
            suite="essays",
            id=f"essay-{number}",
            nodeid=f"suites/essays.yaml::essay-{number}",
            model=model,
            status="scored",
            question=f"Write about subject {number}.",
            prompt=[
                {"role": "system", "content": "You write well."},
                {"role": "user", "content": f"Write about subject {number}."},
            ],
            output="\n\n".join(f"Paragraph {place} about subject {number}, by {model}." for place in (1, 2, 3)),
            values={"rubric": sum(given) / 4},
            details={"verdicts": verdicts},
            num_prompt_tokens=40,
            num_tokens=120,
            seconds=1.5 + draw.random(),
            num_judge_requests=4,
            num_judge_tokens=900,
            judge_seconds=0.8,
            cost=0.002,
        )


def errands(model: str, count: int = 16) -> Iterator[Record]:
    """Four replies each, with the steps that led to them, and documents that were found."""
    draw = random.Random(f"errands {model}")
    for number in range(count):
        rights = [draw.random() < (0.4 if model == "small-model" else 0.7) for _ in range(4)]
        num_right = sum(rights)
        passes = {k: 1 - _choose(4 - num_right, k) / _choose(4, k) for k in (1, 2, 4)}
        outputs: list[JSON] = [
            f"The parcel is at door {number if right else number + 1}. {model} <went> there & back." for right in rights
        ]
        steps: list[JSON] = [
            {"tool": "look", "arguments": {"room": number}, "result": "a parcel"},
            "It should go to the door.",
            {"tool": "carry", "arguments": {"to": f"door {number}"}, "result": "done"},
        ]
        yield Record(
            suite="errands",
            id=f"errand-{number}",
            nodeid=f"suites/errands.yaml::errand-{number}",
            model=model,
            status="correct" if rights[0] else "wrong",
            category="parcels" if number % 2 else "letters",
            question=f"Bring parcel {number} to its door.",
            prompt=f"You are an agent.\nBring parcel {number} to its door.",
            target=f"door {number}",
            output=str(outputs[0]),
            answer=f"door {number if rights[0] else number + 1}",
            values={"accuracy": float(rights[0]), **{f"pass@{k}": value for k, value in passes.items()}},
            details={
                "epoch": 0,
                "outputs": outputs,
                "epochs": [{"status": "correct" if right else "wrong", "answer": "door"} for right in rights],
                "trace": [steps, steps, [], steps],
                "relevant": [{"id": "map-of-doors", "grade": 2, "rank": 1}, {"id": "rules", "grade": 1, "rank": None}],
                "contexts": [["A map of all doors."], None, None, None],
            },
            num_prompt_tokens=30,
            num_tokens=60,
            seconds=3.0 + draw.random(),
            prefill_seconds=0.4,
            num_decoded=56,
            cost=0.01,
        )


def _choose(n: int, k: int) -> int:
    return 0 if k > n else n if k == 1 else n * (n - 1) // 2 if k == 2 else 1


def plain_records(models: Sequence[str] = MODELS) -> list[Record]:
    """Of all suites, suite by suite as a session gives them."""
    return [record for make in (capitals, essays, errands) for model in models for record in make(model)]


def plain_report(models: Sequence[str] = MODELS) -> Report:
    """Three suites on the models side by side, with gates, one of which failed for each model."""
    report = assembled(
        plain_records(models),
        (CAPITALS, ESSAYS, ERRANDS),
        models,
        exit_code=1,
        problems=["essays: the judge's server was slow, and 2 requests were sent again"],
    )
    return replace(report, gates=decide(report, GateOptions(allow_unscored=99), earlier=None, selection=Selection()))


def against_baseline() -> Report:
    """The capitals on the large model, where the small one was what answered before."""
    name = "model"
    before, now = (
        assembled([replace(one, model=name) for one in capitals(model)], (replace(CAPITALS, gates={}),), (name,))
        for model in reversed(MODELS)
    )
    options = GateOptions(comparison=BaselineSettings(compare="common"), allow_unscored=99)
    earlier = EarlierReports.of([("before.json", before)])
    return replace(now, gates=decide(now, options, earlier=earlier, selection=Selection()), exit_code=1)


# Hostile


def hostile_report(texts: Sequence[str]) -> Report:
    """A report of two models in which every field that a model, a data set, a file or a library fills has each of the
    texts: sample number i of each model has the text number i, and the names of suites hold all short ones.
    """
    short = [text for text in texts if len(text) < 200]
    suites = [f"{' '.join(short[number::_NUM_HOSTILE_SUITES])} suite {number}" for number in range(_NUM_HOSTILE_SUITES)]
    models = [f"{text} model" for text in texts[:2]]
    odd_metric = f"x {texts[0]}"
    every: JSON = {text: text for text in texts}
    infos = [
        SuiteInfo(
            name=suite,
            path=f"{suite}.yaml",
            description=suite,
            scorer=suite,
            settings={text: [text] for text in texts},
            metrics=("accuracy", "ece", odd_metric),
            overridden=tuple(short),
            judged_by=tuple(short),
        )
        for suite in suites
    ]
    records = [
        _hostile_record(text, place, suites[place % len(suites)], model, texts, odd_metric)
        for model in models
        for place, text in enumerate(texts)
    ]
    report = assembled(
        records,
        infos,
        models,
        created=texts[0],
        exit_code=1,
        stopped=" ".join(short),
        problems=texts,
        environment={"python": " ".join(short), "versions": every, **{text: [text, {text: text}] for text in texts}},
        judges=({"name": " ".join(short), "role": texts[1], "device": every},),
        options={text: text for text in texts},
    )
    return replace(
        report,
        gates=tuple(_hostile_gates(texts)),
        models=tuple({"name": model, "device": " ".join(short), "arguments": [*texts]} for model in models),
    )


_NUM_HOSTILE_SUITES = 6


def hostile_names(texts: Sequence[str]) -> Report:
    """A report in which each text is the whole name of a suite, of its one category and of its one sample."""
    records = [
        Record(
            suite=text,
            id=text,
            nodeid=text,
            model="model",
            status="correct" if place % 2 else "wrong",
            category=text,
            output=text,
            values={"accuracy": float(place % 2)},
        )
        for place, text in enumerate(texts)
    ]
    return assembled(records, [SuiteInfo(name=text, path=text) for text in texts], ("model",))


def hostile_models(texts: Sequence[str]) -> Report:
    """A report in which each text is the whole name of a model, on one suite."""
    records = [
        Record(suite="suite", id=f"s{number}", nodeid="s", model=text, status="correct" if number else "wrong")
        for text in texts
        for number in range(2)
    ]
    return assembled(records, [SuiteInfo(name="suite")], texts)


def _hostile_gates(texts: Sequence[str]) -> Iterator[GateResult]:
    outcomes: tuple[GateOutcome, ...] = ("failed", "passed", "skipped")
    for place, text in enumerate(texts):
        yield GateResult(
            name=text,
            kind="threshold",
            origin="suite",
            outcome=outcomes[place % 3],
            reason=text,
            suite=text,
            model=text,
            path=text,
            metric=text,
            category=text,
            notes=(text,),
        )


def _hostile_record(text: str, place: int, suite: str, model: str, texts: Sequence[str], odd_metric: str) -> Record:
    is_right = (place + len(model)) % 2 == 0
    details: dict[str, JSON] = {
        text: text,
        "probabilities": [0.7, 0.2, 0.1],
        "labels": [text, "b" + text, "c" + text],
        "verdicts": [{"metric": text, "value": text, "reasons": text}, {"value": None, "problem": text}],
        "judges": [{"details": {"verdicts": [{"value": text, "reasons": text}]}}],
        "relevant": [{"id": text, "grade": 1, "rank": 1}],
        "trace": [text, {"tool": text, text: text}],
        "contexts": [text],
        "documents": [text],
    }
    if place % 2:
        details |= {
            "outputs": [text, text],
            "epochs": [{"status": text, "answer": text}, {"status": "correct"}],
            "trace": [[text], [text, text]],
        }
    return Record(
        suite=suite,
        id=f"{text} #{place}",
        nodeid=text,
        model=model,
        status="unscored" if place % 7 == 6 else "correct" if is_right else "wrong",
        category=text,
        reason=text,
        question=text if place % 3 else None,
        prompt=text if place % 3 == 0 else [{"role": text, "content": text}],
        choices=(text, f"{text} ", f" {text}"),
        target=text,
        output=f"{text}\n{texts[(place + 1) % len(texts)]}",
        answer=text,
        values={} if place % 7 == 6 else {"accuracy": float(is_right), "confidence": 0.7, odd_metric: place / 7},
        chance=0.25,
        details=details,
        seconds=0.1,
        num_tokens=3,
        num_prompt_tokens=5,
        is_timed=True,
        fingerprint=text,
        cluster=text,
        not_measurable={text: text},
        cost=0.001,
    )


# Large

_NUM_SUITES, _NUM_CATEGORIES = 10, 57
_BLOCK = 16


class LargeRecords(Sequence[Record]):
    """Records that are made when they are asked for: 2.4 kB of varied text each, of ten suites."""

    def __init__(self, num_samples: int, *, has_texts: bool = True) -> None:
        self._num_samples = num_samples
        self._has_texts = has_texts
        draw = random.Random(0)
        words = ["".join(draw.choices("abcdefghiklmnoprstu", k=draw.randint(2, 10))) for _ in range(4000)]
        # Texts are put together of blocks of words: to draw each word would take most of the time.
        self._blocks = [" ".join(draw.choices(words, k=_BLOCK)) for _ in range(20_000)]
        self._headers = [" ".join(draw.choices(words, k=100)) for _ in range(_NUM_SUITES)]

    def __len__(self) -> int:
        return self._num_samples

    @overload
    def __getitem__(self, place: int) -> Record: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[Record]: ...

    def __getitem__(self, place: int | slice) -> Record | Sequence[Record]:
        if isinstance(place, slice):
            return [self[number] for number in range(*place.indices(self._num_samples))]
        if not -self._num_samples <= place < self._num_samples:
            raise IndexError(place)
        return self._record(place % self._num_samples)

    def _record(self, number: int) -> Record:
        draw = random.Random(number)
        value, is_right = draw.random(), draw.random() < 0.6
        own = number % _NUM_SUITES
        texts: dict[str, Any] = {}
        if self._has_texts:
            question = self._text(draw, 3)
            texts = {
                "question": question,
                "prompt": f"{self._headers[own]}\n\nQuestion: {question}\n{self._text(draw, 5)}\nAnswer:",
                "output": f"{self._text(draw, 4)} needle{number:06}",
                "choices": ("one", "two", "three", "four"),
                "target": "two",
                "answer": "two" if is_right else "three",
                "details": {"probabilities": [round(one, 4) for one in softmax([value, 1.0, 0.5, 0.1])]},
            }
        return Record(
            suite=f"suite_{own}",
            id=f"q{number}",
            nodeid=f"suites/suite_{own}.yaml::q{number}",
            status="correct" if is_right else "wrong",
            model="some/model",
            category=f"subject_{number % _NUM_CATEGORIES}",
            values={"accuracy": float(is_right), "brier": round(value / 2, 4)},
            chance=0.25,
            num_prompt_tokens=400,
            num_tokens=90,
            seconds=round(0.01 + value / 100, 5),
            **texts,
        )

    def _text(self, draw: random.Random, num_blocks: int) -> str:
        return " ".join(self._blocks[draw.randrange(len(self._blocks))] for _ in range(num_blocks))


def large_report(num_samples: int) -> Report:
    """A report of so many samples whose records are made when they are asked for."""
    infos = [
        SuiteInfo(name=f"suite_{own}", path=f"suites/suite_{own}.yaml", metrics=("accuracy", "brier"))
        for own in range(_NUM_SUITES)
    ]
    report = assembled(LargeRecords(num_samples, has_texts=False), infos, ("some/model",))
    return replace(report, records=LargeRecords(num_samples))
