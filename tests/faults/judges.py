"""Suites for hostile replies: every scorer and filter of the package, with a target, a right reply and its weak spots.

``judges`` starts from the package's own tables, so that a new scorer or filter joins by itself: with the samples below
that its settings take, unless ``_SCORERS`` or ``_FILTERS`` has better ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_llmeval.scorers import SCORERS
from pytest_llmeval.scorers.judging.judged_scorer import JudgedSettings
from pytest_llmeval.scorers.similarity import SimilaritySettings
from pytest_llmeval.scoring.base import ScorerSettings
from pytest_llmeval.scoring.filters import FILTERS

__all__ = ["PYTHON_SCORERS", "Judge", "asks_a_model", "judges"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """Keys of a suite, and what its samples have.

    ``right`` is a reply that it takes for right, ``wrong`` answers that it must not; ``triggers`` are pieces of which
    its own patterns have much to search when they are repeated. ``tells_right``: its scores are right or wrong.
    ``fitting`` are kinds of ``replies.py`` that it gets more often than others.
    """

    name: str
    suite: Mapping[str, Any]
    sample: Mapping[str, Any]
    right: str
    wrong: Sequence[str] = ("zebra", "0")
    triggers: Sequence[str] = ()
    tells_right: bool = True
    by_reply: bool = True
    fitting: Sequence[str] = ("own pattern", "spaced pattern", "candidates")


_CITY: Mapping[str, Any] = {"target": "Qaanaaq"}
_OPTIONS: Mapping[str, Any] = {
    "choices": ["vitamin K", "a whale", "the Qaanaaq fjord", "Oslo (Norway)", "2 days", "I think", "x = B", "U.S."],
    "target": 2,
}
_NUMBER: Mapping[str, Any] = {"target": 48151}
_TEXT: Mapping[str, Any] = {"target": ["the old ferry leaves Qaanaaq at dawn", "at dawn the old ferry leaves Qaanaaq"]}
_NUMBERS = ("1", "2/3", "-7", "1,234", "0.5", "10%", "1e3", "½")
_NUMBER_TRIGGERS = (
    *(
        "1,",
        "1/",
        "1 ",
        "1.",
        "-1",
        "$1",
        "####",
        "#### 1",
        "####  ",
        "½",
        "1e",
        "1e1",
        "1×10^",
        r"\frac{1}",
        "{,}",
        "12,",
    ),
    *("1 1/", "1,234", "1 234", "−", "€ 1 ", "1e+9 "),
)
_LABELS = ("A", "B", "D", "H", "(E)", "F.")
_STATED = (
    *(
        "the answer is ",
        "answer:",
        "####",
        r"\boxed{",
        r"\boxed{A}",
        "not A ",
        "A or ",
        "A and B, ",
        "(A",
        "A)",
        "A is ",
    ),
    *(
        "A is wrong. ",
        "A   ",
        "A\n",
        "A? ",
        "\nA. ",
        "\nB) vitamin K",
        "<think>",
        "</think>",
        "Question:",
        "A'",
        "A.B.",
    ),
    *("option ", "Vitamin C ", "A isn't the ", "A_", "rather than A ", "a whale ", "**A** ", "答案是A"),
)
_MATH = (
    *(
        r"\boxed{",
        r"\boxed{1}",
        r"\boxed{1}, ",
        "$",
        "$1$",
        r"\(",
        r"\[1\]",
        r"\frac{1}{",
        r"\sqrt",
        r"\sqrt{",
        "1^{",
        "9^",
    ),
    *(
        r"\left(",
        r"\text{ ",
        "answer is 1. ",
        "#### 1 ",
        r"\begin{pmatrix}1\\",
        r"\cup(1,2)",
        "x=",
        "{",
        "1!",
        r"\binom{9}{",
    ),
    *(
        "Final Answer: The final answer is ",
        ". I hope it is correct.",
        r"\%",
        "4:30 p.m. ",
        r"\fbox{",
        "\\\\",
        r"\boxed 1$",
    ),
)
_JSON = (
    '{"a":',
    "[",
    '{"a":1},',
    '"',
    "```json\n",
    "```\n[]\n",
    '{"a":{"b":[',
    '"\\ud800",',
    "1e9,",
    "[[],",
    '{"x1":1},',
)
_SENTENCE = (
    "the ",
    "ferry ",
    "Qaanaaq ",
    "the old ",
    "a.b.",
    "字",
    "A ",
    "don't ",
    "http://a.",
    "&amp;",
    "1,0 ",
    "-",
    "x\n",
)

_JSON_KINDS = ("deep JSON", "wide JSON", "number in JSON", "own pattern")
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "required": ["city"],
    "properties": {
        "city": {"type": "string", "pattern": "^(Q+a+)+naaq$"},
        "many": {"type": "array", "uniqueItems": True, "items": {"multipleOf": 0.01}},
        "more": {"$ref": "#"},
    },
    "patternProperties": {"^(x+x+)+y$": {"type": "integer"}},
}
PYTHON_SCORERS: Mapping[str, Callable[..., Any]] = {
    "near": lambda reply, target: abs(float(reply) - target) < 1,
    "as_number": lambda reply, target: int(reply.strip()) == target,
    "as_json": lambda reply: {"accuracy": float(__import__("json").loads(reply) == 48151)},
    "lengths": lambda reply: {"chars": len(reply), "huge": len(reply) ** 99, "accuracy": float(reply == "48151")},
    "echo": lambda reply: reply,
    "echo_name": lambda reply: {reply[:50]: 1.0},
}
"""Functions as users write them: what they raise and return for a hostile reply is theirs."""


def _texts(name: str, right: str = "The old ferry leaves Qaanaaq at dawn.", **settings: Any) -> Judge:
    return Judge(
        name=name, suite={"score": {name: settings}}, sample=_TEXT, right=right, triggers=_SENTENCE, tells_right=False
    )


def _letter(right: str, **settings: Any) -> Judge:
    suite = {"score": {"letter": {"shuffle": False, **settings}}, "generate": {"max_tokens": 100}}
    wrong = _LABELS if settings.get("labels", "upper") == "upper" else ("a", "1", "(b)", "8", "2")
    return Judge(name="letter", suite=suite, sample=_OPTIONS, right=right, wrong=wrong, triggers=_STATED)


def _math(right: str = r"So \boxed{\frac{48151}{3}}", target: Any = r"\frac{48151}{3}", **settings: Any) -> Judge:
    suite = {"score": {"math": settings}}
    wrong = (*_NUMBERS, r"\frac{1}{2}", "x^2", r"\{1,2\}", "(1,2]", r"\pi")
    return Judge(
        name="math",
        suite=suite,
        sample={"target": target},
        right=right,
        wrong=wrong,
        triggers=_MATH,
        fitting=("LaTeX", "own pattern", "number"),
    )


def _likelihood(name: str, sample: Mapping[str, Any], *, tells_right: bool = True, **settings: Any) -> Judge:
    suite = {"score": {name: settings}}
    return Judge(name=name, suite=suite, sample=sample, right="", tells_right=tells_right, by_reply=False)


_ALL_STEPS = ["unicode", "strip", "lower", "no_articles", "no_punctuation", "no_digits", "collapse_whitespace"]

_SCORERS: Mapping[str, Sequence[Judge]] = {
    "number": (
        Judge(name="number", suite={"score": "number"}, sample=_NUMBER, right="It is 48,151.", wrong=_NUMBERS),
        Judge(
            name="number",
            suite={"score": "number"},
            sample={"target": ["3/7777", "48151", "#### 99.5"]},
            right="#### 99.50",
            wrong=_NUMBERS,
        ),
    ),
    "exact": (
        Judge(name="exact", suite={"score": "exact"}, sample=_CITY, right=" Qaanaaq\n"),
        Judge(name="exact", suite={"score": {"exact": {"normalize": _ALL_STEPS}}}, sample=_CITY, right="The QAANAAQ."),
        Judge(
            name="exact",
            suite={"score": {"exact": {"normalize": ["strip", {"remove": r"(?:a+a+)+!"}, {"remove": r"\s+$"}]}}},
            sample=_CITY,
            right="Qaanaaq",
            triggers=("a", "aa!", " ", " \n", "\t"),
        ),
    ),
    "contains": (
        Judge(name="contains", suite={"score": "contains"}, sample=_CITY, right="in Qaanaaq", triggers=("Qaa", "Q")),
        Judge(
            name="contains",
            suite={"score": {"contains": {"match": "all", "normalize": _ALL_STEPS}}},
            sample={"target": ["Qaanaaq", "fjord"]},
            right="the fjord of QAANAAQ",
            triggers=("Qaa", "fjor"),
        ),
    ),
    "pattern": (
        Judge(
            name="pattern",
            suite={"score": {"pattern": {"pattern": r"answer is\s*(\S+)", "match": "last", "ignore_case": True}}},
            sample=_CITY,
            right="The answer is qaanaaq",
            triggers=("answer is", "answer is ", "ANSWER IS\n", "answer is x "),
        ),
        Judge(
            name="pattern",
            suite={"score": {"pattern": {"pattern": r"(?:x+x+)+y|<(\w*)*>(Qaanaaq)".replace(r"(\w*)*", r"(?:\w*)*")}}},
            sample=_CITY,
            right="<i>Qaanaaq",
            triggers=("x", "xx", "<ab", "<" + "a" * 50),
        ),
    ),
    "letter": (
        _letter("C"),
        _letter("the answer is (C)"),
        _letter("c)", labels="lower"),
        _letter("3.", labels="digit"),
        replace(_letter("C", rule="first_upper"), wrong=("A", "H")),
    ),
    "yes_no": (
        Judge(
            name="yes_no",
            suite={"score": "yes_no"},
            sample={"target": True},
            right="Yes, it is.",
            wrong=("no", "No.", "Not known"),
            triggers=(*_STATED, "no ", "No evidence ", "no, ", "(no", "no. "),
        ),
        Judge(
            name="yes_no",
            suite={"score": {"yes_no": {"rule": "prefix"}}},
            sample={"target": True},
            right="yes",
            wrong=("no", "No.", "Not known"),
            triggers=("no ", " ", "ye", "n"),
        ),
        Judge(
            name="yes_no",
            suite={"score": {"yes_no": {"by": "loglikelihood"}}},
            sample={"target": True},
            right="",
            by_reply=False,
        ),
    ),
    "choice": (
        _likelihood("choice", _OPTIONS),
        _likelihood("choice", _OPTIONS, normalize="byte", metrics=["f1_macro", "mcc", "greedy_match", "accuracy_pmi"]),
        _likelihood("choice", _OPTIONS, normalize="pmi", ties="first"),
    ),
    "mass": (_likelihood("mass", _OPTIONS, tells_right=False),),
    "continuation": (_likelihood("continuation", _CITY),),
    "perplexity": (_likelihood("perplexity", {"target": "the old ferry"}, tells_right=False),),
    "math": (
        _math(),
        _math(target=[r"\frac{48151}{3}", r"x^{48151}", r"\{1,48151\}", "(3,48151]"]),
        _math(extract=["boxed", "answer", "number"]),
        _math(extract=["math_verify"]),
        _math(compare="hendrycks", right=r"$\frac{48151}{3}$"),
        _math(
            compare="minerva",
            right=r"Final Answer: The final answer is $\frac{48151}{3}$. I hope it is correct.",
        ),
    ),
    "json": (
        Judge(
            name="json",
            suite={"score": "json"},
            sample={"target": '{"a": [48151]}'},
            right='{"a": [48151.0]}',
            triggers=_JSON,
            fitting=_JSON_KINDS,
        ),
        Judge(
            name="json",
            suite={"score": {"json": {"schema": _SCHEMA, "fenced": True}}},
            sample={},
            right='Here:\n```json\n{"city": "Qaanaaq"}\n```',
            triggers=(
                *_JSON,
                '```\n{"city": "',
                '{"city": "QaQa',
                '{"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx": 1,',
                '{"more": ',
            ),
        ),
    ),
    "f1": (
        Judge(name="f1", suite={"score": "f1"}, sample=_CITY, right="the Qaanaaq!", triggers=("a an the ", "a ", "a.")),
    ),
    "bleu": (
        _texts("bleu"),
        _texts("bleu", tokenize="intl", smoothing="add-k", k=[1, 9], lowercase=True),
        _texts("bleu", tokenize="zh"),
        _texts("bleu", tokenize="char", smoothing="none"),
    ),
    "rouge": (_texts("rouge"), _texts("rouge", types=["1", "9", "L", "Lsum", "S", "S4"], stemmer=True)),
    "chrf": (_texts("chrf"), _texts("chrf", word_order=[2], whitespace=True, lowercase=True)),
    "ter": (_texts("ter"), _texts("ter", normalized=True, asian_support=True, no_punct=True)),
    "meteor": (
        _texts("meteor", synonyms=False),
        _texts("meteor", synonyms=False, tokenize="whitespace", stem=False, beta=0.0),
    ),
    "retrieval": (
        Judge(
            name="retrieval",
            suite={"score": "retrieval"},
            sample={"qrels": {"Qaanaaq": 1}},
            right="",
            tells_right=False,
        ),
    ),
    "tool_calls": (
        Judge(
            name="tool_calls",
            suite={"score": "tool_calls"},
            sample={"target": [{"find": {"city": "Qaanaaq"}}]},
            right='<tool_call>{"name": "find", "arguments": {"city": "Qaanaaq"}}</tool_call>',
            triggers=("<tool_call>", '{"name": "find", ', "[TOOL_CALLS]", "[find(", "<function=", "✿FUNCTION✿"),
        ),
    ),
    "several": (
        Judge(
            name="several",
            suite={
                "score": {
                    "several": {
                        "scorers": {
                            "strict": {"score": "exact"},
                            "flexible": {"filters": [{"regex": r"(-?[0-9.,]+)"}], "score": "number"},
                            "words": {"score": "f1"},
                            "overlap": {"score": {"chrf": {}}},
                            "valued": {"score": "math"},
                        }
                    }
                }
            },
            sample={"target": "48151"},
            right="48151",
            wrong=_NUMBERS,
            triggers=("1.", ",", "-"),
        ),
    ),
}

_FILTERS: Mapping[str, Sequence[Any]] = {
    "after": ({"after": "####"}, {"after": {"marker": "</a>", "match": "first", "missing": "keep"}}),
    "before": ({"before": "\n\n"}, {"before": {"marker": "Q:", "match": "last"}}),
    "regex": (
        {"regex": {"pattern": r"(\w+\s?)+$", "match": "last", "fallback": "none"}},
        {"regex": {"pattern": r"(?:<[^>]*>|\s)*(?P<it>\w+)", "group": "it", "match": -1}},
    ),
    "choice_regex": (
        {"choice_regex": {"pattern": r"(\([A-Z]\))", "match": "last", "ignore_case": True, "ignore_punctuation": True}},
        {"choice_regex": {"pattern": r"((?:a+)+b)", "ignore": [r"(?:\s+\s+)+$"], "match": -1, "fallback": "[none]"}},
    ),
    "map": ({"map": {"yes": "no", "": "empty"}}, {"map": {"values": {"1": "2"}, "default": "other"}}),
    "drop_reasoning": ("drop_reasoning", {"drop_reasoning": {"begin": "<a", "end": "a>"}}),
}
_FILTER_TRIGGERS = (
    "<think>",
    "</think>",
    "####",
    "\n\n",
    "Q:",
    "<a",
    "a>",
    "</a>",
    "(A)",
    "a",
    "word ",
    "<b",
    ": A",
    "<>",
)
_OF_FILTER: Mapping[str, Sequence[tuple[str, str]]] = {
    "lower": (("QAANAAQ", "qaanaaq"),),
    "upper": (("qaanaaq", "QAANAAQ"),),
    "after": (("#### Qaanaaq", " Qaanaaq"), ("</a>Qaanaaq", "Qaanaaq")),
    "map": (("yes", "no"), ("1", "2")),
    "choice_regex": (("(C)", "(C)"), ("the Qaanaaq fjord", "(C)")),
}
"""A reply, and what each of the filters of that name makes of it; of others the city stays the city."""

_GENERIC: Sequence[tuple[Mapping[str, Any], str]] = ((_CITY, "Qaanaaq"), (_NUMBER, "48151"), (_OPTIONS, "C"))
"""What a scorer without an entry of its own is tried with."""


def asks_a_model(settings: type[ScorerSettings]) -> bool:
    """Tell whether a scorer with such settings asks another model about a reply."""
    return issubclass(settings, (JudgedSettings, SimilaritySettings))


def judges() -> list[Judge]:
    """All of them, those of filters, epochs and Python scorers included."""
    return list(_all())


def _all() -> Iterator[Judge]:
    for name, settings in SCORERS.items():
        if asks_a_model(settings):  # tests/servers/test_judge_faults.py
            continue
        if settings.runs_code:  # tests/scoring/code
            continue
        yield from _SCORERS.get(name, ()) or _generic(name)
    for name in FILTERS:
        for place, settings in enumerate(_FILTERS.get(name, (name,))):
            right, target = _OF_FILTER.get(name, (("Qaanaaq", "Qaanaaq"),) * 9)[place]
            yield _filtered(name, settings, right, target)
    for reduce, vote in ((["mode", "mean", "any"], "answer"), (["mode@2", "pass@2"], "text"), (["all"], "answer")):
        epochs = {"count": 3, "reduce": reduce, "vote": vote}
        yield Judge(
            name="epochs",
            suite={"score": "number", "epochs": epochs, "generate": {"temperature": 1.0}},
            sample=_NUMBER,
            right="48151",
            wrong=_NUMBERS,
            triggers=_NUMBER_TRIGGERS,
        )
    epochs = {"count": 3, "reduce": ["mean", "mode"]}
    suite = {"score": "f1", "epochs": epochs, "generate": {"temperature": 1.0}}
    yield Judge(name="epochs", suite=suite, sample=_CITY, right="Qaanaaq")
    for name in PYTHON_SCORERS:
        yield Judge(
            name=f"python:{name}",
            suite={"score": name},
            sample=_NUMBER,
            right="48151",
            wrong=_NUMBERS,
            triggers=_NUMBER_TRIGGERS,
            tells_right=name not in ("echo", "echo_name"),
        )


def _generic(name: str) -> Iterator[Judge]:
    required = [key for key, found in SCORERS[name].model_fields.items() if found.is_required()]
    if required:
        raise LookupError(f"the scorer {name} needs the settings {', '.join(required)}: give it an entry in judges.py")
    for sample, right in _GENERIC:
        yield Judge(name=name, suite={"score": name}, sample=sample, right=right, triggers=_SENTENCE, tells_right=False)


def _filtered(name: str, settings: Any, right: str, target: str) -> Judge:
    if isinstance(settings, str) and any(found.is_required() for found in FILTERS[name].model_fields.values()):
        raise LookupError(f"the filter {name} needs settings: give it an entry in judges.py")
    sample = {"target": target, **({"choices": _OPTIONS["choices"]} if name == "choice_regex" else {})}
    suite = {"score": "exact", "filters": [settings]}
    return Judge(name=f"filter:{name}", suite=suite, sample=sample, right=right, triggers=_FILTER_TRIGGERS)
