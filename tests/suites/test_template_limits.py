"""What a template would take too much memory or time for is refused before it is made."""

from __future__ import annotations

import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.suites.templates.templates import TemplateError, Templates

ROW = {"x": "abc", "xs": [1, 2, 3], "big": "y" * 100_000, "q": {"stem": "s", "keys": 4}}
TOO_LONG = "it makes a text of more than 10,000,000 characters"
TOO_MANY = "it takes more than 1,000,000 steps; a template prepares one sample"
KINDS = "the filter 'literal' reads lists, mappings, texts and numbers, found a Python {} in {!r}"
REGEX = "the filter 'regex_replace' takes {}"
SLOW = REGEX.format("longer than 1 s in one rendering")
PLACES = "a format takes places such as %s, %d, %.2f and %(name)s, found "
GENERATOR = "it works on a Python generator; write {{ x | list }}"
GROWING = "{% set ns = namespace(a=1) %}{% for i in range(60) %}"

REFUSED = {
    # Values whose order differs from run to run, or that grow unmeasured
    """{{ "{'b', 'a'}" | literal | list }}""": KINDS.format("set", "{'b', 'a'}"),
    """{{ "set()" | literal }}""": KINDS.format("set", "set()"),
    """{{ "[{'a': [{1}]}]" | literal }}""": KINDS.format("set", "[{'a': [{1}]}]"),
    """{{ "[{'b', 'a'}]" | list_or_text }}""": KINDS.format("set", "[{'b', 'a'}]"),
    """{{ ("b'aaaaaaaaaa'" | literal) * 300000000 }}""": KINDS.format("bytes", "b'aaaaaaaaaa'"),
    """{{ "[b'a']" | index_or_text }}""": KINDS.format("bytes", "[b'a']"),
    """{{ "1j" | literal }}""": KINDS.format("complex", "1j"),
    """{{ "..." | literal }}""": KINDS.format("ellipsis", "..."),
    "{{ ({'a': 1}.keys() - []) | list }}": "'-' takes numbers, found a dict_keys",
    "{{ ([] - {'a': 1}.keys()) | list }}": "'-' takes numbers, found an empty list",
    # The measuring functions have no name
    "{{ [[1] * 3] | map('measured loop', -1000000000) | map('list') | list }}": "No filter named 'measured loop'",
    "{{ [[1] * 3] | map('loop', -1000000000) | list }}": "No filter named 'loop'",
    # Formats
    "{{ ('%(a)s' * 400) % {'a': 'x' * 5000000} }}": TOO_LONG,
    "{{ ('%(a)s' * 400) | format(a='x' * 5000000) }}": TOO_LONG,
    "{{ ('%s' * 400) | format(x * 30000, *range(399)) }}": TOO_LONG,
    "{{ '%r' % ('\\x00' * 5000000) }}": TOO_LONG,
    "{{ ('%999.999f' * 100000) % q }}": TOO_LONG,
    "{{ '%.*f' % (10 ** 9, 1) }}": "a format takes widths of at most 999, found '%.*f'",
    "{{ '%(a(b))99999999s' % {'a(b)': 1} }}": PLACES + "'%(a(b))99999999s'",
    "{{ '%(a(%)b)99999999d' % {'a(%)b': 1} }}": PLACES + "'%(a(%)b)99999999d'",
    # Regular expressions
    "{{ (x * 100000) | regex_replace('.+', '\\\\g<0>' * 400) }}": TOO_LONG,
    "{{ (x * 90000) | regex_replace('(?=(.*))', '\\\\1') }}": TOO_LONG,
    "{{ (x * 500000) | regex_replace('.+', '') }}": REGEX.format(
        "a text of at most 1,000,000 characters, found 1,500,000"
    ),
    "{{ x | regex_replace('(a|b)?' * 40000, '') }}": REGEX.format(
        "a pattern of at most 1,000 characters, found 240,000"
    ),
    "{{ x | regex_replace('a', 'b' * 40000) }}": REGEX.format(
        "a replacement of at most 10,000 characters, found 40,000"
    ),
    "{{ x | regex_replace('(?:(?:a{1000}){1000}){1000}', '') }}": REGEX.format(
        "a pattern whose counts in braces multiply to at most 100,000"
    ),
    "{{ x | regex_replace(1, '') }}": REGEX.format("a text as its pattern, found 1 (a whole number)"),
    # JSON and lines
    "{{ ([0] * 100000) | tojson(indent='x' * 20) }}": (
        "the filter 'tojson' takes an indent in spaces, such as 2, found 'xxxxxxxxxxxxxxxxxxxx' (text)"
    ),
    "{{ ([0] * 100000) | tojson(indent=1000) }}": TOO_LONG,
    "{{ [[[[[[0] * 90000]]]]] | tojson(indent=90) }}": TOO_LONG,
    "{{ ('\\r' * 100000) | indent(999) }}": TOO_LONG,
    "{{ ('\\u2028' * 100000) | indent(999) }}": TOO_LONG,
    # Time that the size of a value does not show
    "{{ ([[0, 0]] * 100000) | sum(start=[]) }}": "the filter 'sum' adds numbers, found an empty list",
    "{{ ['a'] | sum }}": "the filter 'sum' adds numbers, found 'a' (text)",
    "{{ ([-1] * 8000) | select('in', range(100000) | list) | list }}": TOO_MANY,
    "{{ ([-1] * 8000) | reject('in', range(100000) | list) | list }}": TOO_MANY,
    "{{ ([1.5] * 8000) | select('in', range(100000)) | list }}": TOO_MANY,
    "{% for i in range(99999) %}{% if 'z' is in(seq=big) %}{% endif %}{% endfor %}": TOO_MANY,
    "{% for i in range(99999) %}{% if 'z' is in(*[big]) %}{% endif %}{% endfor %}": TOO_MANY,
    "{% set r = range(100000) %}{% for i in range(99999) %}{% set y = r | sum %}{% endfor %}": TOO_MANY,
    "{% set t = (range(100000) | list,) %}{% for i in range(99) %}{{ q[t] is defined }}{% endfor %}": TOO_MANY,
    "{{ (big * 50).rfind('ab' ~ big * 10) }}": TOO_MANY,
    "{{ (big * 50).strip(big * 10) }}": TOO_MANY,
    "{{ (big * 50) | trim(big * 10) }}": TOO_MANY,
    "{{ (['a'] * 100000) | map(attribute='0' ~ '.0' * 400) | list }}": TOO_MANY,
    "{{ xs | map(attribute=',' * 9000000) | list }}": "the filter 'map' takes an attribute of at most 1,000 characters",
    "{% for i in range(99) %}{{ ('[' ~ '-' * 90000 ~ ']') | list_or_text | length }}{% endfor %}": TOO_MANY,
    "{% set a = ('0x' ~ 'f' * 90000) | literal %}": "a whole number of more than 10,000 bits",
    "{% set ns = namespace(a=1) %}{% for i in range(10001) %}{% set ns.a = ns.a + ns.a %}{% endfor %}": (
        "'+' gives a number of more than 10,000 bits"
    ),
    # Memory that is never named
    "{{ (big * 20) | title | length }}": TOO_MANY,
    "{{ (big * 20) | wordcount }}": TOO_MANY,
    "{% for i in range(9) %}{% set h %}{% for i in range(99999) %}{{ 'aaaaaaaa' | replace('a', 'aaaaaaaa') "
    "| replace('a', 'aaaaaaaa') | replace('a', 'aaaaaaaa') }}{% endfor %}{% endset %}{% endfor %}": TOO_MANY,
    # What Python writes, or follows, without end
    GROWING + "{% set ns.a = namespace(a=ns.a, b=ns.a) %}{% endfor %}{{ ns.a ~ '' }}": (
        "it works on a Python Namespace, expected data"
    ),
    GROWING + "{% set n = namespace() %}{% set n.a = ns.a %}{% set n.b = ns.a %}{% set ns.a = n %}{% endfor %}"
    "{{ '%s' % ns.a }}": "it works on a Python Namespace, expected data",
    GROWING + "{% set ns.a = cycler(ns.a, ns.a) %}{% endfor %}": "it works on a Python Cycler, expected data",
    "{% set ns = namespace(g=xs) %}{% for i in range(60) %}{% set ns.g = ns.g | map('string') %}{% endfor %}": (
        "more than 50 filters work behind one another; write {{ x | list }}"
    ),
    GROWING + "{% set ns.a = [ns.a] | reverse %}{% endfor %}": GENERATOR,
    # Mistakes
    "{{ x.upper ~ '' }}": "it works on the method upper; call it with ()",
    "{{ xs | map('string') | length }}": (
        "the filter 'length' found a Python generator; write {{ x | list | length }}"
    ),
}


