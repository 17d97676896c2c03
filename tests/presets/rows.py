"""Rows in the hub's columns of each benchmark, written for these tests."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def _mmlu(subject: str, *questions: tuple[str, list[str], int]) -> list[Row]:
    return [
        {"question": q, "subject": subject, "choices": choices, "answer": answer} for q, choices, answer in questions
    ]


MMLU = _mmlu(
    "anatomy",
    ("Which bone is in the thigh? ", ["Femur", "Tibia", "Ulna", "Skull"], 0),
    ("The heart has how many chambers?", ["One", "Two", "Three", "Four"], 3),
    (" Where is the retina?", ["Ear", "Eye", "Nose", "Hand"], 1),
    ("Which organ makes bile?", ["Lung", "Heart", "Liver", "Skin"], 2),
    ("Which of these is a muscle?", ["Biceps", "Kidney", "Cornea", "Spleen"], 0),
    ("Blood is made in\nthe …", ["teeth", "hair", "nails", "marrow"], 3),
)
MMLU_DEV = _mmlu(
    "anatomy",
    *((f"Dev question {number}?", [f"{letter}{number}" for letter in "abcd"], number % 4) for number in range(6)),
)
MMLU_HISTORY = _mmlu(
    "high_school_us_history",
    ("Who wrote the letter?", ["A king", "A farmer", "A smith", "A judge"], 1),
    ("When was the treaty?", ["1783", "1812", "1865", "1901"], 0),
    ("Which state joined last?", ["Ohio", "Utah", "Maine", "Hawaii"], 3),
    ("What did the act tax?", ["Stamps", "Rain", "Songs", "Sleep"], 0),
)
MMLU_HISTORY_DEV = _mmlu(
    "high_school_us_history",
    *((f"Earlier question {number}?", ["w", "x", "y", "z"], (number + 2) % 4) for number in range(4)),
)


def _arc(number: int, question: str, labels: list[str], texts: list[str], answer: str) -> Row:
    return {
        "id": f"row-{number}",
        "question": question,
        "choices": {"text": texts, "label": labels},
        "answerKey": answer,
    }


ARC = [
    _arc(1, "Which is a gas at room temperature?", ["A", "B", "C", "D"], ["iron", "oxygen", "salt", "wood"], "B"),
    _arc(2, "What pulls a ball down?", ["1", "2", "3", "4"], ["light", "wind", "gravity", "sound"], "3"),
    _arc(3, "Which animal lays eggs?", ["A", "B", "C"], ["a hen", "a cow", "a very large grey elephant"], "A"),
    _arc(4, "Which is the largest?", ["A", "B", "C", "D", "E"], ["ant", "cat", "dog", "horse", "whale"], "E"),
    _arc(5, "What melts?", ["1", "2", "3", "4"], ["ice in the sun", "stone", "air", "fire"], "1"),
]


def _hellaswag(activity: str, a: str, b: str, endings: list[str], label: str) -> Row:
    return {"activity_label": activity, "ctx_a": a, "ctx_b": b, "ctx": f"{a} {b}", "endings": endings, "label": label}


HELLASWAG = [
    _hellaswag("Baking", "A man kneads  dough.", "he",
               ["puts it in the oven.", "eats a car. [step] Then sleeps.", "flies away.", " sings  to it."], "0"),
    _hellaswag("Home and Garden", "[header] How to plant a tree [title] Choose a spot.", "[step] Look for SUN",
               ["and dig [substeps] a hole.", "and run.", "[title] Water it.", "and cook  soup.   "], "2"),
    _hellaswag("Swimming", "A girl stands at a pool.", "",
               ["She jumps.", "It snows.", "He reads a long letter.", "No."], "0"),
    _hellaswag("Music", "  A band plays", "a CROWD [laughs]",
               ["claps and goes on to cheer.", "is a stone.", "was [b] blue.", "x"], "3"),
]  # fmt: skip


def _winogrande(sentence: str, first: str, second: str, answer: str) -> Row:
    return {"sentence": sentence, "option1": first, "option2": second, "answer": answer}


WINOGRANDE = [
    _winogrande("Ann lent Bea a pen because _ had two.", "Ann", "Bea", "1"),
    _winogrande("The cup did not fit in the box: the _ was too small.", "cup", "box", "2"),
    _winogrande("Tom waved at Jim, and _  waved back_.", "Tom", "Jim", "2"),
    _winogrande("_ was late, so Kay left without Lee.", "Kay", "Lee", "2"),
    _winogrande("Sam paid Max as _ had asked.", "Sam", "Max", "2"),
    _winogrande("Eve drove Pat home since _ was tired.", "Eve", "Pat", "1"),
]
WINOGRANDE_TRAIN = [
    _winogrande("The dog saw the cat, and _ ran.", "dog", "cat", "2"),
    _winogrande("Ida met Una before _ left.", "Ida", "Una", "1"),
    _winogrande("Put the jar on the shelf: _ is clean.", "jar", "shelf", "1"),
    _winogrande("Leo is taller than Abe, so _ bends.", "Leo", "Abe", "1"),
]

TRUTHFULQA: list[Row] = [
    {
        "question": question,
        "mc1_targets": {"choices": choices, "labels": [1] + [0] * (len(choices) - 1)},
        "mc2_targets": {"choices": [*choices, "Nobody can say"], "labels": [1] + [0] * (len(choices) - 1) + [1]},
    }
    for question, choices in (
        ("Do fish sleep?", ["Fish rest", "Fish never rest", "Fish sleep in beds"]),
        ("What is the moon made of?", ["Rock", "Cheese"]),
        ("Can pigs fly?", ["They cannot", "They can", "Only at night", "On Sundays"]),
        ("Is the sea salty?", ["It is", "It is not", "Only in winter"]),
        ("Do trees drink?", ["They take up water", "They do not", "They drink milk"]),
        ("Is glass a liquid?", ["It is a solid", "It is a liquid"]),
        ("Do bees sleep?", ["They do", "They do not"]),
        ("Is snow warm?", ["It is cold", "It is warm"]),
        ("Do stones float?", ["Pumice does", "All do", "Never"]),
    )
]


def _gsm8k(question: str, answer: str) -> Row:
    return {"question": question, "answer": answer}


GSM8K = [
    _gsm8k("Mia has 3 pens and buys 4. How many?", "3 + 4 = <<3+4=7>>7 pens.\n#### 7"),
    _gsm8k("A ticket is $1,200 for all. What is the price?", "It says so.\n#### 1,200"),
    _gsm8k("Ten less twelve?", "10 - 12 = -2\n#### -2"),
    _gsm8k("Half of 9?", "9 / 2 = 4.5\n#### 4.5"),
    _gsm8k("6 times 7?", "6 * 7 = 42\n#### 42"),
    _gsm8k("How many feet have 5 cats?", "5 * 4 = 20\n#### 20"),
    _gsm8k("What is 0 plus 8?", "#### 8"),
]
GSM8K_TRAIN = [
    _gsm8k(f"What is {n} plus {n}?", f"{n} + {n} = <<{n}+{n}={2 * n}>>{2 * n}\n#### {2 * n}") for n in range(1, 13)
]
GSM8K_REPLIES = (
    " 3 + 4 = 7\n#### 7",
    " It costs 1200 dollars.\n#### $1,200.",
    " The answer is -2.",
    " #### 4.50",
    " six times seven is forty-two",
    " 5 * 4 = 20. #### 20. #### 21",
    " #### 8.",
)


def _csqa(question: str, texts: list[str], answer: str) -> Row:
    return {
        "id": question[:8],
        "question": question,
        "question_concept": "x",
        "choices": {"label": ["A", "B", "C", "D", "E"], "text": texts},
        "answerKey": answer,
    }


CSQA = [
    _csqa(" Where would you find a pillow?", ["bed", "lake", "oven", "road", "sky"], "A"),
    _csqa("What do you cut bread with?", ["rope", "knife", "song", "rain", "book"], "B"),
    _csqa("Who flies a plane? ", ["a cook", "a fish", "a pilot", "a stone", "a nurse"], "C"),
    _csqa("What is cold?", ["fire", "sun", "tea", "ice", "lava"], "D"),
    _csqa("Where do books stand?", ["sea", "cloud", "cave", "pan", "shelf"], "E"),
    _csqa("What opens a door?", ["key", "leaf", "cup", "sock", "egg"], "A"),
]
CSQA_TRAIN = [
    _csqa("What is wet?", ["dust", "sand", "water", "ash", "wool"], "C"),
    _csqa("Who teaches?", ["a teacher", "a chair", "a lamp", "a nail", "a tree"], "A"),
    _csqa("Where do fish live?", ["sea", "roof", "desk", "bus", "tent"], "A"),
    _csqa("What shines?", ["mud", "coal", "fog", "night", "sun"], "E"),
]

BOOLQ = [
    {"question": question, "passage": passage, "idx": number, "label": label}
    for number, (question, passage, label) in enumerate(
        (
            ("is the river long", "The river is 900 km long.", 1),
            ("can the bird fly", "The bird has no wings.", 0),
            ("does the shop open on sunday", "It is open all week.", 1),
            ("was the king old", "He died at the age of nine.", 0),
            ("is iron a metal", "Iron is a metal.", 1),
        )
    )
]
BOOLQ_TRAIN = [
    {
        "question": f"is {number} an even number",
        "passage": f"The number is {number}.",
        "idx": number,
        "label": 1 - number % 2,
    }
    for number in range(7)
]

BBH = [
    {"input": "If you follow these instructions, do you return? Take 2 steps.\nOptions:\n- Yes\n- No", "target": "No"},
    {"input": "Do you return? Take 0 steps.\nOptions:\n- Yes\n- No", "target": "Yes"},
    {"input": "Turn left. Do you return?\nOptions:\n- Yes\n- No", "target": "Yes"},
    {"input": "Take 1 step. Turn around. Take 1 step.\nOptions:\n- Yes\n- No", "target": "Yes"},
]
BBH_COT_REPLIES = ("So the answer is No.", "We are back. So the answer is Yes.", "the answer is yes.", "I cannot say")
BBH_DIRECT_REPLIES = ("No", " Yes", "Yes", "yes")

MATH = [
    {"problem": problem, "solution": solution, "level": "Level 1", "type": "Algebra"}
    for problem, solution in (
        ("What is half of $3$?", r"It is $\boxed{\frac{3}{2}}$."),
        ("Solve $x + 1 = 8$.", r"So $x = 7$, that is \boxed{7}."),
        ("Name the interval.", r"We get $\boxed{[2, 5)}$"),
        ("How many degrees has a right angle?", r"\boxed{90^\circ}"),
        ("What is $50$ percent of 1?", r"It is \boxed{0.5}."),
    )
]
MATH_REPLIES = (
    r" The answer is $\dfrac{3}{2}$.",
    " $x = 7$ so 7",
    r" It is $[2,5)$, I think, $[2,5)$.",
    " 90",
    r" $\frac12$",
)

SQUAD = [
    {
        "id": "1",
        "title": "Rivers",
        "context": "The Ebro is 930 km long.",
        "question": "How long is the Ebro?",
        "answers": {"text": ["930 km", "930 km long", "930 km"], "answer_start": [12, 12, 12]},
    },
    {
        "id": "2",
        "title": "Birds",
        "context": "The wren weighs nine grams.",
        "question": "What does the wren weigh?",
        "answers": {"text": ["nine grams"], "answer_start": [16]},
    },
]
SQUAD_REPLIES = (
    "930 km",
    " The 930 km long.",
    "km 930",
    "about 930 km, or more",
    "It is long.",
    "",
    "Nine grams",
    "nine-grams",
    "a nine gram bird",
    "nine grams nine grams",
    "ten grams",
    "NINE, grams!",
)
"""Six for each row of ``SQUAD``."""

EVENTS = [
    {
        "id": "e1",
        "metadata_frame": "From a diary.",
        "main_question": "When was it?",
        "question_category": "year",
        "answer_strings": ["1900", "1901", "not in 1900"],
        "answer_types": ["correct", "distractor", "negation"],
        "answer_probabilities": [1.0, 0.0, 0.0],
    },
    {
        "id": "e2",
        "metadata_frame": None,
        "main_question": "What came first?",
        "question_category": "order",
        "answer_strings": ["fire", "the wheel", "not fire"],
        "answer_types": ["correct", "distractor", "negation"],
        "answer_probabilities": [1.0, 0.0, 0.0],
    },
]

SQUAD_1_1 = {
    "data": [
        {
            "title": "Rivers",
            "paragraphs": [
                {
                    "context": "The Ebro is 930 km long.",
                    "qas": [
                        {
                            "answers": [
                                {"answer_start": 12, "text": "930 km"},
                                {"answer_start": 12, "text": "930 km long"},
                                {"answer_start": 12, "text": "930 km"},
                            ],
                            "question": "How long is the Ebro?",
                            "id": "56be4db0acb8001400a502ec",
                        },
                        {
                            "answers": [{"answer_start": 4, "text": "Ebro"}],
                            "question": "Which river is long?",
                            "id": "56be4db0acb8001400a502ed",
                        },
                    ],
                },
                {"context": "No question is asked of this.", "qas": []},
            ],
        },
        {
            "title": "Birds",
            "paragraphs": [
                {
                    "context": "The wren weighs nine grams.",
                    "qas": [
                        {
                            "answers": [{"answer_start": 16, "text": "nine grams"}],
                            "question": "What does the wren weigh?",
                            "id": "56be4db0acb8001400a502ee",
                        }
                    ],
                }
            ],
        },
    ],
    "version": "1.1",
}
"""The nesting and the order of keys of ``dev-v1.1.json``."""

TRUTHFULQA_MC_TASK = [
    {
        "question": row["question"],
        **{
            name: dict(zip(row[name]["choices"], row[name]["labels"], strict=True))
            for name in ("mc1_targets", "mc2_targets")
        },
    }
    for row in TRUTHFULQA
]
"""The form of the authors' ``mc_task.json``."""


