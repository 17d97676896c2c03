"""Few-shot examples: which sample is shown which, and the errors; ``test_fewshot_lm_eval.py`` compares with lm-eval."""

from __future__ import annotations

import json
import random
import sys
from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.format.prompt_spec import FewshotSpec
from pytest_llmeval.suites.loading.fewshot import FewshotError, Shots, draw_shots
from pytest_llmeval.suites.loading.suite import Suite
from pytest_llmeval.types import Message, Sample
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: exact\ndataset: {path: d.jsonl}\n"
SUBJECTS = ("law", "art", "law", "art", "art")
ROWS = "\n".join(
    json.dumps({"question": f"q{n}", "target": f"t{n}", "subject": subject}) for n, subject in enumerate(SUBJECTS, 1)
)
DEV = "\n".join(
    json.dumps({"question": f"{subject}{n}", "target": str(n), "subject": subject})
    for n in range(1, 4)
    for subject in ("art", "law", "tax")
)
DATA: dict[str, str | bytes] = {"d.jsonl": ROWS, "dev.jsonl": DEV}


def prompts(suite: Suite) -> list[object]:
    evaluation = Evaluation(suite)
    return [evaluation.question(sample).prompt for sample in suite.samples]


def questions_of(suite: Suite) -> list[list[str]]:
    return [[shot.question for shot in suite.shots_for(sample)] for sample in suite.samples]


def test_first_n_of_the_same_category(load: Load) -> None:
    suite = load(HEAD + "prompt: {fewshot: {count: 2, path: dev.jsonl, sampler: first_n, match: subject}}\n", DATA)
    law, art = ["law1", "law2"], ["art1", "art2"]
    assert questions_of(suite) == [law, art, law, art, art]


def test_examples_match_in_a_field_that_is_made_of_columns(load: Load) -> None:
    suite = load(
        "suite: s\nscore: exact\ndataset: {path: d.jsonl}\ncategory: \"{{ subject | replace('law', 'tax') }}\"\n"
        "prompt: {fewshot: {count: 1, path: dev.jsonl, sampler: first_n, match: category,"
        " fields: {category: subject}}}\n",
        DATA,
    )
    assert questions_of(suite) == [["tax1"], ["art1"], ["tax1"], ["art1"], ["art1"]]


def test_a_number_matches_its_text(load: Load) -> None:
    suite = load(
        HEAD + "prompt: {fewshot: {count: 1, path: e.csv, match: year}}\n",
        {"d.jsonl": '{"question": "a", "target": "b", "year": 1999}', "e.csv": "question,target,year\nx,y,1999\n"},
    )
    assert questions_of(suite) == [["x"]]


def test_examples_of_the_same_category_from_the_data_set_itself(load: Load) -> None:
    suite = load(HEAD + "prompt: {fewshot: {count: 1, sampler: first_n, match: subject}}\n", DATA)
    assert questions_of(suite) == [["q3"], ["q4"], ["q1"], ["q2"], ["q2"]]


@pytest.mark.parametrize("sampler", ["seeded", "lm_eval"])
def test_a_category_is_shown_what_it_would_be_shown_in_a_suite_of_its_own(load: Load, sampler: str) -> None:
    more = f"prompt: {{fewshot: {{count: 2, path: dev.jsonl, seed: 5, match: subject, sampler: {sampler}}}}}\n"
    whole = load(HEAD + more, DATA)
    by_question = dict(zip((sample.question for sample in whole.samples), questions_of(whole), strict=True))
    for subject in ("law", "art"):
        only = "\n".join(line for line in DEV.splitlines() if subject in line)
        alone = load(
            f"suite: s\nscore: exact\ndataset: {{path: d.jsonl, where: subject == '{subject}'}}\n" + more,
            {"d.jsonl": ROWS, "dev.jsonl": only},
        )
        assert len(alone.samples) == SUBJECTS.count(subject)
        for sample, shown in zip(alone.samples, questions_of(alone), strict=True):
            assert shown == by_question[sample.question]
            assert {question[:3] for question in shown} == {subject}


def lines(*rows: Mapping[str, object]) -> str:
    return "\n".join(map(json.dumps, rows))