@pytest.mark.parametrize(("source", "message"), REFUSED.items(), ids=[source[:60] for source in REFUSED])
def test_refused(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Templates().text(source, ROW)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "source",
    [
        "{{ ([('a' * 60) ~ '!'] * 60) | map('regex_replace', '(a|aa)+$', 'x') | join }}",
        "{% for i in range(50000) %}{{ 'a' | regex_replace('(a|b)?(c|d)*' * 60 ~ i, '') }}{% endfor %}",
    ],
)
def test_regular_expressions_share_the_time_of_a_rendering(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Templates().text(source, ROW)
    assert str(caught.value) == SLOW


VALUES: dict[str, object] = {
    "{{ \"[(1, 'a'), {'b': None}, -2.5, True]\" | literal }}": [[1, "a"], {"b": None}, -2.5, True],
    "{{ [1, 2.5, true] | sum }}": 4.5,
    "{{ [{'n': 1}, {'n': 2}] | sum('n', 10) }}": 13,
    "{{ '%5.1f|%-4s|%(x)s' % {'x': 1} if false else '%5.1f|%-4s|%%' % (2.25, 'a') }}": "  2.2|a   |%",
    "{{ '%(stem)s %(keys)03d' % q }}": "s 004",
    "{{ '%s and %s' | format('a', xs) }}": "a and [1, 2, 3]",
    "{{ xs | tojson(indent=1) }}": "[\n 1,\n 2,\n 3\n]",
    "{{ xs | map('string') | map('upper') | join }}": "123",
    "{{ xs | select('in', [1, 3]) | reject('gt', 2) | list }}": [1],
    "{{ 'a b  c'.split() }}": ["a", "b", "c"],
    "{{ 'a,b,c'.split(',', 1) }}": ["a", "b,c"],
    "{{ 'a,b,c'.rsplit(',', maxsplit=1) }}": ["a,b", "c"],
    "{{ 'a,b,c'.split(sep=',') }}": ["a", "b", "c"],
    "{{ 7 - 2 - 1.5 }}": 3.5,
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}": "ab",
    "{% set j = joiner('; ') %}{% for y in xs %}{{ j() }}{{ y }}{% endfor %}": "1; 2; 3",
    "{% for y in xs %}{% set k = namespace(z=y) %}{{ k.z }}{{ loop.cycle('a', 'b') }}{% endfor %}": "1a2b3a",
    "{{ q[('a', 1)] is defined }}": False,
    "{{ q.items() | list }}": [["stem", "s"], ["keys", 4]],
}


@pytest.mark.parametrize(("source", "value"), VALUES.items())
def test_what_is_small_is_made(source: str, value: object) -> None:
    made = Templates().value(source, ROW)
    assert made == value
    assert type(made) is type(value)


PLACE = st.from_regex(r"[a-z (]?(%[-0+ ]?[0-9]{0,2}(\.[0-9]{1,2})?[sdrfxeg%]|%\([a-c]\)[srd])", fullmatch=True)
VALUE = st.one_of(st.integers(-(10**9), 10**9), st.floats(allow_nan=False), st.text(max_size=5))


@given(st.lists(PLACE, max_size=4).map("".join), st.one_of(VALUE, st.lists(VALUE, max_size=3).map(tuple)))
def test_a_format_is_pythons(text: str, given_: object) -> None:
    try:
        expected: str | None = text % given_
    except (TypeError, ValueError, OverflowError):
        expected = None
    try:
        made: str | None = Templates().text("{{ t % v }}", {"t": text, "v": given_})
    except TemplateError:
        made = None
    assert made == expected


def test_a_text_that_looks_like_a_program_raises_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Templates().value(r"{{ t | list_or_text }}", {"t": r"['\d']"}) == ["\\d"]
