"""The keys gates, cluster and primary_metric: what they give, and what is said of each mistake."""

from __future__ import annotations

import hashlib
import json

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.gates.subjects import check_given_gates, gate_lines, higher_is_better, unmatched_gates
from pytest_llmeval.reporting.report.records import SuiteInfo
from pytest_llmeval.suites.format.gates_spec import GivenGate
from pytest_llmeval.suites.loading.suite import Suite
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: exact\n"
ONE = "samples: [{question: a, target: b, part: x}]\n"
ROWS = "samples:\n" + "".join(
    f"- {{question: q{place}, target: t, passage: p{place // 2}, part: {'xy'[place % 2]}}}\n" for place in range(20)
)
BY_PART = HEAD + "category: part\nsamples: [{question: a, target: b, part: x}, {question: c, target: d, part: y.z}]\n"
EXAMPLE = "expected a metric, >=, >, <= or <, and a number, such as 'accuracy >= 0.6' or 'ci_low(accuracy) > 0.55'"

REFUSED_WHEN_READ = {
    "gates are text": (
        HEAD + ONE + "gates: accuracy >= 0.6\n",
        "4: gates: found 'accuracy >= 0.6' (text), expected a list: gates: [accuracy >= 0.6]",
    ),
    "a gate is a number": (
        HEAD + ONE + "gates:\n- accuracy >= 0.6\n- 0.5\n",
        "6: gates.1: found 0.5 (a number), expected a rule such as accuracy >= 0.6; put one that holds ': ' in quotes",
    ),
    "a gate with a colon": (
        HEAD + ONE + "gates:\n- category.a: b.accuracy >= 0.6\n",
        "5: gates.0: found a mapping with the keys 'category.a', expected a rule such as accuracy >= 0.6; put one that "
        "holds ': ' in quotes",
    ),
    "a gate without a number": (
        HEAD + ONE + "gates:\n- accuracy >= 0.6\n- accuracy\n",
        f"6: gates.1: found 'accuracy', {EXAMPLE}",
    ),
    "a gate of an unknown bound": (
        HEAD + ONE + "gates: [ci_lower(accuracy) >= 0.6]\n",
        "4: gates.0: found 'ci_lower(accuracy) >= 0.6': 'ci_lower' is not a known statistic; did you mean ci_low?",
    ),
    "a gate twice": (
        HEAD + ONE + "gates:\n- accuracy >= 0.6\n- skill > 0\n- accuracy>=0.60\n",
        "7: gates.2: found the rule 'accuracy >= 0.60' twice, expected each rule once",
    ),
    "a cluster that is a number": (
        HEAD + ONE + "cluster: 3\n",
        "4: cluster: found 3 (a whole number), expected text; put it in quotes",
    ),
    "an empty cluster": (HEAD + ONE + "cluster: ''\n", "4: cluster: found '' (text), expected text that is not empty"),
    "a column that is not there": (
        HEAD + ROWS + "cluster: pasage\n",
        "24: cluster: s.yaml:4 has no column 'pasage'; did you mean 'passage'?",
    ),
    "a template that is none": (
        HEAD + ROWS + "cluster: '{{ passage'\n",
        "24: cluster: line 1 of the template: unexpected end of template, expected 'end of print statement'",
    ),
    "a sample without a cluster": (
        HEAD + "cluster: passage\nsamples:\n- {id: a, passage: 1}\n- {id: b, passage: }\n",
        "6: sample 'b': cluster: found nothing (null), expected a value that identifies the sample's passage; a "
        "template such as '{{ passage_id or id }}' gives a sample without a passage its own cluster",
    ),
    "a cluster of white space": (
        HEAD + "cluster: passage\nsamples:\n- {id: a, passage: ' '}\n",
        "5: sample 'a': cluster: found ' ' (text), expected a value that identifies the sample's passage; a template "
        "such as '{{ passage_id or id }}' gives a sample without a passage its own cluster",
    ),
    "a cluster that is a list": (
        HEAD + "cluster: passage\nsamples:\n- {id: a, passage: [x]}\n",
        "5: sample 'a': cluster: found a list of 1, expected text or a number",
    ),
    "NUL in a cluster": (
        HEAD + 'cluster: passage\nsamples:\n- {id: a, passage: "a\\0"}\n',
        "5: sample 'a': cluster: found NUL (U+0000) at character 2, expected text",
    ),
    "few clusters": (
        HEAD + ROWS + "cluster: part\n",
        "24: cluster: found 2 clusters in 20 samples, expected at least 10: a standard error over fewer would be far "
        "too small; remove the key to take samples as independent, or name a finer one",
    ),
    "one cluster": (
        HEAD + "cluster: part\n" + ONE,
        "3: cluster: found 1 cluster in 1 sample, expected at least 10: a standard error over fewer would be far too "
        "small; remove the key to take samples as independent, or name a finer one",
    ),
    "a primary metric that is a list": (
        HEAD + ONE + "primary_metric: [accuracy]\n",
        "4: primary_metric: found a list of 1, expected the name of a metric, or a mapping with name and better",
    ),
    "a primary metric of nothing": (
        HEAD + ONE + "primary_metric: ''\n",
        "4: primary_metric: found an empty text, expected the name of a metric, or a mapping with name and better",
    ),
    "a primary metric without a name": (
        HEAD + ONE + "primary_metric: {better: lower}\n",
        "4: the key 'name' is missing in primary_metric",
    ),
    "a direction": (
        HEAD + ONE + "primary_metric: {name: accuracy, better: up}\n",
        "4: primary_metric.better: found 'up' (text), expected one of higher, lower",
    ),
    "a key of a primary metric": (
        HEAD + ONE + "primary_metric:\n  name: accuracy\n  beter: higher\n",
        "6: unknown key 'beter' in primary_metric; did you mean 'better'?",
    ),
}


