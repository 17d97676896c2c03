"""How a preset and a suite become one, and what is said where they do not fit."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from pytest_llmeval.cli import main
from pytest_llmeval.data.files import Source
from pytest_llmeval.data.yaml_reader import parse_yaml
from pytest_llmeval.errors import SuiteError
from pytest_llmeval.evaluation.evaluation import Evaluation
from pytest_llmeval.suites.format.schema import SuiteSpec
from pytest_llmeval.suites.loading.fewshot import contradiction
from pytest_llmeval.suites.presets import PresetError, all_presets, load_preset, with_preset
from pytest_llmeval.types import GenerateResponse, LoglikelihoodRollingRequest, Message, Score
from tests.presets import rows
from tests.presets.conftest import Load
from tests.scoring.judge.helpers import drive, scripted
from tests.support import fake_model_conftest


@pytest.mark.parametrize("preset", list(all_presets()), ids=lambda preset: preset.name)
def test_every_preset_is_a_valid_suite_that_says_where_it_comes_from(preset: Any) -> None:
    value, found = with_preset({"suite": "s", "preset": preset.name})
    assert found == preset
    spec = SuiteSpec.model_validate(value)
    assert spec.dataset is not None
    assert spec.prompt.template is not None
    for rows_spec in (spec.dataset, spec.prompt.fewshot):
        is_of_hub = rows_spec is not None and rows_spec.hub is not None
        assert not is_of_hub or (rows_spec.key, rows_spec.columns) == (None, None), "what holds for files alone"  # type: ignore[union-attr]
    for text in (preset.description, preset.source, preset.formula):
        assert text.strip()
    assert load_preset(preset.name) == preset


def test_the_presets_that_are_promised() -> None:
    names = {preset.name for preset in all_presets()}
    assert names >= {
        *("mmlu", "arc-easy", "arc-challenge", "hellaswag", "winogrande", "truthfulqa-mc1", "truthfulqa-mc2"),
        *("gsm8k", "gsm8k-number", "csqa", "csqa-text", "boolq", "boolq-lm-eval", "bbh-cot-navigate"),
        *("bbh-direct-snarks", "math-hendrycks", "math-minerva", "math", "math-judged", "squad"),
        *("piqa", "openbookqa", "social-iqa", "lambada-openai", "lambada-standard", "wikitext", "perplexity"),
        *("chronologic-brier", "chronologic-mcq"),
    }
    assert sum(name.startswith("bbh-") for name in names) == 2 * 27


def test_keys_of_the_suite_win(load: Load) -> None:
    suite = load(
        """
