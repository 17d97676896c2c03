"""Suites that are run by name: presets and groups of them, their node ids, and where their rows come from."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Sequence
from typing import Any

import pytest

from pytest_llmeval.suites.named import all_groups
from pytest_llmeval.suites.presets import all_presets, load_preset
from tests.presets import likelihood_rows, reply_rows, rows
from tests.presets.comparisons import DATA
from tests.support import fake_model_conftest

GSM8K = [
    {"question": f"What is {number} + {number}?", "answer": f"It is twice {number}.\n#### {2 * number}"}
    for number in range(1, 5)
]
GSM8K_TRAIN = [
    {"question": f"What is {number} - 1?", "answer": f"One less.\n#### {number - 1}"} for number in range(20, 30)
]
CSQA = [
    {
        "id": f"c{number}",
        "question": {
            "stem": row["question"],
            "choices": [
                {"label": label, "text": text}
                for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True)
            ],
        },
        "answerKey": row["answerKey"],
    }
    for number, row in enumerate(rows.CSQA)
]
REPLIES = {"What is 2 + 2?\nAnswer": "#### 4", "What is 4 + 4?\nAnswer": "#### 8"}
"""Samples 2 and 4 are right."""


def write(project: pytest.Pytester, name: str, written: Sequence[object]) -> None:
    path = project.path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in written))


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A project without suites, with local copies in ``data``."""
    llm_pytester.makeconftest(fake_model_conftest(replies=REPLIES, default_reply="#### 1"))
    llm_pytester.makeini("[pytest]\nllm_data = data\n")
    write(llm_pytester, "gsm8k/test.jsonl", GSM8K)
    write(llm_pytester, "gsm8k/train.jsonl", GSM8K_TRAIN)
    write(llm_pytester, "csqa/dev_rand_split.jsonl", CSQA)
    write(llm_pytester, "csqa/train_rand_split.jsonl", CSQA)
    return llm_pytester


@pytest.fixture
def hub_loaded() -> None:
    """Import ``datasets`` in the test's own process: sessions in it forget their imports, and arrow types of this one
    cannot be registered twice, also if a session of an earlier test has registered them.
    """
    arrow = pytest.importorskip("pyarrow")
    if "datasets" not in sys.modules:
        for dimensions in range(2, 6):
            with contextlib.suppress(KeyError):  # not registered yet
                arrow.unregister_extension_type(f"datasets.features.features.Array{dimensions}DExtensionType")
    pytest.importorskip("datasets")


def outcomes(project: pytest.Pytester) -> dict[str, str]:
    """The status of each sample of the last report, by node id."""
    report = json.loads((project.path / "out.json").read_text())
    return {record["nodeid"]: record["status"] for record in report["records"]}