@pytest.mark.parametrize("sampler", ["seeded", "first_n"])
def test_a_sample_that_has_an_id_and_its_copy_that_has_none(load: Load, sampler: str) -> None:
    rows: list[dict[str, object]] = [{"question": f"q{n}", "target": f"t{n}"} for n in range(4)]
    suite = load(
        HEAD + f"prompt: {{fewshot: {{count: 3, path: e.jsonl, sampler: {sampler}}}}}\n",
        {"d.jsonl": lines(*({"id": f"s{n}", **row} for n, row in enumerate(rows))), "e.jsonl": lines(*rows)},
    )
    for sample, shown in zip(suite.samples, questions_of(suite), strict=True):
        assert sample.question not in shown
        assert len(shown) == 3


def test_an_example_with_the_question_alone_of_a_sample_is_another(load: Load) -> None:
    text = "suite: s\nscore: choice\ndataset: {path: d.jsonl}\nprompt: {fewshot: {count: 3, path: e.jsonl}}\n"
    row: dict[str, object] = {"question": "Which?", "choices": ["a", "b"], "target": 0}
    others = [{**row, "target": 1}, {**row, "choices": ["b", "a"]}, {**row, "question": "Who?"}]
    suite = load(text, {"d.jsonl": lines({"id": "x", **row}), "e.jsonl": lines(row, *others)})
    shown = suite.shots_for(suite.samples[0])
    assert sorted((shot.question, shot.choices, shot.target) for shot in shown) == [
        ("Which?", ("a", "b"), 1),
        ("Which?", ("b", "a"), 0),
        ("Who?", ("a", "b"), 0),
    ]


def test_samples_that_ask_the_same_of_two_texts_are_two(load: Load) -> None:
    text = HEAD + 'prompt: {template: "{{ passage }} {{ question }}", fewshot: {count: 1, path: e.jsonl}}\n'
    row = {"question": "Is it so?", "target": "yes"}
    rows = [{"id": n, "passage": f"p{n}", **row} for n in (1, 2)]
    suite = load(text, {"d.jsonl": lines(*rows), "e.jsonl": lines(*({**each, "id": 9} for each in rows))})
    assert [suite.shots_for(sample)[0].variables["passage"] for sample in suite.samples] == ["p2", "p1"]


def test_only_the_samples_that_are_left_need_examples(load: Load) -> None:
    files: dict[str, str | bytes] = {
        "d.jsonl": lines(
            {"question": "a", "target": "b", "subject": "law"},
            {"question": "c", "target": "d", "subject": "sea"},
            {"question": "e", "target": "f", "subject": None},
            {"question": "g", "target": "h", "subject": "law"},
        ),
        "dev.jsonl": DEV,
    }
    for sampler in ("seeded", "first_n", "lm_eval"):
        more = f"prompt: {{fewshot: {{count: 2, path: dev.jsonl, match: subject, sampler: {sampler}}}}}\n"
        suite = load(HEAD.replace("}", ", limit: 1}") + more, files)
        whole = load(HEAD.replace("}", ", where: subject == 'law'}") + more, files)
        assert questions_of(suite) == questions_of(whole)[:1]
        with pytest.raises(SuiteError, match=r"holds 0 examples whose subject is 'sea'"):
            load(HEAD.replace("}", ", limit: 2}") + more, files)
        with pytest.raises(SuiteError, match=r"match: sample '3' \(d.jsonl:3\): there is no value 'subject'"):
            load(HEAD + more, files)
    own = load(HEAD.replace("}", ", limit: 1}") + "prompt: {fewshot: {count: 1, match: subject}}\n", files)
    assert questions_of(own) == [["g"]]


def test_who_has_nothing_to_match(load: Load) -> None:
    more = "prompt: {fewshot: {count: 1, path: e.jsonl, match: subjct}}\n"
    with pytest.raises(
        SuiteError, match=r"sample '1' \(d.jsonl:1\): there is no value 'subjct'; did you mean 'subject'"
    ):
        load(HEAD + more, {**DATA, "e.jsonl": DEV})
    bare = lines({"question": "x", "target": "y", "subjct": "law"})
    with pytest.raises(
        SuiteError, match=r"example '1' \(e.jsonl:1\): there is no value 'subject'; did you mean 'subjct'"
    ):
        load(HEAD + more.replace("subjct", "subject"), {**DATA, "e.jsonl": bare})


