"""Which items a suite gives, and how they are selected."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_llmeval.text.names import escape_id, unescape_id
from tests.plugin.suites_for_tests import CAPITALS, SUMS
from tests.support import FAKE_MODEL_CONFTEST, model_calls


def test_collect_only_lists_samples_and_loads_no_model(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("--collect-only", "-q", "capitals.yaml")
    assert result.ret == 0
    assert result.outlines[:3] == ["capitals.yaml::q1", "capitals.yaml::q2", "capitals.yaml::q3"]
    assert model_calls(llm_pytester.path) == []


def test_collect_only_needs_no_model(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("--collect-only", "capitals.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*<SuiteFile capitals.yaml>", "*<SampleItem q1>"])


def test_one_sample_by_its_id(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest(*workers, "-v", "capitals.yaml::q2")
    result.stdout.fnmatch_lines(["*capitals.yaml::q2*"])
    result.stdout.no_fnmatch_line("*capitals.yaml::q1*")


def test_two_samples_of_one_suite_by_their_ids(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("--collect-only", "-q", "capitals.yaml::q1", "capitals.yaml::q3")
    assert result.outlines[:2] == ["capitals.yaml::q1", "capitals.yaml::q3"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [(("-k", "q1 or q3"), ["q1", "q3"]), (("-m", "europe and not slow"), ["q1", "q2", "q3"]), (("-m", "slow"), [])],
)
def test_k_and_m_select(llm_pytester: pytest.Pytester, expression: tuple[str, str], expected: list[str]) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS + "tags: [europe]\n")
    result = llm_pytester.runpytest("--collect-only", "-q", *expression, "capitals.yaml")
    assert [line.split("::")[1] for line in result.outlines if "::" in line] == expected


@pytest.mark.parametrize(
    "sample_id",
    ["a::b", "list[0]", "two words", "🙂", "7", "50%", "a/b", "x:::y", "tab", "é@b.c", "-k", "1.5", "back\\slash"],
)
def test_ids_of_all_kinds_run_and_can_be_selected(llm_pytester: pytest.Pytester, sample_id: str) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    samples = [{"id": one, "question": "1 + 1", "target": 2} for one in (sample_id, "other")]
    llm_pytester.makefile(
        ".yaml", ids=f"suite: ids\nscore: number\nsamples: {json.dumps(samples, ensure_ascii=False)}\n"
    )
    result = llm_pytester.runpytest("--llm-report=out.json", "ids.yaml::" + escape_id(sample_id))
    assert result.ret == 0
    report = json.loads((llm_pytester.path / "out.json").read_text())
    assert [record["id"] for record in report["records"]] == [sample_id]
    again = llm_pytester.runpytest("--lf", "ids.yaml")
    again.stdout.fnmatch_lines(["*1 wrong*"])


@given(st.text(min_size=1))
def test_escaped_ids_are_reversible_and_safe(sample_id: str) -> None:
    name = escape_id(sample_id)
    assert unescape_id(name) == unicodedata.normalize("NFC", sample_id)
    assert "::" not in name
    assert not set("[]\n\r\t\0") & set(name)
    name.encode()


def test_two_suites_of_one_name(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", one=CAPITALS, two=CAPITALS)
    result = llm_pytester.runpytest(*workers, "one.yaml", "two.yaml")
    assert result.ret != 0
    result.stdout.fnmatch_lines(["*two.yaml:1: suite: 'capitals' is also the name of one.yaml: rename one of them"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_a_tag_is_a_mark_without_a_warning(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST)
    llm_pytester.makefile(".yaml", capitals=CAPITALS + "tags: [europe]\n")
    result = llm_pytester.runpytest(*workers, "-W", "error", "capitals.yaml")
    assert result.ret == 0


@pytest.mark.parametrize(
    ("tag", "options", "message"),
    [
        (
            "europe",
            ["--strict-markers"],
            "'europe' is not among the registered markers, and --strict-markers is on",
        ),
        ("skip", [], "'skip' is the name of a mark that already has a meaning"),
        ("llm_suite", [], "'llm_suite' is the name of a mark that already has a meaning"),
    ],
)
def test_tags_that_are_refused(llm_pytester: pytest.Pytester, tag: str, options: list[str], message: str) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS + f"tags: [{tag}]\n")
    result = llm_pytester.runpytest_subprocess("--collect-only", *options, "capitals.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines([f"capitals.yaml:9: tags.0: {message}*"])


def test_a_registered_tag_under_strict_markers(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeini("[pytest]\nmarkers = europe: suites about Europe")
    llm_pytester.makefile(".yaml", capitals=CAPITALS + "tags: [europe]\n")
    assert llm_pytester.runpytest("--collect-only", "--strict-markers", "capitals.yaml").ret == 0


def test_a_named_file_that_is_no_suite(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", values="image: nginx\n")
    result = llm_pytester.runpytest("values.yaml")
    assert result.ret == 2
    result.stdout.fnmatch_lines(["*values.yaml: not a suite: its first key must be `suite`*"])


def test_a_walked_file_that_is_no_suite_is_left_alone(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", values="image: nginx\n", chart="suite: a helm test\ntemplates: [x]\n")
    assert llm_pytester.runpytest().ret == 5


def test_autouse_fixtures_of_every_scope(llm_pytester: pytest.Pytester) -> None:
    scopes = ("session", "package", "module", "class", "function")
    fixtures = "".join(
        f"\n@pytest.fixture(scope='{scope}', autouse=True)\ndef {scope}_one(request):\n    yield\n" for scope in scopes
    )
    llm_pytester.makeconftest(FAKE_MODEL_CONFTEST + fixtures)
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("capitals.yaml")
    assert result.ret == 0


@pytest.mark.parametrize("limit", ["2", "first:2"])
def test_limit(llm_pytester: pytest.Pytester, limit: str) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS, sums=SUMS)
    result = llm_pytester.runpytest("--collect-only", "-q", f"--llm-limit={limit}", ".")
    chosen = [line for line in result.outlines if "::" in line]
    assert len(chosen) == 4
    result.stdout.fnmatch_lines(["*4/7 tests collected (3 deselected)*"])
    if limit.startswith("first"):
        assert chosen == ["capitals.yaml::q1", "capitals.yaml::q2", "sums.yaml::s1", "sums.yaml::s2"]


def test_limit_draws_the_same_samples_whatever_the_order(llm_pytester: pytest.Pytester) -> None:
    rows = [{"id": f"r{number}", "question": f"{number} + 1", "target": number + 1} for number in range(50)]
    header = "suite: many\nscore: number\nsamples: "
    drawn = []
    for order in (rows, rows[::-1]):
        llm_pytester.makefile(".yaml", many=header + json.dumps(order))
        result = llm_pytester.runpytest("--collect-only", "-q", "--llm-limit=5", "many.yaml")
        drawn.append(sorted(line for line in result.outlines if "::" in line))
    assert drawn[0] == drawn[1]
    assert len(drawn[0]) == 5
    assert drawn[0] != [f"many.yaml::r{number}" for number in range(5)]


def test_a_limit_draws_others_with_another_seed(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    rows = [{"id": f"r{number}", "question": f"{number} + 1", "target": number + 1} for number in range(50)]
    llm_pytester.makefile(".yaml", many="suite: many\nscore: number\nsamples: " + json.dumps(rows))
    drawn = []
    for limit in ("5", "5:seed=0", "5:seed=2", "5:seed=2"):
        result = llm_pytester.runpytest(
            *workers, f"--llm-limit={limit}", "--llm-model=random", "--llm-report=out.json", "many.yaml"
        )
        assert result.ret == 0
        report = json.loads((llm_pytester.path / "out.json").read_text(encoding="ascii"))
        drawn.append({record["id"] for record in report["records"]})
    assert drawn[0] == drawn[1]
    assert drawn[2] == drawn[3]
    assert len(drawn[0]) == len(drawn[2]) == 5
    assert drawn[0] != drawn[2]
    assert "--llm-limit 5:seed=2" in json.dumps(report)


def test_limit_applies_to_what_the_other_selections_left(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", capitals=CAPITALS)
    result = llm_pytester.runpytest("--collect-only", "-q", "-k", "q3", "--llm-limit=1", "capitals.yaml")
    assert result.outlines[0] == "capitals.yaml::q3"


@pytest.mark.filterwarnings("default")
def test_equal_options_are_reported_once(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """A warning, for published data have some; by several workers it is told once."""
    rows = "".join(
        f"  - {{id: q{place}, question: Q, choices: {options}, target: 0}}\n"
        for place, options in enumerate(("[one, two]", "[one, two, 'two ']", "[x, x, y]"))
    ).replace("q2, question: Q, choices: [x, x, y], target: 0", "q2, question: Q, choices: [x, x, y], target: 2")
    llm_pytester.makefile(".yaml", equal=f"suite: equal\nscore: choice\nsamples:\n{rows}")
    result = llm_pytester.runpytest(*workers, "--llm-model=random", "equal.yaml")
    message = (
        "equal: sample 'q1' (equal.yaml:5) has the option 'two' 2 times, and another sample has equal options too: no "
        "answer can tell them apart"
    )
    assert result.stdout.str().count(message) == 1
    assert result.ret == 0


@pytest.mark.parametrize(
    ("score", "message"),
    [
        ("choice", "warned: sample '1' (warned.yaml:3) has the option *: no answer can tell them apart"),
        ("bleu", "warned.yaml:2: score: references are in Chinese*"),
    ],
    ids=["equal options", "script"],
)
def test_warnings_of_a_suite_that_are_made_errors(
    llm_pytester: pytest.Pytester, workers: list[str], score: str, message: str
) -> None:
    """All workers must collect the same, and a line says what is wrong: the suite's error, not the folder's."""
    text = "猫坐在垫子上睡了一整天"
    rows = f"samples: [{{question: Q, choices: [{text}, {text}], target: {text if score == 'bleu' else 0}}}]\n"
    llm_pytester.makefile(".yaml", warned=f"suite: warned\nscore: {score}\n{rows}")
    llm_pytester.makepyfile("def test_own(): pass")
    options = ["-W", "error", "--continue-on-collection-errors", "--llm-model=random"]
    result = llm_pytester.runpytest(*workers, *options, ".")
    result.assert_outcomes(passed=1, errors=1)
    text = result.stdout.str()
    result.stdout.fnmatch_lines([message])
    assert "Different tests were collected" not in text
    assert "Traceback" not in text
    assert "suite_nodes.py" not in text


def test_equal_options_of_a_sample_of_which_only_a_reply_counts(llm_pytester: pytest.Pytester) -> None:
    text = "suite: s\nscore: exact\nsamples: [{question: Q, choices: [x, x], target: x}]\n"
    llm_pytester.makefile(".yaml", s=text)
    result = llm_pytester.runpytest("-p", "no:xdist", "--llm-model=random", "s.yaml")
    result.stdout.no_fnmatch_line("*has the option*")


def test_a_suite_whose_key_is_not_first_is_reported_of(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """It is found in a folder, and would be passed over in silence. Files of others are."""
    folder = llm_pytester.mkdir("suites")
    (folder / "late.yaml").write_text("description: d\nsuite: late\nscore: exact\nsamples: []\n")
    (folder / "helm.yaml").write_text("name: x\nsuite: s\ntemplates: []\ntests: []\n")
    (folder / "ok.yaml").write_text("suite: ok\nscore: exact\nsamples: [{question: q, target: t}]\n")
    result = llm_pytester.runpytest(*workers, "--llm-model=random", "suites")
    message = "suites/late.yaml:2: not collected as a suite: `suite` is not the first key; move it to the top"
    assert result.stdout.str().count(message) == 1
    assert "helm.yaml" not in result.stdout.str()
    assert result.ret == 0


def test_a_suite_whose_key_is_not_first_breaks_no_session_in_which_warnings_are_errors(
    llm_pytester: pytest.Pytester, workers: list[str]
) -> None:
    """The plugin needs only to be installed for this: the folder's own tests are none of its business."""
    (llm_pytester.mkdir("tests") / "late.yaml").write_text("description: d\nsuite: late\nscore: exact\nsamples: []\n")
    (llm_pytester.path / "tests" / "test_own.py").write_text("def test_own(): pass\n")
    llm_pytester.makeini("[pytest]\nfilterwarnings = error\n")
    result = llm_pytester.runpytest(*workers, "-W", "error")
    result.assert_outcomes(passed=1, warnings=1)
    assert result.ret == 0
    message = "PytestCollectionWarning: tests/late.yaml:2: not collected as a suite: `suite` is not the first key;"
    assert result.stdout.str().count(message) == 1