def run(project: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return project.runpytest(*arguments, "--llm-report=out.json")


GSM8K_OUTCOMES = {"gsm8k::1": "wrong", "gsm8k::2": "correct", "gsm8k::3": "wrong", "gsm8k::4": "correct"}


def test_a_preset_by_its_name(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(test_own="def test_own(): raise AssertionError('not asked for')")
    result = run(project, *workers, "--llm-suite", "gsm8k")
    assert result.ret == 0
    assert outcomes(project) == GSM8K_OUTCOMES
    result.stdout.fnmatch_lines(["gsm8k * 4 *0.500*", "*2 passed, 2 wrong*"])


def test_benchmarks_of_replies_by_their_names(project: pytest.Pytester) -> None:
    """From files as they are published: ids are the benchmark's own where it has some, and else rows' numbers."""
    write(project, "nq_open/NQ-open.dev.jsonl", reply_rows.NQ_OPEN[:2])
    write(project, "triviaqa/validation.jsonl", reply_rows.TRIVIAQA[:2])
    write(project, "mmlu-pro/test.jsonl", reply_rows.MMLU_PRO[:2])
    write(project, "mmlu-pro/validation.jsonl", reply_rows.MMLU_PRO_VALIDATION)
    project.path.joinpath("data/mgsm").mkdir()
    for language in reply_rows.MGSM_SAYS:
        project.path.joinpath(f"data/mgsm/mgsm_{language}.tsv").write_text("3 + 4?\t7\n1,200 - 0?\t1,200\n")
    replies = {
        "Rome": " tiber",
        "the letter?": " ann lee",
        "bile": " The answer is (B).",
        "3 + 4": " 7",
        "1,200": " 1200",
    }
    project.makeconftest(fake_model_conftest(replies=replies, default_reply="x"))
    run(project, "--llm-suite=nq-open,triviaqa,mmlu-pro,mgsm-direct")
    found = outcomes(project)
    right = {"nq-open::1", "triviaqa::tc_0", "mmlu-pro::100"}
    of_mgsm = {f"mgsm-direct-{language}::{row}" for language in reply_rows.MGSM_SAYS for row in (1, 2)}
    assert found.keys() == right | {"nq-open::2", "triviaqa::tc_1", "mmlu-pro::101"} | of_mgsm
    assert {nodeid for nodeid, status in found.items() if status == "correct"} == right | of_mgsm
    result = run(project, "--llm-suite=mgsm", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["mgsm-native-cot-bn::1", "mgsm-native-cot-zh::2"])
    result = run(project, "--llm-suite=gpqa-diamond", "--collect-only", "-q")
    assert result.ret == pytest.ExitCode.INTERRUPTED
    result.stdout.fnmatch_lines(
        ["*put gpqa/gpqa_diamond.csv, as published (Idavidrein/gpqa, gpqa_diamond), into data*"]
    )


def test_several_names_beside_files_and_functions(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(test_own="def test_own(): pass")
    project.makefile(".yaml", own="suite: own\nsamples: [{question: q, target: '#### 1'}]\nscore: exact\n")
    run(project, *workers, "--llm-suite", "gsm8k,csqa", "--llm-suite=gsm8k", "own.yaml", "test_own.py")
    found = outcomes(project)
    assert {nodeid.partition("::")[0] for nodeid in found} == {"gsm8k", "csqa", "own.yaml"}
    assert len(found) == 4 + len(CSQA) + 1


def test_node_ids_on_the_command_line(project: pytest.Pytester, workers: list[str]) -> None:
    result = run(project, *workers, "gsm8k::2", "gsm8k::3", "csqa::c0")
    assert set(outcomes(project)) == {"gsm8k::2", "gsm8k::3", "csqa::c0"}
    result.stdout.fnmatch_lines(
        ["a selection (gsm8k::2, gsm8k::3, csqa::c0): these numbers cover only what was selected"]
    )
    assert run(project, *workers, "gsm8k").ret == 0
    assert outcomes(project) == GSM8K_OUTCOMES
    run(project, *workers, "--llm-suite=gsm8k::4")
    assert set(outcomes(project)) == {"gsm8k::4"}
    run(project, *workers, "gsm8k::1", "gsm8k")
    assert outcomes(project) == GSM8K_OUTCOMES, "a whole suite holds its samples"


def test_a_file_or_folder_of_that_name_goes_first(project: pytest.Pytester) -> None:
    project.mkdir("gsm8k").joinpath("test_inside.py").write_text("def test_inside(): pass\n")
    result = project.runpytest("gsm8k")
    result.assert_outcomes(passed=1)


def test_a_sample_that_there_is_not(project: pytest.Pytester, workers: list[str]) -> None:
    result = project.runpytest(*workers, "gsm8k::99", "gsm8k::1")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    lines = [*result.outlines, *result.errlines]
    assert any("not found: gsm8k::99" in line for line in lines), lines
    assert not any("gsm8k::1" in line for line in lines)


def test_last_failed_with_and_without_a_file_beside(project: pytest.Pytester, workers: list[str]) -> None:
    project.makefile(
        ".yaml", own="suite: own\nsamples: [{question: q, target: x}, {question: r, target: '#### 1'}]\nscore: exact\n"
    )
    arguments = [*workers, "own.yaml", "--llm-suite=gsm8k"]
    run(project, *arguments)
    wrong = {"own.yaml::1", "gsm8k::1", "gsm8k::3"}
    assert {nodeid for nodeid, status in outcomes(project).items() if status == "wrong"} == wrong
    run(project, *arguments, "--lf")
    assert set(outcomes(project)) == wrong
    run(project, *workers, "--llm-suite=gsm8k", "--lf")
    assert set(outcomes(project)) == {"gsm8k::1", "gsm8k::3"}
    project.makeconftest(fake_model_conftest(replies={"What is 1 + 1?\nAnswer": "#### 2"}, default_reply="#### 1"))
    run(project, *workers, "--llm-suite=gsm8k", "--lf")
    run(project, *workers, "--llm-suite=gsm8k", "--lf")
    assert set(outcomes(project)) == {"gsm8k::3"}, "what is right now is forgotten"


def test_selections_gates_overrides_and_shards(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, *workers, "--llm-suite=gsm8k,csqa", "-k", "gsm8k and not 3")
    assert set(outcomes(project)) == {"gsm8k::1", "gsm8k::2", "gsm8k::4"}
    result = run(project, *workers, "--llm-suite=gsm8k", "--llm-gate", "gsm8k: accuracy >= 0.9")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*gsm8k, accuracy >= 0.9*"])
    result = run(project, "--llm-suite=gsm8k", "--llm-set", "gsm8k: prompt.fewshot.count=1", "--llm-show-prompts")
    assert result.stdout.str().count("Question: ") == 4 * 2
    parts = []
    for number in (1, 2):
        run(project, *workers, "--llm-suite=gsm8k,csqa", f"--llm-shard={number}/2")
        parts.append(set(outcomes(project)))
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 4 + len(CSQA)


def test_two_models(project: pytest.Pytester, workers: list[str]) -> None:
    """The level of the model stands between the suite's name and the sample, as in a file."""
    for name in ("one", "two"):
        replies = [{"suite": "gsm8k", "id": str(number), "response": f"#### {2 * number}"} for number in range(1, 5)]
        project.path.joinpath(f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in replies))
    project.makeconftest("")
    models = ["--llm-model=replay:one.jsonl", "--llm-model=replay:two.jsonl"]
    run(project, *workers, "--llm-suite=gsm8k", *models)
    found = outcomes(project)
    assert len(found) == 8
    level = min(found).split("::")[1]
    run(project, *workers, f"gsm8k::{level}::2", *models)
    assert set(outcomes(project)) == {f"gsm8k::{level}::2"}
    run(project, *workers, f"gsm8k::{level}", *models)
    assert set(outcomes(project)) == {nodeid for nodeid in found if f"::{level}::" in nodeid}


def test_a_group_changes_its_presets(project: pytest.Pytester) -> None:
    """The number of examples is the leaderboard's, and files are those that were published."""
    train = [{"id": f"t{number}", **row} for number, row in enumerate(CSQA * 10)]
    write(project, "arc/ARC-Challenge-Test.jsonl", CSQA[:2])
    write(project, "arc/ARC-Challenge-Train.jsonl", train)
    write(project, "hellaswag/hellaswag_val.jsonl", rows.HELLASWAG[:2])
    write(project, "hellaswag/hellaswag_train.jsonl", rows.HELLASWAG * 10)
    write(project, "winogrande/dev.jsonl", rows.WINOGRANDE[:2])
    write(project, "winogrande/train_xl.jsonl", rows.WINOGRANDE * 10)
    for split in ("test", "dev"):
        folder = project.path / "data" / "mmlu" / split
        folder.mkdir(parents=True)
        lines = [f"Question {number},a,b,c,d,{'ABCD'[number % 4]}\n" for number in range(6)]
        folder.joinpath(f"anatomy_{split}.csv").write_text("".join(lines))
    project.path.joinpath("data/truthfulqa").mkdir()
    project.path.joinpath("data/truthfulqa/mc_task.json").write_text(json.dumps(rows.TRUTHFULQA_MC_TASK))
    result = run(project, "--llm-suite=leaderboard-v1")
    assert result.ret == 0
    names = [suite.name for group in all_groups() if group.name == "leaderboard-v1" for suite in group.suites]
    assert sorted({nodeid.partition("::")[0] for nodeid in outcomes(project)}) == sorted(names)
    shown = {}
    for name in ("arc-challenge-25-shot", "gsm8k", "mmlu"):
        sample = sorted(nodeid for nodeid in outcomes(project) if nodeid.startswith(f"{name}::"))[0]
        shown[name] = run(
            project, "--llm-suite=leaderboard-v1", "-k", sample.replace("::", " and "), "--llm-show-prompts"
        )
    assert shown["arc-challenge-25-shot"].stdout.str().count("Question: ") == 26
    assert shown["gsm8k"].stdout.str().count("Question: ") == 6
    assert shown["mmlu"].stdout.str().count("Answer:") == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("gsm9k", "--llm-suite gsm9k: there is no preset 'gsm9k'; did you mean 'gsm8k'?*"),
        ("gsmk", "--llm-suite gsmk: there is no preset 'gsmk'; did you mean 'gsm8k'?*"),  # not the group mgsm
        ("hendrycks_math_algebr", "*did you mean 'hendrycks-math-algebra'?*"),
        ("leaderboard", "--llm-suite leaderboard: there is no preset 'leaderboard'; did you mean 'leaderboard-v1'?*"),
        ("perplexity", "--llm-suite perplexity: the preset 'perplexity' has no data of its own: write a suite with*"),
        ("gsm8k,", "--llm-suite: expected the name of a preset, a group of presets, or lm_eval:NAME, found 'gsm8k,'"),
        (
            "hendrycks-math,leaderboard-v1,nothing",
            "--llm-suite hendrycks-math,leaderboard-v1,nothing: there is no preset 'nothing'*",
        ),
    ],
)
def test_a_wrong_name_stops_the_run(project: pytest.Pytester, given: str, message: str) -> None:
    result = project.runpytest("--llm-suite", given)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {message}"])