def test_each_sample_has_a_draw_of_its_own(load: Load) -> None:
    more = "prompt: {fewshot: {count: 2, path: dev.jsonl, sampler: lm_eval}}\n"
    suite = load(HEAD + more, DATA)
    stream = random.Random(1234)  # lm-eval's default
    pool = [json.loads(line)["question"] for line in DEV.splitlines()]
    assert questions_of(suite) == [stream.sample(pool, 2) for _ in suite.samples]
    shuffled = load(HEAD.replace("}", ", shuffle_seed: 3, limit: 4}") + more, DATA)
    drawn = {sample.id: [shot.id for shot in suite.shots_for(sample)] for sample in suite.samples}
    assert [sample.id for sample in shuffled.samples] != [sample.id for sample in suite.samples[:4]]
    for sample in shuffled.samples:
        assert [shot.id for shot in shuffled.shots_for(sample)] == drawn[sample.id]


def test_fields_of_the_examples(load: Load) -> None:
    suite = load(
        "suite: s\nscore: exact\ndataset: {path: d.jsonl, fields: {question: q, target: a, hint: '{{ q | upper }}'}}\n"
        "prompt: {template: '{{ question }} ({{ hint }})', fewshot: {count: 1, path: e.jsonl,"
        " fields: {question: frage, hint: '{{ tip }}'}}}\n",
        {"d.jsonl": '{"q": "x", "a": "y"}', "e.jsonl": '{"frage": "f", "a": "b", "tip": "t"}'},
    )
    assert prompts(suite) == ["f (t) b\n\nx (X)"]


def test_fields_of_examples_from_the_data_set_itself(load: Load) -> None:
    more = "prompt: {fewshot: {count: 1, sampler: first_n, fields: {target: '{{ question }}!'}}}\n"
    suite = load(HEAD + more, DATA)
    assert prompts(suite)[:2] == ["q2 q2!\n\nq1", "q1 q1!\n\nq2"]


def test_the_parts_of_an_example(load: Load) -> None:
    suite = load(
        HEAD + 'prompt:\n  template: "Q: {{ question }}"\n  delimiter: "|"\n  prefix: "A:"\n'
        '  fewshot: {count: 1, samples: [{question: a, target: b}], template: "E: {{ question }}",\n'
        '    answer_delimiter: " = ", prefix: "So {{ question }}", delimiter: "\\n"}\n',
        DATA,
    )
    assert prompts(suite)[0] == "E: a = So a b\nQ: q1|A:"


def test_an_empty_prefix_of_examples(load: Load) -> None:
    suite = load(
        HEAD + 'prompt: {prefix: "A:", fewshot: {count: 1, samples: [{question: a, target: b}], prefix: ""}}\n', DATA
    )
    assert prompts(suite)[0] == "a b\n\nq1 A:"


@pytest.mark.parametrize("text", ["system: Be brief., ", "system: 'Be brief.\n', system_delimiter: '', "])
def test_the_system_text_and_its_delimiter(load: Load, text: str) -> None:
    suite = load(HEAD + f"prompt: {{{text} fewshot: {{count: 1, samples: [{{question: a, target: b}}]}}}}\n", DATA)
    assert prompts(suite)[0] == "Be brief." + ("\n\n" if "delimiter" not in text else " ") + "a b\n\nq1"


def test_turns(load: Load) -> None:
    suite = load(
        HEAD + "prompt: {chat: true, system: Be brief., prefix: 'A:', fewshot: {count: 2, multi_turn: true,"
        " sampler: first_n, samples: [{question: a, target: b}, {question: c, target: d}]}}\n",
        DATA,
    )
    turns = [("system", "Be brief."), ("user", "a"), ("assistant", "A: b"), ("user", "c"), ("assistant", "A: d")]
    turns += [("user", "q1"), ("assistant", "A:")]
    assert prompts(suite)[0] == tuple(Message(role=role, content=text) for role, text in turns)  # type: ignore[arg-type]


def test_a_prefix_in_a_chat_without_turns(load: Load) -> None:
    suite = load(
        HEAD + "prompt: {chat: true, prefix: 'A:', fewshot: {count: 1, samples: [{question: a, target: b}]}}\n", DATA
    )
    assert prompts(suite)[0] == (
        Message(role="user", content="a A: b\n\nq1"),
        Message(role="assistant", content="A:"),
    )


@pytest.mark.parametrize(
    ("more", "continuation"),
    [
        ("", " x"),
        ("prefix: 'A:'", " x"),
        ("prefix: 'A: '", " x"),
        ("chat: true", "x"),
        ("chat: true, prefix: 'A:'", " x"),
        ("chat: true, prefix: 'A: '", "x"),
        ("chat: true, prefix: '{{ q }}'", "x"),
        ("chat: true, prefix: 'A: ', delimiter: '-'", "-x"),
    ],
)
def test_what_stands_before_a_scored_option(load: Load, more: str, continuation: str) -> None:
    suite = load(
        f"suite: s\nscore: choice\nchoices: [x, y]\ndataset: {{path: d.jsonl}}\nprompt: {{{more}}}\n",
        {"d.jsonl": '{"question": "a", "q": "", "target": 0}'},
    )
    request = Evaluation(suite).question(suite.samples[0]).requests[0]
    assert getattr(request, "continuation") == continuation  # noqa: B009


