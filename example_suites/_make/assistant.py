"""The world of the assistant: functions that it may call, facts that users tell, and programs that they ask for.

It writes both the training documents of the assistant model and the rows of the suites in ``example_suites/assistant``.
``split.is_test`` keeps requests of the suites out of training; names of ``split.is_untaught`` occur in suites only.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from .corpus import Document
from .split import is_test, is_untaught

Row = dict[str, Any]
Message = dict[str, str]

SEED = 20
NUM_ROWS = 48
END = "<|endoftext|>"
SPECIAL_TOKENS = ("<|tools|>", "<|system|>", "<|user|>", "<|assistant|>")
CHAT_TEMPLATE = (
    "{{ bos_token }}"
    "{% if tools %}<|tools|>{% for tool in tools %}"
    "{{ tool.function.name }}({{ tool.function.parameters.properties | join(', ') }})\n"
    "{% endfor %}{% endif %}"
    "{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}"
    "{% if message['role'] == 'assistant' %}{{ eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def _words(text: str) -> list[str]:
    return text.split()


CITIES = _words(
    "Oslo Rome Paris Lisbon Madrid Vienna Prague Athens Dublin Berlin Warsaw Geneva Turin Bergen Porto Seville "
    "Cairo Lima Quito Tokyo Kyoto Osaka Delhi Hanoi Boston Denver Dallas Toronto Havana Nairobi"
)
PEOPLE = _words(
    "Ada Ben Clara David Emma Felix Greta Hugo Ines Jonas Karin Leo Maria Nora Oscar Paula Rosa Simon Tessa "
    "Victor Wanda Yara Alma Bruno Celia Dario Elsa Frida Ivan Julia"
)
ITEMS = _words("apples pears lemons onions eggs carrots potatoes plums melons figs rolls candles pencils stamps")
DEVICES = _words("lamp radio heater fan oven television computer printer")
PETS = _words("cat dog horse rabbit parrot hamster goat tortoise canary pony")
COLOURS = _words("red blue green yellow white black orange purple brown grey")
FOODS = _words("bread soup rice cheese salad pasta fish cake")
NUMBERS = [str(number) for number in range(2, 31)]
SLOTS: Mapping[str, Sequence[str]] = {
    "city": CITIES,
    "origin": CITIES,
    "destination": CITIES,
    "person": PEOPLE,
    "item": ITEMS,
    "device": DEVICES,
    "hour": [str(hour) for hour in range(1, 13)],
    "minutes": NUMBERS,
    "count": NUMBERS,
    "people": [str(number) for number in range(2, 10)],
}


@dataclass(frozen=True, slots=True)
class Function:
    """A function that an assistant may be given, and the requests that it fits. ``SLOTS`` has its parameters."""

    name: str
    description: str
    parameters: tuple[str, ...]
    asks: tuple[str, ...]

    def schema(self) -> Row:
        """Return the function in the form of OpenAI's API."""
        types = {name: {"type": "integer" if SLOTS[name][0].isdigit() else "string"} for name in self.parameters}
        parameters = {"type": "object", "properties": types, "required": list(self.parameters)}
        return {"name": self.name, "description": self.description, "parameters": parameters}


FUNCTIONS = (
    Function(
        "get_weather",
        "The weather of today.",
        ("city",),
        ("How is the weather in {city}?", "Will it rain in {city} today?", "Do I need an umbrella in {city}?"),
    ),
    Function(
        "find_train",
        "Trains between two cities.",
        ("origin", "destination"),
        ("I want to go from {origin} to {destination} by train.", "Is there a train from {origin} to {destination}?"),
    ),
    Function("set_alarm", "Ring at an hour.", ("hour",), ("Wake me at {hour}.", "Set an alarm for {hour} o'clock.")),
    Function(
        "set_timer",
        "Ring after some minutes.",
        ("minutes",),
        ("Tell me when {minutes} minutes are over.", "Start a timer of {minutes} minutes."),
    ),
    Function(
        "add_item",
        "Add something to the shopping list.",
        ("item", "count"),
        ("Put {count} {item} on my list.", "I need {count} {item}."),
    ),
    Function("call_person", "Telephone somebody.", ("person",), ("Call {person}.", "I want to speak to {person}.")),
    Function("turn_on", "Turn a device on.", ("device",), ("Turn on the {device}.", "Switch the {device} on.")),
    Function("turn_off", "Turn a device off.", ("device",), ("Turn off the {device}.", "Switch the {device} off.")),
    Function(
        "book_table",
        "Reserve a table.",
        ("people", "hour"),
        ("A table for {people} at {hour}, please.", "Can {people} of us eat at {hour}?"),
    ),
)
TWICE = {"get_weather": "How is the weather in {0} and in {1}?", "turn_on": "Turn on the {0} and the {1}."}
"""Requests for two calls of one function with one parameter."""
SMALL_TALK = ("Thank you!", "Good morning.", "Tell me a joke.", "How are you?", "That is all.", "Who made you?")
NO_FUNCTION = "I have no function for that."


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """A request, the functions that are offered with it, and the calls that are right; none if no function fits."""

    text: str
    functions: tuple[Function, ...]
    calls: tuple[tuple[str, Mapping[str, Any]], ...]

    @property
    def reply(self) -> str:
        """Return what the assistant shall write."""
        lines = (json.dumps({"name": name, "arguments": values}) for name, values in self.calls)
        return "\n".join(f"<tool_call>{line}</tool_call>" for line in lines) or NO_FUNCTION