suite: s
preset: csqa
dataset: {path: rows.jsonl, fields: {extra: "{{ question | upper }}"}}
prompt: {delimiter: "\\n"}
score: {choice: {normalize: byte}}
""",
        {"rows.jsonl": rows.CSQA},
    )
    assert suite.spec.prompt.delimiter == "\n"
    assert suite.spec.prompt.template is not None
    assert suite.spec.prompt.template.startswith("Question:")
    assert suite.samples[0].variables["extra"] == " WHERE WOULD YOU FIND A PILLOW?"
    assert suite.spec.score.model_dump()["normalize"] == "byte"


_MCQ = {"rule": "first_upper", "exclude_types": ("negation",), "labels": "upper", "shuffle": True}


@pytest.mark.parametrize(
    ("preset", "own", "kind", "expected"),
    [
        ("chronologic-mcq", {"letter": {"exclude_types": []}}, "letter", _MCQ | {"exclude_types": ()}),
        ("chronologic-mcq", {"letter": {"shuffle": False}}, "letter", _MCQ | {"shuffle": False}),
        ("chronologic-mcq", {"letter": {"rule": "stated"}}, "letter", _MCQ | {"rule": "stated"}),
        ("chronologic-mcq", {"letter": None}, "letter", _MCQ),
        ("chronologic-mcq", "letter", "letter", _MCQ),
        ("chronologic-mcq", "choice", "choice", {"normalize": "token", "ties": "share"}),
        ("chronologic-mcq", {"mass": {"normalize": "char"}}, "mass", {"normalize": "char"}),
        ("arc-easy", {"choice": {"normalize": "byte"}}, "choice", {"normalize": "byte", "ties": "first"}),
        ("boolq", "yes_no", "yes_no", {"by": "generation", "rule": "prefix"}),
        ("boolq", {"yes_no": {"by": "loglikelihood"}}, "yes_no", {"by": "loglikelihood", "tie_is_no": False}),
        ("winogrande", {"choice": {"continuation": None}}, "choice", {"continuation": None, "normalize": "sum"}),
        ("csqa-text", {"choice": {"normalize": "char"}}, "choice", {"normalize": "char", "ties": "share"}),
    ],
)
def test_settings_of_the_presets_scorer_that_the_suite_does_not_give_stay(
    preset: str, own: Any, kind: str, expected: dict[str, Any]
) -> None:
    value, _ = with_preset({"suite": "s", "preset": preset, "score": own})
    score = SuiteSpec.model_validate(value).score
    assert score.kind == kind
    assert {key: getattr(score, key) for key in expected} == expected


@pytest.mark.parametrize("preset", ["gsm8k", "math-minerva"])
def test_several_scorers_of_a_preset_stay_where_another_decides(preset: str) -> None:
    scorers = load_preset(preset).defaults["score"]["several"]["scorers"]
    last = list(scorers)[-1]
    value, _ = with_preset({"suite": "s", "preset": preset, "score": {"several": {"decides": last}}})
    assert value["score"] == {"several": {"scorers": scorers, "decides": last}}


@pytest.mark.parametrize("preset", list(all_presets()), ids=lambda preset: preset.name)
def test_a_preset_shows_its_scorer_with_all_that_applies_as_a_suite_can_write_it(
    preset: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["presets", preset.name]) == 0
    text = capsys.readouterr().out.partition("\ndefaults:\n")[2]
    shown: Any = parse_yaml(text, Source(Path("shown.yaml"), "shown.yaml")).value  # to others a key on is true
    written, _ = with_preset({"suite": "s", "preset": preset.name})
    assert SuiteSpec.model_validate(written | shown).score == SuiteSpec.model_validate(written).score
    assert {key: part for key, part in shown.items() if key != "score"} == json.loads(
        json.dumps({key: part for key, part in preset.defaults.items() if key != "score"})
    )


def test_a_setting_of_the_suite_that_contradicts_the_presets_says_what_to_write(load: Load) -> None:
    text = "suite: s\npreset: chronologic-mcq\nsamples: [{id: a}]\nscore: {letter: {labels: lower}}\n"
    with pytest.raises(SuiteError, match=r"s\.yaml:4: score\.letter: rule first_upper .* found labels 'lower'; "):
        load(text)
    text = "suite: s\npreset: chronologic-mcq\nsamples: [{id: a}]\nscore: {letter: {3: lower}}\n"
    with pytest.raises(SuiteError, match=r"s\.yaml:4: .*3"):
        load(text)


def test_an_override_of_one_setting_keeps_the_presets_too(load: Load) -> None:
    text = "suite: s\npreset: chronologic-mcq\ndataset: {path: rows.jsonl}\nscore: letter\n"
    for override in ("s: score.letter.exclude_types=[]", "s: score={letter: {exclude_types: []}}"):
        suite = load(text, {"rows.jsonl": rows.EVENTS}, override)
        assert suite.spec.score.model_dump(include={"exclude_types"}) == {"exclude_types": ()}
        assert getattr(suite.spec.score, "rule", None) == "first_upper"


def test_the_report_shows_settings_as_they_apply_and_fingerprints_stay(load: Load) -> None:
    def evaluation(score: str) -> Evaluation:
        text = f"suite: s\npreset: boolq\ndataset: {{path: rows.jsonl}}\nscore: {score}\n"
        return Evaluation(load(text, {"rows.jsonl": rows.BOOLQ}))

    preset = evaluation("yes_no")
    assert preset.settings == {"by": "generation", "rule": "prefix"}
    assert evaluation("{yes_no: {by: loglikelihood}}").settings == {"by": "loglikelihood", "tie_is_no": False}
    written = evaluation("{yes_no: {by: generation, rule: prefix, tie_is_no: false}}")
    assert written.fingerprints() == preset.fingerprints()
    assert evaluation("{yes_no: {rule: word}}").fingerprints() != preset.fingerprints()


def test_a_source_of_the_suite_replaces_the_presets(load: Load) -> None:
    suite = load("suite: s\npreset: csqa\ndataset: {path: rows.jsonl}\n", {"rows.jsonl": rows.CSQA})
    assert suite.spec.dataset is not None
    assert (suite.spec.dataset.hub, suite.spec.dataset.split) == (None, None)


def test_another_config_of_the_same_hub_data_set() -> None:
    value: Any = with_preset({"suite": "s", "preset": "mmlu", "dataset": {"config": "anatomy"}})[0]
    assert (value["dataset"]["hub"], value["dataset"]["config"]) == ("cais/mmlu", "anatomy")
    assert "columns" not in value["dataset"]  # of the CSV files only


def test_samples_in_the_suite_itself(load: Load) -> None:
    suite = load(
        "suite: s\npreset: boolq\nsamples:\n  - {question: is it, passage: It is., answer: true}\n"
        "  - {question: was it, passage: No., answer: false}\n"
    )
    assert [sample.target for sample in suite.samples] == [True, False]


def test_overrides_win_over_the_preset(load: Load) -> None:
    text = "suite: s\npreset: gsm8k\ndataset: {path: rows.jsonl}\n"
    suite = load(text, {"rows.jsonl": rows.GSM8K}, "s: prompt.fewshot.count=0", "s: generate.max_tokens=7")
    assert (suite.spec.generate.max_tokens, suite.spec.generate.stop[0]) == (7, "Question:")


def test_mmlu_as_published_without_a_header(load: Load) -> None:
    text = """