def test_examples_are_rendered_once(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = load(
        HEAD + "prompt: {template: '{{ question }}', fewshot: {count: 2, path: dev.jsonl, sampler: lm_eval}}\n",
        {"d.jsonl": "\n".join([ROWS] * 30), "dev.jsonl": DEV},
    )
    rendered: Counter[str] = Counter()
    render = type(suite.templates).text

    def counted(templates: object, source: str, variables: dict[str, object]) -> str:
        rendered[str(variables["question"])] += 1
        return render(templates, source, variables)  # type: ignore[arg-type]

    monkeypatch.setattr(type(suite.templates), "text", counted)
    assert len(set(prompts(suite))) > 100
    assert {number for question, number in rendered.items() if question[0] != "q"} == {1}


ERRORS = {
    "turns without a chat": (
        "prompt:\n  fewshot:\n    count: 1\n    multi_turn: true\n",
        "7: prompt.fewshot.multi_turn: found true, but only a chat has turns; set prompt.chat: true",
    ),
    "spare of another sampler": (
        "prompt:\n  fewshot: {count: 1, sampler: first_n,\n    spare: true}\n",
        "6: prompt.fewshot.spare: is only for sampler: lm_eval; remove it",
    ),
    "nothing to match": (
        "prompt:\n  fewshot:\n    count: 1\n    match: subjekt\n",
        "7: prompt.fewshot.match: sample '1' (d.jsonl:1): there is no value 'subjekt'; did you mean 'subject'?",
    ),
    "nothing to match in the examples": (
        "prompt:\n  fewshot:\n    count: 1\n    match: subject\n    samples: [{question: x, target: y}]\n",
        "7: prompt.fewshot.match: example '1' (s.yaml:8): there is no value 'subject'; "
        "expected one of question, target",
    ),
    "too few of a category": (
        "prompt:\n  fewshot:\n    count: 4\n    match: subject\n    path: dev.jsonl\n",
        "6: prompt.fewshot.count: dev.jsonl holds 3 examples whose subject is 'law', expected at least 4",
    ),
    "none of a category": (
        "prompt:\n  fewshot:\n    count: 1\n    match: subject\n    samples: [{question: x, target: y, subject: a}]\n",
        "6: prompt.fewshot.count: prompt.fewshot.samples holds 0 examples whose subject is 'law', expected at least 1",
    ),
    "too few of a category in the data set itself": (
        "prompt: {fewshot: {count: 2, match: subject}}\n",
        "4: prompt.fewshot.count: the data set itself, from which a sample is never shown to itself, "
        "holds 2 examples whose subject is 'law', expected at least 3",
    ),
    "too few for a spare one": (
        "prompt: {fewshot: {count: 9, path: dev.jsonl, sampler: lm_eval, spare: true}}\n",
        "4: prompt.fewshot.count: dev.jsonl holds 9 examples, expected at least 10",
    ),
    "too few beside the sample": (
        "prompt: {fewshot: {count: 2, sampler: lm_eval, samples: [{target: t}, &row "
        "{question: q1, target: t1, subject: law}]}}\n",
        "4: prompt.fewshot.count: sample '1' (d.jsonl:1): found 1 examples beside the sample itself, expected 2",
    ),
    "field of no name": (
        "prompt: {fewshot: {count: 1, fields: {a b: question}}}\n",
        "4: prompt.fewshot.fields: found the name 'a b', expected letters, digits and '_', and not 'row'",
    ),
    "column of an example": (
        "prompt: {fewshot: {count: 1, path: dev.jsonl, fields: {question: qestion}}}\n",
        "4: prompt.fewshot.fields.question: dev.jsonl:1 has no column 'qestion'; did you mean 'question'?",
    ),
    "template": (
        "prompt: {fewshot: {count: 1, template: '{{'}}\n",
        "4: prompt.fewshot.template: line 1 of the template: unexpected 'end of template'",
    ),
    "prefix": (
        "prompt:\n  prefix: '{{'\n",
        "5: prompt.prefix: line 1 of the template: unexpected 'end of template'",
    ),
}


@pytest.mark.parametrize(("more", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(load: Load, more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + more, DATA)
    assert str(caught.value) == f"s.yaml:{message}"


def test_errors_of_templates_name_their_key(load: Load) -> None:
    for keys in ("template", "prefix", "answer"):
        suite = load(HEAD + f"prompt: {{fewshot: {{count: 1, path: dev.jsonl, {keys}: '{{{{ x }}}}'}}}}\n", DATA)
        message = rf"4: prompt\.fewshot\.{keys}: sample '1' .*: in its example dev\.jsonl:\d: 'x' is undefined"
        with pytest.raises(SuiteError, match=message):
            prompts(suite)
    suite = load(HEAD + "prompt: {prefix: '{{ x }}'}\n", DATA)
    with pytest.raises(SuiteError, match=r"4: prompt\.prefix: sample '1' .*'x' is undefined"):
        prompts(suite)


def sample(id_: str, value: int, group: int = 0) -> Sample:
    row = {"value": value, "group": group}
    return Sample(id=id_, path="d", line=None, variables={**row, "row": row})


VALUES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 1)), min_size=1, max_size=10)
SAMPLERS = st.sampled_from(["seeded", "first_n", "lm_eval"])


