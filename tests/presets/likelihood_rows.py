"""Rows for benchmarks whose options, last words or texts are scored by likelihood, written for these tests."""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def _piqa(goal: str, first: str, second: str, label: int) -> Row:
    return {"goal": goal, "sol1": first, "sol2": second, "label": label}


PIQA = [
    _piqa("dry a wet shoe", "Put paper into it.", "Put water into it.", 0),
    _piqa("Open a jar.", "Turn the lid to the right, hard.", "Turn the lid to the left.", 1),
    _piqa("How do you sharpen a pencil?", "Turn it in a sharpener.", "Turn it in a cup of tea.", 0),
    _piqa("keep bread fresh ", "Leave it on the sill.", "Keep it in a bag", 1),
    _piqa("find a small screw on a carpet", "Drag a magnet over it", "Drag a sponge over it", 0),
    _piqa("To cool soup,", "heat it a little more", "stir it, and wait", 1),
    _piqa("Clean a window", "with a newspaper and vinegar", "with butter", 0),
    _piqa("Tie a knot in\na rope", "cross its ends", "burn its ends until nothing is left of the rope", 0),
    _piqa("wake a friend", "Sing softly, far away, in another town.", "Say her name.", 1),
    _piqa("peel an egg", " boil it first", "  freeze the hen", 0),
    _piqa("Wie öffnet man ein Fenster?", "Man dreht den Griff.", "Man dreht die Scheibe.", 0),
    _piqa("carry eggs", "in a box with a cup for each", "in a net, and run", 0),
]
PIQA_TRAIN = [
    _piqa(f"carry {number} plates", f"In {number} walks.", "Throw them.", number % 2) for number in range(1, 9)
]


def _openbookqa(number: int, stem: str, texts: list[str], answer: str) -> Row:
    return {
        "id": f"9-{number}",
        "question_stem": stem,
        "choices": {"text": texts, "label": ["A", "B", "C", "D"]},
        "answerKey": answer,
    }


OPENBOOKQA = [
    _openbookqa(1, "Ice that is put into the sun will", ["melt", "burn", "sing", "rust"], "A"),
    _openbookqa(2, "Which of these is alive?", ["a stone", "a fern", "a cloud in the sky", "a nail"], "B"),
    _openbookqa(3, "A shadow is long when", ["it is noon", "it rains", "the sun is low", "the sun is gone"], "C"),
    _openbookqa(4, "Iron is drawn by ", ["wool", "glass", "paper", "a magnet"], "D"),
    _openbookqa(5, "A plant without light", ["grows pale", "grows feathers", "moves out", "turns to iron"], " A"),
    _openbookqa(6, "What turns\nin a day?", ["the moon's name", "the earth", "the sea floor", "a fence"], "B"),
    _openbookqa(7, "Sound is slowest in", ["steel", "water", "air", "oak"], "C"),
    _openbookqa(8, "A fox eats", ["sand", "soap", "clay", "mice and berries"], "D"),
    _openbookqa(9, "Wind can move", ["a sail", "a mountain", "the moon", "a mine"], "A"),
    _openbookqa(10, "Rust needs", ["moonlight", "water and air", "music", "salt alone"], "B"),
    _openbookqa(11, "Wool keeps warm as it holds", ["fire", "rain", "air", "iron"], "C"),
    _openbookqa(12, "A tadpole becomes", ["a fish", "a fly", "a fern", "a frog"], "D"),
]
OPENBOOKQA_TRAIN = [
    _openbookqa(50 + number, f"{number} apples fall because of", ["colour", "gravity", "taste", "luck"], "ABCD"[number])
    for number in range(4)
]
OPENBOOKQA_NESTED = [
    {
        "id": row["id"],
        "question": {
            "stem": row["question_stem"],
            "choices": [
                {"text": text, "label": label}
                for text, label in zip(row["choices"]["text"], row["choices"]["label"], strict=True)
            ],
        },
        "answerKey": row["answerKey"],
    }
    for row in OPENBOOKQA
]
"""The form of ``OpenBookQA-V1-Sep2018/Data/Main/test.jsonl``."""


def _siqa(context: str, question: str, answers: tuple[str, str, str], label: int) -> Row:
    return {
        "context": context,
        "question": question,
        **dict(zip(("answerA", "answerB", "answerC"), answers, strict=True)),
        "label": str(label),
    }


