"""``prompt``: a suite's own words for its judge, and what no words of its own can change."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.scorers import ScoreSettings
from pytest_llmeval.scorers.aspects import AspectsSettings
from pytest_llmeval.scorers.equivalence import EquivalenceSettings
from pytest_llmeval.scorers.judging.judged_scorer import OwnPrompt
from pytest_llmeval.scorers.pairwise import PairwiseSettings
from pytest_llmeval.scorers.rubric import RubricSettings
from pytest_llmeval.suites.format.schema import json_schema
from pytest_llmeval.types import GenerateRequest, GenerateResponse
from tests.scoring.helpers import a_sample
from tests.scoring.judge.helpers import asked_of, drive, material, scripted
from tests.suites.conftest import (
    Load,
    load,  # noqa: F401  # a fixture
)

ROWS = """\
suite: s
samples:
  - {id: a, question: 1 + 1, target: "2", unit: metres, notes: No decimals., response: two, old: zwei}
  - {id: b, question: 2 + 1, target: "3", unit: feet, notes: Inches are right., response: three, old: drei}
"""
ASPECTS = "score: {aspects: {aspects: {tact: Is it tactful?}, domain: law, scale: [0, 3], n_iter: 1, prompt: %s}}\n"
RUBRIC = "score: {rubric: {criteria: {kind: {text: It is kind., labels: [rude, fine]}}, prompt: %s}}\n"
EQUIVALENCE = "score: {equivalence: {math: false, prompt: %s}}\n"
PAIRWISE = "score: {pairwise: {against: old, criterion: Shorter is better., prompt: %s}}\n"
SEVERAL = """\
score:
  several:
    scorers:
      one: {score: {equivalence: {math: false, prompt: "One: {{ unit }}"}}}
      two: {score: {rubric: {criteria: {kind: It is kind.}, prompt: %s}}}
