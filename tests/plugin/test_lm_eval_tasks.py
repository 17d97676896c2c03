"""lm-eval's task files as suites: what is collected, what a user is told, and what a task by its name runs."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from importlib.util import find_spec

import pytest

from tests.support import FAKE_MODEL_CONFTEST, fake_model_conftest, model_calls

ROWS = [
    {"question": "Is water wet?", "options": ["no", "yes"], "answer": 1},
    {"question": "Is fire cold?", "options": ["no", "yes"], "answer": 0},
    {"question": "Is snow white?", "options": ["no", "yes"], "answer": 1},
]
LIKELY = {"water wet?\nAnswer": "yes", "fire cold?\nAnswer": "yes", "snow white?\nAnswer": "yes"}
"""0 and 2 right, 1 wrong."""

BASE = """\
dataset_path: json
dataset_kwargs: {data_files: {test: rows.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: answer
doc_to_choice: options
tag: nature
"""
WET = "include: _base\ntask: wet\n"


@pytest.fixture
def folder(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    llm_pytester.makeconftest(fake_model_conftest(likely=LIKELY))
    llm_pytester.path.joinpath("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    llm_pytester.path.joinpath("_base").write_text(BASE)
    return llm_pytester


def test_a_named_task_file_is_a_suite(folder: pytest.Pytester, workers: list[str]) -> None:
    folder.makefile(".yaml", wet=WET)
    result = folder.runpytest(*workers, "-v", "wet.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(["*wet.yaml::0*", "*wet.yaml::1*", "*wet.yaml::2*"])
    result.stdout.fnmatch_lines(["wet * 3 *0.667*", "*2 passed, 1 wrong*"])
    assert sorted({prompt for call in model_calls(folder.path, "loglikelihood") for prompt in call["prompts"]}) == [
        "Is fire cold?\nAnswer: no",
        "Is fire cold?\nAnswer: yes",
        "Is snow white?\nAnswer: no",
        "Is snow white?\nAnswer: yes",
        "Is water wet?\nAnswer: no",
        "Is water wet?\nAnswer: yes",
    ]


def test_a_walk_leaves_task_files_alone_unless_it_is_asked_to(folder: pytest.Pytester, workers: list[str]) -> None:
    folder.makefile(".yaml", wet=WET, other="on: push\njobs: {}\n")
    assert folder.runpytest(*workers).ret == pytest.ExitCode.NO_TESTS_COLLECTED
    named = folder.runpytest(*workers, "--llm-model=random", ".").stdout.str()
    told = "wet.yaml: not collected: it looks like a task of lm-eval; --llm-lm-eval collects them from folders"
    assert (named.count(told), "other.yaml" in named) == (1, False)
    result = folder.runpytest(*workers, "--llm-lm-eval")
    result.stdout.fnmatch_lines(["*2 passed, 1 wrong*"])
    result.stdout.no_fnmatch_line("*not collected*")


def test_an_option_of_lm_eval_is_answered_with_ours(pytester: pytest.Pytester) -> None:
    """Where nobody has registered it: a conftest.py of the project may have such an option."""
    pytester.makeconftest("def pytest_addoption(parser):\n    parser.addoption('--limit', type=int)\n")
    options = ["--model", "hf", "--tasks=arc_easy", "--limit", "5"]
    result = pytester.runpytest(*options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(
        [
            "*error: unrecognized arguments: --model --tasks=arc_easy",
            "  lm-eval's --model is here: --llm-model gpt2",
            "  lm-eval's --tasks is here: --llm-suite lm_eval:arc_easy",
        ]
    )
    assert "--llm-limit" not in result.stderr.str()
    assert "lm-eval" not in pytester.runpytest("--limit=5", "--no-such-option").stderr.str()


def test_a_file_that_others_include_is_no_task(folder: pytest.Pytester) -> None:
    folder.makefile(".yaml", common=BASE)
    result = folder.runpytest("common.yaml")
    result.stdout.fnmatch_lines(["*common.yaml: not a suite*"])


GROUP = """\
group: all_of_them
task:
  - wet
  - group: inner
    task:
      - task: dry
        num_fewshot: 1
  - task: inside
    include: _base
    doc_to_text: "Tell me: {{question}}\\nAnswer:"
"""


def test_a_group_is_the_suites_of_its_tasks(folder: pytest.Pytester, workers: list[str]) -> None:
    folder.makefile(".yaml", wet=WET, dry=WET.replace("wet", "dry"), group=GROUP)
    result = folder.runpytest(*workers, "-v", "group.yaml")
    assert result.ret == 0
    result.stdout.fnmatch_lines_random(["*wet.yaml::1*", "*dry.yaml::1*", "*group/inside.yaml::1*"])
    result.stdout.fnmatch_lines_random(["wet * 3 *", "dry * 3 *", "inside * 3 *", "*6 passed, 3 wrong*"])
    result.stdout.no_fnmatch_line("*problem*")
    prompts = [prompt for call in model_calls(folder.path, "loglikelihood") for prompt in call["prompts"]]
    assert any(prompt.startswith("Tell me: Is water wet?") for prompt in prompts)
    assert any(prompt.count("Answer:") == 2 for prompt in prompts), "the group asks for an example in dry"


def test_a_walk_that_finds_a_group_and_its_tasks_runs_each_once(folder: pytest.Pytester, workers: list[str]) -> None:
    folder.makefile(".yaml", a_wet=WET, group=GROUP, z_dry=WET.replace("wet", "dry"))
    result = folder.runpytest(*workers, "--llm-lm-eval")
    result.stdout.fnmatch_lines(["*6 passed, 3 wrong*"])


def test_lf_finds_wrong_answers_of_a_group_again(folder: pytest.Pytester) -> None:
    folder.makefile(".yaml", wet=WET, dry=WET.replace("wet", "dry"), group="group: two\ntask: [wet, dry]\n")
    folder.runpytest("group.yaml")
    result = folder.runpytest("--lf", "group.yaml")
    result.stdout.fnmatch_lines(["*2 wrong*"])
    result.stdout.no_fnmatch_line("*passed*")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            WET + "doc_to_texts: x\n",
            "wet.yaml:3: unknown key 'doc_to_texts'; did you mean 'doc_to_text'?",
        ),
        (
            WET + "generation_kwargs: {}\noutput_type: generate_until\nmetric_list:\n- metric: bleurt\n",
            "wet.yaml:6: metric_list.0.metric: found 'bleurt' (text), which is not supported for generate_until; "
            "did you mean 'bleu'?",
        ),
        (
            WET + "output_type: generate_until\ngeneration_kwargs:\n  until: [x]\n  num_beams: 4\n",
            "wet.yaml:6: generation_kwargs.num_beams: found 4 (a whole number), expected 1; "
            "replies are written token by token",
        ),
        (
            WET + "doc_to_text: !function utils.text\n",
            "wet.yaml:3: doc_to_text: found '!function utils.text', which runs Python; --llm-trust-task-code runs it "
            "for the tasks of the installed lm_eval package",
        ),
        (
            WET + "doc_to_text: '{{ questoin }}'\n",
            "wet.yaml:3: doc_to_text: sample '0' (rows.jsonl:1): 'questoin' is undefined; did you mean 'question'?",
        ),
        ("include: _bas\ntask: wet\n", "wet.yaml:1: include: _bas: there is no such file; did you mean '_base'?"),
        (
            "group: g\ntask: [wat]\n",
            "wet.yaml:2: task.0: there is no task, group or tag 'wat'; expected one of *",
        ),
    ],
)
def test_what_cannot_be_run_is_said_with_file_line_and_key(folder: pytest.Pytester, text: str, message: str) -> None:
    folder.makefile(".yaml", wet=text)
    result = folder.runpytest("wet.yaml")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines([message.replace("[", "[[]")])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_an_error_in_an_included_file_names_that_file(folder: pytest.Pytester) -> None:
    folder.path.joinpath("_base").write_text(BASE + "num_fewshots: 3\n")
    folder.makefile(".yaml", wet=WET)
    result = folder.runpytest("wet.yaml")
    result.stdout.fnmatch_lines(["_base:9: unknown key 'num_fewshots'; did you mean 'num_fewshot'?"])


def test_llm_set_changes_a_task(folder: pytest.Pytester, workers: list[str]) -> None:
    folder.makefile(".yaml", wet=WET)
    arguments = ["--llm-set", "wet: prompt.fewshot.count=1", "--llm-show-prompts", "wet.yaml"]
    result = folder.runpytest(*workers, *arguments)
    result.stdout.fnmatch_lines(["wet.yaml::1", "Is * ?*", "Answer: *", "", "Is fire cold[?]"])


def install(folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, **files: str) -> None:
    """A package ``lm_eval`` that is installed as far as Python can see."""
    tasks = folder.path / "site" / "lm_eval" / "tasks" / "nature"
    tasks.mkdir(parents=True)
    (tasks.parent.parent / "__init__.py").write_text("raise AssertionError('nobody needs to import lm_eval')\n")
    (tasks / "_base").write_text(BASE)
    for name, text in files.items():
        (tasks / name.replace("_py", ".py").replace("_yaml", ".yaml")).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(folder.path / "site"))


@pytest.mark.parametrize("name", ["wet", "natural", "nature", "wet,dry"], ids=["task", "group", "tag", "several"])
def test_a_task_group_or_tag_of_the_installed_package_by_name(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str], name: str
) -> None:
    group = "group: natural\ntask: [dry, wet]\n"
    install(folder, monkeypatch, wet_yaml=WET, dry_yaml=WET.replace("wet", "dry"), natural_yaml=group)
    folder.makepyfile(test_own="def test_own(): raise AssertionError('not asked for')")
    result = folder.runpytest_subprocess(*workers, "--llm-suite", f"lm_eval:{name}", "-v")
    assert result.ret == 0
    tasks = ("wet",) if name == "wet" else ("wet", "dry")
    result.stdout.fnmatch_lines_random([f"*lm_eval:{task}::{number} *" for task in tasks for number in range(3)])
    result.stdout.fnmatch_lines([f"*{2 if name == 'wet' else 4} passed, {1 if name == 'wet' else 2} wrong*"])
    result.stdout.no_fnmatch_line("*problem*")


def test_a_sample_of_a_named_task_by_its_node_id(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    install(folder, monkeypatch, wet_yaml=WET, dry_yaml=WET.replace("wet", "dry"))
    result = folder.runpytest_subprocess(*workers, "lm_eval:wet::1", "lm_eval:dry::2", "-v")
    result.stdout.fnmatch_lines_random(["*lm_eval:wet::1 *", "*lm_eval:dry::2 *"])
    result.stdout.fnmatch_lines(["*1 passed, 1 wrong*"])


def test_an_unknown_name_stops_the_run(folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    install(folder, monkeypatch, wet_yaml=WET)
    for given, message in (
        ("lm_eval:wett", "--llm-suite lm_eval:wett: lm_eval has no task, group or tag 'wett'; did you mean 'wet'?"),
        (
            "wet",
            "--llm-suite wet: there is no preset 'wet'; *; lm-eval has it: lm_eval:wet",
        ),
    ):
        result = folder.runpytest_subprocess("--llm-suite", given)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_what_needs_an_lm_eval_that_is_not_installed_says_so(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.makepyfile(without_lm_eval="import sys\nsys.modules['lm_eval'] = None\n")
    folder.makefile(".yaml", mine="group: mine\ntask: [arc_easy]\n", coded=WET.replace("wet", "coded") + CODED)
    monkeypatch.setenv("PYTHONPATH", str(folder.path))
    how = "lm_eval is not installed: pip install 'lm_eval==0.4.13'"
    for given, message in (
        (("--llm-suite", "lm_eval:arc_easy"), f"{how}; or name the file of the task in place of lm_eval:arc_easy"),
        (("mine.yaml",), f"mine.yaml:2: task.0: there is no task, group or tag 'arc_easy'*; for its own tasks, {how}"),
        (("coded.yaml", "--llm-trust-task-code"), f"*functions of the lm_eval package only, and {how}"),
    ):
        result = folder.runpytest_subprocess("-p", "without_lm_eval", *given)
        lines = [*result.outlines, *result.errlines]
        assert any(fnmatch(line, f"*{message}") for line in lines), lines


def test_data_keys_that_stand_at_the_group(folder: pytest.Pytester, workers: list[str]) -> None:
    members = 'task:\n- {task: wet}\n- {task: dry, doc_to_text: "Say: {{question}}\\nAnswer:"}\n'
    folder.makefile(".yaml", group="group: natural\n" + BASE + members)
    result = folder.runpytest(*workers, "group.yaml")
    result.stdout.fnmatch_lines_random(["wet * 3 *", "dry * 3 *", "*4 passed, 2 wrong*"])
    prompts = [prompt for call in model_calls(folder.path, "loglikelihood") for prompt in call["prompts"]]
    assert any(prompt.startswith("Say: Is water wet?") for prompt in prompts)


CODE = """\
def shout(rows):
    return rows.map(lambda row: {"question": row["question"].upper()})

def text(row):
    return row["question"] + "\\nAnswer:"

def judge(row, results):
    likelihoods = [likelihood for likelihood, _ in results]
    return {"acc": float(likelihoods[row["answer"]] == max(likelihoods)), "margin": max(likelihoods) - min(likelihoods)}
"""
CODED = """\
process_docs: !function utils.shout
doc_to_text: !function utils.text
process_results: !function utils.judge
metric_list:
- metric: acc
- metric: margin
"""


@pytest.mark.skipif(find_spec("datasets") is None, reason="a task's process_docs works on a table of datasets")
def test_trusted_code_of_the_installed_package_runs(
    folder: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    install(folder, monkeypatch, wet_yaml=WET + CODED, utils_py=CODE)
    monkeypatch.setenv("HF_HOME", str(folder.path / "cache"))
    folder.makeconftest(fake_model_conftest(likely={"WATER": "yes", "FIRE": "yes", "SNOW": "yes"}))
    arguments = [*workers, "--llm-suite", "lm_eval:wet"]
    refused = folder.runpytest_subprocess(*arguments)
    refused.stdout.fnmatch_lines(["*wet.yaml:4: doc_to_text: found '!function utils.text', which runs Python*"])
    result = folder.runpytest_subprocess(*arguments, "--llm-trust-task-code")
    result.stdout.fnmatch_lines(["wet * 3 *0.667*", "*2 passed, 1 wrong*"])
    assert any("IS WATER WET?" in call["prompts"][0] for call in model_calls(folder.path, "loglikelihood"))


def test_code_beside_a_task_file_of_ones_own_does_not_run(folder: pytest.Pytester) -> None:
    folder.makeconftest(FAKE_MODEL_CONFTEST)
    folder.makefile(".yaml", wet=WET + "doc_to_text: !function utils.text\n")
    folder.path.joinpath("utils.py").write_text("raise SystemExit('it ran')\n")
    result = folder.runpytest_subprocess("wet.yaml", "--llm-trust-task-code")
    result.stdout.fnmatch_lines(["wet.yaml:3: doc_to_text: found '!function utils.text' in a task file that is not*"])
    result.stdout.no_fnmatch_line("*it ran*")
