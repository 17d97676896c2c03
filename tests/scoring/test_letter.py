from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.scorers.letter import LetterScorer, LetterSettings, first_upper, option_labels
from pytest_llmeval.scorers.reading.stated import LabelStyle, stated_label
from pytest_llmeval.types import GenerateRequest, GenerateResponse, Score
from tests.scoring.helpers import GENERATE, a_sample

CITIES = ["Rome", "Paris", "Berlin", "Madrid"]


def judge(reply: str, *, target: object = 1, settings: LetterSettings | None = None) -> Score:
    scorer = LetterScorer(settings or LetterSettings(shuffle=False))
    return scorer.score(scorer.present(a_sample(target, CITIES)), [GenerateResponse(text=reply)])


def test_the_prompt_ends_as_it_should() -> None:
    assert LetterScorer(LetterSettings()).default_template == (
        "{{ question }}\n\n{{ lettered_choices }}\n\nRespond only with the letter of the correct answer:"
    )


def test_variables_show_the_options_with_their_labels() -> None:
    scorer = LetterScorer(LetterSettings(shuffle=False))
    assert scorer.variables(scorer.present(a_sample(1, ["Rome", "Paris"]))) == {
        "lettered_choices": "A. Rome\nB. Paris",
        "labels": ["A", "B"],
        "choices": ["Rome", "Paris"],
    }


@pytest.mark.parametrize(
    ("settings", "generate", "max_tokens"),
    [
        (LetterSettings(), GenerateSpec(), 10),
        (LetterSettings(), GENERATE, 77),
        (LetterSettings(max_tokens=3), GenerateSpec(), 3),
        (LetterSettings(max_tokens=3), GENERATE, 3),
        (LetterSettings(rule="first_upper"), GENERATE, 77),
    ],
)
def test_tokens_are_the_scorers_own_else_the_suites_else_10(
    settings: LetterSettings, generate: GenerateSpec, max_tokens: int
) -> None:
    scorer = LetterScorer(settings)
    (request,) = scorer.requests(scorer.present(a_sample(1, CITIES)), "Q", delimiter=" ", generate=generate)
    assert request == GenerateRequest(
        "Q", max_tokens=max_tokens, stop=generate.stop, temperature=generate.temperature, seed=generate.seed
    )


@pytest.mark.parametrize(
    ("style", "count", "first", "last"),
    [
        ("upper", 4, "A", "D"),
        ("upper", 26, "A", "Z"),
        ("upper", 28, "A", "AB"),
        ("upper", 703, "A", "AAA"),
        ("lower", 27, "a", "aa"),
        ("digit", 12, "1", "12"),
    ],
)
def test_labels_of_any_count(style: LabelStyle, count: int, first: str, last: str) -> None:
    labels = option_labels(count, style)
    assert (labels[0], labels[-1], len(labels)) == (first, last, count)
    assert len(set(labels)) == count


