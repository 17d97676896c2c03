"""``--llm-store``: a rerun asks only for what is missing, and reports what an undisturbed run reports."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

MODEL = '''
"""Adds, and logs what reaches it. A file `kill` names the sum that kills its process, once."""

import asyncio
import json
import os
import signal
from pathlib import Path

from pytest_llmeval.types import GenerateResponse, LoglikelihoodResponse, ModelIdentity

HERE = Path(__file__).parent


def log(prompts):
    with HERE.joinpath("asked.jsonl").open("a") as file:
        file.write(json.dumps(prompts) + "\\\\n")
    kill = HERE / "kill"
    if kill.exists() and any(kill.read_text() in prompt for prompt in prompts):
        kill.unlink()
        os.kill(os.getpid(), signal.SIGKILL)


def note_answer(prompt):
    with HERE.joinpath("answered").open("a") as file:
        file.write(prompt + "\\n")


class Adder:
    def __init__(self, weights="1"):
        self.identity = ModelIdentity(name="adder", backend="test", fingerprint=weights)
        self.weights = weights

    def generate(self, requests):
        log([request.prompt for request in requests])
        return [self.write(request) for request in requests]

    def write(self, request):
        text = str(eval(request.prompt.split("\\\\n")[-1].removesuffix("="))) if self.weights == "1" else "no idea"
        return GenerateResponse(text=text, num_tokens=1, num_prompt_tokens=3)

    def loglikelihood(self, requests):
        log([request.context + request.continuation for request in requests])
        return [LoglikelihoodResponse(loglikelihood=-float(len(r.continuation)), num_tokens=1) for r in requests]


def keyed(prompt, key=""):
    log([prompt])
    return str(eval(prompt.removesuffix("="))) if key == "valid" else "no idea"


class InBatches(Adder):
    """A generator, which answers batches of 3."""

    def generate(self, requests):
        for first in range(0, len(requests), 3):
            batch = requests[first : first + 3]
            log([request.prompt for request in batch])
            for request in batch:
                note_answer(request.prompt)
                yield self.write(request)


def plain(prompt):
    log([prompt])
    return str(eval(prompt.removesuffix("=")))


async def later(prompt):
    log([prompt])
    await asyncio.sleep(0)
    note_answer(prompt)
    return str(eval(prompt.removesuffix("=")))
'''.replace("\\\\n", "\\n")


@pytest.fixture
def project(llm_pytester: pytest.Pytester) -> pytest.Pytester:
    """A model that logs, and a suite of 24 sums."""
    llm_pytester.makepyfile(adder=MODEL)
    write_suite(llm_pytester)
    return llm_pytester


def write_suite(pytester: pytest.Pytester, number: int = 24, **changes: Any) -> None:
    samples = [{"id": f"s{n}", "question": f"{n} + {n + n % 2}=", "target": str(2 * n)} for n in range(number)]
    suite = {"suite": "sums", "samples": samples, "prompt": {"template": "{{ question }}"}, "score": "exact"}
    pytester.makefile(".yaml", sums=yaml.safe_dump({**suite, **changes}, sort_keys=False))


def run(
    pytester: pytest.Pytester, workers: list[str], *options: str, model: str = "Adder", store: str = "--llm-store"
) -> pytest.RunResult:
    folder = [store] if store else []
    given = [*workers, f"--llm-model=python:adder:{model}", "--llm-report=report.json", "--llm-batch-size=8"]
    return pytester.runpytest(*given, *options, "sums.yaml", *folder)


def asked(pytester: pytest.Pytester) -> list[str]:
    """What reached the model since the last call of this function, in any order."""
    path = pytester.path / "asked.jsonl"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return sorted(prompt for line in lines for prompt in json.loads(line))


def report_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    return found


TIMES = (
    "created",
    "seconds",
    "asked_at",
    "kept_as",
    "latency",
    "tokens_per_second",
    "prefill_seconds",
    "decode_seconds",
)


OF_STORE = ("store", "is_reused")


def without_times(value: Any) -> Any:
    """A report without its times, and without what it says of the store."""
    if isinstance(value, dict):
        return {key: without_times(part) for key, part in value.items() if key not in (*TIMES, *OF_STORE, "digest")}
    return [without_times(part) for part in value] if isinstance(value, list) else value


def test_a_second_run_asks_nothing_and_reports_the_same(project: pytest.Pytester, workers: list[str]) -> None:
    first = run(project, workers)
    assert first.ret == 0
    assert len(asked(project)) == 24
    undisturbed = report_of(project.path)
    assert undisturbed["store"] == {
        "folder": ".llmeval",
        "num_samples": 24,
        "num_reused": 0,
        "oldest": None,
        "newest": None,
        "problem": None,
        "num_unreadable": 0,
        "why_unreadable": None,
        "num_damaged": 0,
    }
    started = datetime.now(UTC).isoformat()
    second = run(project, workers)
    assert asked(project) == []
    second.stdout.fnmatch_lines(
        [
            "llm-store: .llmeval (* last written * ago); it keeps prompts and replies",
            "store .llmeval: 24 of 24 samples reused, asked * before this session; *",
        ]
    )
    report = report_of(project.path)
    assert report["store"]["num_reused"] == 24
    # The second session's start, which a report has to a second.
    assert undisturbed["created"] <= report["store"]["oldest"] <= report["store"]["newest"] < started
    assert [record["asked_at"] for record in report["records"]] == [
        record["asked_at"] for record in undisturbed["records"]
    ]
    assert without_times(report) == without_times(undisturbed)


def test_without_the_option_nothing_is_kept(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, workers, store="")
    assert not (project.path / ".llmeval").exists()
    report = report_of(project.path)
    assert report["store"] is None
    assert {record["asked_at"] for record in report["records"]} == {None}


def test_a_killed_run_is_resumed_by_the_same_command(project: pytest.Pytester, workers: list[str]) -> None:
    """The process of the model dies in its second chunk; pytest-xdist replaces it, and the session ends well."""
    run(project, workers, store="")
    undisturbed = report_of(project.path)
    asked(project)
    project.path.joinpath("kill").write_text("13 + 14=")
    arguments = [*workers, "--llm-model=python:adder:Adder", "--llm-report=report.json", "--llm-batch-size=8"]
    project.runpytest_subprocess(*arguments, "sums.yaml", "--llm-store")
    assert not project.path.joinpath("kill").exists(), "it was killed"
    asked(project)
    store = b"".join(path.read_bytes() for path in project.path.joinpath(".llmeval").glob("*.jsonl"))
    kept = [json.loads(line)["request"]["prompt"] for line in store.splitlines()]
    assert kept
    assert run(project, workers).ret == 0
    assert asked(project) == sorted({record["question"] for record in undisturbed["records"]} - {*kept})
    resumed = report_of(project.path)
    assert resumed["store"]["num_reused"] == len(kept)
    for report in (resumed, undisturbed):  # what the two were asked for differs
        report["options"].pop("store", None)
        for model in report["models"]:
            model["details"].pop("store", None)
            model["details"].pop("known_by_content", None)
    assert without_times(resumed) == without_times(undisturbed)


@pytest.mark.parametrize("model", ["later?concurrency=4", "InBatches"])
def test_what_was_answered_within_a_chunk_is_not_asked_again(project: pytest.Pytester, model: str) -> None:
    """The process dies in the midst of its second chunk, and the session with it."""
    questions = sorted(f"{n} + {n + n % 2}=" for n in range(24))
    project.path.joinpath("kill").write_text("13 + 14=")
    arguments = ["-p", "no:xdist", f"--llm-model=python:adder:{model}", "--llm-batch-size=8"]
    project.runpytest_subprocess(*arguments, "sums.yaml", "--llm-store")
    assert not project.path.joinpath("kill").exists(), "it was killed"
    first = asked(project)
    answered = project.path.joinpath("answered").read_text().splitlines()
    assert 8 < len(answered) < len(first) < 16
    assert run(project, ["-p", "no:xdist"], "--llm-store-max-age=7d", model=model).ret == 0
    assert asked(project) == sorted({*questions} - {*answered})
    assert sorted(project.path.joinpath("answered").read_text().splitlines()) == questions
    store = b"".join(path.read_bytes() for path in project.path.joinpath(".llmeval").glob("*.jsonl"))
    lines = [json.loads(line) for line in store.splitlines()]
    assert sorted(line["request"]["prompt"] for line in lines) == questions, "each reply once"
    times = {one["question"]: datetime.fromisoformat(one["asked_at"]) for one in report_of(project.path)["records"]}
    assert times == {line["request"]["prompt"]: datetime.fromtimestamp(line["time"], UTC) for line in lines}


def test_an_edited_scorer_and_another_number_of_workers_ask_nothing(project: pytest.Pytester) -> None:
    run(project, ["-p", "no:xdist"])
    asked(project)
    write_suite(project, score="contains")
    model = "--llm-model=python:adder:Adder"
    again = project.runpytest("-n2", model, "--llm-batch-size=3", "sums.yaml", "--llm-store")
    assert again.ret == 0
    assert asked(project) == []


def test_an_edited_question_is_asked_alone(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, workers)
    asked(project)
    write_suite(project, number=26)
    run(project, workers)
    assert asked(project) == ["24 + 24=", "25 + 26="]


@pytest.mark.parametrize(
    "changes",
    [
        {"generate": {"temperature": 0.7}},
        {"generate": {"max_tokens": 9}},
        {"generate": {"stop": ["x"]}},
        {"generate": {"seed": 3}},
        {"prompt": {"template": "1\n{{ question }}"}},
    ],
    ids=["temperature", "max_tokens", "stop", "seed", "prompt"],
)
def test_what_changes_the_request_is_asked(project: pytest.Pytester, changes: dict[str, Any]) -> None:
    run(project, ["-p", "no:xdist"])
    asked(project)
    write_suite(project, **changes)
    run(project, ["-p", "no:xdist"])
    assert len(asked(project)) == 24


def test_another_few_shot_seed_is_another_question(project: pytest.Pytester) -> None:
    rows = [{"question": f"{n} + 1=", "target": str(n + 1)} for n in range(30)]
    project.path.joinpath("train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    fewshot = {"count": 2, "path": "train.jsonl", "delimiter": "\n"}
    for seed, number in ((0, 24), (1, 24), (0, 0)):
        write_suite(project, prompt={"template": "{{ question }}", "fewshot": {**fewshot, "seed": seed}})
        run(project, ["-p", "no:xdist"])
        assert len(asked(project)) == number


def test_epochs_are_asked_each(project: pytest.Pytester, workers: list[str]) -> None:
    write_suite(project, number=4, epochs=3, generate={"temperature": 1.0})
    run(project, workers)
    assert len(asked(project)) == 12
    run(project, workers)
    assert asked(project) == []


def test_loglikelihoods_are_kept_too(project: pytest.Pytester, workers: list[str]) -> None:
    samples = [{"id": f"q{n}", "question": f"{n}?", "choices": ["a", "bb", "ccc"], "target": 0} for n in range(10)]
    write_suite(project, samples=samples, score="choice")
    run(project, workers)
    assert len(asked(project)) == 30
    first = report_of(project.path)
    run(project, workers)
    assert asked(project) == []
    assert without_times(report_of(project.path)) == without_times(first)


def test_another_model_is_asked(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, workers)
    asked(project)
    run(project, workers, model="Adder?weights=2")
    assert len(asked(project)) == 24
    assert {record["status"] for record in report_of(project.path)["records"]} == {"wrong"}
    models = ["--llm-model=python:adder:Adder", "--llm-model=python:adder:Adder?weights=2"]
    result = project.runpytest(*workers, *models, "sums.yaml", "--llm-store")
    assert asked(project) == []
    result.stdout.fnmatch_lines(["store .llmeval: 48 of 48 samples reused, *"])


def test_an_argument_decides_replies_though_it_is_hidden(project: pytest.Pytester) -> None:
    for key, num_correct in (("valid", 12), ("other", 0), ("valid", 12)):
        run(project, [], "--llm-store-max-age=1d", model=f"keyed?key={key}")
        assert [record["status"] for record in report_of(project.path)["records"]].count("correct") == num_correct
    assert len(asked(project)) == 48
    files = project.path.joinpath(".llmeval").glob("*.jsonl")
    assert not any("valid" in path.read_text(encoding="utf-8") for path in files)


def test_what_was_reused_is_known_whatever_the_clocks_say(
    project: pytest.Pytester, workers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time
    with monkeypatch.context() as patch:  # of another machine, say
        patch.setattr(time, "time", lambda: now() + 600)
        run(project, [])
    asked(project)
    run(project, workers)
    assert asked(project) == []
    assert report_of(project.path)["store"]["num_reused"] == 24


def test_refresh_asks_anew_and_replaces(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, workers)
    before = report_of(project.path)
    asked(project)
    result = run(project, workers, "--llm-store-refresh")
    result.stdout.fnmatch_lines(["llm-store: *no stored reply is used*", "store .llmeval: 0 of 24 samples reused"])
    assert len(asked(project)) == 24
    refreshed = report_of(project.path)
    run(project, workers)
    assert asked(project) == []
    times = [record["asked_at"] for record in report_of(project.path)["records"]]
    assert times == [record["asked_at"] for record in refreshed["records"]]
    assert min(times) > max(record["asked_at"] for record in before["records"])


def test_python_code_may_have_changed_and_needs_a_limit_of_age(project: pytest.Pytester, workers: list[str]) -> None:
    for _ in range(2):
        result = run(project, workers, model="plain")
        assert len(asked(project)) == 24
        result.stdout.fnmatch_lines(
            ["store: python:adder:plain: replies are kept, not reused: the model has no fingerprint;*"]
        )
    result = run(project, workers, "--llm-store-max-age=7d", model="plain")
    assert asked(project) == []
    result.stdout.fnmatch_lines(["llm-store: *replies of up to 7d are reused*", "store .llmeval: 24 of 24*"])
    result.stdout.no_fnmatch_line("*not reused*")


def test_a_comparison_of_runs_that_share_replies_says_so(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, workers)
    project.path.joinpath("report.json").rename(project.path / "main.json")
    write_suite(project)
    result = run(project, workers, "--llm-baseline=main.json")
    result.stdout.fnmatch_lines(["*24 of 24 samples are judged on the baseline's own replies, from a store*"])
    again = run(project, workers, "--llm-baseline=main.json", "--llm-store-refresh")
    again.stdout.no_fnmatch_line("*own replies*")


@pytest.mark.parametrize("how", ["ini", "environment"])
def test_the_store_of_a_project(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    if how == "ini":
        project.makeini("[pytest]\nllm_store = kept\nllm_store_max_age = 2w\n")
    else:
        monkeypatch.setenv("PYTEST_LLM_STORE", "kept")
        monkeypatch.setenv("PYTEST_LLM_STORE_MAX_AGE", "2w")
    for number in (24, 0):
        run(project, ["-p", "no:xdist"], model="plain", store="")
        assert len(asked(project)) == number
    assert project.path.joinpath("kept").is_dir()


def test_the_store_of_an_ini_file_lies_beside_it(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    """A session that starts in another folder finds it; a folder of the command line lies where that was given."""
    project.makeini("[pytest]\nllm_store = kept\n")
    run(project, workers, store="")
    asked(project)
    below = project.mkdir("below")
    monkeypatch.chdir(below)
    result = project.runpytest(*workers, "--llm-model=python:adder:Adder", "../sums.yaml")
    result.stdout.fnmatch_lines(["llm-store: ../kept (*", "store ../kept: 24 of 24 samples reused, *"])
    assert asked(project) == []
    assert list(below.iterdir()) == []
    project.runpytest(*workers, "--llm-model=python:adder:Adder", "--llm-store=kept", "../sums.yaml")
    assert len(asked(project)) == 24
    assert [path.name for path in below.iterdir()] == ["kept"]


def test_a_folder_that_others_can_read_is_told(project: pytest.Pytester, workers: list[str]) -> None:
    project.mkdir(".llmeval").chmod(0o777)
    result = run(project, workers)
    result.stdout.fnmatch_lines(["llm-store: .llmeval (*; others can read and write to it: chmod 700 .llmeval"])
    project.path.joinpath(".llmeval").chmod(0o700)
    run(project, workers).stdout.no_fnmatch_line("*chmod*")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--llm-store", "suites"],
            "*--llm-store *suites: it is not a store of replies (it holds a.txt); write --llm-store=*",
        ),
        (["--llm-store", "sums.yaml"], "*--llm-store *sums.yaml: it is a file, expected a folder; write --llm-store=*"),
        (["--llm-store-refresh"], "*--llm-store-refresh is about a store: give --llm-store as well"),
        (["--llm-store-max-age=7"], "*--llm-store-max-age: expected a number with a unit of time*found '7'"),
        (["--llm-store-max-age=7d"], "*--llm-store-max-age is about a store: give --llm-store as well"),
    ],
    ids=["folder of others", "file", "refresh alone", "no unit", "age alone"],
)
def test_what_cannot_be_meant_is_refused(
    project: pytest.Pytester, workers: list[str], options: list[str], message: str
) -> None:
    project.mkdir("suites").joinpath("a.txt").touch()
    result = project.runpytest(*workers, "--llm-model=python:adder:Adder", *options)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([message])
    assert asked(project) == []


def test_the_option_may_stand_before_another_option(project: pytest.Pytester) -> None:
    result = project.runpytest("--llm-model=python:adder:Adder", "--llm-store", "--llm-limit=3", "sums.yaml")
    assert result.ret == 0
    assert len(asked(project)) == 3
    assert project.path.joinpath(".llmeval").is_dir()


@pytest.mark.parametrize(("which", "statuses"), [("all", {"correct", "wrong"}), ("wrong", {"wrong"}), ("none", set())])
def test_which_records_have_texts(project: pytest.Pytester, workers: list[str], which: str, statuses: set[str]) -> None:
    run(project, workers, store="")
    everything = report_of(project.path)
    run(project, workers, f"--llm-report-records={which}", store="")
    report = report_of(project.path)
    texts = ("question", "prompt", "choices", "target", "output", "answer", "details")
    for record, whole in zip(report["records"], everything["records"], strict=True):
        for name in texts:
            wanted = (
                whole[name]
                if record["status"] in statuses
                else type(whole[name])()
                if name in ("choices", "details")
                else None
            )
            assert record[name] == wanted
        assert {key: value for key, value in without_times(record).items() if key not in texts} == {
            key: value for key, value in without_times(whole).items() if key not in texts
        }
    assert without_times(report["suites"]) == without_times(everything["suites"])
    project.path.joinpath("report.json").rename(project.path / "main.json")
    gated = run(project, workers, "--llm-baseline=main.json", "--llm-gate=sums: accuracy >= 0.5", store="")
    assert gated.ret == 0


FULL_DISK = """
import errno