def test_a_suite_of_a_file_has_another_name(project: pytest.Pytester) -> None:
    project.makefile(".yaml", own="suite: gsm8k\nsamples: [{question: q, target: x}]\nscore: exact\n")
    result = project.runpytest("--llm-suite=gsm8k", "own.yaml")
    result.stdout.fnmatch_lines(["gsm8k: suite: 'gsm8k' is also the name of own.yaml: rename one of them"])


@pytest.mark.usefixtures("hub_loaded")
def test_what_lies_nowhere_is_asked_for_by_its_file(project: pytest.Pytester, workers: list[str]) -> None:
    """The tests have no network, and nothing in the hub's cache."""
    result = project.runpytest(*workers, "--llm-suite=squad")
    result.stdout.fnmatch_lines(
        ["squad: preset squad: *, or put squad/dev-v1.1.json, as published (rajpurkar/squad), into data *"]
    )
    project.path.joinpath("data/gsm8k/train.jsonl").unlink()
    result = project.runpytest(*workers, "--llm-suite=gsm8k")
    result.stdout.fnmatch_lines(["gsm8k: *prompt.fewshot.path: *data/gsm8k/train.jsonl: *"])
    project.makeini("[pytest]\n")
    result = project.runpytest(*workers, "--llm-suite=gsm8k")
    result.stdout.fnmatch_lines(
        ["gsm8k: *, or put gsm8k/test.jsonl and gsm8k/train.jsonl, as published (*), into a folder and give *"]
    )


