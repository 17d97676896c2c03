"""Samples that lm_eval 0.4.13 itself logs, replayed: the numbers of its own results."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.models.huggingface.kind import demo_folder
from tests.support import clean_environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("lm_eval") is None,
        reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'",
    ),
]

_LM_EVAL = '''
"""Runs tasks of the data here as ``lm_eval --log_samples --output_path`` does; argument: the model's folder."""
import json, sys
from pathlib import Path
import lm_eval
from lm_eval.loggers import EvaluationTracker

here = Path.cwd()

def task(name, rows, **settings):
    files = {"test": str(here / rows)}
    return {"task": name, "dataset_path": "json", "dataset_kwargs": {"data_files": files}, "test_split": "test",
            "doc_to_text": "{{q}}", "doc_to_target": "{{a}}", **settings}

until = {"until": ["\\n"], "max_gen_toks": 8}
tasks = [
    task("caps", "caps.jsonl", output_type="multiple_choice", doc_to_choice="{{options}}", doc_to_target="a",
         metric_list=[{"metric": "acc"}, {"metric": "acc_norm"}]),
    task("sums", "sums.jsonl", output_type="generate_until", generation_kwargs=until,
         filter_list=[{"name": "number", "filter": [{"function": "regex", "regex_pattern": "([0-9]+)"},
                                                    {"function": "take_first"}]},
                      {"name": "whole", "filter": [{"function": "take_first"}]}],
         metric_list=[{"metric": "exact_match"}]),
    task("texts", "sums.jsonl", output_type="loglikelihood_rolling", doc_to_text="", doc_to_target="{{q}}",
         metric_list=[{"metric": "word_perplexity"}, {"metric": "byte_perplexity"}]),
]
tracker = EvaluationTracker(output_path=str(here / "out"))
results = lm_eval.simple_evaluate(model="hf", model_args=f"pretrained={sys.argv[1]},dtype=float32", tasks=tasks,
                                  device="cpu", batch_size=4, log_samples=True, evaluation_tracker=tracker,
                                  bootstrap_iters=0)
samples = results.pop("samples")
tracker.save_results_aggregated(results=results, samples=samples)
for name in results["configs"]:
    tracker.save_results_samples(task_name=name, samples=samples[name])
Path("results.json").write_text(json.dumps(results["results"], default=float))
'''

_SUITES = {
    "caps": "dataset: {path: caps.jsonl, fields: {question: q, choices: options, target: a}}\n"
    "score: {choice: {normalize: sum}}\n",
    "sums": "dataset: {path: sums.jsonl, fields: {question: q, target: a}}\nscore: {exact: {normalize: []}}\n"
    "filters: [{regex: '([0-9]+)'}]\n",
    "texts": "dataset: {path: sums.jsonl, fields: {question: q}}\nscore: perplexity\n",
}


@pytest.mark.campaign
def test_lm_evals_own_numbers(llm_pytester: pytest.Pytester) -> None:
    folder = llm_pytester.path
    countries = [("France", 0), ("Italy", 1), ("Norway", 2), ("Spain", 3), ("Peru", 1)]
    options = ["Paris", "Rome", "Oslo", "Madrid"]
    prompt = "Question: Capital of {}?\nAnswer:"
    caps = [{"q": prompt.format(name), "options": options, "a": right} for name, right in countries]
    sums = [{"q": f"{n} + {n} =", "a": str(2 * n)} for n in range(1, 9)]
    for name, rows in (("caps", caps), ("sums", sums)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    environment = clean_environment() | {"HF_HOME": str(folder / "hf"), "HF_DATASETS_OFFLINE": "1"}
    (folder / "run_lm_eval.py").write_text(_LM_EVAL)
    subprocess.run(
        [sys.executable, "run_lm_eval.py", str(demo_folder())],
        cwd=folder,
        env=environment,
        check=True,
        capture_output=True,
        timeout=600,
    )
    expected = json.loads((folder / "results.json").read_text())
    found: dict[str, dict[str, Any]] = {}
    for name, suite in _SUITES.items():
        (file,) = (folder / "out").rglob(f"samples_{name}_*.jsonl")
        (folder / f"{name}.yaml").write_text(f"suite: {name}\n{suite}")
        path = file.relative_to(folder)
        result = llm_pytester.runpytest_subprocess(f"--llm-model=replay:{path}", "--llm-report=r.json", f"{name}.yaml")
        assert result.ret == 0
        (one,) = json.loads((folder / "r.json").read_text())["suites"]
        found[name] = {metric: values["value"] for metric, values in one["metrics"].items()}
    assert found["caps"]["accuracy_sum_first"] == expected["caps"]["acc,none"]
    assert found["caps"]["accuracy_char_first"] == expected["caps"]["acc_norm,none"]
    assert found["sums"]["accuracy"] == expected["sums"]["exact_match,number"]
    for metric in ("word_perplexity", "byte_perplexity"):
        assert found["texts"][metric] == pytest.approx(expected["texts"][f"{metric},none"], rel=1e-9)
    assert found["texts"].get("token_perplexity") is None  # lm-eval logs no numbers of tokens


def test_the_samples_beside_this_file_are_of_this_form(tmp_path: Path) -> None:
    """Keys that ``lm_eval.evaluator`` puts into a sample today."""
    import lm_eval.evaluator

    source = Path(lm_eval.evaluator.__file__).read_text(encoding="utf-8")
    for file in sorted(Path(__file__).with_name("lm_eval_samples").glob("*.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            keys = ("doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics")
            assert sample.keys() >= set(keys)
            assert all(f'"{key}"' in source for key in keys)
