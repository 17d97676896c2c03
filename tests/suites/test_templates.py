"""What templates can do, and what the sandbox refuses."""

from __future__ import annotations

import json
import warnings

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.templates.templates import TemplateError, Templates

ROW = {
    "x": "abc",
    "xs": [1, 2, 3],
    "none": None,
    "items": "a column",
    "big": "y" * 100_000,
    "q": {"stem": "s", "keys": 4},
}
INTERNALS = "it reaches for Python internals ({}); a template works on the sample's data only"
TOO_LONG = "it makes a text of more than 10,000,000 characters"

KINDS = "the filter 'literal' reads lists, mappings, texts and numbers, found a Python {} in {!r}"

REFUSED = {
    "{{ ''.__class__.__mro__ }}": INTERNALS.format("'__class__' of a str"),
    "{{ x['__class__'] }}": INTERNALS.format("'__class__' of a str"),
    "{{ x | attr('__class__') }}": INTERNALS.format("'__class__' of a str"),
    "{{ xs | map(attribute='__class__') | join }}": INTERNALS.format("'__class__' of a int"),
    "{{ xs | sort(attribute='__class__') }}": INTERNALS.format("'__class__' of a int"),
    "{{ cycler.__init__.__globals__ }}": INTERNALS.format("'__init__' of a type"),
    "{{ dict.mro() }}": INTERNALS.format("'mro' of a type"),
    "{{ x.upper.__self__ }}": INTERNALS.format("'__self__' of a builtin_function_or_method"),
    "{{ self._TemplateReference__context }}": INTERNALS.format("'_TemplateReference__context' of a TemplateReference"),
    "{{ '{0.__class__}'.format(x) }}": "the method 'format' of a str is not available to a suite's templates",
    "{{ '{a}'.format_map(q) }}": "the method 'format_map' of a str is not available to a suite's templates",
    "{{ ('{0.__class__}'['format'])(x) }}": "the method 'format' of a str is not available to a suite's templates",
    "{{ xs.append(4) }}": "the method 'append' of a list is not available to a suite's templates",
    "{{ x.ljust(9) }}": "the method 'ljust' of a str is not available to a suite's templates",
    "{{ (1).to_bytes(9, 'big') }}": "the method 'to_bytes' of a int is not available to a suite's templates",
    "{% include 'x' %}": "line 1 of the template: '{% include %}' is not available to a suite's templates",
    "\n{% import 'os' as os %}": "line 2 of the template: '{% import %}' is not available to a suite's templates",
    "{% macro a() %}{{ a() }}{{ a() }}{% endmacro %}": (
        "line 1 of the template: '{% macro %}' is not available to a suite's templates"
    ),
    "{% for a in xs recursive %}{{ loop(xs) }}{% endfor %}": (
        "line 1 of the template: a recursive loop is not available to a suite's templates"
    ),
    "{{ x | uper }}": "line 1 of the template: there is no filter 'uper'; did you mean 'upper'?",
    "{{ x is lowr }}": "line 1 of the template: there is no test 'lowr'; did you mean 'lower'?",
    "{{ xs | map('uper') | join }}": "No filter named 'uper'",
    "{{ x": "line 1 of the template: unexpected end of template, expected 'end of print statement'",
    "{{ xx }}": "'xx' is undefined; expected one of big, items, none, q, x, xs",
    "{{ lipsum(9) }}": "'lipsum' is undefined; expected one of big, items, none, q, x, xs",
    "{{ bigg }}": "'bigg' is undefined; did you mean 'big'?",
    "{% if bigg %}{% endif %}": "'bigg' is undefined; did you mean 'big'?",
    "{{ q.stme }}": "a mapping has no key 'stme'; did you mean 'stem'?",
    "{{ q['stme'] }}": "a mapping has no key 'stme'; did you mean 'stem'?",
    "{{ xs[7] }}": "a list of 3 has no entry 7",
    "{{ x.stem }}": "'abc' (text) has no entry 'stem'",
    "{{ none }}": "an expression gives null; write {{ x | default('', true) }} where nothing is meant",
    "{{ x.upper }}": "an expression gives the method upper, expected text; call it with ()",
    "{{ q }}": "an expression gives a mapping, expected text; write a key of it, or {{ x | tojson }}",
    "{{ xs }}": "an expression gives a list, expected text; write {{ x | join(', ') }}, or {{ x | tojson }}",
    "{{ xs | map('string') }}": "an expression gives a Python generator, expected text; try {{ x | list }}",
    "{{ 1 / 0 }}": "division by zero (ZeroDivisionError)",
    "{{ 'a' * 10 ** 9 }}": TOO_LONG,
    "{{ 10 ** 9 * 'a' }}": TOO_LONG,
    "{{ [0] * 10 ** 9 }}": "a list of more than 100,000 entries",
    "{{ 2 ** 100000 }}": "'**' gives a number of more than 10,000 bits",
    "{{ 9 ** 9 ** 9 ** 9 ** 9 }}": "'**' gives a number of more than 10,000 bits",
    "{{ (9 ** 2000) * (9 ** 2000) }}": "'*' gives a number of more than 10,000 bits",
    "{{ range(10 ** 9) | join }}": "range() gives at most 100,000 numbers",
    "{{ '%1000000000d' % 1 }}": "a format takes widths of at most 999, found '%1000000000d'",
    "{{ '%*d' | format(10 ** 9, 1) }}": "a format takes widths of at most 999, found '%*d'",
    "{{ x | center(10 ** 9) }}": "the filter 'center' takes at most 1,000, found 1000000000 (a whole number)",
    "{{ xs | batch(10 ** 9, 'a') | list }}": (
        "the filter 'batch' takes at most 1,000, found 1000000000 (a whole number)"
    ),
    "{{ 1.5 | round(10 ** 9, 'ceil') }}": "the filter 'round' takes at most 1,000, found 1000000000 (a whole number)",
    "{{ xs | tojson(indent=10 ** 9) }}": "the filter 'tojson' takes at most 1,000, found 1000000000 (a whole number)",
    "{{ x | random }}": (
        "line 1 of the template: there is no filter 'random'; expected one of abs, attr, batch, capitalize, center, "
        "count, d, default, dictsort, first, float, format, indent, index_or_text, indices, int, items, join, last, "
        "length, list, list_or_text, literal, lower, …"
    ),
    "{% for i in range(200) %}{{ big }}{% endfor %}": TOO_LONG,
    "{{ '%.*f' % (10 ** 9, 1) }}": "a format takes widths of at most 999, found '%.*f'",
    "{{ '%(a(b))99999999s' % {'a(b)': 1} }}": "a format takes widths of at most 999, found '%(a(b))99999999s'",
    "{{ x | regex_replace(1, '') }}": (
        "the filter 'regex_replace' takes a text as its pattern, found 1 (a whole number)"
    ),
    "{{ x | regex_replace('(', '') }}": "the filter 'regex_replace': missing ) at position 1",
    "{{ ('a' * 60 ~ '!') | regex_replace('(a|aa)+$', 'x') }}": "the filter 'regex_replace' takes longer than 1 s",
    """{{ "{'b', 'a'}" | literal | list }}""": KINDS.format("set", "{'b', 'a'}"),
    """{{ "[{'a': [{1}]}]" | literal }}""": KINDS.format("set", "[{'a': [{1}]}]"),
    """{{ "[{'b', 'a'}]" | list_or_text }}""": KINDS.format("set", "[{'b', 'a'}]"),
    """{{ "[b'a']" | index_or_text }}""": KINDS.format("bytes", "[b'a']"),
    """{{ "..." | literal }}""": KINDS.format("ellipsis", "..."),
    "{{ [0] | tojson(indent='x') }}": ("the filter 'tojson' takes an indent in spaces, such as 2, found 'x' (text)"),
    "{{ [q.zzz] | tojson }}": "a mapping has no key 'zzz'; expected one of stem, keys",
    "{{ (xs | map('string')) | tojson }}": (
        "the filter 'tojson' writes data, found a Python generator; try {{ x | list }}"
    ),
    "{{ [[0]] | sum(start=[]) }}": "the filter 'sum' adds numbers, found an empty list",
    "{{ ['a'] | sum }}": "the filter 'sum' adds numbers, found 'a' (text)",
    "{{ x.upper | upper }}": "it works on the method upper; call it with ()",
    "{{ xs | map('string') | length }}": (
        "the filter 'length' found a Python generator; write {{ x | list | length }}"
    ),
    "{{ " + "(" * 5_000 + "1" + ")" * 5_000 + " }}": "the template is nested too deeply",
    "{{ " + "-" * 5_000 + "1 }}": "the template is nested too deeply",
}