def test_newest_files_first(project: pytest.Pytester, workers: list[str]) -> None:
    """The file of each test is asked when it was changed."""
    run(project, *workers, "gsm8k", "--nf")
    assert outcomes(project) == GSM8K_OUTCOMES


def test_a_gate_by_its_node_id(project: pytest.Pytester) -> None:
    result = run(project, "gsm8k::gate[accuracy >= 0.9]", "--llm-gate", "gsm8k: accuracy >= 0.9")
    assert result.ret == 1
    assert outcomes(project) == GSM8K_OUTCOMES


def test_node_ids_as_pytest_shows_them_in_a_subfolder(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project.mkdir("below"))
    result = project.runpytest("../gsm8k::2", "--llm-data=../data", "--rootdir=..", "-c", "../tox.ini")
    result.stdout.fnmatch_lines(["*1 passed*"])


def test_a_sample_beside_a_folder_of_the_name(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Local copies have such folders: no sample stands in a folder itself."""
    monkeypatch.chdir(project.path / "data")
    result = project.runpytest("gsm8k::2", "--llm-data=.", "--rootdir=..", "-c", "../tox.ini")
    result.stdout.fnmatch_lines(["*1 passed*"])


def test_names_of_the_ini_file_hold_where_no_path_is_given(project: pytest.Pytester) -> None:
    project.makeini("[pytest]\nllm_data = data\nllm_suite = gsm8k\n")
    project.makepyfile(test_own="def test_own(): pass")
    project.runpytest("test_own.py").assert_outcomes(passed=1)
    run(project)
    assert outcomes(project) == GSM8K_OUTCOMES


def test_a_folder_of_data_with_brackets_in_its_name(project: pytest.Pytester) -> None:
    project.path.joinpath("data").rename(project.path / "d[1]")
    split = project.path / "d[1]" / "mmlu"
    for name in ("test", "dev"):
        split.joinpath(name).mkdir(parents=True)
        rows = [f"{name} question {number},a,b,c,d,A\n" for number in range(5)]
        split.joinpath(name, f"anatomy_{name}.csv").write_text("".join(rows))
    run(project, "--llm-suite=mmlu", "--llm-data=d[1]")
    assert len(outcomes(project)) == 5


@pytest.mark.usefixtures("hub_loaded")
def test_members_of_groups_have_names_of_their_own(project: pytest.Pytester) -> None:
    result = project.runpytest("hendrycks-math-geometry::1")
    result.stdout.fnmatch_lines(["hendrycks-math-geometry: *or put math/test/geometry, as published *"])
    result = project.runpytest("leaderboard-v1::gsm8k::1")
    result.stderr.fnmatch_lines(["ERROR: *: leaderboard-v1 is 6 suites: name the one that has the sample"])


def test_a_folder_of_data_that_there_is_not(project: pytest.Pytester) -> None:
    result = project.runpytest("--llm-suite=gsm8k", "--llm-data=nowhere")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: --llm-data nowhere: there is no such folder"])


def test_a_preset_with_a_second_file(project: pytest.Pytester) -> None:
    project.makeconftest("")
    project.makepyfile(
        models="""
        def model(messages, tools):
            return '[{"name": "' + tools[0]["function"]["name"] + '", "arguments": {"a": 1}}]'
    """
    )
    schema = {"type": "dict", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    questions = [
        {
            "id": f"q{n}",
            "question": [[{"role": "user", "content": "Q"}]],
            "function": [{"name": f"f{n}", "parameters": schema}],
        }
        for n in range(2)
    ]
    write(project, "bfcl/BFCL_v4_multiple.json", questions)
    model = ("-p", "no:xdist", "--llm-model=python:models:model")
    result = project.runpytest(*model, "--llm-suite=bfcl-multiple")
    result.stdout.fnmatch_lines(["bfcl-multiple: *dataset.join.path: *BFCL_v4_multiple.json: there is no such file*"])
    truths = [{"id": "q0", "ground_truth": [{"f0": {"a": [1]}}]}, {"id": "q1", "ground_truth": [{"f1": {"a": [2]}}]}]
    write(project, "bfcl/possible_answer/BFCL_v4_multiple.json", truths)
    run(project, *model, "--llm-suite=bfcl-multiple")
    assert outcomes(project) == {"bfcl-multiple::q0": "correct", "bfcl-multiple::q1": "wrong"}
    result = project.runpytest(*model, "--llm-suite=bfcl-parallel")
    result.stdout.fnmatch_lines(["bfcl-parallel: has no data on the hub; put bfcl/BFCL_v4_parallel.json and bfcl/*"])


HUB_FILES = {
    "piqa/piqa_validation.parquet": likelihood_rows.PIQA,
    "openbookqa/main/test-00000-of-00001.parquet": likelihood_rows.OPENBOOKQA,
    "siqa/data/validation-00000-of-00001-90bb85eab85fcfa8.parquet": likelihood_rows.SIQA,
    "lambada/plain_text/test-00000-of-00001.parquet": likelihood_rows.LAMBADA_STANDARD,
    "wikitext/wikitext-2-raw-v1/wikitext-2-raw-v1-test.parquet": likelihood_rows.WIKITEXT,
}


def test_files_as_the_hub_has_them(project: pytest.Pytester) -> None:
    parquet, table = (pytest.importorskip(name) for name in ("pyarrow.parquet", "pyarrow"))
    for name, some in HUB_FILES.items():
        path = project.path / "data" / name
        path.parent.mkdir(parents=True)
        parquet.write_table(table.Table.from_pylist(some), path)
    write(project, "lambada_openai/data/lambada_test.jsonl", likelihood_rows.LAMBADA_OPENAI)
    assert run(project, "--llm-suite=piqa,openbookqa,social-iqa,lambada,wikitext").ret == 0
    report = json.loads((project.path / "out.json").read_text())
    counts = {suite["name"]: suite["num_scored"] for suite in report["suites"]}
    names = ("piqa", "openbookqa", "social-iqa", "lambada-openai", "lambada-standard", "wikitext")
    assert counts == dict.fromkeys(names, 12)


def test_an_override_names_other_rows(project: pytest.Pytester) -> None:
    write(project, "other.jsonl", GSM8K[:1])
    run(
        project,
        "--llm-suite=gsm8k",
        "--llm-set",
        "gsm8k: dataset.path=data/other.jsonl",
        "--llm-set",
        "gsm8k: prompt.fewshot.count=0",
    )
    assert set(outcomes(project)) == {"gsm8k::1"}


@pytest.mark.parametrize("preset", list(all_presets()), ids=lambda preset: preset.name)
def test_every_preset_says_what_it_is_run_on(preset: Any) -> None:
    """A preset of published data says how many questions there are, and names a file that holds them."""
    has_data = preset.has(("dataset", "hub")) or preset.family == "bfcl"
    assert (preset.questions is not None) == has_data
    assert bool(preset.files.get("dataset")) == has_data
    assert bool(preset.files.get("join")) == bool(preset.defaults["dataset"].get("join"))
    assert preset.files.get("fewshot") or not preset.has(("prompt", "fewshot", "hub"))


def test_every_group_is_of_presets() -> None:
    for group in all_groups():
        assert len({suite.name for suite in group.suites}) == len(group.suites) > 1
        for suite in group.suites:
            assert load_preset(suite.preset).has(("dataset", "hub"))


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason=f"the published data sets are not here: no folder {DATA}")
def test_published_files_by_name(llm_pytester: pytest.Pytester) -> None:
    llm_pytester.makeconftest(fake_model_conftest(default_reply="#### 18"))
    result = run(
        llm_pytester, "--llm-suite=gsm8k,csqa,bbh-direct-navigate", f"--llm-data={DATA}", "--llm-limit=first:20"
    )
    assert result.ret == 0
    report = json.loads((llm_pytester.path / "out.json").read_text())
    assert {suite["name"]: suite["num_samples"] for suite in report["suites"]} == {
        name: load_preset(name).questions for name in ("gsm8k", "csqa", "bbh-direct-navigate")
    }