def drawn(spec: dict[str, object], pool: list[Sample], samples: list[Sample], *, is_own: bool) -> Shots | None:
    """None where there are too few."""
    try:
        shots = draw_shots(FewshotSpec.model_validate(spec), pool, samples, is_own=is_own, holder="it holds")
        for each in samples:
            shots.of(each)
    except FewshotError:
        return None
    return shots


@given(VALUES, VALUES, SAMPLERS, st.integers(1, 3), st.sampled_from([None, "group"]), st.booleans(), st.booleans())
def test_no_sample_is_shown_to_itself(
    values: list[tuple[int, int]],
    examples: list[tuple[int, int]],
    sampler: str,
    count: int,
    match: str | None,
    is_own: bool,
    spare: bool,
) -> None:
    samples = [sample(f"s{place}", *value) for place, value in enumerate(values)]
    pool = samples if is_own else [sample(f"e{place}", *value) for place, value in enumerate(examples)]
    spec: dict[str, object] = {"count": count, "sampler": sampler, "match": match, "seed": 3}
    if sampler == "lm_eval":
        spec["spare"] = spare
    shots = drawn(spec, pool, samples, is_own=is_own)
    rows = [(each.variables["value"], each.variables["group"]) for each in samples]
    other_rows = [(each.variables["value"], each.variables["group"]) for each in pool]
    left = [sum(other != row and (match is None or other[1] == row[1]) for other in other_rows) for row in rows]
    if shots is None:
        enough = count + (is_own or (sampler == "lm_eval" and spare))
        sizes = [sum(match is None or other[1] == row[1] for other in other_rows) for row in rows]
        assert min(left) < count or min(sizes) < enough
        return
    for each, row in zip(samples, rows, strict=True):
        shown = shots.of(each)
        assert len({shot.id for shot in shown}) == len(shown) == count
        for shot in shown:
            assert (shot.variables["value"], shot.variables["group"]) != row
            assert match is None or shot.variables["group"] == row[1]
        assert shown == shots.of(each)


@given(VALUES, st.sampled_from(["seeded", "first_n"]), st.integers(1, 4), st.integers(0, 9), st.booleans())
def test_a_higher_count_extends_the_examples(
    values: list[tuple[int, int]], sampler: str, count: int, seed: int, is_own: bool
) -> None:
    samples = [sample(f"s{place}", *value) for place, value in enumerate(values)]
    pool = samples if is_own else [sample(f"e{place}", 100 + place) for place in range(6)]
    spec: dict[str, object] = {"sampler": sampler, "seed": seed}
    more = drawn({**spec, "count": count + 1}, pool, samples, is_own=is_own)
    if more is None:
        return
    fewer = drawn({**spec, "count": count}, pool, samples, is_own=is_own)
    assert fewer is not None
    for each in samples:
        assert more.of(each)[:count] == fewer.of(each)


def test_the_draws_hold_no_copies() -> None:
    samples = [sample(str(place), place) for place in range(2000)]
    shots = drawn({"count": 5, "sampler": "lm_eval"}, samples, samples, is_own=True)
    assert shots is not None
    pool = {id(each) for each in samples}
    assert all(id(shot) in pool for each in samples for shot in shots.of(each))
    assert sum(sys.getsizeof(shots.of(each)) for each in samples) < 2000 * 120