@pytest.mark.parametrize(("text", "message"), REFUSED_WHEN_READ.values(), ids=REFUSED_WHEN_READ.keys())
def test_mistakes_in_the_file(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(text)
    assert str(caught.value) == f"s.yaml:{message}"


REFUSED_BY_THE_SCORER = {
    "a metric": (
        HEAD + ONE + "gates:\n- accuracy >= 0.6\n- acuracy >= 0.6\n",
        "6: gates.1: 'acuracy >= 0.6': there is no metric 'acuracy'; did you mean 'accuracy'? "
        "Expected one of accuracy, no_answer, cost, seconds, num_tokens, num_prompt_tokens",
    ),
    "a category": (
        BY_PART + "gates: [category.yz.accuracy >= 0.6]\n",
        "5: gates.0: 'category.yz.accuracy >= 0.6': there is no category 'yz'; did you mean 'y.z'? "
        "Expected one of x, y.z",
    ),
    "a category without any": (
        HEAD + ONE + "gates: [category.x.accuracy >= 0.6]\n",
        "4: gates.0: 'category.x.accuracy >= 0.6': the samples have no categories; add the key category to the suite",
    ),
    "an interval of a count": (
        HEAD + ONE + "gates: [no_answer <= 3, ci_low(no_answer) > 0]\n",
        "4: gates.1: 'ci_low(no_answer) > 0': no_answer is a count of samples, which has no interval; leave out ci_low",
    ),
    "a number that the metric cannot have": (
        HEAD + ONE + "gates: [accuracy >= 60]\n",
        "4: gates.0: 'accuracy >= 60': accuracy is from 0 to 1; 60 decides nothing",
    ),
    "a primary metric": (
        HEAD + ONE + "primary_metric: brier\n",
        "4: primary_metric: there is no metric 'brier'; expected one of accuracy, no_answer",
    ),
    "a count as primary metric": (
        HEAD + ONE + "primary_metric: no_answer\n",
        "4: primary_metric: no_answer is a count of samples, which cannot be compared; expected a metric with a value "
        "for each",
    ),
    "a primary metric of an unknown direction": (
        "suite: s\nscore: mine\n" + ONE + "primary_metric: wit\n",
        "4: primary_metric: it is not known whether a higher wit is better; write {name: wit, better: higher}, "
        "or lower",
    ),
}


def check(suite: Suite) -> tuple[dict[str, int | None], bool | None]:
    metrics = Evaluation(suite).scorer.metrics
    return gate_lines(suite, metrics), higher_is_better(suite, metrics, {})


@pytest.mark.parametrize(("text", "message"), REFUSED_BY_THE_SCORER.values(), ids=REFUSED_BY_THE_SCORER.keys())
def test_what_the_suite_does_not_have(load: Load, text: str, message: str) -> None:
    scorers = {"mine": lambda reply: {"wit": 1.0}}
    suite = load(text, scorers=scorers)
    with pytest.raises(SuiteError) as caught:
        check(suite)
    assert str(caught.value) == f"s.yaml:{message}"


def test_gates_have_their_lines(load: Load) -> None:
    text = BY_PART + "gates:\n- accuracy>=0.6\n- 'category.y.z.accuracy > 0'\n- ci_low( macro.accuracy ) > 0.1\n"
    lines, _ = check(load(text))
    assert lines == {"accuracy >= 0.6": 6, "category.y.z.accuracy > 0": 7, "ci_low(macro.accuracy) > 0.1": 8}


def test_gates_of_llm_set(load: Load) -> None:
    text = HEAD + ONE + "gates: [accuracy >= 0.6]\n"
    assert check(load(text, {}, "s: gates.0=accuracy >= 0.7"))[0] == {"accuracy >= 0.7": None}
    assert check(load(text, {}, "*: gates=[accuracy < 1, no_answer <= 2]"))[0] == {
        "accuracy < 1": None,
        "no_answer <= 2": None,
    }
    assert check(load(HEAD + ONE, {}, "s: gates=[accuracy < 1]"))[0] == {"accuracy < 1": None}
    with pytest.raises(SuiteError) as caught:
        check(load(text, {}, "s: gates.0=acuracy >= 0.7"))
    assert str(caught.value) == (
        "s.yaml: --llm-set 's: gates.0=acuracy >= 0.7': gates.0: 'acuracy >= 0.7': there is no metric 'acuracy'; did "
        "you mean 'accuracy'? Expected one of accuracy, no_answer, cost, seconds, num_tokens, num_prompt_tokens"
    )
    with pytest.raises(SuiteError) as caught:
        load(text, {}, "s: gates.0=acuracy")
    assert str(caught.value) == f"s.yaml: --llm-set 's: gates.0=acuracy': gates.0: found 'acuracy', {EXAMPLE}"


@pytest.mark.parametrize(
    ("key", "is_higher"),
    [
        ("", None),
        ("primary_metric: accuracy\n", True),
        ("primary_metric: brier\n", False),
        ("primary_metric: {name: brier}\n", False),
        ("primary_metric: {name: accuracy, better: higher}\n", True),
        ("primary_metric: {name: brier, better: lower}\n", False),
    ],
)
def test_directions(load: Load, key: str, is_higher: bool | None) -> None:
    text = "suite: s\nscore: choice\nsamples: [{question: a, choices: [b, c], target: b}]\n"
    assert check(load(text + key))[1] is is_higher


def test_a_direction_that_is_known_is_not_turned_round(load: Load) -> None:
    text = "suite: s\nscore: choice\nsamples: [{question: a, choices: [b, c], target: b}]\n"
    with pytest.raises(SuiteError) as caught:
        check(load(text + "primary_metric: {name: accuracy, better: lower}\n"))
    assert str(caught.value) == "s.yaml:4: primary_metric: accuracy is better when it is higher; remove `better`"


def test_the_direction_of_a_metric_of_ones_own(load: Load) -> None:
    text = "suite: s\nscore: mine\n" + ONE + "primary_metric: {name: wit, better: lower}\n"
    assert check(load(text, scorers={"mine": lambda reply: {"wit": 1.0}}))[1] is False


@pytest.mark.parametrize(
    ("rule", "clusters"),
    [
        ("passage", [f"p{place // 2}" for place in range(20)]),
        ("'{{ passage }}-{{ part }}'", [f"p{place // 2}-{'xy'[place % 2]}" for place in range(20)]),
        ("'{{ passage[1:] | int }}'", [f"{place // 2}" for place in range(20)]),
    ],
)
def test_clusters(load: Load, rule: str, clusters: list[str]) -> None:
    suite = load(HEAD + ROWS + f"cluster: {rule}\n")
    assert [sample.cluster for sample in suite.samples] == clusters
    assert suite.cluster == rule.strip("'")


def test_clusters_of_a_field(load: Load) -> None:
    rows = "".join(json.dumps({"question": "q", "target": "t", "of": place}) + "\n" for place in range(10))
    suite = load(HEAD + "dataset: {path: d.jsonl, fields: {cluster: of}}\n", {"d.jsonl": rows})
    assert [sample.cluster for sample in suite.samples] == [str(place) for place in range(10)]
    assert suite.cluster == "of"
    with pytest.raises(SuiteError) as caught:
        load(HEAD + "dataset: {path: d.jsonl, fields: {cluster: of}}\ncluster: of\n", {"d.jsonl": rows})
    assert str(caught.value) == ("s.yaml:4: cluster: found it also as dataset.fields.cluster, expected one of them")
    with pytest.raises(SuiteError, match=r"^s\.yaml:3: dataset\.fields\.cluster: found 9 clusters in 9 samples, exp"):
        load(HEAD + "dataset: {path: d.jsonl, limit: 9, fields: {cluster: of}}\n", {"d.jsonl": rows})


def test_a_passage_itself_is_kept_as_its_hash(load: Load) -> None:
    passages = [f"{place} " + "long " * 30 for place in range(10)]
    rows = "".join(json.dumps({"question": "q", "target": "t", "passage": text}) + "\n" for text in passages * 2)
    suite = load(HEAD + "dataset: {path: d.jsonl}\ncluster: passage\n", {"d.jsonl": rows})
    assert suite.samples[3].cluster == "sha256:" + hashlib.sha256(passages[3].encode()).hexdigest()
    assert suite.samples[3].cluster == suite.samples[13].cluster
    assert len({sample.cluster for sample in suite.samples}) == 10


def test_a_column_of_that_name_alone_clusters_nothing(load: Load) -> None:
    suite = load(HEAD + "samples: [{question: a, target: b, cluster: [1]}]\n")
    assert suite.samples[0].cluster is None
    assert suite.cluster is None


def test_clusters_are_no_part_of_a_fingerprint(load: Load) -> None:
    prints = [
        Evaluation(load(HEAD + ROWS + key)).fingerprints()
        for key in ("", "cluster: passage\n", "gates: [accuracy > 0]\n")
    ]
    assert prints[0] == prints[1] == prints[2]


GIVEN = "suite: s\nscore: choice\nsamples: [{question: a, choices: [b, c], target: b}]\n"


@pytest.mark.parametrize(
    "given",
    [
        "s: accuracy >= 0.6",
        "other: acuracy >= 0.6",
        "*: acuracy >= 0.6",
        "acuracy >= 0.6",
        "*: category.x.accuracy >= 0.6",
        "s: ci_low(brier) > 0",
    ],
)
def test_gates_from_outside(load: Load, given: str) -> None:
    suite = load(GIVEN)
    check_given_gates(suite, Evaluation(suite).scorer.metrics, {"--llm-gate": [GivenGate.parse(given)]})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            "s: acuracy >= 0.6",
            "s.yaml: --llm-gate 's: acuracy >= 0.6': there is no metric 'acuracy'; did you mean 'accuracy'? "
            "Expected one of accuracy, ",
        ),
        (
            "s: category.x.accuracy >= 0.6",
            "s.yaml: --llm-gate 's: category.x.accuracy >= 0.6': the samples have no categories; ",
        ),
        (
            "*: ci_low(correct) >= 0.6",
            "s.yaml: --llm-gate '*: ci_low(correct) >= 0.6': correct is a count of samples, which has no interval; ",
        ),
    ],
)
def test_gates_from_outside_that_are_not_for_this_suite(load: Load, given: str, message: str) -> None:
    suite = load(GIVEN)
    with pytest.raises(SuiteError) as caught:
        check_given_gates(
            suite, (*Evaluation(suite).scorer.metrics, "correct"), {"--llm-gate": [GivenGate.parse(given)]}
        )
    assert str(caught.value).startswith(message)