suite: s
preset: mmlu
dataset: {path: "*_test.csv"}
prompt: {fewshot: {path: "*_dev.csv", count: 2}}
"""
    files = {
        "anatomy_test.csv": 'Which?,one,"two, or more",three,four,B\nWhere?,here,there,up,down,D\n',
        "anatomy_dev.csv": "Who?,a,b,c,d,A\nWhen?,e,f,g,h,C\n",
        "high_school_physics_test.csv": "How?,1,2,3,4,A\n",
        "high_school_physics_dev.csv": "Why?,i,j,k,l,B\nSo?,m,n,o,p,D\n",
    }
    evaluation = Evaluation(load(text, files))
    first, second, other = evaluation.suite.samples
    assert (first.category, other.category) == ("anatomy", "high_school_physics")
    assert str(evaluation.question(other).prompt).startswith(
        "The following are multiple choice questions (with answers) about high school physics.\n\nWhy?\nA. i"
    )
    assert (first.target, second.target) == (1, 3)
    assert evaluation.question(first).prompt == (
        "The following are multiple choice questions (with answers) about anatomy.\n\n"
        "Who?\nA. a\nB. b\nC. c\nD. d\nAnswer: A\n\n"
        "When?\nA. e\nB. f\nC. g\nD. h\nAnswer: C\n\n"
        "Which?\nA. one\nB. two, or more\nC. three\nD. four\nAnswer:"
    )


def test_nested_rows_as_published(load: Load) -> None:
    nested = [
        {
            "id": row["id"],
            "answerKey": row["answerKey"],
            "question": {
                "stem": row["question"],
                "choices": [
                    {"label": label, "text": text}
                    for label, text in zip(row["choices"]["label"], row["choices"]["text"], strict=True)
                ],
            },
        }
        for row in rows.ARC
    ]
    text = "suite: s\npreset: arc-easy\ndataset: {path: rows.jsonl}\n"
    flat, deep = (Evaluation(load(text, {"rows.jsonl": some})) for some in (rows.ARC, nested))
    for one, other in zip(flat.suite.samples, deep.suite.samples, strict=True):
        assert flat.question(one).requests == deep.question(other).requests


def test_bbh_as_published_is_an_object_with_examples(load: Load) -> None:
    document = json.dumps({"canary": "…", "examples": rows.BBH})
    suite = load("suite: s\npreset: bbh-direct-navigate\ndataset: {path: navigate.json}\n", {"navigate.json": document})
    assert len(suite.samples) == len(rows.BBH)


@pytest.mark.parametrize("preset", ["csqa", "winogrande", "hellaswag", "boolq-lm-eval", "gsm8k"])
@pytest.mark.parametrize("sampler", ["first_n", "seeded"])
def test_another_sampler_without_what_the_presets_needs(preset: str, sampler: str) -> None:
    fewshot: Any = {"sampler": sampler, "count": 2}
    value: Any = with_preset({"suite": "s", "preset": preset, "prompt": {"fewshot": fewshot}})[0]
    assert value["prompt"]["fewshot"].keys().isdisjoint(("spare", "seed"))
    assert contradiction(SuiteSpec.model_validate(value).prompt) is None


def test_the_presets_own_sampler_keeps_what_it_needs() -> None:
    fewshot: Any = {"sampler": "lm_eval", "count": 2}
    value: Any = with_preset({"suite": "s", "preset": "csqa", "prompt": {"fewshot": fewshot}})[0]
    assert value["prompt"]["fewshot"]["spare"] is True


def test_the_presets_own_hub_may_be_written_out() -> None:
    dataset: Any = {"hub": "openai/gsm8k", "config": "main", "split": "train"}
    value: Any = with_preset({"suite": "s", "preset": "gsm8k", "dataset": dataset})[0]
    assert value["dataset"] == dataset
    assert (value["prompt"]["fewshot"]["hub"], value["prompt"]["fewshot"]["split"]) == ("openai/gsm8k", "train")


@pytest.mark.parametrize("hub", [{}, {"hub": "allenai/ai2_arc"}])
def test_revision_and_config_are_those_of_the_examples_too(hub: dict[str, str]) -> None:
    own: dict[str, Any] = {"suite": "s", "preset": "arc-easy", "dataset": {**hub, "revision": "r", "config": "c"}}
    value: Any = with_preset(own)[0]
    examples = value["prompt"]["fewshot"]
    assert (examples["revision"], examples["config"], examples["split"]) == ("r", "c", "train")
    own["prompt"] = {"fewshot": {"config": "ARC-Easy"}}
    value = with_preset(own)[0]
    assert (value["prompt"]["fewshot"]["revision"], value["prompt"]["fewshot"]["config"]) == ("r", "ARC-Easy")
    others: tuple[dict[str, Any], ...] = ({"path": "p.jsonl"}, {"samples": []}, {"hub": "some/other"})
    for other in others:
        own["prompt"] = {"fewshot": other}
        value = with_preset(own)[0]
        assert value["prompt"]["fewshot"].keys().isdisjoint(("revision", "config")), other


def test_what_else_the_suite_says_of_the_examples_stays() -> None:
    fewshot = {"count": 1, "fields": {"question": "q", "labels": "l"}}
    own: Any = {"suite": "s", "preset": "csqa", "dataset": {"revision": "r"}, "prompt": {"fewshot": fewshot}}
    value: Any = with_preset(own)[0]
    assert value["prompt"]["fewshot"] == {
        **load_preset("csqa").defaults["prompt"]["fewshot"],
        **fewshot,
        "revision": "r",
    }


def test_another_hub_brings_no_revision_to_the_examples() -> None:
    dataset = {"hub": "some/other", "revision": "r"}
    own: Any = {"suite": "s", "preset": "arc-easy", "dataset": dataset}
    value: Any = with_preset(own)[0]
    assert "revision" not in value["prompt"]["fewshot"]


@pytest.mark.parametrize(
    "own",
    [
        {"dataset": {"fields": {"target": "right"}}},
        {"target": "right"},
        {"choices": "options", "target": "right"},
        {"dataset": {"fields": {"choices": "options", "target": "right", "category": "kind"}}},
    ],
)
@pytest.mark.parametrize("preset", ["mmlu", "arc-easy", "chronologic-brier"])
def test_a_field_may_be_written_in_either_place(load: Load, preset: str, own: dict[str, Any]) -> None:
    """``choices`` and ``dataset.fields.choices`` are one key; so are target and category."""
    row = {
        "question": "q",
        "main_question": "q",
        "question_category": "x",
        "subject": "anatomy",
        "right": 1,
        "options": ["a", "b"],
        "choices": {"label": ["A", "B"], "text": ["c", "d"]},
        "answerKey": "A",
        "answer": 0,
        "answer_strings": ["e", "f"],
        "answer_types": ["x", "y"],
        "answer_probabilities": [1.0, 0.0],
        "kind": "k",
    }
    suite = {"suite": "s", "preset": preset, **own, "prompt": {"fewshot": {"count": 0}}}
    suite["dataset"] = {**own.get("dataset", {}), "path": "r.jsonl"}
    sample = load(yaml.safe_dump(suite, sort_keys=False), {"r.jsonl": [row]}).samples[0]
    said = {**own, **own.get("dataset", {}).get("fields", {})}
    assert sample.target == 1
    if "choices" in said:
        assert sample.choices == ("a", "b")
    if "category" in said:
        assert sample.category == "k"


CHRONOLOGIC = {
    "main_question": "When?",
    "question_category": "year",
    "answer_strings": ["1989", "May", "not 1989"],
    "answer_types": ["correct", "distractor", "negation"],
    "answer_probabilities": [1.0, 0.0, 0.0],
}


@pytest.mark.parametrize("preset", ["chronologic-brier", "chronologic-mcq"])
def test_chronologic_rows_need_no_metadata_frame(load: Load, preset: str) -> None:
    text = f"suite: s\npreset: {preset}\ndataset: {{path: r.jsonl}}\n"
    suite = load(text, {"r.jsonl": [CHRONOLOGIC, {**CHRONOLOGIC, "metadata_frame": "Notes of 2021."}]})
    without, with_frame = (Evaluation(suite).question(sample).prompt for sample in suite.samples)
    assert str(without).startswith("QUESTION: When?\n")
    assert str(with_frame).startswith("Notes of 2021.\nQUESTION: When?\n")


def test_chronologic_probabilities_are_one_for_each_answer(load: Load) -> None:
    text = "suite: s\npreset: chronologic-brier\ndataset: {path: r.jsonl}\n"
    short = {**CHRONOLOGIC, "answer_probabilities": [1.0, 0.0]}
    with pytest.raises(SuiteError, match=r"r\.jsonl:2.* found 2 values, expected one for each of 3"):
        load(text, {"r.jsonl": [CHRONOLOGIC, short]})


def test_null_removes_a_field_of_the_preset(load: Load) -> None:
    text = """