STATED: list[tuple[str, LabelStyle, int, str | None]] = [
    # alone, in brackets, in Markdown, in quotes
    ("B", "upper", 4, "B"),
    (" B.", "upper", 4, "B"),
    ("B\n", "upper", 4, "B"),
    ("(B)", "upper", 4, "B"),
    ("[B]", "upper", 4, "B"),
    ("B)", "upper", 4, "B"),
    ("**D**", "upper", 4, "D"),
    ("**B.** Paris", "upper", 4, "B"),
    ("_B_", "upper", 4, "B"),
    ("`B`", "upper", 4, "B"),
    ('"B"', "upper", 4, "B"),
    ("“B”.", "upper", 4, "B"),
    ("> B", "upper", 4, "B"),
    ("# B", "upper", 4, "B"),
    ("<answer>B</answer>", "upper", 4, "B"),
    # at the start
    ("(C) Paris", "upper", 4, "C"),
    ("C: Paris", "upper", 4, "C"),
    ("C, Paris", "upper", 4, "C"),
    ("C - Paris", "upper", 4, "C"),
    ("C.Paris", "upper", 4, "C"),
    ("C Paris", "upper", 4, "C"),
    ("C is right, and A is wrong.", "upper", 4, "C"),
    ("A is the capital.", "upper", 4, "A"),
    ("Option C, since D is far away", "upper", 4, "C"),
    ("D. \n\nThere are 501 students.", "upper", 4, "D"),
    # after "answer is", the last of them
    ("Answer: B", "upper", 4, "B"),
    ("answer: B", "upper", 4, "B"),
    ("The answer is B", "upper", 4, "B"),
    ("The answer is B.", "upper", 4, "B"),
    ("The answer is A.", "upper", 4, "A"),
    ("THE ANSWER IS A", "upper", 4, "A"),
    ("The correct answer is (C) Paris, not (A).", "upper", 4, "C"),
    ("The answer is most likely D, countryside.", "upper", 4, "D"),
    ("**Answer:** B", "upper", 4, "B"),
    ("**Final Answer**\nB", "upper", 4, "B"),
    ("Answer:\n\nB", "upper", 4, "B"),
    ("The correct choice is B", "upper", 4, "B"),
    ("The right option: **B**", "upper", 4, "B"),
    ("#### C", "upper", 4, "C"),
    ("Among A through D, the answer is C.", "upper", 4, "C"),
    ("A. is near, B is far. So the answer is C.", "upper", 4, "C"),
    ("The answer is A. No, wait: the answer is C.", "upper", 4, "C"),
    ("The answer is C. This answer is the best of A, B and C.", "upper", 4, "C"),
    ("B. The answer is in the passage.", "upper", 4, "B"),
    # in a box
    (r"So we get $\boxed{B}$.", "upper", 4, "B"),
    (r"\boxed{\text{(B)}}", "upper", 4, "B"),
    (r"\boxed{B. Paris} and not A", "upper", 4, "B"),
    (r"\boxed{A} or \boxed{B}", "upper", 4, None),
    # the only one that stands as a word
    ("I think it is B", "upper", 4, "B"),
    ("I would choose B because it is near.", "upper", 4, "B"),
    ("It must be (B), the capital.", "upper", 4, "B"),
    ("Paris (B)", "upper", 4, "B"),
    ("It is B and only B.", "upper", 4, "B"),
    ("Not A but B", "upper", 4, "B"),
    ("It isn't A. B!", "upper", 4, "B"),
    ("B rather than C", "upper", 4, "B"),
    ("We see that A is wrong, so B.", "upper", 4, "B"),
    ("答案是B。", "upper", 4, "B"),
    ("（B）", "upper", 4, "B"),
    ("Б C", "upper", 4, "C"),  # a Cyrillic letter is no label
    # in the other case, where that is clear
    ("b", "upper", 4, "B"),
    ("b.", "upper", 4, "B"),
    ("b) paris", "upper", 4, "B"),
    ("(b)", "upper", 4, "B"),
    ("the answer is b.", "upper", 4, "B"),
    ("the answer is (a)", "upper", 4, "A"),
    ("It is (b).", "upper", 4, "B"),
    ("i think b", "upper", 4, None),
    ("b paris", "upper", 4, None),
    ("the answer is a city", "upper", 4, None),
    ("option(s)", "upper", 26, None),
    # words, pieces of words, numbers, texts of options
    ("A dog.", "upper", 4, None),
    ("A Paris street", "upper", 4, None),
    ("The answer is A dog.", "upper", 4, None),
    ("There is a dog. A big one.", "upper", 4, None),
    ("I think so", "upper", 9, None),
    ("I", "upper", 9, "I"),
    ("California.", "upper", 4, None),
    ("Zebra", "upper", 4, None),
    ("U.S.A.", "upper", 4, None),
    ("B's", "upper", 4, None),
    ("R&B", "upper", 4, None),
    ("C++", "upper", 4, None),
    ("B-flat", "upper", 4, None),
    ("x = B", "upper", 4, None),
    ("20cm C4", "upper", 4, None),
    (r"\B", "upper", 4, None),
    # several, or one that is not among the options
    ("A or B.", "upper", 4, None),
    ("(A), (B), (C), or (D).", "upper", 4, None),
    ("The answer is probably (A), (B) or (C).", "upper", 4, None),
    ("The answer is either A or B.", "upper", 4, None),
    ("A and B", "upper", 4, None),
    ("A/B", "upper", 4, None),
    ("It could be B. It could be C.", "upper", 4, None),
    ("A. Rome\nB. Paris\nC. Berlin", "upper", 4, None),
    ("A. Rome\n\nIt is far from B", "upper", 4, "A"),
    ("The answer is B. No, the answer is not clear.", "upper", 4, None),
    ("I think of B. But the answer is unknown.", "upper", 4, None),
    ("E", "upper", 4, None),
    ("", "upper", 4, None),
    ("not B", "upper", 4, None),
    ("B is wrong", "upper", 4, None),
    ("A) Paris is wrong. The correct one is B", "upper", 4, "B"),
    ("A) Paris is wrong. The right one is (B).", "upper", 4, "B"),
    ("A. Paris is clearly incorrect, so B.", "upper", 4, "B"),
    ("A (Paris) is not correct. It must be C.", "upper", 4, "C"),
    ("(A) is not the right answer.", "upper", 4, None),
    ("A, the capital of France, is not right.", "upper", 4, None),
    ("B, since A is wrong.", "upper", 4, "B"),
    ("B, the others are wrong.", "upper", 4, "B"),
    ("B because Paris is wrong.", "upper", 4, "B"),
    ("B is not wrong.", "upper", 4, "B"),
    ("A and C are both wrong. B is correct.", "upper", 4, "B"),
    ("Option A is incorrect. Option B is correct.", "upper", 4, "B"),
    ("Option B is correct.", "upper", 4, "B"),
    ("A? No, B.", "upper", 4, "B"),
    ("Is it A? B.", "upper", 4, "B"),
    ("A or B? B.", "upper", 4, "B"),
    ("Is it A or B?", "upper", 4, None),
    ("Is it B?", "upper", 4, "B"),
    ("A would be wrong", "upper", 4, None),
    ("A would not be right.", "upper", 4, None),
    ("A is unlikely", "upper", 4, None),
    ("A is very unlikely; B", "upper", 4, "B"),
    ("A and B are both wrong; C", "upper", 4, "C"),
    ("A) False B) True", "upper", 4, "B"),
    ("A: false, B: true", "upper", 4, "B"),
    ("A: this is false. B: this is true.", "upper", 4, "B"),
    ("B. The statement is false.", "upper", 4, "B"),
    # what stands in brackets behind an answer is about others
    ("The answer is B (A is a distractor)", "upper", 4, "B"),
    ("I think B (A is near).", "upper", 4, "B"),
    ("The answer is B (near), since A (far) is wrong.", "upper", 4, "B"),
    ("B (or A)", "upper", 4, None),
    ("A (but B is better)", "upper", 4, None),
    ("A (wrong), B (right)", "upper", 4, "B"),
    ("A (the near one), B (the far one)", "upper", 4, None),
    # what is taken back
    ("The answer is A. Wait, no: B", "upper", 4, "B"),
    ("The answer is A. No, wait, it's B.", "upper", 4, "B"),
    ("The answer is A. Actually, it must be (B).", "upper", 4, "B"),
    ("The answer is A. No, B is wrong.", "upper", 4, "A"),
    ("The answer is A. Wait, let me see. Yes.", "upper", 4, "A"),
    ("The answer is B, no more and no less.", "upper", 4, "B"),
    ("I choose B over A", "upper", 4, "B"),
    ("A and C are both wrong. The right answer: B", "upper", 4, "B"),
    ("The answer is option B", "upper", 4, "B"),
    ("La respuesta correcta es la B.", "upper", 4, "B"),
    ("$\\boxed{\\textbf{(C)}}$", "upper", 4, "C"),
    ('{"answer": "B"}', "upper", 4, "B"),
    ("Answer: (C) because it is far", "upper", 4, "C"),
    ("**Correct answer: D. Paris**", "upper", 4, "D"),
    ("I'd go with B", "upper", 4, "B"),
    ("B, since A is false", "upper", 4, "B"),
    # a base model goes on with a question of its own
    ("B\n\nQuestion: What is it?\nAnswer: C", "upper", 4, "B"),
    ("B\nQ: What is it?\nA: C", "upper", 4, "B"),
    # other labels
    ("AB", "upper", 28, "AB"),
    ("(AB)", "upper", 28, "AB"),
    ("ZZ", "upper", 28, None),
    ("b", "lower", 4, "b"),
    ("the answer is b.", "lower", 4, "b"),
    ("(c) paris", "lower", 4, "c"),
    ("'d'", "lower", 4, "d"),
    ("i don't know: c", "lower", 4, "c"),
    ("don't: c", "lower", 4, "c"),
    ("a dog and c", "lower", 4, "c"),
    ("B", "lower", 4, "b"),
    ("(B)", "lower", 4, "b"),
    ("Plan B it is", "lower", 4, None),
    ("bad", "lower", 4, None),
    ("option ab", "lower", 28, "ab"),
    ("2", "digit", 4, "2"),
    ("2) Paris", "digit", 4, "2"),
    ("2. Paris", "digit", 4, "2"),
    ("2 Paris", "digit", 4, None),
    ("Option 2 is right", "digit", 4, "2"),
    ("the answer is 12.", "digit", 12, "12"),
    ("after 2 days: 3", "digit", 4, "3"),
    ("1. First we add.\n2. Then the answer is 3", "digit", 4, "3"),
    ("1. First we add.\n2. Then we divide.", "digit", 4, None),
    ("2.5", "digit", 4, None),
    ("$2", "digit", 4, None),
    ("2%", "digit", 4, None),
    ("12", "digit", 4, None),
    ("02", "digit", 4, None),
    ("1" * 100_000, "digit", 4, None),
    # letters and digits of other forms
    ("٢", "digit", 4, "2"),
    ("२) Paris", "digit", 4, "2"),
    ("Ｂ", "upper", 4, "B"),
    ("答案：Ｂ", "upper", 4, "B"),
    ("答案是（Ｃ）。", "upper", 4, "C"),
    ("Ａ ｄｏｇ", "upper", 4, None),
    ("The answer is 𝐁.", "upper", 4, "B"),
    ("ｂ", "lower", 4, "b"),
]