SIQA = [
    _siqa("Ina lent Bo her bike.", "How would Bo feel?", ("thankful", "angry at Ina", "tired of bikes"), 1),
    _siqa("Max forgot the milk.", "What will Max do next?", ("sell the shop", "go back", "drink it"), 2),
    _siqa("Ada held the door.", "Why did Ada do this?", ("to be rude", "to be cold", "to be kind"), 3),
    _siqa("Leo sang at noon. ", "What does Leo need to do before this?", ("learn it", "stop", "sleep"), 1),
    _siqa("Eve lost a bet.", "How would you describe Eve?", ("a stone", "unlucky", "a winner"), 2),
    _siqa("Tom hid a gift.", "Why did Tom do this?", ("to lose it", "to eat it", "to surprise Uma"), 3),
    _siqa("Kim came late.", "What will others want to do next?", ("ask why", "thank her twice", "hide"), 1),
    _siqa("Pat\nread all night.", "How would Pat feel afterwards?", ("rested", "sleepy", "rich"), 2),
    _siqa("Jo fed the cat.", "What will happen to the cat?", ("it barks", "it starves", "it is full"), 3),
    _siqa("Ned told a joke.", "What will others do?", (" laugh ", "file a complaint with the town", "age"), 1),
    _siqa("Mia broke a cup.", "What will Mia want to do next?", ("frame it", "say sorry", "break more"), 2),
    _siqa("Sam won.", "How would Sam feel?", ("low", "sad", "proud"), 3),
]
SIQA_TRAIN = [
    _siqa(f"Ben called {number} friends.", "Why?", ("to talk", "to nap", "to fly"), number % 3 + 1)
    for number in range(6)
]

_PASSAGES = (
    "The dog lost its ball. It ran to the hedge, looked under the leaves, and there it was, the ball",
    '"You have the key?" she asked. He looked into his coat, then at her. "No," he said, "you have the key',
    "All week it rained. When the clouds broke on Sunday, they went out to see the sun",
    "The baker rose at three. By six the shelves were full, and the street smelled of bread",
    "She had a map, he had a lamp; in the cave it was the lamp",
    "He counted the steps, one hundred and twelve,  and then once more: one hundred and twelve",
    "Nobody in the village had seen snow before; now all of them stood in the snow",
    "The clock struck.\nShe had waited an hour for the clock",
    "The violin hung on the wall. His father had played it; he himself never learned to play the violin",
    "It was the café at the corner where they always met, and so he went to the café",
    "First came the letter, then the call, and at last, on a bicycle, out of breath, came Anna",
    "The king asked for a story, and the story was about a king",
)
LAMBADA_OPENAI = [{"text": text} for text in _PASSAGES]
LAMBADA_STANDARD = [
    {"text": text.lower().replace(",", " ,").replace(".", " ."), "domain": "tale"} for text in _PASSAGES
]

WIKITEXT = [
    {"page": page}
    for page in (
        " = The Mill = \n \n The mill was built in 1846 , and rebuilt @-@ twice @-@ by 1 @,@ 200 men . \n ",
        " = Hill = \n = = Way = = \n It is 3 @.@ 5 km long ; its height is ( at most ) 40 m . \n = = = Notes = = = \n ",
        " = Song = \n = = = = Verse = = = = \n \" Oh , the sea ! \" she sang : ' no ' , and ' yes ' . Why ? \n ",
        " The smiths ' forge [ now lost ] was the town 's pride , at 20 ° C . \n \n Its N was unknown . ",
        " = Réunion = \n Île de La Réunion { a name } lies 700 km east ( of Madagascar . \n ",
        " A page of one line",
        " = List = \n a ; b ; c : d ? e ! f . g , h \n \n \n i \n ",
        ' He said " one " , " two " and " three , and left the quotation open . \n ',
        " = Film = \n The film '' s runs / ' 9/ , the boys ' choir and the girls 's . \n",
        " = Numbers = \n 10 @,@ 000 @,@ 000 @-@ year @-@ old stars ; 0 @.@ 25 ( 1 / 4 ) [ 2 ] { 3 } \n ",
        " = Tabs = \n\tA tab , two  spaces , and a narrow\u202fspace . \n ",
        " = End = \n ( empty ( brackets ) ) [ ] { } \" \" ' ' \n ",
    )
]
TEXTS = [{"text": row["page"].strip() or "x"} for row in WIKITEXT]
