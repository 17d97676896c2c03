from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError
from scipy.special import softmax
from sklearn.metrics import brier_score_loss

from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers.yes_no import YesNoScorer, YesNoSettings
from pytest_llmeval.scoring.metrics.summary import summarize
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest
from tests.scoring.helpers import GENERATE, a_sample, judge_loglikelihoods, judge_reply

BY_GENERATION = YesNoScorer(YesNoSettings())
BY_LOGLIKELIHOOD = YesNoScorer(YesNoSettings(by="loglikelihood"))


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("yes", "yes"),
        ("Yes, it is.", "yes"),
        (" \n\tYES", "yes"),
        ("yesterday", "yes"),
        ("no", "no"),
        ("No.", "no"),
        ("  NOT at all", "no"),
        ("none", "no"),
        ("not known.", "no"),
        ("n", None),
        ("y", None),
        ("ye", None),
        ("", None),
        ("   ", None),
        ("  n ", None),  # two characters, and no start of "no"
        ("It is: yes", None),
        ("'yes'", None),
        ("**No**", None),
        ("\x00no", None),
        ("\ud800yes", None),
    ],
)
def test_by_prefix_the_first_three_characters_decide(reply: str, answer: str | None) -> None:
    score = judge_reply(YesNoSettings(rule="prefix"), "yes", reply)
    assert (score.answer, score.no_answer) == (answer, answer is None)
    assert score.status == ("correct" if answer == "yes" else "wrong")
    assert score.values["yes_predicted"] == float(answer == "yes")
    assert score.values["no_predicted"] == float(answer == "no")


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ("yes", "yes"),
        ("Yes, it is.", "yes"),
        (" \n\tYES", "yes"),
        ("no", "no"),
        ("No.", "no"),
        ("n", None),
        ("y", None),
        ("", None),
        ("   ", None),
        # a word is a word
        ("yesterday", None),
        ("NOT at all", None),
        ("none", None),
        ("not known.", None),
        ("not clear.", None),
        ("Nobody knows.", None),
        ("no-one", None),
        ("No one knows.", None),
        ("It is no longer so", None),
        ("not known.\n\nThere is no known answer to this question.", None),
        ("\ud800yes", "yes"),
        ("Ｙｅｓ", "yes"),
        ("答案：ｎｏ", "no"),
        # quotes and Markdown around it do not matter
        ('"Yes".', "yes"),
        ("'yes'", "yes"),
        ("“No”", "no"),
        ("**No**", "no"),
        ("**No**, it is not.", "no"),
        ("> *Yes*", "yes"),
        ("<answer>no</answer>", "no"),
        (r"\boxed{\text{Yes}}", "yes"),
        (": Yes", "yes"),
        # where a person would find it
        ("most likely No.", "no"),
        ("It is: yes", "yes"),
        ("It depends, but probably yes", "yes"),
        ("The answer is no.", "no"),
        ("The answer (Yes or No) is No.", "no"),
        ("Answer yes or no: no", "no"),
        ("**Answer:** Yes", "yes"),
        ("No evidence was found at first. Still, the answer is yes.", "yes"),
        ("Yes. The answer is in the passage.", "yes"),
        ("The answer is yes. No, the answer is not known.", None),
        ("No, because yes would mean more.", "no"),
        ("Yes or no? Hard to say", None),
        ("both Yes and No.", None),
        ("It may be yes, it may be no.", None),
        ("yes/no", None),
        # "no" before a word is a part of what it says
        ("No evidence supports this.", None),
        ("No information is available", None),
        ("**No** information is given.", None),
        ("No answer can be given.", None),
        ("No way to know", None),
        ("No matter what he says, yes.", "yes"),
        ("no need to worry: yes", "yes"),
        ("The answer is no secret: yes", "yes"),
        ("No 2 people agree", None),
        ("No it is not", "no"),
        ("No the sky is not green", "no"),
        ("No they do not", "no"),
        ("No because it is not in the passage", "no"),
        ("No there isn’t", "no"),
        ("No a whale is a mammal.", "no"),
        ("No\nThe passage does not say so.", "no"),
        ("**No** Explanation: it is not.", "no"),
        ("I would say no because it is too far.", "no"),
        ("There is no in-between.", None),
        ("Not yes.", None),
        ("The answer is not “yes”.", None),
        ("It is not yes, but no.", "no"),
        ("No\n\nQuestion: Is it?\nAnswer: Yes", "no"),
        # what is denied is not stated, in ten languages
        ("Yes is wrong. No.", "no"),
        ("No, yes would be wrong", "no"),
        ("Yes would be wrong", None),
        # what is asked counts where nothing is stated
        ("Yes? No.", "no"),
        ("Is it yes or no? Yes.", "yes"),
        ("Yes or no?", None),
        ("Yes?", "yes"),
        ("I choose yes over no", "yes"),
        ("No is wrong, so yes.", "yes"),
        ("“Yes” is what many think. “No” is correct.", "no"),
        ("Yes ist falsch. Richtig ist No.", "no"),
        ("Nicht yes, sondern no.", "no"),
        ("Yes est faux, no est juste.", "no"),
        ("Yes es incorrecto. La respuesta correcta es no.", "no"),
        ("Yes está errado, a resposta é no.", "no"),
        ("Yes неверно, правильный ответ — no.", "no"),
        ("Yes خطأ، الإجابة الصحيحة هي no.", "no"),
        ("Yes错误，No正确", "no"),
        ("Yesは誤りです。正解はNoです。", "no"),
        ("Yes는 틀렸고 정답은 No입니다.", "no"),
        ("No. Wrong.", "no"),
        ("No: false", "no"),
        # several, and nothing says which one is meant
        ("yes, no", None),
        ("Yes oder no", None),
        ("Yes或No", None),
        ("Yes is one side, and no is the other", None),
        ("Yes, there is no doubt.", "yes"),
        ("Yes, yes.", "yes"),
    ],
)
def test_by_default_the_word_that_a_person_would_read(reply: str, answer: str | None) -> None:
    score = judge_reply(YesNoSettings(), "yes", reply)
    assert (score.answer, score.no_answer) == (answer, answer is None)
    assert score.status == ("correct" if answer == "yes" else "wrong")
    assert score.values["yes_predicted"] == float(answer == "yes")
    assert score.values["no_predicted"] == float(answer == "no")