"""
ALL = {"aspects": ASPECTS, "rubric": RUBRIC, "equivalence": EQUIVALENCE, "pairwise": PAIRWISE}
FACTS = {
    "aspects": (
        "The question is from the field of law.\n- tact: Is it tactful?\n"
        "Each score is a whole number from 0 (the worst) to 3 (the best)."
    ),
    "rubric": (
        "- kind (rude or fine): It is kind.\nEach label is one of those in brackets behind the name of its criterion."
    ),
    "equivalence": "Equivalent is true where the reply gives the same answer as a reference answer, else false.",
    "pairwise": "Shorter is better.\nBetter is A or B, or tie where neither is.",
}
"""What follows any words for the task."""


def asked(evaluation: Evaluation, place: int = 0, reply: str = "It is a reply.") -> list[GenerateRequest]:
    """What the judge is asked at first about a reply to one of the samples."""
    question = evaluation.question(evaluation.suite.samples[place])
    _, rounds = drive(evaluation.asking(question, [GenerateResponse(text=reply)]), scripted("no verdict"))
    return rounds[0]


def turns(request: GenerateRequest) -> tuple[str, str]:
    assert not isinstance(request.prompt, str)
    system, user = request.prompt
    assert (system.role, user.role) == ("system", "user")
    return system.content, user.content


@pytest.mark.parametrize("kind", ALL)
def test_the_words_of_the_suite_are_the_task(load: Load, kind: str) -> None:  # noqa: F811
    own = Evaluation(load(ROWS + ALL[kind] % '"Judge in {{ unit }}.\\n{{ notes }}\\n"'))
    ours = Evaluation(load(ROWS + ALL[kind].replace(", prompt: %s", "")))
    for place, task in enumerate(("Judge in metres.\nNo decimals.", "Judge in feet.\nInches are right.")):
        (request, *_), (plain, *_) = asked(own, place), asked(ours, place)
        (system, user), (plain_system, plain_user) = turns(request), turns(plain)
        rest = plain_system[plain_system.index("\n\nEach part of the user's message") :]
        assert system == f"{task}\n{FACTS[kind]}{rest}"
        assert user == plain_user
        assert request.json_schema == plain.json_schema
        assert (request.seed, request.temperature, request.epoch) == (plain.seed, plain.temperature, plain.epoch)


@pytest.mark.parametrize("kind", ALL)
def test_our_own_words_can_be_shown(load: Load, kind: str) -> None:  # noqa: F811
    own = Evaluation(load(ROWS + ALL[kind] % '"{{ default_prompt }} Be strict."'))
    ours = Evaluation(load(ROWS + ALL[kind].replace(", prompt: %s", "")))
    system, plain = turns(asked(own)[0])[0], turns(asked(ours)[0])[0]
    words = own.scorer.deciding.scorer.default_prompt  # type: ignore[attr-defined]
    assert plain.startswith(words)
    assert system.startswith(f"{words} Be strict.\n")


def test_a_file_is_the_same_as_its_text(load: Load) -> None:  # noqa: F811
    text = "Judge in {{ unit }}: ä."
    inline = Evaluation(load(ROWS + RUBRIC % f'"{text}"'))
    from_file = Evaluation(load(ROWS + RUBRIC % "{path: words/judge.txt}", {"words/judge.txt": text}))
    spelled = Evaluation(load(ROWS + RUBRIC % f'{{template: "{text}"}}'))
    assert turns(asked(inline)[0]) == turns(asked(from_file)[0]) == turns(asked(spelled)[0])
    assert inline.fingerprints() == from_file.fingerprints() == spelled.fingerprints()
    assert inline.fingerprint_parts() == from_file.fingerprint_parts()


def test_the_prompt_is_part_of_the_fingerprint(load: Load) -> None:  # noqa: F811
    """Its words, and what it shows of each row."""
    plain = Evaluation(load(ROWS + RUBRIC.replace(", prompt: %s", ""))).fingerprints()
    one = Evaluation(load(ROWS + RUBRIC % '"Judge {{ unit }}."')).fingerprints()
    other = Evaluation(load(ROWS + RUBRIC % '"Please judge {{ unit }}."')).fingerprints()
    assert len({plain[0], one[0], other[0]}) == 3
    changed = Evaluation(load(ROWS.replace("feet", "miles") + RUBRIC % '"Judge {{ unit }}."')).fingerprints()
    assert one[1]["a"] == changed[1]["a"]
    assert one[1]["b"] != changed[1]["b"]
    unused = Evaluation(load(ROWS.replace("feet", "miles") + RUBRIC.replace(", prompt: %s", ""))).fingerprints()
    assert unused == plain


def test_each_of_several_scorers_has_its_own(load: Load) -> None:  # noqa: F811
    evaluation = Evaluation(load(ROWS + SEVERAL % '"Two: {{ notes }}"'))
    found = [turns(request)[0].partition("\n")[0] for request in asked(evaluation)]
    assert found == ["One: metres", "Two: No decimals."]
    changed = Evaluation(load(ROWS.replace("Inches", "Miles") + SEVERAL % '"Two: {{ notes }}"'))
    assert evaluation.fingerprints()[1]["b"] != changed.fingerprints()[1]["b"]


MISTAKES = {
    "no name of a variable": (
        RUBRIC % '"Judge {{ untis }}."',
        "s.yaml:5: score.rubric.prompt: sample 'a' (s.yaml:3): 'untis' is undefined; expected one of "
        "default_prompt, id, notes, old, unit",
    ),
    "not a template": (
        ASPECTS % '"Judge {{ unit"',
        "s.yaml:5: score.aspects.prompt: line 1 of the template: unexpected end of template, expected 'end of print "
        "statement'",
    ),
    "one that fails": (EQUIVALENCE % '"{{ unit / 2 }}"', "s.yaml:5: score.equivalence.prompt: sample 'a'"),
    "nothing": (
        RUBRIC % '"{# nothing #} "',
        "s.yaml:5: score.rubric.prompt: sample 'a' (s.yaml:3): the rendered text: found nothing, expected the judge's "
        "task",
    ),
    "the question": (
        RUBRIC % '"{{ default_prompt }} {{ question }}"',
        "s.yaml:5: score.rubric.prompt: uses question, and what the judge is shown as data cannot stand among its "
        "instructions: write of the question, the reference answer and the reply in words",
    ),
    "the reply": (EQUIVALENCE % '"Look at {{ reply }}"', "score.equivalence.prompt: uses reply, and what"),
    "recorded replies": (EQUIVALENCE % '"Look at {{ response | upper }}"', "score.equivalence.prompt: uses response,"),
    "the other reply": (PAIRWISE % '"Look at {{ old }}"', "s.yaml:5: score.pairwise.prompt: uses old, and what"),
    "the whole row": (
        RUBRIC % '"{% for name in row %}{{ row[name] }}{% endfor %}"',
        "uses row, and what the judge is shown as data cannot stand among its instructions: write of the question, "
        "the reference answer and the reply in words; name the column in dataset.fields",
    ),
    "one of several": (
        SEVERAL % '"Two: {{ unti }}"',
        "s.yaml:9: score.several.scorers.two.score.rubric.prompt: sample 'a' (s.yaml:3): 'unti' is undefined; did you "
        "mean 'unit'?",
    ),
    "data in one of several": (
        SEVERAL % '"{{ target }}"',
        "s.yaml:9: score.several.scorers.two.score.rubric.prompt: uses target,",
    ),
    "no such file": (
        RUBRIC % "{path: jugde.txt}",
        "s.yaml:5: score.rubric.prompt.path: jugde.txt: there is no such file; did you mean 'judge.txt'?",
    ),
    "a list": (
        RUBRIC % "[a]",
        "s.yaml:5: score.rubric.prompt: found a list of 1, expected a template, or {path: a file that holds one}",
    ),
    "both": (
        RUBRIC % "{path: judge.txt, template: x}",
        "s.yaml:5: score.rubric.prompt: found both, expected a template or a path",
    ),
    "neither": (RUBRIC % "{}", "s.yaml:5: score.rubric.prompt: found neither, expected a template or a path"),
    "another key": (RUBRIC % "{file: judge.txt}", "s.yaml:5: unknown key 'file' in score.rubric.prompt"),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(load: Load, text: str, message: str) -> None:  # noqa: F811
    with pytest.raises(SuiteError) as caught:
        Evaluation(load(ROWS + text, {"judge.txt": "Judge."})).fingerprints()
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_columns_from_which_replies_are_made_are_data(load: Load) -> None:  # noqa: F811
    rows = '{"question": "q", "target": "t", "said": {"by": "x"}, "one": "1", "two": "2", "notes": "n"}\n'
    suite = """\