def tool_request(rng: random.Random, draw: Callable[[str], str]) -> ToolRequest:
    """Return a request with two to four functions; ``draw`` gives the value of a slot."""
    kind = rng.random()
    function = rng.choice(FUNCTIONS)
    others = [one for one in FUNCTIONS if one != function]
    offered = rng.sample(others, rng.choice((1, 2, 3)))
    calls: tuple[tuple[str, Mapping[str, Any]], ...] = ()
    if kind < 0.1:
        text = rng.choice(SMALL_TALK)
        offered.append(function)
    elif kind < 0.25 and function.name in TWICE:
        (parameter,) = function.parameters
        first, second = draw(parameter), draw(parameter)
        text = TWICE[function.name].format(first, second)
        calls = tuple((function.name, {parameter: value}) for value in (first, second))
        offered.append(function)
    else:
        values = {name: draw(name) for name in function.parameters}
        text = rng.choice(function.asks).format(**values)
        if kind < 0.85:
            typed = {name: int(value) if value.isdigit() else value for name, value in values.items()}
            calls = ((function.name, typed),)
            offered.append(function)
    rng.shuffle(offered)
    return ToolRequest(text, tuple(offered), calls)


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that a user tells, what the assistant says to it, and the question that asks for it later."""

    values: Sequence[str]
    told: tuple[str, ...]
    said: str
    question: str
    answer: str


FACTS = (
    Fact(PEOPLE, ("I am {0}.", "My name is {0}."), "Hello {0}!", "What is my name?", "Your name is {0}."),
    Fact(PETS, ("I have a {0}.", "My pet is a {0}."), "A {0}, how nice.", "Which pet is mine?", "You have a {0}."),
    Fact(CITIES, ("I live in {0}.", "My home is in {0}."), "I like {0}.", "Where do I live?", "You live in {0}."),
    Fact(COLOURS, ("I like {0} best.", "My colour is {0}."), "{0}, why not.", "Which colour is mine?", "You like {0}."),
    Fact(FOODS, ("I often eat {0}.", "My dish is {0}."), "Enjoy your {0}.", "What do I eat?", "You eat {0}."),
    Fact(NUMBERS, ("I am {0} years old.", "My age is {0}."), "So you are {0}.", "How old am I?", "You are {0}."),
)
IN_ONE_WORD = "Answer questions in one word."
_ASKED = re.compile(r"<\|user\|>(.*?)<\|assistant\|>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Conversation:
    """Turns of a user and the replies to them; the last asks for something that was told before."""

    system: str | None
    turns: tuple[tuple[str, str], ...]
    answer: str

    @property
    def key(self) -> str:
        """Return what decides whether it belongs to the suites: all that the user tells."""
        return " ".join(told for told, _ in self.turns[:-1])


def conversation(rng: random.Random, pick: Callable[[Sequence[str]], str]) -> Conversation:
    """Return a conversation in which two to four facts are told, one in each turn; ``pick`` draws a value."""
    system = rng.choice((None, IN_ONE_WORD))
    facts = rng.sample(FACTS, rng.choice((2, 3, 4)))
    values = [pick(fact.values) for fact in facts]
    turns = [
        (rng.choice(fact.told).format(value), fact.said.format(value))
        for fact, value in zip(facts, values, strict=True)
    ]
    asked = rng.randrange(len(facts))
    answer = facts[asked].answer.format(values[asked]) if system is None else values[asked]
    return Conversation(system, (*turns, (facts[asked].question, answer)), values[asked])


@dataclass(frozen=True, slots=True)
class Program:
    """What a function returns, in words and in Python, for arguments that tests try. ``{n}`` is a drawn number."""

    parameters: str
    words: str
    code: str
    arguments: tuple[tuple[Any, ...], ...]


_NUMBERS = ((3,), (40,), (101,))
_PAIRS = ((1, 2), (9, 4), (7, 7))
_TEXTS = (("Lamp",), ("green tea",), ("x",))
_LISTS = (([3, 1, 2],), ([5, 5],), ([8],))
PROGRAMS = (
    Program("x", "x plus {n}", "x + {n}", _NUMBERS),
    Program("x", "x minus {n}", "x - {n}", _NUMBERS),
    Program("x", "{n} minus x", "{n} - x", _NUMBERS),
    Program("x", "x times {n}", "x * {n}", _NUMBERS),
    Program("x", "the remainder of x and {n}", "x % {n}", _NUMBERS),
    Program("x", "whether x is greater than {n}", "x > {n}", _NUMBERS),
    Program("x", "whether x is less than {n}", "x < {n}", _NUMBERS),
    Program("x", "x times {n}, and then plus {m}", "x * {n} + {m}", _NUMBERS),
    Program("x", "x plus {n}, and then times {m}", "(x + {n}) * {m}", _NUMBERS),
    Program("x", "the square of x", "x * x", _NUMBERS),
    Program("x", "whether x is even", "x % 2 == 0", _NUMBERS),
    Program("a, b", "the sum of a and b", "a + b", _PAIRS),
    Program("a, b", "the larger of a and b", "max(a, b)", _PAIRS),
    Program("a, b", "the smaller of a and b", "min(a, b)", _PAIRS),
    Program("a, b", "whether a and b are equal", "a == b", _PAIRS),
    Program("text", "the length of text", "len(text)", _TEXTS),
    Program("text", "text in capitals", "text.upper()", _TEXTS),
    Program("text", "text backwards", "text[::-1]", _TEXTS),
    Program("text", "the first letter of text", "text[0]", _TEXTS),
    Program("text", "the last letter of text", "text[-1]", _TEXTS),
    Program("text", "text {n} times", "text * {n}", _TEXTS),
    Program("items", "the sum of items", "sum(items)", _LISTS),
    Program("items", "items in order", "sorted(items)", _LISTS),
    Program("items", "the number of items", "len(items)", _LISTS),
    Program("items", "the largest of items", "max(items)", _LISTS),
    Program("items", "items without the first", "items[1:]", _LISTS),
)
FUNCTION_NAMES = _words(
    "solve compute change make work answer step move grow shift result measure find mix turn fold check build run apply"
)


@dataclass(frozen=True, slots=True)
class CodeRequest:
    """A request for a function, the function, and its tests."""

    text: str
    name: str
    code: str
    tests: tuple[str, ...]

    @property
    def reply(self) -> str:
        """Return what the assistant shall write."""
        return f"```python\n{self.code}\n```"


def code_request(rng: random.Random, pick: Callable[[Sequence[str]], str]) -> CodeRequest:
    """Return a request for one of the programs; ``pick`` draws its name and its numbers."""
    program, name = rng.choice(PROGRAMS), pick(FUNCTION_NAMES)
    numbers = {"n": pick(NUMBERS), "m": pick(NUMBERS)}
    words, code = program.words.format(**numbers), program.code.format(**numbers)
    parameters = program.parameters.split(", ")
    tests = []
    for values in program.arguments:
        value = eval(code, {}, dict(zip(parameters, values, strict=True)))
        tests.append(f"assert {name}({', '.join(map(repr, values))}) == {value!r}")
    text = f"Write a function {name}({program.parameters}) that returns {words}."
    return CodeRequest(text, name, f"def {name}({program.parameters}):\n    return {code}", tuple(tests))


class AssistantCorpus:
    """Draws training documents; the same seed gives the same documents."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"{seed} assistant")
        self.writers: dict[str, Callable[[], Document]] = {
            "tools": self._tools,
            "conversation": self._conversation,
            "code": self._code,
        }
        slots = {word for values in SLOTS.values() for word in values} | {
            word for fact in FACTS for word in fact.values
        }
        names = {name for one in FUNCTIONS for name in (one.name, *one.parameters)} | set(FUNCTION_NAMES)
        taught = sorted(word for word in slots | names if not is_untaught(word))
        self.words = [*taught, *(f'"{word}"' for word in taught)]

    def document(self, progress: float) -> Document:
        """Return one document of a kind drawn at random."""
        return self.writers[self.rng.choice(("tools", "tools", "conversation", "code"))]()

    def _pick(self, values: Sequence[str]) -> str:
        return self.rng.choice([value for value in values if not is_untaught(value)])

    def _tools(self) -> Document:
        while is_test((request := tool_request(self.rng, lambda slot: self._pick(SLOTS[slot]))).text):
            pass
        doc = Document()
        lines = "".join(f"{one.name}({', '.join(one.parameters)})\n" for one in request.functions)
        doc.add(f"<|tools|>{lines}<|user|>{request.text}<|assistant|>")
        doc.answer(request.reply)
        return doc

    def _conversation(self) -> Document:
        while is_test((talk := conversation(self.rng, self._pick)).key):
            pass
        doc = Document()
        if talk.system is not None:
            doc.add(f"<|system|>{talk.system}")
        for number, (told, said) in enumerate(talk.turns):
            doc.add(f"<|user|>{told}<|assistant|>")
            doc.answer(said + (END if number + 1 < len(talk.turns) else ""))
        return doc

    def _code(self) -> Document:
        while is_test((request := code_request(self.rng, self._pick)).text):
            pass
        doc = Document()
        doc.add(f"<|user|>{request.text}<|assistant|>")
        doc.answer(request.reply)
        return doc


