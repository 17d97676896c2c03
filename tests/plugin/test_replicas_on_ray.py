"""``--llm-ray``: what is refused before anything runs. What it does is in ``test_ray_sessions.py``."""

from __future__ import annotations

import pytest
import yaml

SUITE = {"suite": "sums", "samples": [{"id": "a", "question": "1 + 1", "target": "2"}], "score": "exact"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--llm-model=demo", "--llm-replicas=2"], "--llm-replicas is about replicas on Ray: give --llm-ray as well"),
        (["--llm-model=demo", "--llm-replica-gpus=1"], "--llm-replica-gpus is about replicas on Ray: give --llm-ray"),
        (
            ["--llm-model=random", "--llm-ray=local"],
            "--llm-ray is for checkpoints and python:MODULE:NAME; found random",
        ),
        (["--llm-model=demo", "--llm-ray=head"], "expected local, auto or HOST:PORT, found 'head'"),
        (
            ["--llm-model=demo", "--llm-ray=local", "--llm-replica-gpus=1.5"],
            "expected a whole number, or a part of one",
        ),
        (["--llm-model=demo", "--llm-ray=127.0.0.1:9"], "--llm-ray 127.0.0.1:9: nothing listens there"),
        (["--llm-model=demo", "--llm-ray=local", "--llm-replicas=0"], "expected a whole number above 0"),
        (
            ["--llm-model=demo", "--llm-ray=local", "-n2"],
            "--llm-ray: its replicas share the work, and one pytest process is enough: leave out -n (or give -n 0)",
        ),
    ],
)
def test_what_cannot_be_is_one_line(llm_pytester: pytest.Pytester, options: list[str], message: str) -> None:
    pytest.importorskip("ray")
    llm_pytester.makefile(".yaml", sums=yaml.safe_dump(SUITE, sort_keys=False))
    result = llm_pytester.runpytest(*options, "sums.yaml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: *{message.replace('[', '[[]')}*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_the_ini_file_and_the_environment_say_it_too(
    llm_pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    llm_pytester.makefile(".yaml", sums=yaml.safe_dump(SUITE, sort_keys=False))
    llm_pytester.makeini("[pytest]\nllm_ray = nowhere\n")
    result = llm_pytester.runpytest("--llm-model=demo", "sums.yaml")
    result.stderr.fnmatch_lines(["ERROR: llm_ray in tox.ini: expected local, auto or HOST:PORT, found 'nowhere'"])
    monkeypatch.setenv("PYTEST_LLM_RAY", "elsewhere")
    result = llm_pytester.runpytest("--llm-model=demo", "sums.yaml")
    result.stderr.fnmatch_lines(["ERROR: PYTEST_LLM_RAY: expected local, auto or HOST:PORT, found 'elsewhere'"])