@pytest.mark.parametrize(("source", "message"), REFUSED.items(), ids=[source[:60] for source in REFUSED])
def test_refused(source: str, message: str) -> None:
    with pytest.raises(TemplateError) as caught:
        Templates().text(source, ROW)
    assert str(caught.value) == message


@pytest.mark.parametrize("source", [source for source in REFUSED if "__" in source])
def test_internals_are_refused_as_values_too(source: str) -> None:
    with pytest.raises(TemplateError):
        Templates().value(source, ROW)


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
    "{{ xs }}": [1, 2, 3],
    "{{ xs | map('string') }}": ["1", "2", "3"],
    "{{ xs | select('odd') }}": [1, 3],
    "{{ range(3) }}": [0, 1, 2],
    "{{ (1, 2) }}": [1, 2],
    "{{ [1.0, 0.0, 1.0] | indices(1.0) }}": [0, 2],
    "{{ xs | indices(9) }}": [],
    "{{ xs | indices(2, beside=['a', 'b', 'c']) }}": [1],
    "{{ items }}": "a column",
    "{{ q.keys }}": 4,
    "{{ q.items() | list | length }}": 2,
    "{{ q.get('zzz', 'other') }}": "other",
    "{{ 'a' if x == 'b' }}": "",
    "{{ missing | default('d') }}": "d",
    "{{ missing is defined }}": False,
    "{{ q.zzz is defined }}": False,
    "{{ none }}": None,
    "{{ none | default('', true) }}": "",
    "{{ x[1:] }}": "bc",
    "{{ x in 'xabcx' }}": True,
    "{{ x ~ 1 ~ xs[0] }}": "abc11",
    "{{ '%05.1f' % 3.14159 }}": "003.1",
    "{{ '<b> & \"' | tojson }}": '"<b> & \\""',
    "{{ xs | join(', ') }}": "1, 2, 3",
    "{{ ', '.join(['a', 'b']) }}": "a, b",
    "{{ x.split('b') }}": ["a", "c"],
    "{{ '<' ~ x }}": "<abc",
    "{{ 'ABCD'.index('C') }}": 2,
    "{{ {'a': (1, 2)} }}": {"a": [1, 2]},
    "  {{ 1 }}\n": 1,
    "{{ 1 }} ": 1,
    "a {{ 1 }} ": "a 1 ",
    "{{ 1 }}{{ 2 }}": "12",
    "{% set y = 2 %}{{ y }}": "2",
    "text": "text",
}


