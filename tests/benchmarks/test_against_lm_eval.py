"""The scripts that compare with lm-eval run from end to end and count what they say: no test reads a clock."""

from __future__ import annotations

import importlib.util
import json
import random
from pathlib import Path

import pytest

from benchmarks.engine_limit import count_distinct_positions
from benchmarks.lm_eval_side import engine_seconds
from benchmarks.side_of_bench import Outcome, equal_texts, largest_difference
from benchmarks.works_for_bench import Prompt, Sizes, data_problem, make_work

needs_data = pytest.mark.skipif(data_problem() is not None, reason=data_problem() or "")
needs_lm_eval = pytest.mark.skipif(
    importlib.util.find_spec("lm_eval") is None,
    reason="lm_eval is not installed: pip install 'lm_eval[hf]==0.4.13'",
)


def outcome(responses: dict[str, tuple[float, ...] | str]) -> Outcome:
    """What a run gave back, with times that play no part."""
    return Outcome(process_seconds=1.0, engine_seconds=None, peak_mib=1.0, responses=responses)


@needs_data
@needs_lm_eval
@pytest.mark.campaign
def test_both_sides_run_the_same_work(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    from benchmarks.against_lm_eval import main

    works = ["letters_one_header", "gsm8k_generation", "gsm8k_ended", "perplexity"]
    options = [option for work in works for option in ("--only", work)]
    sizes = ["--questions", "3", "--text-tokens", "3000", "--batch-size", "2", "--threads", "1"]
    assert main(["--work", str(tmp_path), "--model", "tiny", *options, *sizes]) == 0
    lines = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert lines[0]["measured"] == "versions"
    assert [(line["measured"], line["work"]) for line in lines[1:]] == [
        (measured, work) for work in works for measured in ("pilot", "against_lm_eval")
    ]
    choice, generation, ended, perplexity = lines[2::2]
    numbers = [f"{side}_{what}" for side in ("ours", "lm_eval") for what in ("process_s", "engine_s", "peak_mib")] + [
        "ratio_process",
        "ratio_engine",
        "ratio_memory",
    ]
    for line in (choice, generation, ended, perplexity):
        assert line["model"] == "tiny"
        assert line["lm_eval_batch_size"] == 2
        assert all(line[number] > 0 for number in numbers), line
    assert (choice["questions"], choice["requests"]) == (3, 12)
    assert choice["largest_difference"] < 1e-4
    for line in (generation, ended):
        assert line["equal_generations"] == line["questions"] == 3
    assert perplexity["requests"] == 1
    assert perplexity["largest_relative_difference"] < 1e-6  # of a sum over 3,000 tokens


@needs_data
def test_each_number_of_questions_is_a_work_of_its_own() -> None:
    from benchmarks.against_lm_eval import made_works, parsed

    def numbers(*given: str) -> list[tuple[str, int]]:
        options = parsed(["--only", "mmlu_texts", "--only", "perplexity", *given])
        works = made_works(options, Sizes(max_length=600, num_text_tokens=500), lambda text: len(text.split()))
        return [(work.name, len(work.prompts)) for work in works]

    assert numbers() == [("mmlu_texts", 60), ("mmlu_texts", 200), ("perplexity", 1)]
    assert numbers("--questions", "5", "3") == [("mmlu_texts", 5), ("mmlu_texts", 3), ("perplexity", 1)]


def test_the_table_of_the_readme() -> None:
    from benchmarks.against_lm_eval import markdown

    line: dict[str, object] = {"model": "gpt2", "work": "mmlu_texts", "questions": 60}
    times: dict[str, object] = {"lm_eval_process_s": 71.4, "ours_process_s": 23.8, "ratio_process": 2.96}
    row = markdown([line | times]).splitlines()[-1]
    assert [cell.strip() for cell in row.split("|")[1:-1]] == ["gpt2", "mmlu_texts", "60", "71 s", "24 s", "3.0"]


def test_the_table_of_servers() -> None:
    from benchmarks.against_lm_eval_server import markdown

    letters: dict[str, object] = {"work": "letters_one_header", "requests": 400, "largest_difference": 5e-06}
    texts: dict[str, object] = {"work": "gsm8k_generation", "requests": 100, "equal_generations": 99}
    rates: dict[str, object] = {"measured": "against_lm_eval_server", "ours_requests_per_s": 80.5, "ratio": 12.3}
    lines: list[dict[str, object]] = [
        {**rates, **letters, "ratio_process": 4.1},
        {**rates, **texts, "ratio_process": 1.5},
        {"measured": "lm_eval_vllm", "work": "letters_one_header", "ratio": 6.1},
        {"measured": "lm_eval_vllm", "work": "gsm8k_generation", "failed": "it did not start"},
    ]
    assert markdown(lines).splitlines()[2:] == [
        "| letters_one_header | 400 | 80.5 | 12.3 | 4.1 | 6.1 | 5e-06 nats |",
        "| gsm8k_generation | 100 | 80.5 | 12.3 | 1.5 |  | 99 texts equal |",
    ]


@needs_data
@needs_lm_eval
@pytest.mark.campaign
def test_server_is_started_for_both_sides(capfd: pytest.CaptureFixture[str]) -> None:
    from benchmarks.against_lm_eval_server import main
    from tests.servers.language_models import DEMO
    from tests.servers.real import gguf, install

    server = ["--launch", f"llama-cpp:{gguf()}", "--command", str(install("llama-cpp-python"))]
    assert main([*server, "--tokenizer", str(DEMO), "--questions", "2", "--only", "gsm8k_generation"]) == 0
    line, _, *table = capfd.readouterr().out.splitlines()
    found = json.loads(line)
    assert found["equal_generations"] == found["questions"] == 2
    assert table[-1].startswith("| gsm8k_generation | 2 |")


@needs_data
def test_works_fit_the_model_and_share_what_they_say() -> None:
    sizes = Sizes(max_length=600, num_questions=20, num_subjects=3)

    def words(text: str) -> int:
        return len(text.split())

    def header(prompt: Prompt) -> str:
        return prompt.context.rpartition("\n\n")[0].partition("\n\n")[2][:80]

    works = {
        name: make_work(f"letters_{name}", sizes, words) for name in ("one_header", "several_headers", "other_shots")
    }
    for work in works.values():
        assert len({prompt.context for prompt in work.prompts}) == 20
        assert all(words(prompt.context) < 600 for prompt in work.prompts)
        assert all(prompt.context.endswith("Answer:") for prompt in work.prompts)
    assert len({header(prompt) for prompt in works["one_header"].prompts}) == 1
    assert len({header(prompt) for prompt in works["several_headers"].prompts}) == 3
    assert len({header(prompt) for prompt in works["other_shots"].prompts}) == 20
    again = make_work("letters_other_shots", sizes, words)
    assert again == works["other_shots"]


def test_distinct_positions_are_distinct_prefixes() -> None:
    generator = random.Random(0)
    rows = [[generator.randrange(3) for _ in range(generator.randrange(1, 8))] for _ in range(60)]
    assert count_distinct_positions(rows) == len({tuple(row[: n + 1]) for row in rows for n in range(len(row))})


def test_the_time_of_progress_bars() -> None:
    bars = (
        "Running loglikelihood requests:  50%|█████     | 400/800 [00:05<00:05, 80.00it/s]\r"
        "Running loglikelihood requests: 100%|██████████| 800/800 [00:10<00:00, 91.20it/s]\r"
        "Running loglikelihood requests: 100%|██████████| 800/800 [00:10<00:00, 78.43it/s]\n"
        "100%|██████████| 1/1 [00:00<00:00, 160.00it/s]\n"
        "Running generate_until requests: 100%|██████████| 32/32 [01:04<00:00,  2.01s/it]\n"
    )
    assert engine_seconds(bars) == pytest.approx(800 / 78.43 + 32 * 2.01)
    assert engine_seconds("nothing here") is None


def test_a_missing_response_is_no_agreement() -> None:
    ours = outcome({"a": (-1.0, -2.0), "b": (-3.0,)})
    assert largest_difference(ours, outcome({"a": (-1.0, -2.5), "b": (-3.25,)})) == 0.5
    assert largest_difference(ours, outcome({"a": (-1.0, -2.0)})) == float("inf")
    assert largest_difference(ours, outcome({"a": (-1.0,), "b": (-3.0,)})) == float("inf")
    assert largest_difference(ours, outcome({"a": (-1.0, -2.0), "b": (float("nan"),)})) == float("inf")
    assert largest_difference(ours, outcome({"a": (-1.0, -2.5), "b": (-3.0,)}), relative=True) == 0.2
    texts = outcome({"a": "x", "b": "y"})
    assert equal_texts(texts, outcome({"a": "x", "b": "z"})) == 1