@pytest.mark.parametrize("piece", ["yes ", "no ", "no, ", "answer ", "answer is ", " ", "\n", "\\boxed{", "*"])
def test_a_long_reply_is_read(piece: str) -> None:
    judge_reply(YesNoSettings(), "yes", piece * (200_000 // len(piece)))


def test_of_a_very_long_reply_the_two_ends_are_read_and_the_record_says_so() -> None:
    score = judge_reply(YesNoSettings(), "yes", "so " * 100_000 + "The answer is yes.")
    assert score.status == "correct"
    assert score.details == {"reply_chars": 300_018, "judged_chars": 200_000}


def test_a_rule_is_for_replies() -> None:
    with pytest.raises(ValidationError, match="found a rule, which says how a reply is read, with by 'loglikelihood'"):
        YesNoSettings(by="loglikelihood", rule="prefix")


def test_what_the_rule_of_old_says_has_the_fingerprint_of_old() -> None:
    old, by_loglikelihood = YesNoSettings(rule="prefix"), YesNoSettings(by="loglikelihood")
    assert YesNoScorer(old).version == 1
    assert YesNoScorer(by_loglikelihood).version == 2, "a tie was no in version 1"
    assert not {"rule", "tie_is_no"} & old.model_dump().keys()
    assert "rule" not in by_loglikelihood.model_dump()
    assert BY_GENERATION.version == 3
    assert YesNoSettings().model_dump()["rule"] == "word"


@pytest.mark.parametrize(
    ("target", "answer"),
    [(True, "yes"), (False, "no"), ("yes", "yes"), (" No ", "no"), ("TRUE", "yes"), ("False", "no"), ("ｙｅｓ", "yes")],
)
def test_targets(target: Any, answer: str) -> None:
    presented = BY_GENERATION.present(a_sample(target))
    assert (presented.target, BY_GENERATION.answer_text(presented)) == (answer, answer)


@pytest.mark.parametrize("target", [1, 0, "maybe", "", ["yes"], 1.0])
def test_other_targets_are_refused(target: Any) -> None:
    with pytest.raises(ValueError, match="is neither yes nor no; expected yes, no, true or false"):
        BY_GENERATION.present(a_sample(target))


def test_no_target_is_refused() -> None:
    with pytest.raises(ValueError, match="the sample has no target; expected yes, no, true or false"):
        BY_GENERATION.present(a_sample(None))


def test_a_short_reply_unless_the_suite_sets_its_length() -> None:
    presented = BY_GENERATION.present(a_sample(True))
    assert BY_GENERATION.requests(presented, "Q", delimiter=" ", generate=GENERATE) == (
        GenerateRequest("Q", max_tokens=77, stop=("\n",), temperature=0.5, seed=3),
    )
    (short,) = BY_GENERATION.requests(presented, "Q", delimiter=" ", generate=GenerateSpec(seed=3))
    assert short == GenerateRequest("Q", max_tokens=10, seed=3)


def test_both_answers_follow_the_delimiter() -> None:
    presented = BY_LOGLIKELIHOOD.present(a_sample(True))
    assert BY_LOGLIKELIHOOD.requests(presented, "Q", delimiter=" ", generate=GENERATE) == (
        LoglikelihoodRequest("Q", " yes"),
        LoglikelihoodRequest("Q", " no"),
    )


@pytest.mark.parametrize(
    ("yes", "no", "answer"),
    [(-1.0, -2.0, "yes"), (-2.0, -1.0, "no"), (-math.inf, -3.0, "no"), (-3.0, -math.inf, "yes")],
)
def test_the_likelier_is_the_answer(yes: float, no: float, answer: str) -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(True), [yes, no], [1, 3])
    assert score.answer == answer
    assert score.status == ("correct" if answer == "yes" else "wrong")


def test_a_tie_is_worth_a_half_and_in_neither_count() -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(True), [-1.0, -1.0], [1, 1])
    assert (score.status, score.answer, score.no_answer) == ("scored", "yes | no (tie)", False)
    counted = {name: score.values[name] for name in ("accuracy", "skill", "yes_predicted", "no_predicted", "ties")}
    assert counted == {"accuracy": 0.5, "skill": 0.0, "yes_predicted": 0.0, "no_predicted": 0.0, "ties": 1.0}
    assert score.details["tied"] == [0, 1]