suite: s
dataset: {path: r.jsonl, fields: {response: said.by, old: "{{ one ~ two }}"}}
score: {pairwise: {against: old, prompt: "{{ %s }}"}}
"""
    for name in ("said", "one", "two", "old", "response"):
        with pytest.raises(SuiteError, match=f"uses {name}, and what the judge is shown"):
            Evaluation(load(suite % name, {"r.jsonl": rows}))
    Evaluation(load(suite % "notes", {"r.jsonl": rows})).fingerprints()


SETTINGS: list[ScoreSettings] = [
    AspectsSettings(aspects={"clarity": "c"}, n_iter=1, prompt=OwnPrompt(template="Rate {{ unit }}.")),
    RubricSettings(criteria={"polite": {"text": "t"}}, prompt=OwnPrompt(template="Judge {{ unit }}.")),  # type: ignore[dict-item]
    EquivalenceSettings(math=False, prompt=OwnPrompt(template="Compare {{ unit }}.")),
    PairwiseSettings(against="old", prompt=OwnPrompt(template="Compare {{ unit }}.")),
]
HOSTILE = st.text(alphabet='`\n: aRep{}%"', min_size=1, max_size=60).filter(str.strip)


@given(reply=HOSTILE, other=HOSTILE)
@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: settings.kind)
def test_all_material_stays_in_its_fence(settings: ScoreSettings, reply: str, other: str) -> None:
    sample = a_sample("Paris", question="Where?", variables={"unit": "km", "old": other})
    system, user = asked_of(settings, reply, sample=sample)
    assert system == asked_of(settings, "A plain reply.", sample=sample)[0]
    replies = [("Reply A", reply), ("Reply B", other)] if settings.kind == "pairwise" else [("Reply", reply)]
    assert material(user) == [("Question", "Where?"), ("Reference answer", "Paris"), *replies]


@pytest.mark.parametrize("prompt", ['"x"', "{path: judge.txt}", '{template: "x"}', "null"])
def test_editors_take_what_the_loader_takes(load: Load, prompt: str) -> None:  # noqa: F811
    text = ROWS + RUBRIC % prompt
    load(text, {"judge.txt": "Judge."})
    schema: Any = json_schema()
    assert Draft202012Validator(schema).is_valid(yaml.safe_load(text))
