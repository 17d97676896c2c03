"""Benchmarks that are classes: which are collected, their marks, their mistakes, and replies that their rows carry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest

HEAD = "import pytest\nfrom pytest_llmeval import Benchmark\n"
ROWS = "return [{'id': 'a', 'question': 'Q1', 'target': 'one'}, {'id': 'b', 'question': 'Q2', 'target': 'two'}]"
OWN_REPLIES = HEAD + (
    "class Own(Benchmark):\n"
    "    def load(self):\n"
    "        return [{'question': 'Q1', 'target': 'one', 'response': 'one'},"
    " {'question': 'Q2', 'target': 'two', 'response': 'x'}]\n"
)


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Q1": "one"}, default_reply="x"))
    return llm_pytester


def write(project: pytest.Pytester, body: str, name: str = "test_a.py") -> None:
    (project.path / name).write_text(HEAD + body.replace("ROWS", ROWS), encoding="utf-8")


def fingerprint(project: pytest.Pytester, *arguments: str) -> str:
    project.runpytest("--llm-report=out.json", *arguments)
    return str(json.loads((project.path / "out.json").read_text())["suites"][0]["fingerprint"])


def test_collected_once_under_its_own_name(project: pytest.Pytester, workers: list[str]) -> None:
    write(
        project,
        """
from pytest_llmeval import Benchmark as Suite
if True:
    class Cond(Benchmark):
        def load(self):
            ROWS
Alias = Other = Cond
class Mine(Suite):
    def load(self):
        ROWS
class Later(Mine): pass
class Not(Benchmark):
    __test__ = False
    def load(self):
        raise RuntimeError
""",
    )
    result = project.runpytest(*workers, "-v", "test_a.py")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*= 3 passed, 3 wrong in *"])
    assert "Alias" not in result.stdout.str()


@pytest.mark.parametrize(
    "body",
    [
        "from house import House\nclass Mine(House): pass\n",
        "import house, pytest_llmeval\nMine = type('Mine', (pytest_llmeval.Benchmark,), "
        "{'load': house.House.load, '__module__': __name__})\n",
    ],
    ids=["a base from elsewhere", "made by a call"],
)
def test_a_benchmark_is_one_whatever_its_file_looks_like(
    project: pytest.Pytester, workers: list[str], body: str
) -> None:
    """Neither the name of a base nor the text of the file has to show it."""
    write(project, "class House(Benchmark):\n    def load(self):\n        ROWS\n", "house.py")
    (project.path / "test_a.py").write_text(body)
    result = project.runpytest(*workers, "-v", "test_a.py")
    result.stdout.fnmatch_lines(["*test_a.py::Mine::*", "*= 1 passed, 1 wrong in *"])


# Marks


MARKED = """
class Base(Benchmark):
    pytestmark = [pytest.mark.slow]
    def load(self):
        ROWS

@pytest.mark.skip(reason="not today")
class Skipped(Base): pass

class Quick(Benchmark):
    def load(self):
        ROWS
