"""Rows in the hub's columns of benchmarks that ask for replies, written for these tests, with replies to them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

Row = dict[str, Any]

NUM_MUTANTS = 200
"""Replies to each benchmark that are changed by chance."""


def mutated(rows: Sequence[Row], replies: Sequence[str], id_column: str | None) -> tuple[list[Row], tuple[str, ...]]:
    """Return the rows with their replies, and then again and again with replies that were changed by chance.

    ``id_column`` is the column that has to differ from row to row.
    """
    drawn = random.Random(36)
    again, changed = list(rows), list(replies)
    for number in range(NUM_MUTANTS):
        place = number % len(rows)
        again.append(_with_another_id(rows[place], id_column, number))
        changed.append(_mutant(replies[drawn.choice((place, place, drawn.randrange(len(replies))))], drawn))
    return again, tuple(changed)


def _with_another_id(row: Row, column: str | None, number: int) -> Row:
    if column is None:
        return row
    old = row[column]
    return {**row, column: old * 1000 + number if isinstance(old, int) else f"{old}-{number}"}


_PIECES = (
    *(
        "$",
        " ",
        ".",
        ",",
        "\n",
        "-",
        "0",
        "7",
        "A",
        "(",
        ")",
        "the ",
        "The ",
        " an ",
        "%",
        "\\boxed{",
        "}",
        "\\boxed ",
        "=",
    ),
    *(
        "\\fbox{3}",
        "\\frac12",
        "\\text{ cm}",
        "é",
        "ß",
        "'",
        '"',
        "answer is ",
        "The answer is ",
        "1,000",
        "½",
        "\u00a0",
    ),
)


def _mutant(reply: str, drawn: random.Random) -> str:
    for _ in range(drawn.randint(1, 3)):
        place = drawn.randint(0, len(reply))
        match drawn.randrange(6):
            case 0 | 1:
                reply = reply[:place] + drawn.choice(_PIECES) + reply[place:]
            case 2:
                reply = reply[:place] + reply[place + drawn.randint(1, 3) :]
            case 3:
                reply = drawn.choice((str.upper, str.lower, str.title, str.swapcase))(reply)
            case 4:
                reply = f"{reply} {reply}"
            case _:
                reply = f"\\boxed{{{reply}}}" if drawn.random() < 0.5 else f"${reply}$"
    return reply


def _math(number: int, problem: str, solution: str, answer: str) -> Row:
    return {
        "problem": problem,
        "solution": solution,
        "answer": answer,
        "subject": ("Algebra", "Geometry")[number % 2],
        "level": 1 + number % 5,
        "unique_id": f"test/written/{number}.json",
    }


MATH_500 = [
    _math(number, *row)
    for number, row in enumerate(
        (
            ("What is half of $3$?", r"It is $\boxed{\frac{3}{2}}$.", r"\frac{3}{2}"),
            ("Solve $x + 1 = 8$.", r"So $x = 7$, that is \boxed{7}.", "7"),
            ("Name the interval.", r"We get $\boxed{[2, 5)}$", "[2, 5)"),
            ("How many degrees has a right angle?", r"\boxed{90^\circ}", r"90^\circ"),
            ("What is $50$ percent of 1?", r"It is \boxed{0.5}.", "0.5"),
            ("How long is the side?", r"$\boxed{12 \text{ cm}}$", r"12 \text{ cm}"),
            ("What share is it?", r"It is $\boxed{25\%}$ of all.", r"25\%"),
            ("Which roots are there?", r"They are $\boxed{1,-2}$.", "1,-2"),
            ("What does it cost?", r"It costs \boxed{\$1,\!250}.", r"\$1,\!250"),
            ("What is the root of 12?", r"$\sqrt{12} = \boxed{2\sqrt{3}}$", r"2\sqrt{3}"),
            ("What is $k$?", r"So \boxed{k = 4}.", "k = 4"),
            ("Which point is it?", r"$\boxed{\left( 3, \frac{\pi}{2} \right)}$", r"\left( 3, \frac{\pi}{2} \right)"),
        )
    )
]
MATH_500_REPLIES = (
    r" The answer is $\dfrac{3}{2}$.",
    " $x = 7$ so 7",
    r" It is $[2,5)$, I think, $[2,5)$.",
    " 90",
    r" $\frac12$",
    " $12$",
    " $25$",
    " $-2,1$",
    r" $1250$",
    r" $2\sqrt3$",
    " 4",
    r" $(3,\frac{\pi}{2})$",
)

AIME_24 = [
    {"ID": f"2024-X-{number}", "Problem": problem, "Solution": "It is short.", "Answer": answer}
    for number, (problem, answer) in enumerate(
        (
            ("Find the remainder of $10^{5}$ by $7$.", 5),
            ("Find the number of pairs.", 33),
            ("Find $m + n$.", 809),
            ("Find the least $n$.", 73),
            ("Find the product.", 0),
            ("Find the area.", 999),
            ("Find the sum of digits.", 25),
            ("Find $|S|$.", 116),
            ("Find $abc$.", 110),
            ("Find the greatest prime.", 601),
            ("Find the count.", 7),
            ("Find half of it.", 80),
        )
    )
]
AIME_25 = [
    {
        "problem": row["Problem"],
        "answer": rf"{row['Answer']}^\circ" if place == 3 else str(row["Answer"]),
        "id": str(place),
    }
    for place, row in enumerate(AIME_24)
]
AIME_REPLIES = (
    r" We get $10^5 = 7 \cdot 14285 + 5$, so \boxed{5}.",
    " $033$",
    r" The answer is $\boxed{809}$, no, $\boxed{810}$.",
    r" so it is \boxed{73^\circ}",
    r" \boxed 0$",
    r" $999$ or \fbox{999}",
    r" 25",
    r" \boxed{116 \text{ pairs}}",
    r" $x = 110$",
    r" \boxed{}$601$",
    r" \boxed{7",
    r" $\boxed{160/2}$",
)


def _gpqa(number: int, question: str, right: str, *wrong: str) -> Row:
    return {
        "Question": question,
        "Correct Answer": right,
        **{f"Incorrect Answer {place}": text for place, text in enumerate(wrong, start=1)},
        "Explanation": "It is known.",
        "High-level domain": ("Physics", "Chemistry", "Biology")[number % 3],
        "Record ID": f"recWritten{number:02}{'AbC9'[number % 4]}",
    }


GPQA = [
    _gpqa(number, *row)
    for number, row in enumerate(
        (
            ("Which is a lepton?", "Electron", "Proton", "Neutron", "Pion"),
            (" Which acid is weak?\n", "Acetic acid", "HCl  in water", "HBr", "Nitric acid "),
            ("What is 2 eV in J?", "3.2e-19 J", "1.6e-19 J", "2 J", "0.5 J"),
            ("Which cell has no nucleus?", "\nErythrocyte", "Neuron", "Myocyte", "Hepatocyte\n"),
            ("What does it say? [title] Read.", "One [title] two", "one", "Two", "three  four  five"),
            ("How many isomers?", "3", "2", "4", "5"),
            ("Which is (A) or (B)?", "Both (A) and (B)", "(A)", "(B)", "Neither"),
            ("Which force is weak?", "The weak force", "Gravity", "The strong force", "Light"),
            ("Which base pairs with A?", "T", "G", "C", "A itself"),
            ("What is the spin?", "1/2", "1", "3/2", "0"),
            ("Which solvent?", "Water.", "Ether!", "Hexane?", "DMSO;"),
            ("Which phase?", "Liquid", "Solid", "Gas", "Plasma"),
        )
    )
]
GPQA_REPLIES = (
    "It is light. The answer is (B).",
    "The answer is (C)",
    "The answer is (B).\nThe answer is (C).",
    "I think of (A), but no: (B)",
    "the answer is (A)",
    "The answer is B.",
    "It is Neither.",
    "Answer: C",
    "The answer is (c).",
    "",
    "(A) (B) (C) (D)",
    "The answer is (D)!",
)


def _mmlu_pro(number: int, question: str, options: list[str], answer: int, category: str = "biology") -> Row:
    return {
        "question_id": 100 + number,
        "question": question,
        "options": options,
        "answer": "ABCDEFGHIJ"[answer],
        "answer_index": answer,
        "cot_content": f"A: Let's think step by step. It is number {answer}. The answer is ({'ABCDEFGHIJ'[answer]}).",
        "category": category,
        "src": "written",
    }


MMLU_PRO = [
    _mmlu_pro(number, *row)
    for number, row in enumerate(
        (
            ("Which organ makes bile?", ["lung", "liver", "heart"], 1),
            ("Which is the tenth?", list("abcdefghij"), 9),
            (" Which is a mammal? ", [" whale ", "shark", "trout", "eel"], 0),
            ("What carries oxygen?", ["plasma", "haemoglobin", "bile", "lymph", "bone"], 1),
            ("How many chambers has a heart?", ["1", "2", "3", "4"], 3),
            ("Which acid is in cells?", ["DNA", "HCl"], 0),
            ("Which is an enzyme?\nName one.", ["lactase", "lactose", "glucose"], 0),
            ("What do plants take up?", ["CO2", "CO", "N2O", "Xe", "Ar", "Kr"], 0),
            ("Which is a fungus?", ["yeast", "moss", "fern", "alga", "oak", "elm", "ash"], 0),
            ("Where is insulin made?", ["pancreas", "skin"], 0),
            ("What is a gene?", ["a bone", "a tissue", "a part of DNA"], 2),
            ("Which has eight legs?", ["ant", "bee", "spider", "fly"], 2),
        )
    )
]
MMLU_PRO_VALIDATION = [
    _mmlu_pro(-20 + number, f"Earlier question {number}?", ["w", "x", "y", "z"], number % 4) for number in range(6)
]
MMLU_PRO_REPLIES = (
    " The bile is of the liver. The answer is (B).",
    " So the answer is J",
    " The answer is (A). The answer is (B).",
    " the answer is (b).",
    " Answer: (D)",
    " The answer is A) DNA",
    " the answer is lactase",
    " the answer is (K)",
    " My answer is (A",
    "",
    " It is C.",
    " The answer is\n(C)",
)


def _date(day: str = "", month: str = "", year: str = "") -> dict[str, str]:
    return {"day": day, "month": month, "year": year}


def _drop(number: int, question: str, *answers: str | list[str] | dict[str, str]) -> Row:
    """An answer is a number, spans or a date; the first is the answer, the others are validated ones."""
    made = [
        {
            "number": one if isinstance(one, str) else "",
            "date": one if isinstance(one, dict) else _date(),
            "spans": one if isinstance(one, list) else [],
            "worker_id": "w",
            "hit_id": "h",
        }
        for one in answers
    ]
    return {
        "section_id": f"written_{number}",
        "query_id": f"query-{number}",
        "passage": f"The team played {number} games, and Ann's club won the first-half by 3.5 points.",
        "question": question,
        "answer": made[0],
        "validated_answers": {name: [one[name] for one in made[1:]] for name in made[0]},
    }


_DROP: list[tuple[Any, ...]] = [
    ("How many games?", "12", "12", ["twelve games"]),
    ("Who won?", ["Ann's club"], ["the club of Ann", "Ann"], ["Ann"]),
    ("Which teams played?", ["the Bears", "New York Giants"], ["Bears", "Giants"]),
    ("When was it?", _date("3", "March", "1992"), _date("", "March", "1992"), ["in 1992"]),
    ("By how many points?", "3.5", "4"),
    ("How many thousand?", "1000", ["1,000 men"]),
    ("Which half?", ["first-half"], ["first half"], [""]),
    ("What was said?", ['He said "it\'s\\over"'], ["over"]),
    ("How many were left?", "0", "00"),
    ("Which word?", ["the"], ["a"]),
    ("Who was the oldest?", ["Ned O'Neil", "Ned O'Neil"], ["O'Neil"]),
    ("What share?", ["25%"], ["25 percent"], "25"),
]
DROP = [_drop(number, *row) for number, row in enumerate(_DROP)]
DROP_REPLIES = (
    " 12 games",
    " Ann's club",
    " Bears, New York Giants",
    " March 1992",
    " 3",
    " 1,000",
    " the first-half",
    " over",
    " 0.0",
    " The",
    " Ned O'Neil and Ned O'Neil",
    " 25.0",
)


def _trivia(number: int, question: str, *aliases: str) -> Row:
    return {
        "question": question,
        "question_id": f"tc_{number}",
        "question_source": "written",
        "answer": {
            "aliases": list(aliases),
            "normalized_aliases": [alias.lower() for alias in aliases],
            "value": aliases[0],
            "type": "WikipediaEntity",
        },
    }


TRIVIAQA = [
    _trivia(number, *row)
    for number, row in enumerate(
        (
            ("Which river runs through Rome?", "Tiber", "The Tiber", "Tevere"),
            ("Who wrote the song 'It's Here'?", "Ann O'Neil", 'Ann "Oz" O\'Neil', "A. O'Neil"),
            ("In which year was it? ", "1992", "'92"),
            ("Which band is it", "!!!", "Chk Chk Chk"),
            ("What is the capital of Ecuador", "Quito", "San Francisco de Quito", "QUITO (Ecuador)"),
            ("Which letter is it?", "ß", "Eszett", "Sharp S"),
            ("How far is it?", "26.2 miles", "42.195 km", "26 miles 385 yards"),
            ("Which sign is it?", "&", "Ampersand", "And sign"),
            ("Which path is it?", "C:\\temp", "\\temp"),
            ("Which [list] is it?", "[a, b]", "a, b"),
            ("Which café is it?", "Café Élan", "Cafe Elan"),
            ("Which word is it?", "The", "the"),
        )
    )
]
TRIVIAQA_TRAIN = [
    _trivia(100 + number, f"What is {number} in words?", f"word {number}", f"W{number}") for number in range(6)
]
TRIVIAQA_REPLIES = (
    " the tiber",
    " ann oneil",
    " 1992!",
    " ?",
    " san francisco  de quito",
    " SHARP S",
    " 262 miles",
    "&",
    " ctemp",
    " a b",
    " CAFÉ ÉLAN",
    "\tThe ",
)

NQ_OPEN = [
    {"question": question, "answer": answers}
    for question, *answers in (
        ("who wrote the letter", "Ann Lee", "the poet Ann Lee"),
        ("when did it end", "1992", "in 1992", "March 3 , 1992"),
        ("which band played", "The Who", "the Band"),
        ("where is an oasis", "an oasis", "Theban desert"),
        ("what is vitamin a", "A vitamin", "a  vitamin"),
        ("how many players are there", "11", "eleven"),
        ("who said it's over", "it's Ann's", 'the "Ann"'),
        ("what is the price", "$5.00", "5 dollars"),
        ("what is the symbol", "The ", "&"),
        ("which café", "Café Élan"),
        ("what stands there", "And the end", "the The end"),
        ("who is it", "[Ann, Bea]", "Ann"),
    )
]
NQ_OPEN_TRAIN = [{"question": f"what is {number}", "answer": [f"the {number}", str(number)]} for number in range(6)]
NQ_OPEN_REPLIES = (
    " Poet Ann Lee",
    " March 3 1992",
    " Band",
    " oasis",
    " a vitamin",
    " ELEVEN!",
    " its anns",
    " 500",
    "",
    " the café élan",
    " end",
    " ann",
)

MGSM_ANSWERED = {
    "bn": ("প্রশ্ন: ", "ধাপে ধাপে উত্তর: "),
    "de": ("Frage: ", "Schritt-für-Schritt-Antwort: "),
    "en": ("Question: ", "Step-by-Step Answer: "),
    "es": ("Pregunta: ", "Respuesta paso a paso: "),
    "fr": ("Question : ", "Réponse étape par étape : "),
    "ja": ("問題：", "ステップごとの答え："),
    "ru": ("Задача: ", "Пошаговое решение: "),
    "sw": ("Swali: ", "Jibu la Hatua kwa Hatua: "),
    "te": ("ప్రశ్న: ", "దశలవారీగా సమాధానం: "),
    "th": ("โจทย์: ", "คำตอบทีละขั้นตอน: "),
    "zh": ("问题：", "逐步解答："),
}
"""How questions and answers of the examples begin."""
MGSM_SAYS = {
    "bn": "The answer is {}",
    "de": "Die Antwort lautet {}",
    "en": "The answer is {}",
    "es": "La respuesta es {}",
    "fr": "La réponse est {}",
    "ja": "答えは{}です。",
    "ru": "Ответ — {}",
    "sw": "Jibu ni {}",
    "te": "సమాధానం {}",
    "th": "คำตอบคือ {}",
    "zh": "答案是 {}。",
}

_NUMBERS = (7, 1200, -2, 42, 20, 8, 5, 11, 104, 3, 99, 6000)


def mgsm(language: str) -> tuple[list[Row], list[Row]]:
    """Return rows of the test split, which has no worked answers, and of the train split, which has."""
    asked, answered = MGSM_ANSWERED[language]
    test = [
        {
            "question": f"({language}) Mia … {number}?",
            "answer": None,
            "answer_number": number,
            "equation_solution": None,
        }
        for number in _NUMBERS
    ]
    train = [
        {
            "question": f"{asked}({language}) {number} + {number}?",
            "answer": f"{answered}{number} + {number} = {2 * number}. {MGSM_SAYS[language].format(2 * number)}.",
            "answer_number": 2 * number,
            "equation_solution": f"{number} + {number} = {2 * number}.",
        }
        for number in range(1, 9)
    ]
    return test, train


def mgsm_replies(language: str) -> tuple[str, ...]:
    return tuple(_mgsm_replies(MGSM_SAYS[language]))


def _mgsm_replies(says: str) -> Iterator[str]:
    for place, number in enumerate(_NUMBERS):
        match place % 6:
            case 0:
                yield f" {says.format(number)}."
            case 1:
                yield f" {number} "
            case 2:
                yield f" 3 + 4. {says.format(f'{number:,}')}. 5"
            case 3:
                yield f" It is ${number}.00."
            case 4:
                yield f" {says.format(number + 1)}, no, {number}"
            case _:
                yield ""


def _case(
    preset: str, file: str, rows: Sequence[Row], replies: Sequence[str], id_column: str | None, **more: Any
) -> dict[str, Any]:
    again, changed = mutated(rows, replies, id_column)
    return {"preset": preset, "file": file, "rows": again, "replies": changed, **more}


def _with_examples(count: int, shots: Sequence[Row], split: str = "train") -> dict[str, Any]:
    more = {"prompt": {"fewshot": {"count": count}}}
    return {"shots": list(shots), "shots_split": split, "num_fewshot": count, "more": more}


_MATCH = {"exact_match": "accuracy"}
_STRICT = {"exact_match,strict-match": "accuracy", "exact_match,flexible-extract": "flexible.accuracy"}
_WHOLE = {"exact_match,remove_whitespace": "accuracy", "exact_match,flexible-extract": "flexible.accuracy"}
_VALIDATION = {"numbers": _MATCH, "split": "validation"}


def _mgsm_cases() -> Iterator[dict[str, Any]]:
    for form, task, numbers in (
        ("direct", "direct", _WHOLE),
        ("en-cot", "en_cot", _STRICT),
        ("native-cot", "native_cot", _STRICT),
    ):
        for language in MGSM_SAYS:
            rows, shots = mgsm(language)
            says = "en" if form == "en-cot" else language
            preset, file = f"mgsm-{form}-{language}", f"mgsm/{task}/mgsm_{task}_{language}.yaml"
            if language in ("de", "zh"):
                yield _case(preset, file, rows, mgsm_replies(says), None, numbers=numbers)
            yield {"preset": preset, "file": file, "rows": rows, "replies": mgsm_replies(says), "numbers": numbers} | (
                _with_examples(4, shots)
            )


CASES: list[dict[str, Any]] = [
    _case("math-500-hendrycks", "hendrycks_math/hendrycks_math500.yaml", MATH_500, MATH_500_REPLIES, "unique_id",
          numbers=_MATCH),
    _case("aime24-lm-eval", "aime/aime24.yaml", AIME_24, AIME_REPLIES, "ID", numbers=_MATCH, split="train"),
    _case("aime25-lm-eval", "aime/aime25.yaml", AIME_25, AIME_REPLIES, "id", numbers=_MATCH),
    {
        "preset": "gpqa-diamond-lm-eval",
        "file": "gpqa/zeroshot/gpqa_diamond_zeroshot.yaml",
        "rows": GPQA,
        "numbers": {"acc": "accuracy_sum_first", "acc_norm": "accuracy_char_first"},
        "split": "train",
    },
    _case("gpqa-diamond-cot-lm-eval", "gpqa/cot_zeroshot/gpqa_diamond_cot_zeroshot.yaml", GPQA, GPQA_REPLIES,
          "Record ID", numbers=_STRICT, split="train"),
    _case("mmlu-pro", "mmlu_pro/mmlu_pro_biology.yaml", MMLU_PRO, MMLU_PRO_REPLIES, "question_id", numbers=_MATCH,
          shots=MMLU_PRO_VALIDATION, shots_split="validation"),
    _case("drop", "drop/default.yaml", DROP, DROP_REPLIES, "query_id", numbers={"em": "accuracy", "f1": "f1"},
          split="validation"),
    _case("triviaqa", "triviaqa/default.yaml", TRIVIAQA, TRIVIAQA_REPLIES, "question_id", **_VALIDATION),
    _case("triviaqa", "triviaqa/default.yaml", TRIVIAQA, TRIVIAQA_REPLIES, "question_id", **_VALIDATION,
          **_with_examples(3, TRIVIAQA_TRAIN)),
    _case("nq-open", "nq_open/nq_open.yaml", NQ_OPEN, NQ_OPEN_REPLIES, None, **_VALIDATION),
    _case("nq-open", "nq_open/nq_open.yaml", NQ_OPEN, NQ_OPEN_REPLIES, None, **_VALIDATION,
          **_with_examples(3, NQ_OPEN_TRAIN)),
    *_mgsm_cases(),
]  # fmt: skip
"""What ``comparisons.Case`` is made of: rows in the published form, replies that are right, nearly right and wrong, and
replies that were changed by chance."""


def _chat(preset: str, file: str, rows: Sequence[Row], shots: Sequence[Row] = (), **more: Any) -> dict[str, Any]:
    examples = {"shots": list(shots), "num_fewshot": 2} if shots else {}
    return {"preset": preset, "file": file, "rows": list(rows), "numbers": {}, **examples, **more}


CHATS: list[dict[str, Any]] = [
    _chat("math-500-hendrycks", "hendrycks_math/hendrycks_math500.yaml", MATH_500),
    _chat("aime24-lm-eval", "aime/aime24.yaml", AIME_24, split="train"),
    _chat("aime25-lm-eval", "aime/aime25.yaml", AIME_25),
    _chat("mmlu-pro", "mmlu_pro/mmlu_pro_biology.yaml", MMLU_PRO, MMLU_PRO_VALIDATION, shots_split="validation"),
    _chat("drop", "drop/default.yaml", DROP, split="validation"),
    _chat("triviaqa", "triviaqa/default.yaml", TRIVIAQA, TRIVIAQA_TRAIN, split="validation"),
    _chat("nq-open", "nq_open/nq_open.yaml", NQ_OPEN, NQ_OPEN_TRAIN, split="validation"),
    _chat("mgsm-native-cot-es", "mgsm/native_cot/mgsm_native_cot_es.yaml", *mgsm("es")),
    _chat("mgsm-direct-ru", "mgsm/direct/mgsm_direct_ru.yaml", *mgsm("ru")),
]
"""The same for ``comparisons.CHATS``."""
