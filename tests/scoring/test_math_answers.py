from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.scorers.mathematics.answers import Answer, Extract, find_answer, for_math_verify, same_text
from pytest_llmeval.scorers.reading.stated import last_box

ALL: tuple[Extract, ...] = ("boxed", "answer", "math", "number")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{5}", "5"),
        (r"\fbox{5}", "5"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed {5}", "5"),
        (r"$\boxed 5$ in all", "5"),
        (r"It is \boxed 5.", "5"),
        (r"\(\boxed\frac12\)", r"\frac12"),
        (r"first \boxed{3}, in the end \boxed{4}", "4"),
        (r"\boxed{\boxed{5}}", "5"),
        (r"\boxed{\left\{1, 2\right.}", r"\left\{1, 2\right."),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"{1, 2 \boxed{3}", "3"),
        (r"} \boxed{3}", "3"),
        (r"\boxed{3} and then \boxed{4", "3"),
        (r"\\boxed{3}", "3"),
        (r"\boxed{1}, \boxed{2}", "1, 2"),
        (r"$x=\boxed{1}$ or $\boxed{2}$", "1, 2"),
        (r"$\boxed{1}$, $\boxed{2}$, and $\boxed{3}$", "1, 2, 3"),
        (r"\boxed{1} \text{ or } \boxed{2}", "1, 2"),
        (r"\boxed{1} so \boxed{2}", "2"),
        ("\\boxed{\n5\n}", "5"),
    ],
)
def test_the_last_box(text: str, content: str) -> None:
    assert last_box(text) == content


@pytest.mark.parametrize("text", ["", "5", r"\boxed", r"\boxed{5", r"\boxedfive", r"\boxes{5}", "{5}"])
def test_no_box(text: str) -> None:
    assert last_box(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is 5.", "5"),
        ("The answer is $5$ apples.", "5"),
        ("The answer is 5 apples.", "5"),
        ("The answer is about $3.5$ cm.", "3.5"),
        ("The final answer is $x=5$. I hope it is correct.", "x=5"),
        ("Final Answer: The final answer is $[2,5)$. I hope it is correct.", "[2,5)"),
        ("**Final Answer**\n\n\\[ \\frac{1}{2} \\]", r"\frac{1}{2}"),
        ("**Answer:** 1/2", "1/2"),
        ("Answer: x = 5", "x = 5"),
        ("Answer: x = 5 metres", "5 metres"),
        ("The answer is 10\\,000 apples.", "10\\,000"),
        ("The answer is 1.5 × 10^3 men.", "1.5 × 10^3"),
        ("The answer is about -3/4 of it.", "-3/4"),
        ("#### 72", "72"),
        ("#### $1,234 in all", "$1,234"),
        ("The answers are $1$ and $2$.", "1, 2"),
        ("The answer is $1$, $2$ or $3$, as $4$ is too large.", "1, 2, 3"),
        ("The answer to the question is: (B)", "(B)"),
        ("The answer is Tuesday. It rains.", "Tuesday"),
        ("The answer is 3. No: the answer is 4.", "4"),
        ("The answer is 3.5.", "3.5"),
        ("The answer is 0.333...", "0.333..."),
        ("The answer is \\(2\\pi\\).", r"2\pi"),
        ("The answer is:\n$$\n7\n$$", "7"),
        ("The answer is sin(x) + pi.", "sin(x) + pi"),
        ("The answer is 8 metres. That takes $3$ seconds.", "8 metres"),
        ("The answer is 3 hours 20 minutes.", "3 hours 20 minutes"),
        ("The answer is 3 hours and 20 minutes, so that is all.", "3 hours and 20 minutes"),
        ("The answer is 5 feet 11 inches.", "5 feet 11 inches"),
        ("The answer is 5 feet 11 times.", "5 feet"),
        ("The answer is 5 feet, or a bit more.", "5 feet"),
        ("The answer is 18 in that case, or a bit more.", "18"),
        ("The answer is **$18** per day.", "$18 per day"),
        ("The answer is **18** of **20** apples.", "18"),
        ("The answer is 2**10 apples.", "2**10"),
        ("The answer is 3 billion.", "3 billion"),
        ("The answer is 3 thousand people.", "3 thousand"),
        ("The answer is not 12.", "not 12"),
        ("The answer is not $12$.", "not $12$"),
        ("The answer is not 12 but 13 apples.", "13"),
        ("The answer isn't 12.", "n't 12"),
        (f"The answer is {'not 1, ' * 200}but 2 apples.", "2"),
        (f"The answer is {'not 1, ' * 1200}apples.", "not 1, " * 1200 + "apples"),
    ],
)
def test_after_the_answer(text: str, answer: str) -> None:
    found = find_answer(text, ("answer",))
    assert found == Answer(answer, "answer")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so $x=5$", "x=5"),
        ("first $1$, then $2$", "2"),
        ("$$\nx = 5\n$$", "x = 5"),
        ("\\[ x = 5 \\] which is prime", "x = 5"),
        ("\\( 2 \\)", "2"),
        ("$ 5 $", "5"),
        ("it costs \\$3 and $4$", "4"),
        ("costs $5 and $6$", "6"),
        ("an open $5\nand $6$", "6"),
    ],
)
def test_the_last_mathematics(text: str, answer: str) -> None:
    assert find_answer(text, ("math",)) == Answer(answer, "math")