def _distinct(make: Callable[[], Any], key: Callable[[Any], str], count: int) -> list[Any]:
    found: dict[str, Any] = {}
    while len(found) < count:
        one = make()
        if is_test(key(one)):
            found.setdefault(key(one), one)
    return list(found.values())


def tool_rows(rng: random.Random, count: int) -> list[Row]:
    """Return rows of the suite of tool calls, one in eight of which is small talk."""
    requests = _distinct(lambda: tool_request(rng, lambda slot: rng.choice(SLOTS[slot])), lambda one: one.text, count)
    rows = []
    for request in requests:
        calls = [{name: dict(values)} for name, values in request.calls]
        functions = [one.schema() for one in request.functions]
        rows.append({"question": request.text, "functions": functions, "calls": calls})
    return rows


def conversation_rows(rng: random.Random, count: int, *, in_one_word: bool) -> list[Row]:
    """Return rows of one of the suites of conversations: as messages, or as the turns of the user."""
    talks = _distinct(lambda: conversation(rng, rng.choice), lambda one: one.key, 4 * count)
    rows: list[Row] = []
    for talk in talks:
        if (talk.system is not None) != in_one_word or len(rows) == count:
            continue
        *told, (question, _) = talk.turns
        if not in_one_word:
            rows.append({"turns": [*(text for text, _ in told), question], "answer": talk.answer})
            continue
        messages: list[Message] = [{"role": "system", "content": IN_ONE_WORD}]
        for text, said in told:
            messages += [{"role": "user", "content": text}, {"role": "assistant", "content": said}]
        rows.append({"messages": [*messages, {"role": "user", "content": question}], "answer": talk.answer})
    return rows