@pytest.mark.parametrize(("reply", "style", "count", "label"), STATED, ids=[f"{e[0][:40]!r}" for e in STATED])
def test_the_label_that_a_person_would_read(reply: str, style: LabelStyle, count: int, label: str | None) -> None:
    assert stated_label(reply, option_labels(count, style)) == label


@pytest.mark.parametrize(
    ("reply", "label"),
    [
        ("Vitamin C", None),
        ("The answer is vitamin C.", None),
        ("The answer is A. Vitamin C", "A"),
        ("A. Vitamin C", "A"),
        ("Vitamin C (A)", "A"),
        ("A cat", None),
        ("both A and B", None),
        ("D. both A and B", "D"),
        ("D", "D"),
    ],
)
def test_the_text_of_an_option_holds_no_label(reply: str, label: str | None) -> None:
    assert stated_label(reply, "ABCD", ["Vitamin C", "A cat", "Grade", "both A and B"]) == label


def test_an_option_that_says_wrong_is_not_denied_by_its_text() -> None:
    options = ["The author is right.", "The author is wrong.", "Vitamin C is wrong", "Neither"]
    assert stated_label("B. The author is wrong.", "ABCD", options) == "B"
    assert stated_label("(B) the author is wrong", "ABCD", options) == "B"
    assert stated_label("C) Vitamin C is wrong", "ABCD", options) == "C"
    assert stated_label("B. The author is wrong is not correct.", "ABCD", options) is None


