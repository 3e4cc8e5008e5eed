"""Each kind of task on a user's own file: training, scores, --predict and a SavedModel with the same predictions."""

import json

import pytest
import tensorflow as tf

import export_saved_model
import run_finetuning

pytestmark = pytest.mark.slow

_SETTINGS = ["data.max_seq_length=16", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false"]
_TEXTS = [f"w{5 + number} w{6 + number}{' w9' * (number % 4)}" for number in range(12)]
_CONTEXT = "w5 w6 w7, w8 W9. w10 w11 w12 w13 w14 w15 w16 w17 w18"


def json_lines(objects: list[dict]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in objects)


def squad(version_2: bool) -> str:
    answers = [[{"text": "w8 W9", "answer_start": 10}]] * 3 + ([[]] * 2 if version_2 else [])
    questions = [
        {"id": f"q{n}", "question": "w6 w8", "answers": each, "is_impossible": not each}
        for n, each in enumerate(answers)
    ]
    return json.dumps({"version": "x", "data": [{"paragraphs": [{"context": _CONTEXT, "qas": questions}]}]})


_SENTENCES = "\n\n".join("w5 a O\nw6w7, b B-X\nw8 c I-X" for _ in range(5)) + "\n"
_ASKED = json_lines([{"id": "a", "question": "w6", "context": _CONTEXT}, {"question": "w7", "context": "w5 w6"}])
_QUESTIONS = "--set task.doc_stride=4 --set task.max_query_length=4 --set task.head_size=6 --set task.beam_size=3"
KINDS = {
    "pairs": (
        "--task=classification --text_columns first second --class_weights balanced --set task.head=huggingface",
        ".csv",
        "first,second,label\n" + "".join(f"{text},w7,{n % 3}\n" for n, text in enumerate(_TEXTS)),
        json_lines([{"first": "w5", "second": "w6"}] * 2),
    ),
    "windows": (
        "--task=classification --stride=4",
        ".jsonl",
        json_lines([{"text": f"{text} {text} {text} {text}", "label": n % 2} for n, text in enumerate(_TEXTS)]),
        json_lines([{"text": "w5 " * 40}, {"text": "w6"}]),
    ),
    "multi_label": (
        "--task=multi_label --label_column=labels",
        ".jsonl",
        json_lines([{"text": text, "labels": ["a", "b", "c"][: n % 4]} for n, text in enumerate(_TEXTS)]),
        json_lines([{"text": "w5"}, {"text": "w6"}]),
    ),
    "regression": (
        "--task=regression",
        ".tsv",
        "text\tlabel\n" + "".join(f"{text}\t{n / 2}\n" for n, text in enumerate(_TEXTS)),
        json_lines([{"text": "w5"}, {"text": "w6"}]),
    ),
    "tagging": ("--task=tagging --set task.scheme=bioes", ".conll", _SENTENCES, json_lines([{"words": ["w5", "w6"]}])),
    "multiple_choice": (
        "--task=multiple_choice --set train.gradient_accumulation_steps=2",
        ".jsonl",
        json_lines(
            [
                {"context": "w5 " * n, "choices": ["w6", text, "w7"][n % 3 :], "label": 0}
                for n, text in enumerate(_TEXTS)
            ]
        ),
        json_lines(
            [{"context": "w5 " * 40, "choices": ["w6 w7", "w8 w9"]}, {"context": "w6", "choices": ["w9", "w5"]}]
        ),
    ),
    "squad_v1": (f"--task=squad_v1 {_QUESTIONS}", ".json", squad(False), _ASKED),
    "squad_v2": (f"--task=squad_v2 {_QUESTIONS}", ".json", squad(True), _ASKED),
    "independent": (
        f"--task=squad_v2 {_QUESTIONS} --set task.joint_prediction=false --set train.precision=bfloat16",
        ".json",
        squad(True),
        _ASKED,
    ),
}


def predicted(kind: str, lines: list[str]) -> list:
    """The prediction for each example in the output of --predict: its label, labels, number, tags or answer."""
    if kind in ("squad_v1", "squad_v2", "independent"):
        return [json.loads(line)["text"] for line in lines]
    if kind == "tagging":
        return [[line.split("\t")[1] for line in lines if line]]
    cells = [line.split("\t")[1] for line in lines[1:]]
    if kind == "regression":
        return [pytest.approx(float(cell), rel=1e-5) for cell in cells]
    return [json.loads(cell.strip('"').replace('""', '"')) for cell in cells] if kind == "multi_label" else cells


def served(saved_model: str, kind: str, examples: list[dict]) -> list:
    """The predictions of the exported signature."""
    columns = {"pairs": ("first", "second"), "tagging": ("words",)}.get(kind, ("question", "context"))
    names = {"pairs": ("text", "text_pair"), "tagging": ("text",)}.get(kind, columns)
    if kind == "multiple_choice":
        columns = names = ("context", "choices")
    if "text" in examples[0]:
        columns = names = ("text",)
    texts = {
        name: [" ".join(each[column]) if kind == "tagging" else each[column] for each in examples]
        for name, column in zip(names, columns, strict=True)
    }
    model = tf.saved_model.load(saved_model)
    outputs = model.signatures["serving_default"](**{name: tf.constant(values) for name, values in texts.items()})
    outputs = {name: value.numpy() for name, value in outputs.items()}
    if kind == "multi_label":
        rows = zip(outputs["labels"], outputs["predicted"], strict=True)
        return [[label.decode() for label in labels[chosen]] for labels, chosen in rows]
    if kind == "tagging":
        return [[tag.decode() for tag in tags] for tags in outputs["tags"]]
    if kind == "regression":
        return outputs["value"].tolist()
    if kind == "multiple_choice":
        return list(map(str, outputs["choice"]))
    return [text.decode() for text in outputs["label" if "label" in outputs else "text"]]


@pytest.mark.parametrize("kind", KINDS)
def test_the_served_model_of_each_kind_gives_the_same_predictions(kind, tiny_pretrained, tmp_path, capsys):
    flags, ending, content, new = KINDS[kind]
    train, asked, out = tmp_path / f"train{ending}", tmp_path / "new.jsonl", tmp_path / "out"
    train.write_text(content)
    asked.write_text(new)
    settings = [part for setting in _SETTINGS for part in ("--set", setting)]
    files = [f"--{split}_file={train}" for split in ("train", "validation", "test")]
    files.append(f"--init_from={tiny_pretrained}")
    assert run_finetuning.main([*files, f"--output_dir={out}", *settings, *flags.split()]) == 0
    assert sum(" * " in line for line in capsys.readouterr().out.splitlines()) == 2
    summary = json.loads((out / "summary.json").read_text())
    assert summary["statistics"] and summary["test"] == {"file": str(train), "statistics": summary["statistics"]}
    reports = json.loads((out / "seed_0/result.json").read_text()).get("reports", {})
    assert list(reports) == (
        [] if ending == ".json" or kind in ("regression", "multiple_choice") else ["validation", "test"]
    )
    predict = ["--predict", f"--model_dir={out}/seed_0", f"--input_file={asked}", f"--output_file={tmp_path}/predicted"]
    assert run_finetuning.main(predict) == 0
    lines = (tmp_path / "predicted").read_text().splitlines()
    assert export_saved_model.main([f"--model_dir={out}/seed_0", f"--output_dir={tmp_path}/export"]) == 0
    assert served(f"{tmp_path}/export/1", kind, list(map(json.loads, new.splitlines()))) == predicted(kind, lines)
    if ending == ".json":
        assert summary["seeds"][0]["answer_language"] == summary["seeds"][0]["test"]["answer_language"] == "en"
        answers = list(map(json.loads, lines))
        assert [answer["id"] for answer in answers] == ["a", "1"]
        assert answers[0]["best_text"] == _CONTEXT[answers[0]["start"] : answers[0]["end"]]
        names = {"id", "text", "null_odds", "best_text", "start", "end", "probability", "score"}
        assert all(set(answer) == names for answer in answers)
    elif kind == "tagging":
        assert [line.split("\t")[0] for line in lines] == ["w5", "w6", ""]
        assert {line.split("\t")[1] for line in lines[:2]} <= {"O", "B-X", "I-X", "E-X", "S-X"}
    else:
        assert [line.split("\t")[0] for line in lines] == ["id", "0", "1"]