"""


def test_marks_of_a_class_and_of_what_it_derives_from(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeini("[pytest]\nmarkers = slow: takes long")
    write(project, MARKED)
    result = project.runpytest(*workers, "-rs")
    result.assert_outcomes(passed=2, skipped=2)
    result.stdout.fnmatch_lines(["SKIPPED * not today"])
    result = project.runpytest(*workers, "-m", "slow")
    result.assert_outcomes(passed=1, skipped=2)
    project.runpytest(*workers, "-m", "not slow").assert_outcomes(passed=1)


def test_parametrize_is_refused(project: pytest.Pytester) -> None:
    write(project, "@pytest.mark.parametrize('x', [1])\nclass A(Benchmark):\n    def load(self):\n        ROWS\n")
    result = project.runpytest()
    result.stdout.fnmatch_lines(["test_a.py: A: pytest.mark.parametrize is for test functions; *"])


# Replies that the rows carry


def test_replies_of_the_rows_need_no_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(test_a=OWN_REPLIES)
    for named in ((), ("test_a.py",)):
        result = llm_pytester.runpytest(*workers, *named)
        assert result.ret == 0
        result.stdout.fnmatch_lines(["*1 passed, 1 wrong*"])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("test_a.py", OWN_REPLIES.replace("'response': ", "'other': ")),
        ("a.yaml", "suite: a\nsamples: [{question: q, target: t}]\nscore: fine\n"),
        ("a.yaml", "task: a\noutput_type: generate_until\ndataset_path: json\n"
         "dataset_kwargs: {data_files: {test: rows.jsonl}}\ntest_split: test\n"
         "doc_to_text: '{{ question }}'\ndoc_to_target: '{{ target }}'\n"),
    ],
)  # fmt: skip
def test_no_model_for_a_file_that_was_named(
    llm_pytester: pytest.Pytester, workers: list[str], name: str, text: str
) -> None:
    """A controller of pytest-xdist cannot read these: its workers say what one process says."""
    llm_pytester.makeconftest("def pytest_llmeval_scorers(): return {'fine': lambda reply: True}")
    (llm_pytester.path / "rows.jsonl").write_text('{"question": "q", "target": "t"}\n')
    (llm_pytester.path / name).write_text(text)
    result = llm_pytester.runpytest(*workers, name)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stdout.no_fnmatch_line("*Traceback*")
    said = result.stdout.str() + result.stderr.str()
    assert f"{name} needs a model: give --llm-model (--llm-model demo ships with the plugin)" in said


def test_a_suite_with_a_scorer_of_a_conftest_and_replies(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest("def pytest_llmeval_scorers(): return {'fine': lambda reply: reply == 'x'}")
    text = "suite: a\nsamples: [{question: q, target: t, response: x}]\nscore: fine\n"
    llm_pytester.makefile(".yaml", a=text)
    result = llm_pytester.runpytest(*workers, "a.yaml")
    result.assert_outcomes(passed=1)
    assert result.ret == 0


def test_two_benchmarks_of_a_file_one_without_replies(llm_pytester: pytest.Pytester) -> None:
    other = "class Asks(Benchmark):\n    def load(self):\n        return [{'question': 'q', 'target': 't'}]\n"
    for text in (OWN_REPLIES + other, HEAD + other + OWN_REPLIES):
        (llm_pytester.path / "test_a.py").write_text(text)
        result = llm_pytester.runpytest("-p", "no:xdist", "test_a.py")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["*test_a.py needs a model: *"])


# Mistakes


@pytest.mark.parametrize(
    ("attribute", "message"),
    [
        ("gates = ['accuracy = 2']", "gates.0: found 'accuracy = 2', expected a metric, *"),
        (
            "gates = ['acuracy >= 2']",
            "gates.0: 'acuracy >= 2': there is no metric 'acuracy'; did you mean 'accuracy'? *",
        ),
        ("primary_metric = 'acuracy'", "primary_metric: there is no metric 'acuracy'; did you mean 'accuracy'? *"),
        ("cluster = 'question'", "cluster: found 2 clusters in 2 samples, expected at least 10: *"),
        ("preset = 'gsm8k'", "A.preset: preset has no meaning in a benchmark; *"),
        ("dataset = {'path': 'x'}", "A.dataset: a benchmark's rows come from its method load; rename the attribute"),
        ("catgory = 'x'", "A.catgory: a benchmark has no catgory; did you mean 'category'? Otherwise rename it"),
        ("def normalized(self, text): return text", "A.normalized: * did you mean 'normalize'? *"),
        (
            "def is_equal(self, gold, pred): return True",
            "A.is_equal: a benchmark has no is_equal, * 'is_equivalent'? Otherwise *",
        ),
        (
            "def is_equivalence(self, answer, target): return True",
            "A.is_equivalence: * did you mean 'is_equivalent'? *",
        ),
        ("def load_data(self): return []", "A.load_data: * did you mean 'load'? Otherwise rename it"),
        ("normalise_answer = lambda self, t: 's'", "A.normalise_answer: * did you mean 'normalise'? Otherwise *"),
        ("def isEquivalentTo(self, a, b): return True", "A.isEquivalentTo: * did you mean 'is_equivalent'? *"),
        ("def compare(self, a, b): return True", "A.compare: * did you mean 'is_equivalent'? Otherwise rename it"),
        ("def is_correct(self, a, b): return True", "A.is_correct: * did you mean 'is_equivalent'? *"),
        ("def postprocess(self, a): return a", "A.postprocess: * did you mean 'normalise'? Otherwise rename it"),
        ("def extract_answer(self, a): return a", "A.extract_answer: * did you mean 'normalise'? *"),
        ("def set_pred(self, pred): pass", "A.set_pred: * what is right is decided by normalise and is_equivalent; *"),
        (
            "def normalise(self, t): return t\n    def normalize(self, t): return t",
            "A has both normalise and normalize, which mean the same; remove one",
        ),
        ("prompt = {'tmplate': 'x'}", "unknown key 'tmplate' in prompt; did you mean 'template'?"),
        (
            "score = {'exact': {'normalize': [len]}}",
            "A.score.exact.normalize.0: found a builtin_function_or_method, expected *",
        ),
        ("generate = {'seed': object()}", "A.generate.seed: found a object, expected what YAML can write: *"),
        ("def __init__(self, a): pass", "A: a benchmark is made without arguments, *: missing a required argument*"),
        ("def load(self): return None", "A.load returned None, expected rows: a list of mappings, or yield them"),
        ("def load(self): return {'question': 'q'}", "A.load returned {'question': 'q'} (a dict), expected rows: *"),
        ("def load(self): return [{'question': 'q'}]", "*sample '1': the sample has no target; expected a text"),
        (
            "def load(self): return [{'qid': 'a', 'question': 'q', 'gold': '1'}]",
            "A.load: row 1 has 'qid' and no 'id', 'gold' and no 'target', which is what we call it: rename it, *",
        ),
        (
            "target = '1'\n    def load(self): return [{'id': 1}, {'qid': 'a', 'gold': '1'}]",
            "A.load: row 2 has 'qid' and no 'id', which is what we call it: rename it, or give both",
        ),
        ("load = None\n    def load_data(self): return []", "A.load_data: * did you mean 'load'? Otherwise rename it"),
        ("def load(self): return [{'target': True}]", "*sample '1': the target is true, which is not text; *"),
    ],
)
def test_mistakes_in_a_class(project: pytest.Pytester, attribute: str, message: str) -> None:
    write(project, f"class A(Benchmark):\n    def load(self):\n        ROWS\n    {attribute}\n")
    result = project.runpytest("-p", "no:xdist")
    result.stdout.fnmatch_lines([f"test_a.py:3: {message}"])
    result.stdout.no_fnmatch_line("*Traceback*")
    assert result.ret == pytest.ExitCode.INTERRUPTED


@pytest.mark.parametrize("hook", ["load_data", "get_samples"])
def test_a_class_of_another_program_that_loads_by_itself(project: pytest.Pytester, hook: str) -> None:
    code = f"    def __init__(self):\n        self.rows = self.{hook}()\n    def {hook}(self):\n        return []\n"
    write(project, f"class A(Benchmark):\n{code}")
    result = project.runpytest("-p", "no:xdist")
    result.stdout.fnmatch_lines([f"test_a.py:3: A has no method load, which gives the rows; rename {hook} to load; *"])
    assert result.ret == pytest.ExitCode.INTERRUPTED


def test_attributes_of_a_user_are_fine(project: pytest.Pytester) -> None:
    write(
        project,
        """
