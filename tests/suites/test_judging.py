"""Filters, epochs and several scorers in a suite file: what is read, and what is said of mistakes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.scoring.epochs import EpochsSpec
from pytest_llmeval.scoring.filters import FILTERS
from pytest_llmeval.suites.format.schema import json_schema
from tests.suites.conftest import Load

HEAD = "suite: s\nsamples: [{question: a, target: b}]\n"
SEVERAL = """\
score:
  several:
    decides: strict
    scorers:
      strict:
        filters:
          - strip
          - regex: {pattern: "#### (.*)", match: last}
        score: exact
      flexible:
        score: {exact: {normalize: [lower, {remove: ","}]}}
"""

MISTAKES = {
    "a filter": ("filters: [stripp]\n", "3: filters.0: there is no filter 'stripp'; did you mean 'strip'?"),
    "filters is text": ("filters: strip\n", "3: filters: found 'strip' (text), expected a list"),
    "a filter is a number": (
        "filters:\n- strip\n- 3\n",
        "5: filters.1: found 3 (a whole number), expected the name of a filter, or one name with its settings",
    ),
    "two filters in one": (
        "filters: [{strip: , lower: }]\n",
        "3: filters.0: found 2 names (strip, lower), expected the name of one filter",
    ),
    "a setting of a filter": (
        "filters:\n- regex:\n    patern: x\n    pattern: x\n",
        "5: unknown key 'patern' in filters.0.regex; did you mean 'pattern'?",
    ),
    "a missing setting": ("filters: [regex]\n", "3: the key 'pattern' is missing in filters.0.regex"),
    "a setting of a filter without any": (
        "filters: [{strip: {left: true}}]\n",
        "3: unknown key 'left' in filters.0.strip; expected none",
    ),
    "settings are a number": (
        "filters: [{lower: 3}]\n",
        "3: filters.0.lower: found 3 (a whole number), expected a mapping of its settings",
    ),
    "kind is no setting": ("filters: [{regex: {kind: x}}]\n", "3: unknown key 'kind' in filters.0.regex"),
    "which match": (
        "filters:\n- regex: {pattern: x,\n    match: second}\n",
        "5: filters.0.regex.match: found 'second' (text), expected first, last or a whole number",
    ),
    "group": (
        "filters: [{regex: {pattern: x, group: [1]}}]\n",
        "3: filters.0.regex.group: found a list of 1, expected text or a whole number",
    ),
    "an empty marker": (
        "filters: [{after: ''}]\n",
        "3: filters.0.after.marker: found '' (text), expected text that is not empty",
    ),
    "a value of a map": (
        "filters:\n- map:\n    a: b\n    c: true\n",
        "6: filters.0.map.c: found true (a bool), expected text or a whole number",
    ),
    "two tags alike": (
        "filters: [{drop_reasoning: {begin: x, end: x}}]\n",
        "3: filters.0.drop_reasoning: found 'x' as both begin and end, expected two tags",
    ),
    "no epochs": ("epochs: 0\n", "3: epochs: found 0 (a whole number), expected a number from 1 to 10000"),
    "epochs in text": (
        "epochs: five\n",
        "3: epochs: found 'five' (text), expected a whole number, or a mapping with count and reduce",
    ),
    "epochs without a count": ("epochs: {reduce: mode}\n", "3: the key 'count' is missing in epochs"),
    "a key of epochs": (
        "epochs:\n  count: 3\n  reuce: mode\n",
        "5: unknown key 'reuce' in epochs; did you mean 'reduce'?",
    ),
    "a reduction": (
        "epochs:\n  count: 3\n  reduce: [mean, moode]\n",
        "5: epochs.reduce.1: there is no reduction 'moode'; did you mean 'mode'?",
    ),
    "a reduction like none": (
        "epochs: {count: 3, reduce: pass@0}\n",
        "3: epochs.reduce.0: there is no reduction 'pass@0'; expected one of mean, first, mode, any, all, mode@k, "
        "pass@k, pass^k",
    ),
    "too few epochs": (
        "epochs:\n  count: 3\n  reduce: [pass@1, pass@4]\n",
        "5: epochs.reduce: 'pass@4' needs 4 replies, and every sample is asked 3 times",
    ),
    "a reduction twice": (
        "epochs: {count: 3, reduce: [mean, mean]}\n",
        "3: epochs.reduce.1: found 'mean' twice, expected each reduction once",
    ),
    "no reduction": (
        "epochs: {count: 3, reduce: []}\n",
        "3: epochs.reduce: found an empty list, expected one reduction or more",
    ),
    "no scorers": (
        "score: {several: {scorers: {}}}\n",
        "3: score.several.scorers: found an empty mapping, expected at least 1 entry",
    ),
    "which decides": (
        "score:\n  several:\n    decides: stric\n    scorers: {strict: {score: exact}}\n",
        "5: score.several.decides: there is no scorer 'stric' in scorers; did you mean 'strict'?",
    ),
    "a scorer's name": (
        "score:\n  several:\n    scorers:\n      a.b: {score: exact}\n",
        "6: score.several.scorers.a.b: found the name 'a.b', expected a letter and then letters, digits, '_', '-', '@' "
        "and '^'",
    ),
    "a scorer of several": (
        "score:\n  several:\n    scorers:\n      a: {score: exat}\n",
        "6: score.several.scorers.a.score: there is no scorer 'exat'; did you mean 'exact'?",
    ),
    "several of several": (
        "score: {several: {scorers: {a: {score: several}}}}\n",
        "3: score.several.scorers.a.score: there is no scorer 'several'",
    ),
    "a setting of a scorer of several": (
        "score:\n  several:\n    scorers:\n      a:\n        score:\n          exact:\n            normalise: []\n",
        "9: unknown key 'normalise' in score.several.scorers.a.score.exact; did you mean 'normalize'?",
    ),
    "a key of a scorer of several": (
        "score:\n  several:\n    scorers:\n      a:\n        score: exact\n        filter: []\n",
        "8: unknown key 'filter' in score.several.scorers.a; did you mean 'filters'?",
    ),
    "a filter of a scorer of several": (
        "score:\n  several:\n    scorers:\n      a:\n        score: exact\n        filters:\n        - strip\n"
        "        - after: {marker: 3}\n",
        "10: score.several.scorers.a.filters.1.after.marker: found 3 (a whole number), expected text; put it in quotes",
    ),
    "a normalisation": (
        "score: {exact: {normalize: [strp]}}\n",
        "3: score.exact.normalize.0: found 'strp' (text), expected one of strip, lower, collapse_whitespace, "
        "no_punctuation, no_ascii_punctuation, no_articles, no_digits, unicode, or {remove: a regular expression}; did "
        "you mean 'strip'?",
    ),
    "what is removed": (
        "score:\n  contains:\n    normalize:\n    - lower\n    - remove: 3\n",
        "7: score.contains.normalize.1.remove: found 3 (a whole number), expected a regular expression in quotes",
    ),
    "a key of json": (
        "score: {json: {shema: {}}}\n",
        "3: unknown key 'shema' in score.json; did you mean 'schema'?",
    ),
}


@pytest.mark.parametrize(("text", "message"), MISTAKES.values(), ids=MISTAKES.keys())
def test_a_mistake_is_named_with_its_line(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(HEAD + text + ("" if text.startswith("score") else "score: exact\n"))
    assert str(caught.value).startswith(f"s.yaml:{message}")
    assert "\n" not in str(caught.value)


def test_epochs_can_be_a_number(load: Load) -> None:
    spec = load(HEAD + "score: exact\nepochs: 5\n").spec
    assert spec.epochs == EpochsSpec(count=5, reduce=("mean",))
    assert load(HEAD + "score: exact\n").spec.epochs is None


def test_an_override_reaches_into_filters_and_epochs(load: Load) -> None:
    text = HEAD + "score: exact\nfilters: [{regex: a}]\nepochs: {count: 3, reduce: mode}\n"
    spec = load(text, {}, "s: epochs.count=8", "s: filters=[strip]").spec
    assert spec.epochs == EpochsSpec(count=8, reduce=("mode",))
    assert [step.kind for step in spec.filters] == ["strip"]


VALID = [
    HEAD + SEVERAL,
    HEAD + "score: exact\nepochs: 4\n",
    HEAD + "score: exact\nepochs: {count: 4, reduce: [pass@1, pass^2, mode@3]}\n",
    HEAD + "score: {exact: {normalize: [strip, {remove: x}], allow_empty: true}}\n",
    HEAD + "score: {json: {schema: {type: object}, fenced: true}}\n",
    HEAD + "score: exact\nfilters:\n- strip\n- drop_reasoning\n- regex: x\n- after: {marker: x, match: first}\n"
    "- map: {a: b}\n- map: {values: {a: 1}, default: c}\n- choice_regex: {pattern: x, ignore: [y]}\n"
    "- regex: {pattern: x, match: -1, group: name, fallback: none}\n",
]
INVALID = [
    HEAD + "score: exact\nepochs: 0\n",
    HEAD + "score: exact\nepochs: {count: 4, reduce: modus}\n",
    HEAD + "score: exact\nfilters: [stripp]\n",
    HEAD + "score: exact\nfilters: [regex]\n",
    HEAD + "score: exact\nfilters: [{regex: {patern: x}}]\n",
    HEAD + "score: {several: {scorers: {a: {score: several}}}}\n",
    HEAD + "score: {several: {scorers: {a: {filters: [x], score: exact}}}}\n",
    HEAD + "score: {exact: {normalize: [{remove: 1}]}}\n",
]


def test_the_json_schema_takes_what_the_loader_takes(load: Load) -> None:
    schema: Any = json_schema()
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)
    for text in VALID:
        load(text)
        assert not [error.message for error in validator.iter_errors(yaml.safe_load(text))], text
    for text in INVALID:
        with pytest.raises(SuiteError):
            load(text)
        assert not validator.is_valid(yaml.safe_load(text)), text


def test_every_filter_is_in_the_json_schema() -> None:
    schema: Any = json_schema()
    bare, settings = schema["properties"]["filters"]["items"]["anyOf"]
    assert set(settings["properties"]) == set(FILTERS)
    assert set(bare["enum"]) == set(FILTERS) - {"after", "before", "regex", "choice_regex", "map"}