@pytest.mark.parametrize(("source", "value"), VALUES.items())
def test_values(source: str, value: object) -> None:
    made = Templates().value(source, ROW)
    assert made == value
    assert type(made) is type(value)


TEXTS = [
    "Question: {{ x }}\nAnswer:\n",
    "{% for y in xs -%}\n{{ loop.index }}. {{ y }}\n{% endfor -%}\nAnswer:",
    "{%- if x == 'abc' and xs | length > 2 %} yes {% elif none %} no {% else %} other {% endif -%}",
    "{% with y = xs[0] + 1 %}{{ y }}{% endwith %} {# comment #}",
    "{% for key, value in q | dictsort %}{{ key }}={{ value }};{% endfor %}",
    "{% for y in xs %}{{ y }}{{ ', ' if not loop.last }}{% endfor %}",
    "{% set ns = namespace(n=0) %}{% for y in xs %}{% set ns.n = ns.n + y * 2 %}{% endfor %}{{ ns.n }}",
    "{% filter upper %}{{ x }}{% endfilter %}{% raw %}{{ x }}{% endraw %}",
    "{{ x | title | truncate(2, true, '') }}{{ 7.0 / 2 }}{{ 7 // 2 }}{{ 2 ** 8 }}{{ true }}",
]


@pytest.mark.parametrize("source", TEXTS)
def test_text_is_what_plain_jinja2_renders(source: str) -> None:
    plain = jinja2.Environment(keep_trailing_newline=True).from_string(source)
    assert Templates().text(source, ROW) == plain.render(ROW)


def test_rendering_changes_no_data() -> None:
    before = json.dumps(ROW)
    templates = Templates()
    for source in [
        *VALUES,
        *TEXTS,
        "{{ [1] + xs }}",
        "{{ xs | sort(reverse=true) }}",
        "{% set x = 2 %}{% set q = x %}",
    ]:
        templates.value(source, ROW)
    for source in ["{{ xs.append(4) }}", "{{ q.update(a=1) }}", "{% set q.stem = 1 %}"]:
        with pytest.raises(TemplateError):
            templates.value(source, ROW)
    assert json.dumps(ROW) == before


def test_suites_share_compiled_templates_and_no_settings() -> None:
    source = "{{ f | join }}"
    first = Templates()
    assert first.text(source, {"f": "ab"}) == "ab"
    with pytest.raises(TemplateError):
        Templates().text(source, {"f": None})
    assert first.text(source, {"f": ["a", 1]}) == "a1"
    # python_values changes what a template shows, not how it is compiled
    assert Templates(python_values=True).text("{{ f }}", {"f": [1]}) == "[1]"
    with pytest.raises(TemplateError, match="gives a list"):
        Templates().text("{{ f }}", {"f": [1]})


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