suite: s
preset: arc-easy
target: "{{ 'ABCD'.index(answerKey) }}"
dataset: {path: r.jsonl, fields: {labels: null}}
"""
    suite = load(text, {"r.jsonl": rows.ARC[:1]})
    assert suite.spec.dataset is not None
    assert list(suite.spec.dataset.fields) == ["choices", "question"]
    with pytest.raises(SuiteError, match=r"s\.yaml:5: dataset\.fields\.lables: found nothing \(null\)"):
        load(text.replace("labels", "lables"), {"r.jsonl": rows.ARC[:1]})
    for fields, left in (({"answer": None}, {"answer": None}), ({"target": None}, {"choices": "{{ [] }}"})):
        prompt = {"fewshot": {"fields": {**fields}}}
        own: Any = {"suite": "s", "preset": "truthfulqa-mc1", "prompt": prompt, "dataset": {"fields": {"target": None}}}
        value: Any = with_preset(own)[0]
        assert left.items() <= value["prompt"]["fewshot"]["fields"].items()
        assert ("target" in value["prompt"]["fewshot"]["fields"]) == ("answer" in fields)
        assert ("target" in value, "target" in value["dataset"]["fields"]) == (False, False)


NAMES = {
    "bbh": "preset: 'bbh' is a family of presets, expected bbh-cot-<task> or bbh-direct-<task>",
    "bbh-cot": (
        "preset: 'bbh-cot' is a family of presets, expected one of bbh-cot-boolean-expressions, "
        "bbh-cot-causal-judgement, bbh-cot-date-understanding, … (27; `llmeval presets bbh-cot`)"
    ),
    "arc": "preset: 'arc' is a family of presets, expected one of arc-easy, arc-challenge",
    "commonsense_qa": "there is no preset 'commonsense_qa'; did you mean 'csqa'?",
    "hendrycks_math_algebra": "did you mean 'math-hendrycks'?",
    "minerva_math": "did you mean 'math-minerva'?",
    "mmlu_anatomy": "did you mean 'mmlu'?",
    "bbh_cot_fewshot_navigate": "did you mean 'bbh-cot-navigate'?",
    "bbh_fewshot_snarks": "did you mean 'bbh-direct-snarks'?",
    "bbh-cot_navigate": "did you mean 'bbh-cot-navigate'?",
    "bbh_cot_fewshot": "expected bbh-cot-<task>",
    "arc_challenge": "did you mean 'arc-challenge'?",
    "truthfulqa_mc1": "did you mean 'truthfulqa-mc1'?",
    "siqa": "did you mean 'social-iqa'?",
    "mmlu_pro_biology": "did you mean 'mmlu-pro'?",
    "hendrycks_math500": "did you mean 'math-500-hendrycks'?",
    "minerva_math500": "did you mean 'math-500-minerva'?",
    "gpqa_diamond_zeroshot": "did you mean 'gpqa-diamond-lm-eval'?",
    "mgsm_en_cot_sw": "did you mean 'mgsm-en-cot-sw'?",
    "mgsm_cot_native": "expected one of mgsm-native-cot-bn, ",
    "nq_open": "did you mean 'nq-open'?",
}


@pytest.mark.parametrize("name", NAMES)
def test_lm_evals_names_and_beginnings_lead_to_presets(name: str) -> None:
    with pytest.raises(PresetError) as caught:
        load_preset(name)
    assert NAMES[name] in str(caught.value)
    assert len(str(caught.value)) < 250


MATH = ("math", "math-judged", "math-hendrycks", "math-minerva")


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        ("mmlu", ("--num_fewshot 5",)),
        ("perplexity", ("wikitext",)),
        ("wikitext", ("detokenised",)),
        ("truthfulqa-mc1", ("multi_turn",)),
        ("truthfulqa-mc2", ("multi_turn",)),
        *((name, ("algebra", "dataset: {config: geometry}")) for name in MATH),
    ],
)
def test_where_a_formula_is_not_the_whole_benchmark_it_says_so(preset: str, words: tuple[str, ...]) -> None:
    found = load_preset(preset)
    assert all(word in found.formula for word in words)
    if "algebra" in words:
        assert "algebra" in found.description


def test_a_judge_is_asked_about_what_math_finds_wrong(load: Load) -> None:
    """The same prompts and settings as ``math`` has; where the judge says no to all, the same numbers."""
    plain, judged = (
        Evaluation(load(f"suite: s\npreset: {name}\ndataset: {{path: rows.jsonl}}\n", {"rows.jsonl": rows.MATH}))
        for name in ("math", "math-judged")
    )
    replies = [*rows.MATH_REPLIES[:-1], "I cannot say."]
    for says_yes in (False, True):
        judge = scripted({"reason": "r", "equivalent": says_yes})
        for sample, reply in zip(plain.suite.samples, replies, strict=True):
            question = judged.question(sample)
            assert question.requests == plain.question(sample).requests
            response = [GenerateResponse(text=reply)]
            is_right = plain.score(plain.question(sample), response).status == "correct"
            score, asked = drive(judged.asking(question, response), judge)
            assert (score.status == "correct") is (is_right or says_yes)
            assert bool(asked) is not is_right
            assert score.details["decided_by"] == ("math" if is_right else "judge")
            if asked:
                user = asked[0][0].prompt[1]
                assert isinstance(user, Message)
                assert f"Reference answer:\n```\n{sample.variables['solution']}\n```" in user.content


PROBLEMS = {
    "suite: s\npreset: gsm9k\n": "s.yaml:2: preset: there is no preset 'gsm9k'; did you mean 'gsm8k'?",
    "suite: s\npreset: bbh-cot\n": "s.yaml:2: preset: 'bbh-cot' is a family of presets, expected one of bbh-cot-",
    "suite: s\npreset: 3\n": "s.yaml:2: preset: found 3 (a whole number), expected text; put it in quotes",
    "suite: s\npreset: gsm8k\ndataset: {path: rows.jsonl}\n": (
        "s.yaml:3: preset gsm8k: shows 5 examples of the split 'train' before each question, and the suite's own data "
        "has none: name their file with prompt.fewshot.path, or write prompt.fewshot.count: 0"
    ),
    "suite: s\npreset: csqa\ndataset: {path: other.jsonl}\n": (
        "s.yaml:2: preset csqa: target: other.jsonl:1: 'answerKey' is undefined"
    ),
    "suite: s\npreset: csqa\ndataset: {path: rows.jsonl}\nprompt: {templat: x}\n": (
        "s.yaml:4: unknown key 'templat' in prompt; did you mean 'template'?"
    ),
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_problems_name_the_line_and_the_preset(load: Load, text: str) -> None:
    with pytest.raises(SuiteError) as caught:
        load(
            text,
            {"rows.jsonl": rows.CSQA, "other.jsonl": [{"question": "q", "choices": {"label": ["A"], "text": ["a"]}}]},
        )
    assert PROBLEMS[text] in str(caught.value)


def test_a_preset_is_collected_and_runs(llm_pytester: pytest.Pytester, workers: list[str]) -> None:
    llm_pytester.makeconftest(fake_model_conftest(replies={"Mia has": "3 + 4 = 7\n#### 7", "6 times": "it is 42."}))
    for name, some in (("rows", rows.GSM8K), ("shots", rows.GSM8K_TRAIN)):
        (llm_pytester.path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    suite = {
        "suite": "gsm8k",
        "preset": "gsm8k",
        "dataset": {"path": "rows.jsonl"},
        "prompt": {"fewshot": {"path": "shots.jsonl", "count": 1}},
    }
    llm_pytester.makefile(".yaml", gsm8k=yaml.safe_dump(suite, sort_keys=False))
    result = llm_pytester.runpytest_subprocess(*workers, "--llm-report=out.json")
    assert result.ret == 0
    metrics = json.loads((llm_pytester.path / "out.json").read_text())["suites"][0]["metrics"]
    assert (metrics["accuracy"]["value"], metrics["flexible.accuracy"]["value"]) == pytest.approx((1 / 7, 2 / 7))


def of_reply(evaluation: Evaluation, replies: Sequence[str]) -> list[Score]:
    scores = []
    for sample, text in zip(evaluation.suite.samples, replies, strict=True):
        question = evaluation.question(sample)
        scores.append(evaluation.score(question, [GenerateResponse(text=text) for _ in question.requests]))
    return scores


def test_squad_takes_the_best_of_several_references(load: Load) -> None:
    """By hand: the reply "km 930 long" shares all of its three words with the second reference."""
    evaluation = Evaluation(load("suite: s\npreset: squad\ndataset: {path: r.jsonl}\n", {"r.jsonl": rows.SQUAD}))
    first = evaluation.question(evaluation.suite.samples[0])
    assert (
        first.prompt == "Rivers\n\nBackground: The Ebro is 930 km long.\n\nQuestion: How long is the Ebro?\n\nAnswer:"
    )
    one, other = of_reply(evaluation, [" km 930 long", "The nine grams."])
    assert (one.values["accuracy"], one.values["f1"]) == (0.0, 1.0)
    assert (other.values["accuracy"], other.values["f1"]) == (1.0, 1.0)


def test_boolq_by_its_reply_in_both_published_forms(load: Load) -> None:
    text = "suite: s\npreset: boolq\ndataset: {path: r.jsonl}\n"
    published = [
        {"question": row["question"], "passage": row["passage"], "answer": bool(row["label"])} for row in rows.BOOLQ
    ]
    replies = [" Yes", "no.", "No", "not known", "yes"]  # the first three characters decide
    for some in (rows.BOOLQ, published):
        scores = of_reply(Evaluation(load(text, {"r.jsonl": some})), replies)
        assert [score.status for score in scores] == ["correct", "correct", "wrong", "correct", "correct"]


def test_chronologic_by_likelihood_and_by_letter(load: Load) -> None:
    brier = Evaluation(
        load("suite: s\npreset: chronologic-brier\ndataset: {path: r.jsonl}\n", {"r.jsonl": rows.EVENTS})
    )
    assert brier.question(brier.suite.samples[0]).prompt == "From a diary.\nQUESTION: When was it?\nANSWER:"
    assert len(brier.question(brier.suite.samples[1]).requests) == 3
    letters = Evaluation(
        load("suite: s\npreset: chronologic-mcq\ndataset: {path: r.jsonl}\n", {"r.jsonl": rows.EVENTS})
    )
    assert "not fire" not in str(letters.question(letters.suite.samples[1]).prompt)
    assert [score.answer for score in of_reply(letters, ["Answer: B", "The answer is B"])] == ["A", None]
    assert [sample.category for sample in letters.suite.samples] == ["year", "order"]


def test_gsm8k_by_its_number(load: Load) -> None:
    text = "suite: s\npreset: gsm8k-number\ndataset: {path: r.jsonl}\nprompt: {fewshot: {count: 0}}\n"
    scores = of_reply(Evaluation(load(text, {"r.jsonl": rows.GSM8K})), rows.GSM8K_REPLIES)
    right = ["correct", "correct", "correct", "correct", "wrong", "wrong", "correct"]
    assert [score.status for score in scores] == right


def test_csqa_as_text_shows_no_options_and_scores_them(load: Load) -> None:
    evaluation = Evaluation(load("suite: s\npreset: csqa-text\ndataset: {path: r.jsonl}\n", {"r.jsonl": rows.CSQA}))
    question = evaluation.question(evaluation.suite.samples[0])
    assert question.prompt == "Question: Where would you find a pillow?\nAnswer:"
    assert [getattr(request, "continuation", None) for request in question.requests] == [
        *(" bed", " lake", " oven", " road", " sky")
    ]


def test_perplexity_of_a_text_or_a_page(load: Load) -> None:
    texts = [{"text": "A short text."}, {"page": "A page of wiki."}]
    evaluation = Evaluation(load("suite: s\npreset: perplexity\ndataset: {path: r.jsonl}\n", {"r.jsonl": texts}))
    asked = [evaluation.question(sample).requests[0] for sample in evaluation.suite.samples]
    assert asked == [LoglikelihoodRollingRequest("A short text."), LoglikelihoodRollingRequest("A page of wiki.")]
