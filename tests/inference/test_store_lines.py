"""What is kept of a reply, and under which key."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pytest_llmeval.inference.dispatch import kind_of
from pytest_llmeval.inference.stored_lines import (
    AUDIT,
    Line,
    StoredRequest,
    decode_line,
    encode_line,
    fingerprint_of,
    read_head,
)
from pytest_llmeval.models.generate_spec import GenerateSpec
from pytest_llmeval.types import (
    EmbeddingRequest,
    EmbeddingResponse,
    EngineUse,
    GenerateRequest,
    GenerateResponse,
    LoglikelihoodRequest,
    LoglikelihoodResponse,
    LoglikelihoodRollingRequest,
    Message,
    ModelIdentity,
    ToolCall,
)
from tests.properties import examples

texts = st.text(st.characters(), max_size=20)  # lone surrogates too
messages = st.builds(Message, role=st.sampled_from(("system", "user", "assistant")), content=texts)
prompts = st.one_of(texts, st.lists(messages, min_size=1, max_size=3).map(tuple))
counts = st.integers(0, 10**9)
finite = st.floats(allow_nan=False, allow_infinity=False)
of_kind: dict[type, st.SearchStrategy[Any]] = {
    LoglikelihoodRequest: st.builds(LoglikelihoodRequest, prompts, texts),
    LoglikelihoodRollingRequest: st.builds(LoglikelihoodRollingRequest, texts, st.none() | counts),
    GenerateRequest: st.builds(
        GenerateRequest,
        prompts,
        max_tokens=counts,
        stop=st.lists(texts, max_size=2).map(tuple),
        temperature=finite,
        seed=st.integers(),
        top_p=finite,
        epoch=counts,
    ),
    EmbeddingRequest: st.builds(EmbeddingRequest, texts),
}
requests = st.one_of(*of_kind.values())
arguments = st.none() | st.dictionaries(texts, st.none() | finite | texts, max_size=2)
calls = st.builds(ToolCall, name=texts, arguments=arguments, text=texts)
replies = st.one_of(
    st.builds(LoglikelihoodResponse, loglikelihood=finite, num_tokens=counts, is_greedy=st.none() | st.booleans()),
    st.builds(GenerateResponse, text=texts, num_tokens=counts, seconds=finite, prefill_seconds=st.none() | finite),
    st.builds(GenerateResponse, text=texts, tool_calls=st.none() | st.lists(calls, max_size=2).map(tuple)),
    st.builds(EmbeddingResponse, vector=st.lists(finite, min_size=1, max_size=4).map(tuple), num_prompt_tokens=counts),
)
fingerprints = st.sampled_from(("a" * 64, "b" * 64))


def line_of(request: Any, reply: Any, model: str = "a" * 64, time: float = 1.7e9) -> Line:
    return Line(request=StoredRequest(model, request), name="gpt", time=time, session="a" * 16, reply=reply)


def is_kept(request: object, reply: object) -> bool:
    return kind_of(request).is_whole(request, reply)


def fitting_reply(request: object, reply: object) -> bool:
    return kind_of(request).response is type(reply)


@given(requests, requests, fingerprints, fingerprints)
def test_equal_questions_have_one_key_and_others_have_others(one: Any, other: Any, model: str, second: str) -> None:
    is_same = type(one) is type(other) and one == other and model == second
    assert (StoredRequest(model, one).key == StoredRequest(second, other).key) == is_same


@given(requests, st.data())
def test_every_field_of_a_request_is_in_its_key(request: Any, data: st.DataObject) -> None:
    other = data.draw(of_kind[type(request)])
    name = data.draw(st.sampled_from([field.name for field in fields(request)]))
    changed = replace(request, **{name: getattr(other, name)})
    assume(changed != request)
    assert StoredRequest("m", changed).key != StoredRequest("m", request).key


def test_a_whole_number_in_the_place_of_a_float_is_the_same_question() -> None:
    assert (
        StoredRequest("m", GenerateRequest("q", temperature=1)).key
        == StoredRequest("m", GenerateRequest("q", temperature=1.0)).key
    )


@given(requests, replies, fingerprints)
def test_a_line_gives_back_what_it_was_made_of(request: Any, reply: Any, model: str) -> None:
    assume(fitting_reply(request, reply))
    line = line_of(request, reply, model)
    data = encode_line(line)
    assert data.isascii()
    assert data.count(b"\n") == 1
    assert json.loads(data)["key"] == line.request.key
    found = decode_line(data)
    assert found.reply == reply
    assert (found.request.key, found.request.text) == (line.request.key, line.request.text)
    assert (found.name, found.time) == ("gpt", line.time)


@given(st.lists(finite, min_size=1))
def test_a_vector_comes_back_bit_for_bit(vector: list[float]) -> None:
    """Also the sign of zero, which equality does not see."""
    line = line_of(EmbeddingRequest("text"), EmbeddingResponse(vector=tuple(vector)))
    found: Any = decode_line(encode_line(line)).reply
    assert type(found.vector) is tuple
    assert [number.hex() for number in found.vector] == [number.hex() for number in vector]


@pytest.mark.parametrize("vector", [5, None])
def test_a_vector_that_is_no_list_is_no_reply(vector: Any) -> None:
    line = line_of(EmbeddingRequest("text"), EmbeddingResponse(vector=vector))
    with pytest.raises(ValueError, match="it has not the parts of a reply"):
        decode_line(encode_line(line))


@settings(max_examples=examples(60))
@given(requests, replies, st.data())
def test_a_line_that_is_cut_or_changed_is_not_read(request: Any, reply: Any, data: st.DataObject) -> None:
    assume(fitting_reply(request, reply))
    line = line_of(request, reply)
    whole = encode_line(line)
    cut = data.draw(st.integers(0, len(whole) - 1))
    place, bit = data.draw(st.integers(0, len(whole) - 1)), data.draw(st.sampled_from([1 << n for n in range(8)]))
    changed = bytearray(whole)
    changed[place] ^= bit
    for damaged in (whole[:cut], bytes(changed)):
        if damaged[18:] == whole[18:] and damaged[8:16] == whole[8:16]:
            continue  # a brace or the checksum's name
        assert read_head(damaged) is None
        with pytest.raises(ValueError, match="it"):
            decode_line(damaged)


def test_a_request_under_a_key_that_is_not_its_own_is_refused() -> None:
    asked, other = (StoredRequest("m" * 64, GenerateRequest(text)) for text in ("one", "two"))
    asked.text = other.text
    line = Line(request=asked, name="n", time=1.7e9, session="a" * 16, reply=GenerateResponse(text="1"))
    with pytest.raises(ValueError, match="not that of its request"):
        decode_line(encode_line(line))


@pytest.mark.parametrize("request_text", ['"q"', '{"kind":"sing"}', "{}", '{"kind":"generate","prompt":[[[]]]}'])
def test_a_request_of_another_version_is_refused(request_text: str) -> None:
    request = StoredRequest("m" * 64, GenerateRequest("q"))
    request.text = request_text
    line = Line(request=request, name="n", time=1.7e9, session="a" * 16, reply=GenerateResponse(text="1"))
    with pytest.raises(ValueError, match="it"):
        decode_line(encode_line(line))


@pytest.mark.parametrize("time", [-5.0, 0.0, 1e9, 1e11])
def test_times_beyond_all_clocks_are_moved(time: float) -> None:
    data = encode_line(line_of(GenerateRequest("q"), GenerateResponse(text="a"), time=time))
    assert 1e9 <= decode_line(data).time < 1e10


def test_an_audit_is_kept_like_a_reply() -> None:
    def audit(*keys: str) -> dict[str, Any]:
        return {"kind": AUDIT, "keys": keys}

    use = EngineUse(engine="tree", reason="full attention", num_audited=3, largest_difference=1e-6, tolerance=1e-4)
    line = line_of(audit("k1", "k2"), use)
    assert decode_line(encode_line(line)).reply == use
    assert StoredRequest("m", audit("k1")).key != StoredRequest("m", audit("k2")).key


IDENTITY = ModelIdentity(
    name="gpt",
    backend="huggingface",
    revision="r",
    dtype="float32",
    device="cuda:0",
    fingerprint="w",
    details={"torch": "2.9", "urls": ["http://one/v1"], "self_test": {"largest_difference": 1e-6}},
)


@pytest.mark.parametrize(
    "changed",
    [
        {"backend": "server"},
        {"revision": "s"},
        {"dtype": "bfloat16"},
        {"device": "cpu"},
        {"fingerprint": "v"},
        {"fingerprint": None},
        {"details": {"torch": "2.10"}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_what_makes_another_model(changed: dict[str, Any]) -> None:
    assert fingerprint_of(replace(IDENTITY, **changed)) != fingerprint_of(IDENTITY)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "./a/copy"},
        {"device": "cuda:3"},
        {"details": {"torch": "2.9", "urls": ["http://two/v1"]}},
        {"details": {"torch": "2.9", "known_by_content": True}},  # which stores that are older do not know
    ],
    ids=["name", "number of the device", "place of the server", "that it is known"],
)
def test_what_makes_no_other_model(changed: dict[str, Any]) -> None:
    assert fingerprint_of(replace(IDENTITY, **changed)) == fingerprint_of(IDENTITY)


@pytest.mark.parametrize("changed", [{"name": "other"}, {"details": {"torch": "2.9", "urls": ["http://two/v1"]}}])
def test_a_model_without_a_fingerprint_is_known_by_its_name_and_place(changed: dict[str, Any]) -> None:
    unknown = replace(IDENTITY, fingerprint=None)
    assert fingerprint_of(replace(unknown, **changed)) != fingerprint_of(unknown)


@pytest.mark.parametrize(
    ("num_tokens", "finish_reason", "is_whole"),
    [(8, "length", True), (7, "length", False), (0, "length", False), (3, "stop", True), (9, "length", True)],
)
def test_a_text_that_ended_before_its_limit_is_cut(num_tokens: int, finish_reason: Any, is_whole: bool) -> None:
    reply = GenerateResponse(text="a", finish_reason=finish_reason, num_tokens=num_tokens)
    assert is_kept(GenerateRequest("q", max_tokens=8), reply) == is_whole


@pytest.mark.parametrize("number", [math.nan, -math.inf])
def test_a_loglikelihood_that_is_no_number_is_not_kept(number: float) -> None:
    reply = LoglikelihoodResponse(loglikelihood=number, num_tokens=1)
    assert not is_kept(LoglikelihoodRequest("a", "b"), reply)
    with pytest.raises(ValueError, match="JSON"):
        encode_line(line_of(LoglikelihoodRequest("a", "b"), reply))


def test_the_time_of_asking_is_the_lines_own() -> None:
    data = encode_line(line_of(GenerateRequest("q"), GenerateResponse(text="a", asked_at=5.0)))
    assert "asked_at" not in json.loads(data)["reply"]
    assert asdict(decode_line(data).reply)["asked_at"] is None


def test_a_reply_that_is_a_text_and_no_more_is_kept_as_ever() -> None:
    """Fields that came later stand in a line where they say something."""
    plain = json.loads(encode_line(line_of(GenerateRequest("q"), GenerateResponse(text="a"))))["reply"]
    later = {"contexts": ("c",), "documents": (("d", 0.5),), "has_text": False, "cost": 0.25, "trace": ("step",)}
    assert not later.keys() & plain.keys()
    data = encode_line(line_of(GenerateRequest("q"), GenerateResponse(text="", **later)))  # type: ignore[arg-type]
    assert later.keys() <= json.loads(data)["reply"].keys()


def test_settings_that_came_later_are_in_a_key_where_they_decide_something() -> None:
    plain = GenerateRequest("q")
    assert GenerateSpec(top_k=0, temperature=1).model_dump() == GenerateSpec(temperature=1).model_dump()
    changed = [replace(plain, top_k=5), replace(plain, repetition_penalty=1.2), replace(plain, tools="[{}]")]
    assert len({StoredRequest("m", one).key for one in (plain, *changed)}) == 4
    assert not {"top_k", "repetition_penalty", "tools"} & json.loads(StoredRequest("m", plain).text).keys()
    assert json.loads(StoredRequest("m", changed[0]).text)["top_k"] == 5