def test_a_suite_whose_key_is_not_first_is_not_told_of_where_that_is_ignored(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", late="description: d\nsuite: late\nscore: exact\nsamples: []\n")
    result = llm_pytester.runpytest("-p", "no:xdist", "-W", "ignore::pytest.PytestCollectionWarning")
    result.stdout.no_fnmatch_line("*late.yaml*")


def test_presets_of_other_programs_are_left_alone(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makefile(".yaml", config="description: nightly\npreset: fast\nsuite: smoke\n")
    result = llm_pytester.runpytest("-p", "no:xdist")
    result.stdout.no_fnmatch_line("*config.yaml*")


EQUAL = "all 2 prompts are equal: the template uses no column"
TWO = "samples: [{question: a, target: b, choices: [b, c]}, {question: c, target: b, choices: [b, d]}]\n"


@pytest.mark.parametrize(
    ("suite", "is_warned"),
    [
        (f"score: exact\nprompt: {{template: 'Answer:'}}\n{TWO}", True),
        (f"score: exact\nprompt: {{template: 'Answer:', system: '{{{{ question }}}}'}}\n{TWO}", False),
        (f"score: choice\nprompt: {{template: ''}}\n{TWO}", False),
        (f"score: exact\nprompt: {{template: '{{{{ question }}}}'}}\n{TWO}", False),
        ("score: exact\nprompt: {template: 'Name a colour.'}\nsamples: [{target: red}]\n", False),
        (
            "score: exact\nprompt: {template: Go}\nsamples: [{target: a, response: a}, {target: a, response: b}]\n",
            False,
        ),
    ],
    ids=["no column", "in the system text", "other options", "a column", "one sample", "replies in the data"],
)
@pytest.mark.filterwarnings("default")
def test_a_template_that_asks_the_same_of_all_samples(
    llm_pytester: pytest.Pytester, suite: str, is_warned: bool
) -> None:
    llm_pytester.makefile(".yaml", s=f"suite: s\n{suite}")
    result = llm_pytester.runpytest("-p", "no:xdist", "--collect-only", "s.yaml")
    assert result.ret == 0
    assert result.stdout.str().count(f"s.yaml:3: prompt.template: {EQUAL}") == is_warned
    assert (EQUAL in result.stdout.str()) == is_warned


@pytest.mark.parametrize("key", ["template", "system"])
def test_a_prompt_that_names_a_file(llm_pytester: pytest.Pytester, key: str) -> None:
    llm_pytester.makefile(".yaml", s=f"suite: s\nscore: exact\nprompt: {{{key}: 'file://prompt.txt'}}\n{TWO}")
    result = llm_pytester.runpytest("-p", "no:xdist", "--collect-only", "s.yaml")
    expected = "expected the text itself: a template stands in the suite file"
    result.stdout.fnmatch_lines([f"s.yaml:3: prompt.{key}: found 'file://prompt.txt', {expected}"])