@pytest.mark.parametrize("text", ["", "none", "costs $5 and $6 more", "$5", "\\[ 5"])
def test_no_mathematics(text: str) -> None:
    assert find_answer(text, ("math",)) is None


@pytest.mark.parametrize(
    ("way", "text", "answer"),
    [
        ("dollars", "so $x = $5$ or $6$ then", "x = $5$ or $6"),
        ("dollars", " 5 ", " 5 "),
        ("dollars", "$5", "$5"),
        ("minerva", "Final Answer: The final answer is $5$. I hope it is correct.", "$5$"),
        ("minerva", "Final Answer: The final answer is 5. ", "5"),
        ("whole", " a\nb ", " a\nb "),
    ],
)
def test_the_published_ways(way: Extract, text: str, answer: str) -> None:
    assert find_answer(text, (way,)) == Answer(answer, way)


def test_a_number_keeps_its_exact_value() -> None:
    found = find_answer("it costs $1,234.50 in all", ALL)
    assert found is not None
    assert (found.text, found.by, for_math_verify(found.text)) == ("$1,234.50", "number", r"\frac{2469}{2}")


@pytest.mark.parametrize(
    "reply",
    [
        r"\boxed{" * 1_000_000,
        "{" * 10_000_000,
        r"\boxed{" + "{" * 10_000_000 + "}" * 10_000_000 + "}",
        "$" * 1_000_001,
        r"\[" * 1_000_000,
        r"\(" * 1_000_000,
        "the answer is " * 500_000,
        "answer" * 1_000_000,
        "Final Answer: The final answer is " * 300_000,
        "\\" * 10_000_001,
    ],
    ids=lambda reply: f"{reply[:12]} {len(reply)}",
)
def test_a_hostile_text_has_no_answer_and_takes_no_time(reply: str) -> None:
    """Were a search quadratic, this test would not end."""
    assert find_answer(reply, ("boxed", "math", "number", "minerva")) is None
    assert last_box(reply[-100_000:]) is None
    find_answer(reply, ("answer",))


@given(st.text(alphabet=st.sampled_from("\\${}[]()box answeris:.5\n#,*"), max_size=80))
def test_searching_never_raises(text: str) -> None:
    ways: tuple[Extract, ...] = (*ALL, "dollars", "minerva", "whole")
    for way in ways:
        found = find_answer(text, (way,))
        if found is not None:
            assert found.text.strip()
            for_math_verify(found.text)


@given(st.recursive(st.sampled_from(["5", "x", r"\frac12"]), lambda inner: st.builds("{{{}}}".format, inner)))
def test_a_box_is_found_whatever_surrounds_it(content: str) -> None:
    assert last_box(f"so \\boxed{{{content}}} and {{more}}") == content
    assert last_box(f"\\boxed{{0}} {{ {{}} \\fbox{{{content}}}") == content


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (r"\left( 1 , 2 \right)", "(1,2)", True),
        (r"\dfrac{1}{2}", r"\frac{1}{2}", True),
        ("1 2", "12", False),
        (r"\pi r", r"\pir", False),
        ("", "", False),
        (r"\leftarrow", r"\rightarrow", False),
    ],
)
def test_same_text(one: str, other: str, same: bool) -> None:
    assert same_text(one, other) is same