def _humaneval(number: int, name: str, head: str, body: str, test: str) -> Row:
    return {
        "task_id": f"HumanEval/{number}",
        "prompt": head,
        "canonical_solution": body,
        "test": f"def check(candidate):\n    {test}\n",
        "entry_point": name,
    }


HUMANEVAL = [
    _humaneval(0, "halves", "def halves(n):\n    \"\"\"Return half of n.\"\"\"\n", "    return n / 2\n",
               "assert candidate(4) == 2"),
    _humaneval(1, "last", "\n\ndef last(items: list) -> int:\n    ''' The last of {items}. '''\n",
               "    return items[-1]\n", "assert candidate([1, 2]) == 2"),
    _humaneval(2, "shout", "import re\n\n\ndef shout(text):\n    \"\"\"\n    >>> shout('é')\n    'É'\n    \"\"\"\n",
               "    return text.upper()\n", "assert candidate('a') == 'A'"),
    _humaneval(3, "zero", "def helper(x):\n    return x - x\n\ndef zero(x):\n    # uses {{ helper }}\n",
               "    return helper(x)\n", "assert candidate(7) == 0"),
]  # fmt: skip


def _mbpp(number: int, text: str, code: str, tests: list[str]) -> Row:
    return {
        "task_id": number,
        "text": text,
        "code": code,
        "test_list": tests,
        "test_setup_code": "",
        "challenge_test_list": [],
    }


MBPP = [
    _mbpp(11, "Write a function to double a number.", "def double(n):\r\n  return 2 * n",
          ["assert double(1) == 2", "assert double(0) == 0", "assert double(-2) == -4"]),
    _mbpp(12, "Write a python function to join two texts. ", "def joined(a, b):\n    return a + b",
          ["assert joined('a', 'é') == 'aé'", "assert joined('', '') == ''", "assert joined('x', 'y') == 'xy'"]),
    _mbpp(510, "Write a function to count {{ braces }}.", "def count(s):\n    return s.count('{')",
          ["assert count('{{') == 2", "assert count('') == 0", "assert count('}') == 0"]),
]  # fmt: skip
