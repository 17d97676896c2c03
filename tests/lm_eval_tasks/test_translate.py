"""Task files read as lm-eval reads them, and made suites: without lm-eval, on files that the tests write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.format.sniff import is_task_file
from pytest_llmeval.suites.lm_eval.groups import Leaf
from pytest_llmeval.suites.lm_eval.load import convert, load_task, metric_pairs
from pytest_llmeval.suites.lm_eval.task_file import read_task_file
from pytest_llmeval.suites.lm_eval.translate import translate
from pytest_llmeval.suites.lm_eval.translate_scoring import Scoring
from pytest_llmeval.suites.loading.loader import load_suite
from pytest_llmeval.types import GenerateRequest, LoglikelihoodRequest

CHOICE = """\
task: colours
dataset_path: org/colours
dataset_name: main
test_split: test
fewshot_split: train
output_type: multiple_choice
doc_to_text: "{{question}}\\nAnswer:"
doc_to_target: "{{answer}}"
doc_to_choice: "{{[a, b]}}"
"""
REPLY = """\
task: sums
dataset_path: org/sums
test_split: test
doc_to_text: "{{q}} ="
doc_to_target: sum
generation_kwargs: {until: ["\\n"], max_gen_toks: 8}
"""


def native(text: str, folder: Path) -> dict[str, Any]:
    path = folder / "task.yaml"
    path.write_text(text)
    return translate(read_task_file(Source(path, "task.yaml")))[0].value


def refusal(text: str, folder: Path) -> str:
    with pytest.raises(SuiteError) as refused:
        native(text, folder)
    return str(refused.value)


def test_a_choice_task(tmp_path: Path) -> None:
    assert native(CHOICE, tmp_path) == {
        "suite": "colours",
        "dataset": {
            "hub": "org/colours",
            "config": "main",
            "split": "test",
            "columns_first": True,
            "python_values": True,
            "first_id": 0,
        },
        "choices": "{{[a, b]}}",
        "target": "{{ answer | index_or_text }}",
        "prompt": {
            "template": "{{question}}\nAnswer:",
            "delimiter": " ",
            "fewshot": {
                "count": 0,
                "sampler": "lm_eval",
                "spare": False,
                "hub": "org/colours",
                "config": "main",
                "split": "train",
                "delimiter": "\n\n",
            },
        },
        "score": {"choice": {"normalize": "sum", "ties": "first"}},
    }


def metrics_of(*names: str) -> str:
    return CHOICE + "metric_list:\n" + "".join(f"  - metric: {name}\n" for name in names)


def test_accuracy_is_the_first_of_the_tasks_accuracies(tmp_path: Path) -> None:
    """As in mmlu_pro_plus and others: mutual information beside acc takes nothing from it."""
    made = native(metrics_of("acc", "acc_mutual_info", "brier_score"), tmp_path)
    assert made["score"] == {"choice": {"normalize": "sum", "ties": "first", "metrics": ["accuracy_pmi"]}}
    assert [(pair.metric, pair.name) for pair in metric_pairs(tmp_path / "task.yaml")] == [
        ("acc", "accuracy_sum_first"),
        ("acc_mutual_info", "accuracy_pmi_first"),
        ("brier_score", "brier_sum"),
    ]
    assert native(metrics_of("acc_mutual_info", "acc"), tmp_path)["score"]["choice"]["normalize"] == "pmi"
    assert native(metrics_of("mcc", "acc_norm", "acc"), tmp_path)["score"]["choice"]["normalize"] == "char"


@pytest.mark.parametrize("first", ["acc_norm", "acc_mutual_info"])
def test_a_brier_score_of_other_probabilities_than_its_own_is_refused(tmp_path: Path, first: str) -> None:
    found = refusal(metrics_of(first, "acc", "brier_score"), tmp_path)
    assert found.endswith(
        f"metric_list.2: brier_score uses the same probabilities as acc; write the metric acc before {first}"
    )
    native(metrics_of("acc", first, "brier_score"), tmp_path)


def test_several_pipelines_and_metrics_are_several_scorers(tmp_path: Path) -> None:
    made = native(
        REPLY
        + """\
filter_list:
- name: strict-match
  filter: [{function: regex, regex_pattern: "#### (.*)"}, {function: take_first}]
- name: flexible
  filter: [{function: regex, regex_pattern: "[0-9]+", group_select: -1}, {function: take_first}]
metric_list:
- metric: exact_match
  ignore_case: true
  ignore_punctuation: true
  regexes_to_ignore: [","]
