"""electra-tf finetune: mistakes in its flags, training, predictions and scores."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import tensorflow as tf

import run_finetuning
from tests.markdown import cells

PROJECT = Path(__file__).resolve().parents[2]
FAST = ["data.max_seq_length=12", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false"]
SET, HERE = " --set ", "--init_from={pretrained} --output_dir={out}"

OWN = "--train_file={train} --validation_file={dev} --task="
SQUAD = "--train_file={place}/wrong.json --validation_file={place}/squad.json --task="
FILES = {
    "train.csv": "text,label,score\nw5 w6,yes,1\nw7,no,2.5\nw8 w9 w5,yes,3\n",
    "dev.csv": "text,label,score\nw7 w9,no,2\nw5,yes,1\n",
    "test.csv": "text,label,score\nw7 w9,no,2\nw5,maybe,1\n",
    "new.jsonl": '{"text": "w5 w6", "id": "a"}\n{"text": "w9", "id": "b"}\n',
    "foreign.txt": "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nw5\n",
}


def squad(num_questions: int, num_wrong: int) -> str:
    """A file in SQuAD's layout. The answers of the first `num_wrong` questions are not in the context."""
    context = "w5 w6 w7 w8"
    answers = [{"text": "w9" if number < num_wrong else "w7", "answer_start": 6} for number in range(num_questions)]
    questions = [{"id": f"q{n}", "question": "w6 w8", "answers": [each]} for n, each in enumerate(answers)]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": questions}]}]})


@pytest.fixture(scope="module")
def place(tmp_path_factory, tiny_pretrained) -> Path:
    """A directory with the files above, RTE in `glue`, and runs without usable weights."""
    directory = tmp_path_factory.mktemp("place")
    for name, text in FILES.items():
        (directory / name).write_text(text)
    for name, wrong in (("squad.json", 0), ("wrong.json", 5)):
        (directory / name).write_text(squad(20, wrong))
    impossible = squad(1, 0).replace('[{"text": "w7", "answer_start": 6}]', '[], "is_impossible": true')
    (directory / "v2.json").write_text(impossible)
    rows = ["index\tsentence1\tsentence2\tlabel"]
    rows += [f"{n}\tw5 w{6 + n}\tw7\t{('' if n % 2 else 'not_') + 'entailment'}" for n in range(6)]
    (directory / "glue/RTE").mkdir(parents=True)
    for name in ("train", "dev"):
        (directory / f"glue/RTE/{name}.tsv").write_text("\n".join(rows) + "\n")
    table = {"electra/embeddings/word_embeddings": tf.Variable(tf.zeros([6, 4]))}
    tf.compat.v1.train.Saver(table).save(None, str(directory / "part.ckpt"), write_meta_graph=False)
    for name in ("untrained", "foreign"):
        shutil.copytree(tiny_pretrained, directory / name)
    shutil.rmtree(directory / "untrained/checkpoints")
    shutil.copy(directory / "foreign.txt", directory / "foreign/vocab.txt")
    return directory