def test_options_that_are_letters_themselves_are_labels() -> None:
    assert stated_label("I take B", "ABCD", ["A", "B", "C", "D"]) == "B"
    assert stated_label("I take B", "ABCD", ["(A)", "(B)", "C.", "D."]) == "B"


@pytest.mark.parametrize(
    "piece",
    ["A ", "B. ", "answer is ", "answer: ", "\n", " ", "(", "\\boxed{", "Q:\n", "A or ", "a", "A) x is wrong. "],
)
def test_a_long_reply_is_read(piece: str) -> None:
    """In time in proportion to it: of quadratic time this would take an hour."""
    stated_label(piece * (40_000 // len(piece)), "ABCD", ["one B", "two", "three", "four"])


@pytest.mark.parametrize("between", ["\n", "\n ", " \n* ", "\t", "\n>"])
def test_a_list_is_looked_for_in_much_white_space(between: str) -> None:
    """In time that grows with the text, and not with its square: a hundred thousand line breaks would take an hour."""
    space = between * (90_000 // len(between))
    assert stated_label(f"A{space}", "ABCD") == "A"
    assert stated_label(f"A. one{space}\nB. two{space}\nC. three", "ABCD") is None


def test_of_a_very_long_reply_the_two_ends_are_read_and_the_record_says_so() -> None:
    score = judge("so " * 100_000 + "A " + "so " * 100_000 + "the answer is B.")
    assert score.answer == "B"
    assert score.details["reply_chars"] == 600_018
    assert score.details["judged_chars"] == 200_000
    assert "reply_chars" not in judge("B").details


@pytest.mark.parametrize(
    ("reply", "count", "label"),
    [
        ("B", 4, "B"),
        ("**D**", 4, "D"),
        ("answer: B", 4, "B"),
        ("Answer: B", 4, "A"),
        ("The answer is B", 4, None),  # T is the first, and not among the options
        ("california", 4, None),
        ("California", 4, "C"),
        ("E", 4, None),
        ("b", 4, None),
        ("Б C", 4, "C"),
        ("", 4, None),
        ("AB", 28, "AB"),
        ("(AB)", 28, "AB"),
        ("ZZ", 28, None),
    ],
)
def test_the_first_upper_case_letter_by_chronologics_rule(reply: str, count: int, label: str | None) -> None:
    assert first_upper(reply, option_labels(count, "upper")) == label
    if count == 4:
        score = judge(reply, settings=LetterSettings(shuffle=False, rule="first_upper"))
        assert (score.answer, score.no_answer) == (label, label is None)


def test_the_rule_for_upper_case_letters_takes_no_other_labels() -> None:
    with pytest.raises(ValidationError, match="rule first_upper reads upper-case letters, found labels 'digit'"):
        LetterSettings(labels="digit", rule="first_upper")


def test_what_the_rule_of_old_says_has_the_fingerprint_of_old() -> None:
    old, new = LetterSettings(rule="first_upper"), LetterSettings()
    assert (LetterScorer(old).version, LetterScorer(new).version) == (1, 3)
    assert "rule" not in old.model_dump()
    assert new.model_dump()["rule"] == "stated"


def test_right_wrong_and_no_answer() -> None:
    right, wrong, none = judge("B"), judge("A"), judge("Z")
    assert (right.status, right.answer, right.no_answer) == ("correct", "B", False)
    assert (wrong.status, wrong.answer, wrong.no_answer) == ("wrong", "A", False)
    assert (none.status, none.answer, none.no_answer) == ("wrong", None, True)
    assert [score.values["accuracy"] for score in (right, wrong, none)] == [1.0, 0.0, 0.0]


def test_chance_is_right_options_over_options_shown() -> None:
    score = judge("C", target=[0, 1])
    assert score.chance == 0.5
    assert score.values["skill"] == pytest.approx(-1.0)
    assert judge("A", target=0).chance == 0.25
    assert judge("B", target=0).values["skill"] == pytest.approx((0 - 0.25) / 0.75)


def test_any_right_option_counts() -> None:
    assert [judge(reply, target=[0, 2]).status for reply in "ABCD"] == ["correct", "wrong", "correct", "wrong"]


@given(st.lists(st.text(max_size=2), min_size=2, max_size=30), st.text(min_size=1), st.integers(0, 5), st.data())
def test_a_shuffle_is_a_permutation_that_keeps_what_is_right(
    choices: list[str], sample_id: str, seed: int, data: st.DataObject
) -> None:
    right = data.draw(st.integers(0, len(choices) - 1))
    presented = LetterScorer(LetterSettings(shuffle_seed=seed)).present(a_sample(right, choices, id=sample_id))
    assert sorted(presented.order) == list(range(len(choices)))
    assert presented.choices == tuple(choices[index] for index in presented.order)
    assert [presented.order[place] for place in presented.right] == [right]


def test_an_order_depends_on_seed_and_id_alone() -> None:
    choices = [str(number) for number in range(20)]

    def order(sample_id: str, seed: int = 0) -> tuple[int, ...]:
        scorer = LetterScorer(LetterSettings(shuffle_seed=seed))
        # Others that are presented before it, by the same scorer, change nothing.
        scorer.present(a_sample(0, choices, id="before"))
        return scorer.present(a_sample(0, choices, id=sample_id, line=99, question="other")).order

    assert order("q1") == LetterScorer(LetterSettings()).present(a_sample(5, choices, id="q1")).order
    assert len({order("q1"), order("q2"), order("q3"), order("q1", seed=1)}) == 4


def test_an_order_is_the_same_in_another_process() -> None:
    code = (
        "from pytest_llmeval.scorers.letter import LetterScorer\n"
        "from pytest_llmeval.scorers.letter import LetterSettings\n"
        "from pytest_llmeval.types import Sample\n"
        "s = Sample(id='q1', path='p', line=1, choices=tuple('abcdefgh'), target=0)\n"
        "print(*LetterScorer(LetterSettings()).present(s).order)"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    here = LetterScorer(LetterSettings()).present(a_sample(0, "abcdefgh")).order
    assert other.stdout.split() == [str(index) for index in here]


def test_details_record_order_and_labels() -> None:
    scorer = LetterScorer(LetterSettings(labels="digit"))
    presented = scorer.present(a_sample(1, CITIES))
    score = scorer.score(presented, [GenerateResponse(text="1")])
    assert score.details == {"order": list(presented.order), "labels": ["1", "2", "3", "4"]}


def test_target_and_few_shot_answer_are_labels() -> None:
    scorer = LetterScorer(LetterSettings(shuffle=False))
    one, two = scorer.present(a_sample("Berlin", CITIES)), scorer.present(a_sample([3, 1], CITIES))
    assert (one.target, scorer.answer_text(one)) == ("C", "C")
    assert (two.target, scorer.answer_text(two)) == (("B", "D"), "B")


def test_options_of_excluded_types_are_left_out() -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation", "joke")))
    sample = a_sample(2, CITIES, choice_types=("place", "negation", "place", "joke"))
    presented = scorer.present(sample)
    assert sorted(presented.order) == [0, 2]
    assert presented.labels == ("A", "B")
    assert scorer.score(presented, [GenerateResponse(text="C")]).no_answer
    assert scorer.score(presented, [GenerateResponse(text="A")]).chance == 0.5


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ((), r"exclude_types \['negation'\] needs one type for each of the 4 choices in choice_types, found 0"),
        (("a", "b"), "found 2"),
        (("negation", "negation", "negation", "a"), "1 of 4 are left and 0 of them are right"),
        (("a", "negation", "a", "a"), "3 of 4 are left and 0 of them are right"),
        (("negation", "a", "negation", "negation"), "1 of 4 are left and 1 of them are right"),
    ],
)
def test_an_exclusion_that_leaves_no_question_is_refused(types: tuple[str, ...], message: str) -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation",)))
    with pytest.raises(ValueError, match=message):
        scorer.present(a_sample(1, CITIES, choice_types=types))


def test_an_exclusion_that_leaves_only_right_options_is_refused() -> None:
    scorer = LetterScorer(LetterSettings(exclude_types=("negation",)))
    with pytest.raises(ValueError, match="2 of 3 are left and 2 of them are right"):
        scorer.present(a_sample([0, 1], CITIES[:3], choice_types=("a", "a", "negation")))


def test_types_without_an_exclusion_are_not_needed() -> None:
    assert LetterScorer(LetterSettings()).present(a_sample(0, CITIES, choice_types=("a",))).labels == tuple("ABCD")
