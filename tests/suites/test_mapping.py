"""Fields, ids, where, shuffle and limit."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping

import pytest

from pytest_llmeval.errors import SuiteError
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: exact\ndataset:\n  path: d.jsonl\n"


def jsonl(*rows: Mapping[str, object]) -> dict[str, str | bytes]:
    return {"d.jsonl": "\n".join(json.dumps(row) for row in rows)}


CSQA = {
    "answerKey": "B",
    "id": "x1",
    "question": {
        "stem": "Where?",
        "choices": [{"label": "A", "text": "here"}, {"label": "B", "text": "there"}],
    },
}


def test_nested_columns_and_templates(load: Load) -> None:
    suite = load(
        HEAD
        + """\
  fields:
    question: question.stem
    choices: "{{ question.choices | map(attribute='text') }}"
    target: "{{ question.choices | map(attribute='label') | indices(answerKey) }}"
    first: question.choices.0.text
    category: "{{ choices | length }} options"
""",
        jsonl(CSQA),
    )
    (sample,) = suite.samples
    assert sample.id == "x1"
    assert sample.question == "Where?"
    assert sample.choices == ("here", "there")
    assert sample.target == [1]
    assert sample.category == "2 options"
    assert sample.variables["question"] == "Where?"
    assert sample.variables["choices"] == ["here", "there"]
    assert sample.variables["first"] == "here"
    assert sample.variables["row"] == CSQA
    assert sample.variables["answerKey"] == "B"


def test_columns_with_known_names_need_no_fields(load: Load) -> None:
    row = {
        "id": 7,
        "question": 12,
        "choices": ["a", 1, 2.5],
        "choice_types": ["x", "y", "z"],
        "target": 1,
        "category": 3,
    }
    (sample,) = load(HEAD, jsonl(row)).samples
    assert (sample.id, sample.question, sample.category) == ("7", "12", "3")
    assert sample.choices == ("a", "1", "2.5")
    assert sample.choice_types == ("x", "y", "z")
    assert sample.target == 1
    assert sample.variables["choices"] == ["a", "1", "2.5"]


def test_top_level_choices_and_target(load: Load) -> None:
    row = {"question": "q", "choices": ["long", "longer"], "answer": 1, "type": "anatomy"}
    text = HEAD + "choices: [A, '{{ type }}']\ntarget: answer\ncategory: type\n"
    (sample,) = load(text, jsonl(row)).samples
    assert (sample.choices, sample.target, sample.category) == (("A", "anatomy"), 1, "anatomy")
    assert sample.variables["row"] == row


@pytest.mark.parametrize(
    ("target", "value"),
    [
        ("answer", "4"),
        ("'{{ answer }}'", "4"),
        ("'{{ answer | int }}'", 4),
        ("' {{ answer | int }} '", 4),
        ("'{{ answer | int }}.'", "4."),
        ("'{{ answer }}{{ answer }}'", "44"),
        ("'{{ answer == \"4\" }}'", True),
        ("\"{{ {'4': 'four'}[answer] }}\"", "four"),
        ("\"{{ ['a', 'b'] | reverse }}\"", ["b", "a"]),
        ("'{{ none }}'", None),
        ("'{% if answer == \"4\" %}yes{% else %}no{% endif %}'", "yes"),
        ("[a, 1, true]", ["a", 1, True]),
        ("3", 3),
        ("true", True),
        ("2.5", 2.5),
    ],
)
def test_what_a_target_may_be(load: Load, target: str, value: object) -> None:
    (sample,) = load(HEAD + f"target: {target}\n", jsonl({"answer": "4"})).samples
    assert sample.target == value
    assert type(sample.target) is type(value)


LETTERED = "suite: s\nscore: letter\ndataset:\n  path: d.csv\n  fields: "


def test_a_list_of_columns_and_a_target_that_names_one(load: Load) -> None:
    rows = "question,A,B,C,answer\nWhich is red?,sky,blood,grass,B\nWhich is blue?,sky,blood,A,A\n"
    rows += "Which is green?,sky,blood,grass,grass\n"
    suite = load(LETTERED + "{choices: [A, B, C], target: answer}", {"d.csv": rows.replace(",A,A", ",lawn,A")})
    assert [sample.choices for sample in suite.samples] == [
        ("sky", "blood", "grass"),
        ("sky", "blood", "lawn"),
        ("sky", "blood", "grass"),
    ]
    assert [sample.target for sample in suite.samples] == [1, 0, "grass"]
    with pytest.raises(SuiteError) as caught:
        load(LETTERED + "{choices: [A, B, C], target: answer}", {"d.csv": rows})
    assert str(caught.value) == (
        "d.csv:3: sample '2': target: found 'A', which is the text of one choice and the column of another, expected "
        "the index of the right one"
    )


def test_a_list_of_texts_that_are_no_columns_is_one_of_literals(load: Load) -> None:
    suite = load(LETTERED + "{choices: [A, B], target: answer}", {"d.csv": "question,answer\nq,B\n"})
    assert (suite.samples[0].choices, suite.samples[0].target) == (("A", "B"), "B")
    files: dict[str, str | bytes] = {"d.csv": "question,A,B,answer\nq,x,y,1\n"}
    suite = load(LETTERED + """{choices: ["{{ 'A' }}", "{{ B }}"], target: "{{ answer | int }}"}""", files)
    assert suite.samples[0].choices == ("A", "y")
    at_the_top = "suite: s\nscore: letter\nchoices: [A, B]\ntarget: '{{ answer | int }}'\ndataset: {path: d.csv}\n"
    assert load(at_the_top, files).samples[0].choices == ("A", "B"), "all samples share what stands at the top"


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (
            [{"A": "x", "B": "y"}],
            "d.jsonl:1 has a column 'A' and no column 'C'; a list is one of columns or one of literals for all rows: "
            "write '{{ A }}' for a column, and '{{ 'C' }}' for a text",
        ),
        (
            [{"A": "x", "B": "y", "C": "z"}, {"t": 1}],
            "d.jsonl:2 has none of these columns, unlike the rows before it; a list is one of columns or one of "
            "literals for all rows: write '{{ A }}' for a column, and '{{ 'A' }}' for a text",
        ),
        (
            [{"t": 1}, {"A": "x", "B": "y", "C": "z"}],
            "d.jsonl:2 has a column 'A', unlike the rows before it; a list is",
        ),
    ],
)
def test_a_list_that_is_partly_one_of_columns_is_refused(
    load: Load, rows: list[Mapping[str, object]], problem: str
) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + "  fields: {choices: [A, B, C], target: '{{ 0 }}'}\n", jsonl(*rows))
    assert str(caught.value).startswith(f"s.yaml:5: dataset.fields.choices: {problem}")


def test_choices_of_a_csv_that_are_written_as_a_list(load: Load) -> None:
    head = LETTERED.replace("letter", "choice") + "{target: '{{ 0 }}'}\n"
    for written in ("['x y', 'z']", '"[""x y"", ""z""]"'):
        cell = written if written.startswith('"') else f'"{written}"'
        assert load(head, {"d.csv": f"choices\n{cell}\n"}).samples[0].choices == ("x y", "z")
    with pytest.raises(
        SuiteError, match=r"d\.csv:2: sample '1': choices: found \"\['x' 'z'\]\", a list without commas"
    ):
        load(head, {"d.csv": "choices\n['x' 'z']\n"})


def test_a_column_whose_name_has_a_dot(load: Load) -> None:
    (sample,) = load(HEAD + "target: a.b\n", jsonl({"a.b": "x", "a": {"b": "y"}})).samples
    assert sample.target == "x"


def test_a_question_that_is_a_mapping_stays_for_the_template(load: Load) -> None:
    (sample,) = load(HEAD, jsonl({"question": {"stem": "s"}})).samples
    assert sample.question == ""
    assert sample.variables["question"] == {"stem": "s"}


ERRORS = {
    "column": (
        "  fields: {target: answr}\n",
        "5: dataset.fields.target: d.jsonl:1 has no column 'answr'; did you mean 'answer'?",
    ),
    "column of some rows": (
        "  fields: {target: answer}\n",
        "5: dataset.fields.target: d.jsonl:2 has no column 'answer'; expected one of lang",
    ),
    "nested column": (
        "  fields: {target: lang.x}\n",
        "5: dataset.fields.target: d.jsonl:1 has no column 'x' (of 'lang.x'): what stands there is 'en' (text)",
    ),
    "text as a target": (
        "target: paris\n",
        "5: target: d.jsonl:1 has no column 'paris'; expected one of answer, lang; "
        "for the text itself write {{ 'paris' }}",
    ),
    "undefined": (
        "  fields: {target: '{{ lnag }}'}\n",
        "5: dataset.fields.target: d.jsonl:1: 'lnag' is undefined; did you mean 'lang'?",
    ),
    "undefined in a list": (
        "choices: [a, '{{ lnag }}']\n",
        "5: choices: d.jsonl:1: 'lnag' is undefined; did you mean 'lang'?",
    ),
    "internals": (
        "  fields: {target: '{{ lang.__class__ }}'}\n",
        "5: dataset.fields.target: d.jsonl:1: it reaches for Python internals ('__class__' of a str); "
        "a template works on the sample's data only",
    ),
    "syntax": (
        "  fields: {target: '{{ lang'}\n",
        "5: dataset.fields.target: line 1 of the template: "
        "unexpected end of template, expected 'end of print statement'",
    ),
    "null": (
        "  fields: {target: null}\n",
        "5: dataset.fields.target: found nothing (null), "
        "expected a column, a template, a number, a bool or a list of those",
    ),
    "row": (
        "  fields: {row: lang}\n",
        "5: dataset.fields: found the name 'row', expected letters, digits and '_', and not 'row'",
    ),
    "name": (
        "  fields: {a b: lang}\n",
        "5: dataset.fields: found the name 'a b', expected letters, digits and '_', and not 'row'",
    ),
    "twice": (
        "  fields: {target: lang}\ntarget: lang\n",
        "6: target: found it also as dataset.fields.target, expected one of them",
    ),
    "where false": (
        "  where: lang == 'fr'\n",
        "5: dataset.where: found it false for all 2 rows, expected some to be left",
    ),
    "where text": ("  where: lang\n", "5: dataset.where: d.jsonl:1: found 'en' (text), expected true or false"),
    "where undefined": (
        "  where: lnag == 'x'\n",
        "5: dataset.where: d.jsonl:1: 'lnag' is undefined; did you mean 'lang'?",
    ),
    "where syntax": (
        "  where: lang ==\n",
        "5: dataset.where: line 1 of the template: unexpected 'end of print statement'",
    ),
    "limit": ("  limit: 0\n", "5: dataset.limit: found 0 (a whole number), expected a number of at least 1"),
}


@pytest.mark.parametrize(("more", "message"), ERRORS.values(), ids=ERRORS.keys())
def test_errors(load: Load, more: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + more, jsonl({"answer": 1, "lang": "en"}, {"lang": "de"}))
    assert str(caught.value) == f"s.yaml:{message}"


@pytest.mark.parametrize("where", ["n > 2", "'{{ n > 2 }}'", "n > 2 and row.n < 9"])
def test_where(load: Load, where: str) -> None:
    suite = load(HEAD + f"  where: {where}\n", jsonl({"n": 1}, {"n": 3}, {"n": 2}, {"n": 4}))
    assert [(sample.id, sample.line) for sample in suite.samples] == [("2", 2), ("4", 4)]


def test_where_sees_fields_before_columns(load: Load) -> None:
    suite = load(HEAD + "  fields: {n: '{{ n + 1 }}'}\n  where: n == 2\n", jsonl({"n": 1}, {"n": 2}))
    assert [sample.variables["row"] for sample in suite.samples] == [{"n": 1}]


def test_where_leaves_out_rows_of_which_no_fields_can_be_made(load: Load) -> None:
    rows = jsonl({"answer": "B", "n": 1}, {"answer": None, "n": 2}, {"n": 3, "answer": "A"})
    fields = """  fields: {choices: ["x", "y"], target: "{{ 'AB'.index(answer) }}", big: "{{ n * 10 }}"}\n"""
    suite = load(HEAD + fields + "  where: answer is not none\n", rows)
    assert [sample.target for sample in suite.samples] == [1, 0]
    assert [sample.id for sample in suite.samples] == ["1", "3"], "a row keeps its number"
    with pytest.raises(SuiteError, match=r"d\.jsonl:2"):
        load(HEAD + fields + "  where: big > 0 and answer is not none\n", rows)


def test_shuffle_then_limit_in_the_order_of_python_random(load: Load) -> None:
    rows = [{"n": n} for n in range(20)]
    suite = load(HEAD + "  where: n != 3\n  shuffle_seed: 5\n  limit: 4\n", jsonl(*rows))
    expected = [n for n in range(20) if n != 3]
    random.Random(5).shuffle(expected)
    assert [sample.variables["n"] for sample in suite.samples] == expected[:4]
    assert [sample.id for sample in suite.samples] == [str(n + 1) for n in expected[:4]]


def test_ids_are_checked_among_the_rows_that_are_left(load: Load) -> None:
    rows = [{"id": "a", "lang": "de"}, {"id": "a", "lang": "en"}]
    (sample,) = load(HEAD + "  where: lang == 'en'\n", jsonl(*rows)).samples
    assert (sample.id, sample.line) == ("a", 2)


def test_an_id_that_stands_twice_says_how_to_number_the_rows(load: Load) -> None:
    rows = jsonl({"id": "a", "target": "x"}, {"id": "a", "target": "y"})
    with pytest.raises(SuiteError) as caught:
        load(HEAD, rows)
    assert str(caught.value) == (
        "d.jsonl:2: found the id 'a' twice, first in d.jsonl:1; ids are unique in a suite; dataset.first_id: 1 takes "
        "the rows' numbers in their place"
    )
    assert [sample.id for sample in load(HEAD + "  first_id: 1\n", rows).samples] == ["1", "2"]


def test_ids_are_made_nfc(load: Load) -> None:
    (sample,) = load(HEAD, jsonl({"id": "cafe\u0301 [::] 🙂"})).samples
    assert sample.id == "café [::] 🙂"


def test_inline_samples_have_lines_of_their_own(load: Load) -> None:
    suite = load("suite: s\nscore: exact\nsamples:\n  - question: a\n    target: x\n  # c\n  -\n    question: b\n")
    assert [(sample.id, sample.line, sample.path) for sample in suite.samples] == [
        ("1", 4, "s.yaml"),
        ("2", 8, "s.yaml"),
    ]


AS_LM_EVAL_SEES_THEM = HEAD.replace("exact", "choice") + "  columns_first: true\n  first_id: 0\n"


def test_rows_of_which_some_have_no_id(load: Load) -> None:
    rows = jsonl({"id": "a", "question": "q", "target": "t"}, {"question": "r", "target": "t"})
    with pytest.raises(SuiteError) as caught:
        load("suite: s\nscore: exact\ndataset: {path: d.jsonl}\n", rows)
    assert str(caught.value) == (
        "d.jsonl:2: the row has no id, d.jsonl:1 has one; give ids to all rows, or to none (the row numbers are used "
        "then); dataset.first_id: 1 numbers them all"
    )
    suite = load("suite: s\nscore: exact\ndataset: {path: d.jsonl, first_id: 1}\n", rows)
    assert [sample.id for sample in suite.samples] == ["1", "2"]


def test_with_columns_first_a_template_sees_the_columns_as_they_are(load: Load) -> None:
    choices = {"text": ["here", "there"]}
    row = {"id": "same", "question": {"stem": "Where?"}, "choices": choices, "category": ["x"], "y": 1}
    suite = load(
        AS_LM_EVAL_SEES_THEM + 'choices: "{{ choices.text }}"\ntarget: y\nprompt: {template: "{{ question.stem }}"}\n',
        jsonl(row, row),
    )
    assert [sample.id for sample in suite.samples] == ["0", "1"]
    first = suite.samples[0]
    assert (first.choices, first.target, first.question, first.category) == (("here", "there"), 1, "", None)
    assert suite.templates.text("{{ question.stem }} {{ choices.text | join }}", first.variables) == "Where? herethere"