@pytest.fixture
def refused(place, tiny_pretrained, tmp_path, capsys):
    """`refused("--flag=value ...")`: the one line that the command prints when it exits with status 2.

    {pretrained}, {train}, {dev}, {place}, {out} and {seeds}, an output directory, are replaced in the flags.
    """
    for seed in (2, 0, 10):
        (tmp_path / "seeds" / f"seed_{seed}").mkdir(parents=True)
    paths = {"train": place / "train.csv", "dev": place / "dev.csv", "place": place, "out": tmp_path / "out"}
    paths["seeds"] = tmp_path / "seeds"

    def run(flags: str) -> str:
        status = run_finetuning.main(flags.format(pretrained=tiny_pretrained, **paths).split())
        captured = capsys.readouterr()
        assert (status, captured.out) == (2, "")
        (line,) = captured.err.splitlines()
        assert line.startswith("error: ")
        assert not (tmp_path / "out").exists()
        return line.replace(f"{place}/", "").replace(f"{tmp_path}/", "").replace(tiny_pretrained, "RUN")

    return run


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("", "missing flags: --output_dir"),
        ("--output_dir=x", "task and init_from missing"),
        ("--predict --model_dir=x", "missing flags: --input_file, --output_file"),
        ("--predict --model_dir={place} --input_file=x --output_file=y", "part.ckpt holds no matrix"),
        (
            "--predict --model_dir={seeds} --input_file=x --output_file=y",
            "give one of its seeds, for example seeds/seed_0",
        ),
        ("--predict --model_dir={pretrained} --input_file=x --output_file=y", "is not fine-tuned; give the directory"),
        ("--predict --model_dir=x --input_file=x --output_file={train}", "train.csv exists"),
        ("--predict --model_dir=x --input_file=x --output_file=y --set data.max_seq_length=512", "--set has no effect"),
    ],
)
def test_missing_and_wrong_flags_are_refused(refused, flags, message):
    assert message in refused(flags)


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--task=mrcp", "task=mrcp is unknown; did you mean mrpc?"),
        ("--task=rte", "data_dir is needed with task=rte"),
        ("--task=rte --data_dir={place}", "has no train split of rte; looked for RTE/train.tsv, "),
        ("--task=rte --data_dir={place} --train_file=x", "train_file has no effect with task=rte"),
        (SQUAD.replace("wrong", "v2") + "squad_v1", "v2.json: question q0 has no answer"),
        (SQUAD + "squad_v1", "wrong.json: the answers of 5 of 20 questions"),
        ("--task=tagging --train_file=x", "validation_file is needed with task=tagging"),
        ("--task=multiple_choice --train_file=x --labels a b", "task.labels is not a setting"),
        (OWN + "multiple_choice", "train.csv has the columns text, label, score, expected those of SWAG: sent1, "),
        (OWN + "classification --class_weights yes=-1", "task.class_weights is"),
        (OWN + "classification --class_weights 👍=1e-5", "class_weights has the label '👍', expected one of"),
        (OWN + "multi_label --class_weights balanced", "class_weights=balanced needs"),
        (OWN + "classification --seeds 0 -1", "seeds: seed is -1; "),
        (OWN + "classification --seeds 3000000000", "seeds: seed is 3000000000; "),
        (OWN + "classification --set train.seed=-1", "train.seed is -1; "),
        (OWN + "classification --labels yes", "train.csv:3 has the label 'no'"),
        (OWN + "classification --test_file={place}/test.csv", "test.csv:3 has the label 'maybe'"),
        (OWN + "classification --stride=100", "stride is 100, expected 1 to "),
        (OWN + "classification --stride=4 --text_columns text score", "task: stride is 4, but only single texts"),
        (
            OWN + "classification --set task.kind=regression",
            "task.kind is 'regression', but with task=classification",
        ),
        (OWN + "regression --label_column=score --labels a", "labels and class_weights have no effect in a regression"),
    ],
)
def test_flags_and_data_that_do_not_suit_the_task_are_refused(refused, flags, message):
    settings = FAST[1:] if "stride=100" in flags else FAST
    assert message in refused(f"{flags} {HERE} {SET.join(['', *settings])}")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--init_from={place}/nowhere", "nowhere: there is no run, no checkpoint"),
        ("--init_from={place}/untrained", "untrained is a run without a checkpoint"),
        ("--init_from={place}/part.ckpt", "part.ckpt holds no matrix electra/embeddings/position_embeddings"),
        ("--init_from={place}/foreign", "foreign/vocab.txt is missing, edited or damaged"),
        (
            "--init_from={pretrained} --set encoder.hidden_size=24",
            "electra/embeddings_project/kernel has shape [12, 16]",
        ),
        (
            "--init_from={pretrained} --set encoder.num_layers=2",
            "step 3 of RUN holds no variable electra/encoder/layer_1/",
        ),
        ("--init_from={pretrained} --set train.num_epochs=2", "train.num_epochs and train.num_steps"),
        ("--init_from={pretrained} --set evaluation.max_batches=2", "evaluation.max_batches is 2; "),
        (
            "--init_from={pretrained} --set train.gradient_accumulation_steps=3",
            "train.batch_size is 4, expected a multiple of 3: 1 replicas x 3 micro-batches",
        ),
    ],
)
def test_unsuitable_encoders_and_settings_are_refused(refused, flags, message):
    assert message in refused(
        f"--task=rte --data_dir={{place}}/glue --output_dir={{out}} {SET.join(['', *FAST])} {flags}"
    )


@pytest.mark.parametrize(
    "command",
    ["run_finetuning.py", "build_pretraining_dataset.py", "-m electra_tf report", "-m electra_tf build-vocab"],
)
def test_the_error_without_tensorflow_is_one_line(command):
    answer = subprocess.run([sys.executable, "-S", *command.split()], capture_output=True, text=True, cwd=PROJECT)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"error: tensorflow is not installed in this Python ({sys.executable}); run ")
    assert len(answer.stderr.splitlines()) == 1


def test_a_task_is_trained_and_predicts_and_its_directory_refuses_another_task(
    place, tiny_pretrained, tmp_path, capsys
):
    files = [f"--train_file={place}/train.csv", f"--validation_file={place}/dev.csv", f"--init_from={tiny_pretrained}"]
    settings = [part for setting in FAST for part in ("--set", setting)]
    train = [*files, f"--output_dir={tmp_path}/out", *settings, "--seeds", "3"]
    added = ["--class_weights", "yes=2", f"--test_file={place}/dev.csv"]
    assert run_finetuning.main(["--task=classification", *train, *added]) == 0
    captured = capsys.readouterr()
    assert cells(captured.out)[1][:2] == ["classification", "accuracy *"]
    for split in ("validation", "test"):
        assert f"\n{split}, seed 3: 2 classes, the lowest F1 first\n" in captured.out
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["init_from"] == f"{tiny_pretrained}/checkpoints/step-3"
    assert [result["seed"] for result in summary["seeds"]] == [3] and summary["statistics"]["accuracy"]["n"] == 1

    predict = ["--predict", f"--model_dir={tmp_path}/out/seed_3", f"--input_file={place}/new.jsonl"]
    assert run_finetuning.main([*predict, f"--output_file={tmp_path}/new.tsv"]) == 0
    rows = [line.split("\t") for line in (tmp_path / "new.tsv").read_text().splitlines()]
    assert rows[0] == ["id", "prediction", "probability_no", "probability_yes"]
    assert [row[0] for row in rows[1:]] == ["a", "b"] and {row[1] for row in rows[1:]} <= {"no", "yes"}

    again = [f"--config={tmp_path}/out/seed_3/config.yaml", f"--output_dir={tmp_path}/again"]
    assert run_finetuning.main(again) == 0
    first, second = (tmp_path / f"{name}/seed_3" for name in ("out", "again"))
    for name in ("config.yaml", "result.json"):
        assert (first / name).read_text() == (second / name).read_text()

    capsys.readouterr()
    assert run_finetuning.main(["--task=regression", "--label_column=score", *train]) == 2
    assert "has the results of task=classification; give regression a new directory" in capsys.readouterr().err