- metric: bleu
""",
        tmp_path,
    )
    exact = {"exact": {"normalize": [{"remove": ","}, "lower", "no_ascii_punctuation"], "allow_empty": True}}
    strict, flexible = {"regex": {"pattern": "#### (.*)"}}, {"regex": {"pattern": "[0-9]+", "match": "last"}}
    assert made["score"] == {
        "several": {
            "scorers": {
                "strict-match-exact_match": {"filters": [strict], "score": exact},
                "strict-match-bleu": {"filters": [strict], "score": {"bleu": {"k": [4]}}},
                "flexible-exact_match": {"filters": [flexible], "score": exact},
                "flexible-bleu": {"filters": [flexible], "score": {"bleu": {"k": [4]}}},
            }
        }
    }
    assert [(pair.metric, pair.pipeline, pair.name) for pair in metric_pairs(tmp_path / "task.yaml")] == [
        ("exact_match", "strict-match", "accuracy"),
        ("bleu", "strict-match", "strict-match-bleu.bleu_4"),
        ("exact_match", "flexible", "flexible-exact_match.accuracy"),
        ("bleu", "flexible", "flexible-bleu.bleu_4"),
    ]


@pytest.mark.parametrize(
    ("rule", "target"),
    [
        ("answer", "answer"),
        ("1", 1),
        ('"{{ a - 1 }}"', "{{ (a - 1) | index_or_text }}"),
        ('"{{ a | int }}"', "{{ a | int | index_or_text }}"),
        ('" {{ a }}"', "{% set made %} {{ a }}{% endset %}{{ made | index_or_text }}"),
        ('"{{ a }}{{ b }}"', "{% set made %}{{ a }}{{ b }}{% endset %}{{ made | index_or_text }}"),
        ('"the answer"', "{{ (row['the answer'] if 'the answer' in row else 'the answer') | index_or_text }}"),
    ],
)
def test_targets(tmp_path: Path, rule: str, target: object) -> None:
    made = native(CHOICE.replace('doc_to_target: "{{answer}}"', f"doc_to_target: {rule}"), tmp_path)["target"]
    assert made == target


def test_yaml_is_read_as_lm_eval_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(
        "task: t\nshould_decontaminate: yes\nnum_fewshot: 0o3\nmetadata: {version: 1.0}\nrepeats: 1\nrepeats: 2\n"
    )
    value = read_task_file(Source(path, "task.yaml")).value
    assert value == {
        "task": "t",
        "should_decontaminate": True,
        "num_fewshot": "0o3",
        "metadata": {"version": 1.0},
        "repeats": 2,
    }


def test_of_a_key_in_several_files_the_last_wins_and_errors_name_the_file_that_has_it(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("tag: [x, y]\noutput_type: generate_until\nnum_fewshot: two\n")
    (tmp_path / "other").write_text("output_type: loglikelihood\n")
    text = "include: [one, other]\n" + REPLY
    assert refusal(text, tmp_path).startswith("one:3: num_fewshot: found 'two' (text)")
    (tmp_path / "one").write_text("include: task.yaml\n")
    assert refusal(text, tmp_path) == "one:1: include: 'task.yaml' includes this file again"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            "fewshot_config: {sampeler: x}\n",
            "task.yaml:7: unknown key 'sampeler' in fewshot_config; did you mean 'sampler'?",
        ),
        (
            "dataset_kwargs: {data_fils: x}\n",
            "task.yaml:7: unknown key 'data_fils' in dataset_kwargs; did you mean 'data_files'?",
        ),
        (
            "use_prompt: promptsource:*\n",
            "task.yaml:7: use_prompt: prompts of promptsource are not available; write the template as doc_to_text",
        ),
        (
            "filter_list: [{name: x, filter: [{function: regexx}]}]\n",
            "task.yaml:7: filter_list.0.filter.0.function: there is no filter 'regexx' here; did you mean 'regex'?",
        ),
        (
            "filter_list: [{name: x, filter: [{function: regex}]}]\n",
            "task.yaml:7: filter_list.0.filter: expected take_first at the end, which takes one of the replies",
        ),
        (
            "metric_list: [{metric: exact_match, hf_evaluate: true}]\n",
            "task.yaml:7: unknown argument 'hf_evaluate' in metric_list.0; expected one of ignore_case, "
            "ignore_punctuation, ignore_numbers, regexes_to_ignore",
        ),
        (
            "metric_list: [{metric: exact_match, aggregation: median}]\n",
            "task.yaml:7: metric_list.0.aggregation: found 'median' (text), expected mean for exact_match",
        ),
        ("repeats: 0\n", "task.yaml:7: repeats: found 0 (a whole number), expected a number of at least 1"),
        (
            "unsafe_code: true\n",
            "task.yaml:7: unsafe_code: its code is not run; the presets humaneval and mbpp run code (--llm-allow-code)",
        ),
        (
            "fewshot_config: {split: 3}\n",
            "task.yaml:7: fewshot_config.split: found 3 (a whole number), expected text; put it in quotes",
        ),
        ("dataset_kwargs: [x]\n", "task.yaml:7: dataset_kwargs: found a list of 1, expected a mapping"),
        (
            "output_type: loglikelihod\n",
            "task.yaml:7: output_type: found 'loglikelihod' (text), expected one of multiple_choice, generate_until, "
            "loglikelihood, loglikelihood_rolling; did you mean 'loglikelihood'?",
        ),
        (
            "gen_prefix: !function utils.f\n",
            "task.yaml:7: gen_prefix: found '!function utils.f', expected text",
        ),
    ],
)
def test_what_has_no_like_here_is_refused(tmp_path: Path, changed: str, message: str) -> None:
    assert refusal(REPLY + changed, tmp_path) == message


def test_greedy_decoding_by_lm_evals_rules(tmp_path: Path) -> None:
    def generate(settings: str) -> dict[str, Any]:
        text = REPLY.replace('generation_kwargs: {until: ["\\n"], max_gen_toks: 8}', f"generation_kwargs: {settings}")
        made: dict[str, Any] = native(text, tmp_path)["generate"]
        assert made.pop("reasoning") is False, "the whole of a reply is scored"
        return made

    assert generate("{}") == {"max_tokens": 256, "stop": ["\n\n"], "temperature": 0.0}
    assert generate("{until: Q, temperature: 0.7, do_sample: false}")["temperature"] == 0.0
    assert generate("{until: Q, temperature: 0.7}") == {"max_tokens": 256, "stop": ["Q"], "temperature": 0.7}
    sampled = generate("{until: [], do_sample: true, temperature: 0.8, top_p: 0.95, max_new_tokens: 5}")
    assert sampled == {"max_tokens": 5, "stop": [], "temperature": 0.8, "top_p": 0.95}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ("{do_sample: false, top_k: 50}", {}),
        ("{top_k: 50}", {}),
        ("{do_sample: false, top_p: 0.9, top_k: 50, temperature: 0.7}", {}),
        ("{do_sample: true, temperature: 0.7, top_k: 50}", {"top_k": 50}),
        ("{do_sample: true, temperature: 0.7, top_k: 0}", {}),
        ("{do_sample: true, temperature: 0.7, top_k: -1}", {}),
        ("{do_sample: false, repetition_penalty: 1.0}", {}),
        ("{do_sample: false, repetition_penalty: 1.2}", {"repetition_penalty": 1.2}),
        ("{do_sample: true, temperature: 1, repetition_penalty: 2}", {"repetition_penalty": 2.0}),
    ],
)
def test_top_k_and_a_penalty_as_transformers_take_them(tmp_path: Path, settings: str, expected: dict[str, Any]) -> None:
    """lm-eval hands both on: without sampling, ``top_k`` does nothing there, and a penalty does."""
    text = REPLY.replace('generation_kwargs: {until: ["\\n"], max_gen_toks: 8}', f"generation_kwargs: {settings}")
    made = native(text, tmp_path)["generate"]
    assert {key: value for key, value in made.items() if key in ("top_k", "top_p", "repetition_penalty")} == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "{top_k: many}",
            "generation_kwargs.top_k: found 'many' (text), expected a whole number of at least 1, or 0 or -1",
        ),
        (
            "{repetition_penalty: 0}",
            "generation_kwargs.repetition_penalty: found 0 (a whole number), expected a number ab",
        ),
    ],
)
def test_sampling_that_cannot_be(tmp_path: Path, settings: str, message: str) -> None:
    text = REPLY.replace('generation_kwargs: {until: ["\\n"], max_gen_toks: 8}', f"generation_kwargs: {settings}")
    assert message in refusal(text, tmp_path)


def local(folder: Path, text: str, rows: list[dict[str, Any]]) -> Path:
    """A task over rows of this folder. Its file is looked for in the current one, as lm-eval does."""
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    path = folder / "task.yaml"
    name, *rest = text.splitlines(keepends=True)
    kept = [line for line in rest if not line.startswith(("dataset_", "fewshot_split"))]
    path.write_text(name + "dataset_path: json\ndataset_kwargs: {data_files: {test: rows.jsonl}}\n" + "".join(kept))
    return path


def test_a_converted_task_asks_what_the_task_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows: list[dict[str, Any]] = [
        {
            "question": f"Is {n} odd?",
            "a": "no: yes",
            "b": "#1",
            "answer": n % 2,
            "choices": None,
            "category": ["x"],
            "id": "same",
        }
        for n in range(4)
    ]
    path = local(tmp_path, CHOICE + "num_fewshot: 2\ndescription: \"{{choices}} 'yes'\\n\\n\"\n", rows)
    (tmp_path / "suite.yaml").write_text(convert(path))
    suites = [load_task(Leaf(Source(path, "task.yaml"))), load_suite(tmp_path / "suite.yaml")]
    asked = [
        {sample.id: evaluation.question(sample).requests for sample in evaluation.suite.samples}
        for evaluation in map(Evaluation, suites)
    ]
    assert asked[0] == asked[1]
    assert list(asked[0]) == ["0", "1", "2", "3"], "ids are the documents' numbers, whatever columns there are"
    first = asked[0]["0"][0]
    assert isinstance(first, LoglikelihoodRequest)
    assert isinstance(first.context, str)
    assert first.context.startswith("None 'yes'\n\nIs "), "a column is what a template sees, null as Python writes it"


def test_a_converted_task_whose_text_is_a_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"a": f"{n} red", "b": "blue", "answer": n % 2, "rest": "is it."} for n in range(3)]
    text = CHOICE.replace('"{{question}}\\nAnswer:"', "answer").replace('"{{answer}}"', '"{{rest}}"')
    path = local(tmp_path, text, rows)
    (tmp_path / "suite.yaml").write_text(convert(path))
    for suite in (load_task(Leaf(Source(path, "task.yaml"))), load_suite(tmp_path / "suite.yaml")):
        evaluation = Evaluation(suite)
        assert [sample.target for sample in suite.samples] == [0, 1, 0]
        assert evaluation.question(suite.samples[1]).requests == (
            LoglikelihoodRequest("1 red", " is it."),
            LoglikelihoodRequest("blue", " is it."),
        )


def test_a_target_that_is_no_column_where_a_function_judges(tmp_path: Path) -> None:
    """lm-eval takes the word for itself, and ``process_results`` need not look at it."""
    path = tmp_path / "task.yaml"
    path.write_text(REPLY)
    task = read_task_file(Source(path, "task.yaml"))
    made = translate(task, scoring=Scoring({"custom": {"name": "of_results"}}, [], None, ()))[0].value
    assert made["target"] == "{{ row['sum'] if 'sum' in row else 'sum' }}"
    assert translate(task)[0].value["target"] == "sum", "a column that has to be there"


@pytest.mark.parametrize(
    "text",
    [
        "1e3",
        "0o17",
        "yes",
        "null",
        "~",
        "a: b",
        "#x",
        "- x",
        " x",
        "x ",
        "",
        "\n",
        "\n\n",
        "a\nb",
        "a\n b\n",
        "é\t",
        "{x",
        "'",
        '"\\',
    ],
)
def test_converted_texts_are_read_back(tmp_path: Path, text: str) -> None:
    path = tmp_path / "task.yaml"
    path.write_text(REPLY + f"fewshot_config: {{samples: [{{q: {json.dumps(text)}, sum: {json.dumps([text])}}}]}}\n")
    value = parse_yaml(convert(path), Source(path, "")).value
    assert isinstance(value, dict)
    assert value["prompt"]["fewshot"]["samples"] == [{"q": text, "sum": [text]}]  # type: ignore[index,call-overload]


def test_a_reply_task_over_local_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = local(tmp_path, REPLY, [{"q": "1 + 1", "sum": 2}])
    evaluation = Evaluation(load_task(Leaf(Source(path, "task.yaml"))))
    (request,) = evaluation.question(evaluation.suite.samples[0]).requests
    assert request == GenerateRequest("1 + 1 =", max_tokens=8, stop=("\n",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (CHOICE, True),
        ("# comment\ninclude: x\ntask: y\n", True),
        ("group: g\ntask:\n- a\n", True),
        ("task:\n  - a\n", True),
        ("dataset_path: x\noutput_type: y\n", False),
        ("task: deploy\nhosts: all\n", False),
        ("tasks:\n- name: x\ndataset_path: y\n", False),
        ("suite: s\ntask: x\ndataset_path: y\n", False),
        ("  task: x\n  include: y\n", False),
        ("", False),
    ],
)
def test_recognition(tmp_path: Path, text: str, expected: bool) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)
    assert is_task_file(path) is expected