from pytest_llmeval.inference import store as folder

def fail(file, data):
    raise OSError(errno.ENOSPC, "No space left on device")

folder.write_whole = fail
"""


def test_a_full_disk_is_told_and_ends_no_session(project: pytest.Pytester, workers: list[str]) -> None:
    project.makeconftest(FULL_DISK)
    result = project.runpytest_subprocess(
        *workers, "--llm-model=python:adder:Adder", "--llm-report=report.json", "sums.yaml", "--llm-store"
    )
    assert result.ret == 0
    result.stdout.fnmatch_lines(["store: replies could no longer be kept: No space left on device"])
    assert "No space left" in report_of(project.path)["store"]["problem"]
    assert {record["status"] for record in report_of(project.path)["records"]} == {"correct", "wrong"}


UNREADABLE = """
import errno
from pathlib import Path

opened = Path.open

def refuse(path, *arguments, **options):
    if path.name == "replies-" + 16 * "a" + ".jsonl":
        raise PermissionError(errno.EACCES, "Permission denied")
    return opened(path, *arguments, **options)

Path.open = refuse
"""


def test_what_cannot_be_read_is_told_once_for_all_workers(project: pytest.Pytester, workers: list[str]) -> None:
    run(project, ["-p", "no:xdist"])
    asked(project)
    folder = project.path / ".llmeval"
    (file,) = folder.glob("*.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:20], lines[20].replace(b"time", b"Time"), *lines[21:]]))
    folder.joinpath(f"replies-{'a' * 16}.jsonl").write_text("nothing of ours\n")
    project.makeconftest(UNREADABLE)
    arguments = [*workers, "--llm-model=python:adder:Adder", "--llm-report=report.json", "--llm-batch-size=1"]
    result = project.runpytest_subprocess(*arguments, "sums.yaml", "--llm-store")
    assert result.ret == 0
    flaws = "1 file cannot be read (Permission denied); 1 damaged line is not used, llmeval store compact removes it"
    result.stdout.fnmatch_lines([f"store .llmeval: {flaws}"])
    assert len(asked(project)) == 1
    store = report_of(project.path)["store"]
    assert (store["num_unreadable"], store["num_damaged"]) == (1, 1)
    assert store["why_unreadable"] == "Permission denied"


def test_a_model_in_the_place_of_ours_is_not_asked_through_the_store(project: pytest.Pytester) -> None:
    project.makeconftest(
        """
        import pytest
        from adder import Adder

        @pytest.fixture(scope="session")
        def llm_model():
            return Adder()
        """
    )
    for _ in range(2):
        result = run(project, ["-p", "no:xdist"])
        assert len(asked(project)) == 24
    result.stdout.fnmatch_lines(["store: adder: is not asked through the store"])


def test_a_hand_written_test_is_answered_by_the_store(project: pytest.Pytester, workers: list[str]) -> None:
    project.makepyfile(
        test_tone="def test_tone(llm_model): assert llm_model.generate('3 + 4=', max_tokens=5).text == '7'"
    )
    for number in (1, 0):
        result = project.runpytest(*workers, "--llm-model=python:adder:Adder", "test_tone.py", "--llm-store")
        result.assert_outcomes(passed=1)
        assert len(asked(project)) == number


@pytest.mark.parametrize("how", ["option", "environment"])
def test_the_ini_files_store_can_be_turned_off(
    project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    project.makeini("[pytest]\nllm_store = kept\n")
    if how == "environment":
        monkeypatch.setenv("PYTEST_LLM_STORE", "none")
    result = run(project, [], store="--llm-store=none" if how == "option" else "")
    assert result.ret == 0
    assert "store" not in result.stdout.str().replace("test_the_ini_files_store", "")
    assert not list(project.path.glob("kept")) + list(project.path.glob("none"))