def code_rows(rng: random.Random, count: int) -> list[Row]:
    """Return rows of the suite of programs."""
    requests = _distinct(lambda: code_request(rng, rng.choice), lambda one: one.text, count)
    return [{"question": one.text, "tests": list(one.tests), "solution": one.code} for one in requests]


def rows() -> dict[str, list[Row]]:
    """Return the rows of every suite, the same each time."""

    def rng(name: str) -> random.Random:
        return random.Random(f"{SEED} assistant {name}")

    return {
        "tools": tool_rows(rng("tools"), NUM_ROWS),
        "messages": conversation_rows(rng("messages"), NUM_ROWS, in_one_word=True),
        "turns": conversation_rows(rng("turns"), NUM_ROWS, in_one_word=False),
        "code": code_rows(rng("code"), NUM_ROWS),
    }


@cache
def held_out() -> frozenset[str]:
    """Return the requests of the suites, which no training document may hold: for conversations, all that is told."""
    own = rows()
    texts = {row["question"] for name in ("tools", "code") for row in own[name]}
    told = [row["turns"][:-1] for row in own["turns"]]
    told += [[one["content"] for one in row["messages"] if one["role"] == "user"][:-1] for row in own["messages"]]
    return frozenset(texts | {" ".join(one) for one in told})


def check(documents: Iterable[Document]) -> None:
    """Raise ``ValueError`` for a training document that asks what a suite asks."""
    for document in documents:
        asked = _ASKED.findall(document.text)
        found = asked[0] if len(asked) == 1 else " ".join(asked[:-1])
        if found in held_out():
            raise ValueError(f"a request of a suite occurs in the training text: {found!r}")