class A(Benchmark):
    PROMPT = "{{ question }}"
    prompt = {"template": PROMPT}
    separator = ","
    def loader(self): return 1
    def cleaned(self, text): return text
    def evaluate(self, text): return text
    def normalise_text(self, text): return self.postprocess(text)
    def postprocess(self, text): return self.evaluate(text)
    def payload(self): return 1
    def regrade(self): return 1
    def normalise(self, text): return self.normalise_text(text)
    def first_number(self, text): return 1
    @staticmethod
    def pick(text): return text
    def load(self):
        ROWS
""",
    )
    assert project.runpytest().ret == 0


def test_the_names_of_another_program(project: pytest.Pytester) -> None:
    """``is_equiv`` takes the target first, and both come as ``normalize`` leaves them."""
    write(
        project,
        """
class A(Benchmark):
    def normalize(self, text): return text.upper()
    def is_equiv(self, gold, pred): return (gold, pred) == ("TWO", "X")
    def load(self):
        ROWS
class BBenchmark(A):
    def is_equivalent(self, answer, target): return (answer, target) == ("ONE", "ONE")
""",
    )
    result = project.runpytest_inprocess("-v", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["*::A::a WRONG*", "*::A::b PASSED*", "*::BBenchmark::a PASSED*", "*BBenchmark::b WR*"])


@pytest.mark.parametrize(
    ("method", "given"),
    [
        ("is_equiv(self, gold, pred)", "target first"),
        ("is_equiv(self, a, b)", "target first"),
        ("is_equiv(self, pred, gold)", "answer first"),
        ("is_equiv(self, prediction, reference, strict=False)", "answer first"),
        ("is_equiv(self, answer, pred)", "target first"),
        ("is_equivalent(self, a, b)", "answer first"),
        ("is_equivalent(self, gold_answer, predicted, /)", "answer first"),
        ("is_equivalent(self, gold_answer, model_answer)", "target first"),
    ],
)
def test_parameters_that_say_which_they_are(project: pytest.Pytester, method: str, given: str) -> None:
    first = "x" if given == "answer first" else "one"
    write(
        project,
        f"""
class A(Benchmark):
    def {method}:
        return [*locals().values()][1] == {first!r}
    def load(self):
        return [{{'question': 'Q2', 'target': 'one'}}]
