"""What a suite with ``score: perplexity`` asks for, and what it refuses."""

from __future__ import annotations

import pytest

from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.types import LoglikelihoodResponse, LoglikelihoodRollingRequest
from tests.suites.conftest import Load

HEAD = "suite: s\nscore: perplexity\n"
TEXT = "samples: [{text: 'a b'}]\n"


def requests(load: Load, text: str) -> list[LoglikelihoodRollingRequest]:
    evaluation = Evaluation(load(text))
    found = [request for sample in evaluation.suite.samples for request in evaluation.question(sample).requests]
    return [request for request in found if isinstance(request, LoglikelihoodRollingRequest)]


def test_the_text_is_the_samples_text_or_question(load: Load) -> None:
    assert requests(load, HEAD + "samples: [{text: 'a b '}, {text: ' c', question: what}]\n") == [
        LoglikelihoodRollingRequest("a b "),
        LoglikelihoodRollingRequest(" c"),
    ]
    assert requests(load, HEAD + "samples: [{question: a}]\n") == [LoglikelihoodRollingRequest("a")]
    mapped = HEAD + "dataset: {path: d.jsonl, fields: {text: page}}\n"
    load(mapped, {"d.jsonl": '{"page": "one\\n\\ntwo\\n"}\n'})
    assert requests(load, mapped) == [LoglikelihoodRollingRequest("one\n\ntwo\n")]


def test_the_text_is_the_rendered_template(load: Load) -> None:
    text = HEAD + TEXT + "prompt: {template: '<{{ text }}>', fewshot: {count: 0}}\n"
    assert requests(load, text) == [LoglikelihoodRollingRequest("<a b>")]


@pytest.mark.parametrize(
    ("score", "stride", "windows"),
    [
        ("perplexity", None, "disjoint"),
        ("{perplexity: {windows: disjoint}}", None, "disjoint"),
        ("{perplexity: {stride: 512}}", 512, "sliding"),
        ("{perplexity: {windows: sliding, stride: 512}}", 512, "sliding"),
    ],
)
def test_windows(load: Load, score: str, stride: int | None, windows: str) -> None:
    text = f"suite: s\nscore: {score}\n{TEXT}"
    assert requests(load, text) == [LoglikelihoodRollingRequest("a b", stride)]
    assert load(text).spec.score.model_dump() == {"kind": "perplexity", "windows": windows, "stride": stride}


def test_a_stride_from_the_command_line(load: Load) -> None:
    suite = load(f"suite: s\nscore: {{perplexity: {{}}}}\n{TEXT}", None, "s: score.perplexity.stride=8")
    assert suite.spec.score.model_dump()["stride"] == 8


def test_the_rendered_text_is_what_is_counted(load: Load) -> None:
    evaluation = Evaluation(load(HEAD + TEXT + "prompt: {template: '{{ text }} c'}\n"))
    question = evaluation.question(evaluation.suite.samples[0])
    score = evaluation.score(question, [LoglikelihoodResponse(loglikelihood=-4.0, num_tokens=4)])
    assert score.values == {"loglikelihood": -4.0, "words": 3.0, "bytes": 5.0, "tokens": 4.0}


COUNTED = "score: {perplexity: {counted: '{{ page }}'}}\n"


def test_words_and_bytes_may_be_those_of_another_text(load: Load) -> None:
    evaluation = Evaluation(
        load(f"suite: s\n{COUNTED}samples: [{{text: 'a b', page: 'a é - b'}}, {{text: c, page: ''}}]\n")
    )
    question, empty = (evaluation.question(sample) for sample in evaluation.suite.samples)
    assert question.requests == (LoglikelihoodRollingRequest("a b"),)
    score = evaluation.score(question, [LoglikelihoodResponse(loglikelihood=-4.0, num_tokens=2)])
    assert score.values == {"loglikelihood": -4.0, "words": 4.0, "bytes": 8.0, "tokens": 2.0}
    score = evaluation.score(empty, [LoglikelihoodResponse(loglikelihood=-4.0, num_tokens=2)])
    assert (score.status, score.reason) == (
        "unscored",
        "score.perplexity.counted is empty: there is nothing to count",
    )


def test_windows_and_texts_are_in_the_fingerprint(load: Load) -> None:
    texts = [
        f"suite: s\n{COUNTED}samples: [{{text: 'a b', page: 'a b'}}]\n",
        f"suite: s\n{COUNTED}samples: [{{text: 'a b', page: 'a  b'}}]\n",
        HEAD + TEXT,
        HEAD + "samples: [{text: 'a c'}]\n",
        f"suite: s\nscore: {{perplexity: {{stride: 8}}}}\n{TEXT}",
        f"suite: s\nscore: {{perplexity: {{stride: 9}}}}\n{TEXT}",
    ]
    assert len({Evaluation(load(text)).fingerprints()[0] for text in texts}) == len(texts)
    disjoint = f"suite: s\nscore: {{perplexity: {{windows: disjoint}}}}\n{TEXT}"
    assert Evaluation(load(disjoint)).fingerprints() == Evaluation(load(HEAD + TEXT)).fingerprints()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            HEAD + TEXT + "prompt:\n  chat: true\n",
            "s.yaml:5: prompt.chat: found true; score: perplexity scores a text as it is, without a chat template",
        ),
        (
            HEAD + TEXT + "prompt:\n  system: Hello.\n",
            "s.yaml:5: prompt.system: found text, which score: perplexity would score too; remove it",
        ),
        (
            HEAD + "samples: [{text: a}, {text: b}]\nprompt:\n  fewshot: {count: 1}\n",
            "s.yaml:5: prompt.fewshot: found examples, which score: perplexity would score too; remove them",
        ),
        (
            HEAD + "samples:\n- text: a\n- text: ''\n",
            "s.yaml:5: sample '2': the text is empty: there is nothing to score; dataset.where can leave such rows out",
        ),
        (
            HEAD + "samples:\n- body: a\n",
            "s.yaml:2: score: sample '1' (s.yaml:4): the scorer's default template, since there is no prompt.template: "
            "'question' is undefined; expected one of body, row",
        ),
    ],
)
def test_what_is_refused(load: Load, text: str, message: str) -> None:
    with pytest.raises(SuiteError) as caught:
        requests(load, text)
    assert str(caught.value) == message
