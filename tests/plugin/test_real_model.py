"""The plugin with the demo model: the main job, and what a model can refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support import REPOSITORY

pytestmark = pytest.mark.forks_torch

DEMO = REPOSITORY / "pytest_llmeval" / "demo_model"
SUITES = REPOSITORY / "example_suites"


def read(folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = json.loads((folder / "out.json").read_text(encoding="ascii"))
    return report


def test_the_main_job(llm_pytester: pytest.Pytester) -> None:
    reports = []
    for workers in (["-p", "no:xdist"], ["-n2"]):
        options = ["--llm-model=demo", "--llm-report=out.json", "-p", "no:cacheprovider"]
        result = llm_pytester.runpytest_subprocess(*workers, *options, str(SUITES))
        assert result.ret == 0
        reports.append(read(llm_pytester.path))
    suites = {suite["name"]: suite for suite in reports[0]["suites"]}
    own_needs = [path.parent for path in SUITES.rglob("requirements.txt")] + [SUITES / "assistant"]
    assert len(suites) == sum(path.parent not in own_needs for path in SUITES.rglob("*.yaml"))
    for name, suite in suites.items():
        assert suite["num_scored"] == suite["num_expected"] >= (12 if name == "judged_rag" else 24), name
        if name == "judged_aspects":  # ratings, and nothing right or wrong
            assert 1 < suite["metrics"]["aspects"]["value"] < 5
            continue
        if name == "judged_rag":
            assert len(suite["metrics"]) == 4
            assert all(0 < metric["value"] < 1 for metric in suite["metrics"].values())
            continue
        accuracy = suite["metrics"]["accuracy"]
        chances = [record["chance"] or 0 for record in reports[0]["records"] if record["suite"] == name]
        assert accuracy["ci_low"] > sum(chances) / len(chances), f"{name} is not above chance"
        assert accuracy["ci_high"] < 1, f"{name} is perfect"
    shared = {suite["name"]: suite for suite in reports[1]["suites"]}
    for name, suite in suites.items():
        assert suite["fingerprint"] == shared[name]["fingerprint"]
        for metric, found in suite["metrics"].items():
            assert found["value"] == pytest.approx(shared[name]["metrics"][metric]["value"], abs=1e-5), (name, metric)
    assert [model["fingerprint"] for model in reports[0]["models"]] == [
        model["fingerprint"] for model in reports[1]["models"]
    ]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [["-p", "no:xdist"], ["-n2"]], ids=["alone", "n2"])
def test_the_assistant(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    """Tool calls, conversations and programs; where no sandbox is, all but programs."""
    suites = [
        path for path in SUITES.joinpath("assistant").glob("*.yaml") if path.stem != "code" or shutil.which("bwrap")
    ]
    options = ["--llm-model=demo-assistant", "--llm-report=out.json", "-p", "no:cacheprovider", "--llm-allow-code"]
    result = llm_pytester.runpytest_subprocess(*workers, *options, "--llm-show-wrong=1", *map(str, suites))
    assert result.ret == 0
    for name in ("messages", "turns"):  # whose samples have no question of their own
        result.stdout.re_match_lines([rf".*{name}.yaml::\d+: wrong", r"  question: (What|Which|How|Where) .*\?"])
    for suite in (found := read(llm_pytester.path)["suites"]):
        assert suite["num_scored"] == suite["num_expected"] == 48, suite["name"]
        accuracy = suite["metrics"]["accuracy"]
        assert accuracy["ci_low"] > 0.3, f"{suite['name']} is hardly right"
        assert accuracy["ci_high"] < 1, f"{suite['name']} is perfect"
    assert len(found) == len(suites)


@pytest.mark.slow
def test_a_sample_that_is_too_long_fails_alone(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    long = "word " * 5000
    samples = [{"id": "short", "question": "1 + 1 =", "target": 2}, {"id": "long", "question": long, "target": 2}]
    llm_pytester.makefile(
        ".yaml", sums=f"suite: sums\nscore: number\ngenerate: {{max_tokens: 4}}\nsamples: {json.dumps(samples)}\n"
    )
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=demo", "--llm-report=out.json", "sums.yaml")
    assert result.ret == 1
    records = {record["id"]: record for record in read(llm_pytester.path)["records"]}
    assert records["short"]["status"] in ("correct", "wrong")
    assert records["long"]["status"] == "unscored"
    result.stdout.re_match_lines(
        [r".*sample 'long': the request needs \d+ tokens and the model's context holds \d+: \d+ too many.*"]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llm-device=cuda:77"], "--llm-device cuda:77: there is no such device here*"),
        (["--llm-model-arg=max_length=4"], "*context holds 4: *"),
    ],
)
@pytest.mark.slow
def test_what_only_loading_can_find(
    llm_pytester: pytest.Pytester, workers: list[str], options: list[str], message: str
) -> None:
    llm_pytester.makefile(
        ".yaml", sums="suite: sums\nscore: number\nsamples: [{question: How much is one and one?, target: 2}]\n"
    )
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=demo", *options, "sums.yaml")
    assert result.ret in (1, 2)
    result.stdout.fnmatch_lines([message])
    result.stdout.no_fnmatch_line("*Traceback*")
    result.stdout.no_fnmatch_line("*INTERNALERROR*")


@pytest.mark.parametrize("broken", ["config.json", "tokenizer.json", "model.safetensors"])
@pytest.mark.slow
def test_a_broken_checkpoint_is_refused_before_the_run(
    llm_pytester: pytest.Pytester, workers: list[str], broken: str
) -> None:
    folder = llm_pytester.path / "checkpoint"
    shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    (folder / broken).write_bytes((folder / broken).read_bytes()[:100])
    llm_pytester.makefile(".yaml", sums="suite: sums\nscore: number\nsamples: [{question: q, target: 2}]\n")
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=checkpoint", "sums.yaml")
    assert result.ret != 0
    text = result.stdout.str() + result.stderr.str()
    assert "model checkpoint: " in text
    assert broken in text
    assert "Traceback" not in text


def test_a_model_with_weights_is_known_by_them_without_a_store(llm_pytester: pytest.Pytester) -> None:
    """Whatever its name is: a copy in another folder is the same model, and one of other settings another."""
    rows = "".join(f"  - {{question: '{n} + 1 =', target: {n + 1}}}\n" for n in range(8))
    prompt = "prompt: {template: 'Add. {{ question }}'}\n"
    for name, asked in (("before", ""), ("now", prompt)):
        (llm_pytester.path / f"{name}.yaml").write_text(f"suite: sums\nscore: number\n{asked}samples:\n{rows}")
    shutil.copytree(DEMO, llm_pytester.path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    compared = ["--llm-baseline=out.json", "--llm-compare=questions", "now.yaml"]
    llm_pytester.runpytest_subprocess("-p", "no:xdist", "--llm-model=demo", "--llm-report=out.json", "before.yaml")
    same = "the model is the same"
    for model, told in (
        (["--llm-model=demo"], same),
        (["--llm-model=./copy"], f"{same}, by another name: 'demo' -> './copy'"),
        (
            ["--llm-model=demo", "--llm-model-arg=max_length=500"],
            "the model changed too: its name is the same, and its contents or settings differ",
        ),
    ):
        result = llm_pytester.runpytest_subprocess("-p", "no:xdist", *model, *compared)
        assert f"compared by questions: prompt.template changed; {told}" in " ".join(result.stdout.str().split())


@pytest.mark.slow
def test_a_folder_gives_what_the_name_gives(llm_pytester: pytest.Pytester) -> None:
    suite = SUITES / "csqa" / "csqa_choice.yaml"
    numbers = []
    for model in ("demo", str(DEMO)):
        options = [f"--llm-model={model}", "--llm-limit=8", "--llm-report=out.json", "-p", "no:cacheprovider"]
        llm_pytester.runpytest_subprocess(*options, str(suite))
        report = read(llm_pytester.path)
        numbers.append((report["models"][0]["fingerprint"], report["suites"][0]["metrics"]))
    assert numbers[0] == numbers[1]


@pytest.mark.slow
def test_hand_written_tests_with_a_real_model(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makepyfile(
        """
        def test_likelihood(llm_model, llm_device):
            assert llm_device in ("cpu", "mps") or llm_device.startswith("cuda")
            response = llm_model.loglikelihood("Question: What is the opposite of hot?\\nAnswer:", " cold")
            assert response.loglikelihood < 0
            assert response.num_tokens >= 1

        def test_text(llm_model, llm_record):
            reply = llm_model.generate("Question: 1 + 1 =\\nAnswer:", max_tokens=4, stop=["\\n"])
            llm_record(suite="sums", id="1", correct="2" in reply.text, answer=reply.text)
        """
    )
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-model=demo")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*LLM evaluation: demo (*", "sums*1*"])