""",
    )
    project.runpytest("-p", "no:xdist").assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (
            "def is_equivalent(self, a, t): return 'yes'",
            "A.is_equivalent returned 'yes' (a str), expected True or False",
        ),
        ("def is_equivalent(self, a, t): raise KeyError('x\\ny')", "A.is_equivalent raised KeyError: 'x*y'"),
        ("def normalise(self, text): return None", "A.normalise returned None, expected text"),
        ("def is_equiv(self, gold, pred): return 1", "A.is_equiv returned 1 (a int), expected True or False"),
        ("def normalize(self, text): return 1", "A.normalize returned 1 (a int), expected text"),
    ],
)
def test_methods_that_return_something_else(project: pytest.Pytester, method: str, message: str) -> None:
    write(project, f"class A(Benchmark):\n    {method}\n    def load(self):\n        ROWS\n")
    result = project.runpytest()
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines([f"*sample 'a': {message}"])


def test_a_numpy_bool_and_a_number_as_target(project: pytest.Pytester) -> None:
    write(
        project,
        """
import numpy
class A(Benchmark):
    def is_equivalent(self, answer, target): return numpy.bool_(target == "1.50")
    def normalise(self, text): return text + "0" if text == "1.5" else text
    def load(self): return [{"question": "Q1", "target": 1.5}, {"question": "Q1", "target": [1, 2]}]
""",
    )
    result = project.runpytest()
    result.stdout.fnmatch_lines(["*1 passed, 1 wrong*"])


# What a fingerprint knows


def test_a_method_of_what_a_class_derives_from_is_part_of_the_fingerprint(project: pytest.Pytester) -> None:
    house = (
        "class HouseBenchmark(Benchmark):\n    def load(self):\n        ROWS\n    def normalise(self, t): return t\n"
    )
    write(project, house, "house.py")
    write(project, "from house import HouseBenchmark\nclass Mine(HouseBenchmark): pass\n")
    before = fingerprint(project)
    assert fingerprint(project, "-n2") == before
    write(project, house.replace("return t", "return t.lower()"), "house.py")
    assert fingerprint(project) != before


def test_a_helper_beside_a_scorer_is_part_of_the_fingerprint(llm_pytester: pytest.Pytester) -> None:
    scorer = "\nLIMIT = 1\ndef pytest_llmeval_scorers(): return {'fine': lambda reply: len(reply) > LIMIT}\n"
    llm_pytester.makefile(".yaml", a="suite: a\nsamples: [{question: q, target: t}]\nscore: fine\n")
    conftest = llm_pytester.path / "conftest.py"
    conftest.write_text(FAKE_MODEL_CONFTEST + scorer)
    before = fingerprint(llm_pytester)
    assert fingerprint(llm_pytester, "-n2") == before
    conftest.write_text(FAKE_MODEL_CONFTEST + scorer.replace("LIMIT = 1", "LIMIT = 2"))
    assert fingerprint(llm_pytester) != before


# Scorers that do not score


def test_a_scorer_that_skips(project: pytest.Pytester, workers: list[str]) -> None:
    with Path(project.path / "conftest.py").open("a") as file:
        file.write(
            "\ndef skips(reply): pytest.skip('no judge')\ndef needs(reply, x): return True\n"
            "def pytest_llmeval_scorers(): return {'skips': skips, 'needs': needs}\n"
        )
    project.makefile(".yaml", a="suite: a\nsamples: [{question: q, target: t}]\nscore: skips\n")
    result = project.runpytest(*workers)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*not scored: the scorer skipped: no judge"])


def test_a_setting_that_is_missing(project: pytest.Pytester) -> None:
    with Path(project.path / "conftest.py").open("a") as file:
        file.write("\ndef needs(reply, x): return x\ndef pytest_llmeval_scorers(): return {'needs': needs}\n")
    text = "suite: a\nsamples: [{question: q, target: t}]\nscore: needs\n"
    project.makefile(".yaml", a=text)
    result = project.runpytest()
    result.stdout.fnmatch_lines(["a.yaml:3: score.needs: the setting 'x' is missing"])
    project.makefile(".yaml", a=text.replace("needs", "{needs: {x: true}}"))
    project.runpytest().assert_outcomes(passed=1)


def test_a_benchmark_without_load_is_an_error_and_a_base_of_others_is_none(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makepyfile(
        test_slip="""
        from pytest_llmeval import Benchmark

        class Cap(Benchmark):
            def laod(self):
                return [{"question": "q", "target": "t"}]
        """,
        test_base="""
        from pytest_llmeval import Benchmark

        class HouseBenchmark(Benchmark):
            generate = {"max_tokens": 3}

        class Mine(HouseBenchmark):
            def load(self):
                return [{"question": "q", "target": "t"}]
        """,
    )
    result = llm_pytester.runpytest("--collect-only", "-q")
    result.stdout.fnmatch_lines_random(
        ["test_base.py::Mine::1", "test_slip.py:3: Cap has no method load, which gives the rows; *"]
    )
    assert result.ret == pytest.ExitCode.INTERRUPTED