@pytest.mark.parametrize(("target", "status"), [(True, "wrong"), (False, "correct")])
def test_a_tie_is_no_where_the_suite_says_so(target: bool, status: str) -> None:
    scorer = YesNoScorer(YesNoSettings(by="loglikelihood", tie_is_no=True))
    score = judge_loglikelihoods(scorer, a_sample(target), [-1.0, -1.0], [1, 1])
    assert (score.status, score.answer) == (status, "no")
    assert (score.values["no_predicted"], score.values["ties"]) == (1.0, 1.0)


def test_replies_do_not_tie() -> None:
    with pytest.raises(ValueError, match="tie_is_no with by 'generation', where nothing can tie"):
        YesNoSettings(tie_is_no=True)


def test_brier_is_that_of_scikit_learn() -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(False), [-1.0, -1.5], [1, 1])
    assert score.values["brier"] == pytest.approx(brier_score_loss([0, 1], softmax([-1.0, -1.5])))
    assert score.details["probabilities"] == pytest.approx(softmax([-1.0, -1.5]))


@pytest.mark.parametrize("values", [[math.nan, -1.0], [-1.0, math.inf], [-math.inf, -math.inf]])
def test_what_cannot_be_compared_is_unscored(values: list[float]) -> None:
    score = judge_loglikelihoods(BY_LOGLIKELIHOOD, a_sample(True), values, [1, 1])
    assert score.status == "unscored"
    assert score.reason is not None
    assert score.values == {}


def test_totals_of_a_suite() -> None:
    replies = [(True, "yes"), (True, "No"), (False, "no"), (False, "hm"), (True, ""), (False, "Yes")]
    scores = [judge_reply(YesNoSettings(), target, reply) for target, reply in replies]
    totals = {name: metric.value for name, metric in summarize(scores, BY_GENERATION.metrics).items()}
    assert totals == {
        "accuracy": pytest.approx(2 / 6),
        "skill": pytest.approx((2 / 6 - 0.5) / 0.5),
        "correct": 2,
        "total": 6,
        "yes_predicted": 2,
        "no_predicted": 2,
        "no_answer": 2,
    }


def test_brier_is_a_metric_only_by_loglikelihood() -> None:
    assert "brier" not in BY_GENERATION.metrics
    assert "brier" in BY_LOGLIKELIHOOD.metrics