SUITES = (
    SuiteInfo(name="capitals", metrics=("accuracy", "brier")),
    SuiteInfo(name="sums", metrics=("accuracy", "flexible.accuracy", "b.*")),
)
CATEGORIES = {"capitals": ("west", "south"), "sums": ("add",)}


@pytest.mark.parametrize(
    "text",
    [
        "accuracy > 0",
        "*: ci_low(brier) > 0",
        "flexible.accuracy > 0",
        "b.anything > 0",
        "macro.brier > 0",
        "category.west.brier > 0",
        "category.add.flexible.accuracy > 0",
    ],
)
def test_gates_for_every_suite_that_one_has(text: str) -> None:
    assert unmatched_gates({"--llm-gate": [GivenGate.parse(text)]}, SUITES, CATEGORIES) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acuracy > 0.9", "no suite has 'acuracy'; did you mean 'accuracy'?"),
        (
            "*: ci_low(ter) < 9",
            "no suite has 'ter', only 'accuracy', 'brier', 'flexible.accuracy', 'cost', 'seconds', 'num_tokens', "
            "'num_prompt_tokens'",
        ),
        ("sum(costs) <= 5", "no suite has 'costs'; did you mean 'cost'?"),
        (
            "category.wets.brier > 0",
            "no suite has 'category.wets.brier': there is no category 'wets'; did you mean 'west'? "
            "Expected one of west, south, add",
        ),
        ("category.add.brier > 0", "no suite has 'category.add.brier'"),
        ("nowhere: acuracy > 0", "no suite 'nowhere' was collected, only 'capitals', 'sums'"),
        (
            "macro.acuracy > 0",
            "no suite has 'macro.acuracy': there is no metric 'acuracy'; did you mean 'accuracy'? "
            "Expected one of accuracy, brier, flexible.accuracy",
        ),
    ],
)
def test_gates_for_every_suite_that_none_has(text: str, message: str) -> None:
    given = {"--llm-gate": [GivenGate.parse("accuracy > 0")], "llm_gate of the ini file": [GivenGate.parse(text)]}
    assert unmatched_gates(given, SUITES, CATEGORIES) == [f"llm_gate of the ini file '{text}': {message}"]


@pytest.mark.parametrize("metrics", [(), ("accuracy", "*")])
def test_a_scorer_of_ones_own_may_give_any_metric(metrics: tuple[str, ...]) -> None:
    suites = [*SUITES, SuiteInfo(name="mine", metrics=metrics)]
    given = {"--llm-gate": [GivenGate.parse("acuracy > 0.9"), GivenGate.parse("category.art.wit > 0")]}
    assert len(unmatched_gates(given, SUITES, CATEGORIES)) == 2
    assert unmatched_gates(given, suites, {**CATEGORIES, "mine": ("art",)}) == []


def test_gates_for_every_suite_where_there_is_none() -> None:
    assert unmatched_gates({"--llm-gate": [GivenGate.parse("acuracy > 0")]}, [], {}) == []
