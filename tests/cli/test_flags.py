"""`electra-tf` and its subcommands: their flags, and mistakes: one line that names it, and status 2."""

import argparse
import json
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import pytest
import tensorflow as tf

import electra_tf
import run_finetuning
import run_pretraining
from data_prep.cli import build_pretraining_dataset
from electra_tf.cli import commands, convert_checkpoint, profile_flops, score_minimal_pairs
from electra_tf.cli.flags import add_strategy_flags, flag_parser, positive_int
from electra_tf.config.loader import config_to_yaml
from electra_tf.files import names_in
from electra_tf.train.distribution import STRATEGIES

PROJECT = Path(__file__).resolve().parents[2]
FILES = {
    "train.csv": "text,label,score\nw5 w6,yes,1\nw7,no,2.5\nw8 w9 w5,yes,3\n",
    "dev.csv": "text,label,score\nw7 w9,no,2\nw5,yes,1\n",
    "test.csv": "text,label,score\nw7 w9,no,2\nw5,maybe,1\n",
    "pairs.jsonl": '{"sentence_good": "w5 w6", "sentence_bad": "w6 w5"}\n',
}
RTE = "index\tsentence1\tsentence2\tlabel\n" + "1\tw5 w6\tw7\tentailment\n2\tw8\tw9\tnot_entailment\n" * 3


def squad(num_questions: int, num_wrong: int) -> str:
    """A file in SQuAD's layout. The answers of the first `num_wrong` questions are not in the context."""
    context = "w5 w6 w7 w8"
    answers = [{"text": "w9" if number < num_wrong else "w7", "answer_start": 6} for number in range(num_questions)]
    questions = [{"id": f"q{n}", "question": "w6 w8", "answers": [each]} for n, each in enumerate(answers)]
    return json.dumps({"version": "1.1", "data": [{"paragraphs": [{"context": context, "qas": questions}]}]})


@pytest.fixture(scope="module")
def flags(tmp_path_factory, tiny_pretrained, tiny_config) -> dict[str, str]:
    """What stands for names in the flags below. The flags that begin with a command's name are its usual ones."""
    place = tmp_path_factory.mktemp("place")
    impossible = squad(1, 0).replace('[{"text": "w7", "answer_start": 6}]', '[], "is_impossible": true')
    written = {"squad.json": squad(20, 0), "wrong.json": squad(20, 5), "v2.json": impossible}
    written |= {"tiny.yaml": config_to_yaml(tiny_config()), "RTE/train.tsv": RTE, "RTE/dev.tsv": RTE, **FILES}
    for name, text in written.items():
        (place / name).parent.mkdir(exist_ok=True)
        (place / name).write_text(text)
    for seed in (2, 0, 10):
        (place / f"seeds/seed_{seed}").mkdir(parents=True)
    assert convert_checkpoint.main([f"--from={tiny_pretrained}", "--to=tf1", f"--output_dir={place}/tf1"]) == 0
    shutil.copytree(tiny_pretrained, place / "untrained", ignore=shutil.ignore_patterns("checkpoints"))
    settings = ("data.max_seq_length=12", "train.num_steps=2", "train.batch_size=4", "train.fused_ops=false")
    finetune = " --set ".join([f"--init_from={tiny_pretrained} --output_dir=OUT", *settings])
    return {
        "run": tiny_pretrained,
        "place": str(place),
        "pretrain": f"--config={place}/tiny.yaml --model_dir=OUT",
        "finetune": finetune,
        "rte": f"{finetune} --task=rte --data_dir={place}",
        "squad": f"{finetune} --task=squad_v1 --validation_file={place}/squad.json",
        "own": f"{finetune} --train_file={place}/train.csv --validation_file={place}/dev.csv --task=",
        "predict": "--predict --input_file=x --output_file=OUT",
        "build": "--input=text:none* --vocab_file=v --output_dir=OUT",
        "score": f"--pairs {place}/pairs.jsonl",
        "small": f"--config={PROJECT}/configs/pretrain/small.yaml",
    }


PRETRAIN = [
    ("", "missing flags: --data_dir"),
    ("--dry_run --strategy=mirrored --set train.batch_size=5", "does not divide among 2 replicas"),
    ("--dry_run --strategy=multi_worker_mirrored", "TF_CONFIG is not set"),
    ("--dry_run --data_dir=nothing", "data_dir=nothing holds no vocab.txt"),
    ("--dry_run --init_from=nothing --with_optimizer", "init_from=nothing with_optimizer: "),
    ("--dry_run --set objective.name=fast_electra --set objective.auxiliary=nothing", "objective."),
    ("--data_dir=nothing --as_masked_lm", "--as_masked_lm has no effect without --evaluate"),
    ("--data_dir=nothing --evaluate --stop_at_step=3", "--stop_at_step has no effect with --evaluate"),
    ("--data_dir=nothing --evaluate --init_from=nothing", "--init_from has no effect with --evaluate"),
]
FINETUNE = [
    ("", "missing flags: --output_dir"),
    ("--output_dir=OUT", "task and init_from missing"),
    ("--predict --model_dir=x", "missing flags: --input_file, --output_file"),
    ("{predict} --model_dir={place}/seeds", "seeds/seed_0"),
    ("{predict} --model_dir=x --output_file={place}/train.csv", "train.csv exists"),
    ("{predict} --model_dir=x --set data.max_seq_length=512", "--set has no effect"),
    ("{finetune} --task=mrcp", "did you mean mrpc?"),
    ("{finetune} --task=rte", "data_dir is needed"),
    ("{finetune} --task=rte --data_dir={place}/seeds", "looked for RTE/train.tsv, "),
    ("{rte} --train_file=x", "train_file has no effect"),
    ("{rte} --init_from={place}/untrained", "untrained is a run without a checkpoint"),
    ("{rte} --set train.num_epochs=2", "train.num_epochs and train.num_steps"),
    ("{rte} --set evaluation.max_batches=2", "evaluation.max_batches is 2; "),
    ("{rte} --set train.gradient_accumulation_steps=3", "expected a multiple of 3: 1 replicas x 3 micro-batches"),
    ("{squad} --train_file={place}/v2.json", "v2.json: question q0 has no answer"),
    ("{squad} --train_file={place}/wrong.json", "wrong.json: the answers of 5 of 20 questions"),
    ("{finetune} --task=tagging --train_file=x", "validation_file is needed"),
    ("{own}classification --class_weights yes=-1", "task.class_weights is"),
    ("{own}multi_label --class_weights balanced", "class_weights=balanced needs"),
    ("{own}classification --set train.seed=-1", "train.seed is -1; "),
    ("{own}classification --labels yes", "train.csv:3 has the label 'no'"),
    ("{own}classification --test_file={place}/test.csv", "test.csv:3 has the label 'maybe'"),
    ("{own}classification --stride=100 --set data.max_seq_length=20", "stride is 100, expected 1 to "),
    ("{own}classification --stride=4 --text_columns text score", "stride is 4, but only single texts"),
    ("{own}classification --set task.kind=regression", "task.kind is 'regression'"),
    ("{own}regression --label_column=score --labels a", "labels and class_weights have no effect"),
]
BUILD = [
    ("", "input=text:none*: no file matches"),
    ("--max_seq_length=4", "error: max_seq_length"),
    ("--held_out_fraction=1.0", "error: held_out_fraction"),
    ("--language=xx --drop_other_languages", "error: language"),
    ("--near_duplicates=0.4", "error: near_duplicates"),
    ("--near_duplicates=0.8 --runner=DirectRunner", "error: --near_duplicates="),
    ("--wikipedia_names=no/names.yaml", "error: wikipedia_names"),
]
CONVERT = [
    ("--from={run} --to=tf1 --output_dir={place}", "/place0 is not empty"),
    ("--from={place}/tf1 --to=hugging_face --output_dir=OUT --num_heads=5", "num_heads 5"),
    ("--from={place}/tf1 --to=tf1 --output_dir=OUT --vocab_file=none.txt", "none.txt"),
]
SCORE = [
    ("{score} --from=none", "from=none"),
    ("--from={run} --pairs none.jsonl", "none.jsonl does not exist"),
    ("--from={run} --pairs {run}/config.yaml", "/run/config.yaml"),
    ("{score} --from={run} --vocab_file={run}/vocab.txt", "remove vocab_file"),
    ("{score} --from={run} --within_word_l2r", "has no masked LM that scores alone; score its generator"),
]
FLOPS = [
    ("", "missing flags: --config"),
    ("{small} --budget=1e18 --model_dir=nowhere", "nowhere"),
    ("{small} --set train.batchsize=1", "did you mean train.batch_size?"),
    ("{small} --hours", "missing flags: --device"),
]


@pytest.mark.parametrize(
    ("main", "given", "message"),
    [
        *((run_pretraining.main, "{pretrain} " + given, message) for given, message in PRETRAIN),
        *((run_finetuning.main, given, message) for given, message in FINETUNE),
        *((build_pretraining_dataset.main, "{build} " + given, message) for given, message in BUILD),
        *((convert_checkpoint.main, given, message) for given, message in CONVERT),
        *((score_minimal_pairs.main, given, message) for given, message in SCORE),
        *((profile_flops.main, given, message) for given, message in FLOPS),
    ],
)
def test_a_mistake_is_one_line(flags, tmp_path, monkeypatch, capsys, main, given, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    tf.config.list_logical_devices()
    out = tmp_path / "out"
    assert main(given.format(**flags).replace("OUT", str(out)).split()) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert captured.out == "" and line.startswith("error: ") and message in line
    assert set(names_in(out)) <= {".lock"}


@pytest.mark.parametrize("flag", ["--fix_mojibake", "--drop_other_languages", "--near_duplicates=0.8"])
def test_a_flag_of_build_data_names_the_extra_that_it_needs(monkeypatch, capsys, flag):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert build_pretraining_dataset.main(["--input=text:a", "--vocab_file=v", "--output_dir=d", flag]) == 2
    name = flag.removeprefix("--").partition("=")[0]
    assert re.match(rf"error: {name} needs .*electra-tf\[clean\]", capsys.readouterr().err)


@pytest.mark.parametrize(
    "command",
    ["run_finetuning.py", "build_pretraining_dataset.py", "-m electra_tf report", "-m electra_tf build-vocab"],
)
def test_the_error_without_tensorflow_is_one_line(command):
    answer = subprocess.run([sys.executable, "-S", *command.split()], capture_output=True, text=True, cwd=PROJECT)
    assert answer.returncode == 2
    assert answer.stderr.startswith(f"error: tensorflow is not installed in this Python ({sys.executable}); run ")
    assert len(answer.stderr.splitlines()) == 1


def test_a_subcommand_calls_its_script_with_the_other_arguments(monkeypatch):
    seen = []
    module = types.SimpleNamespace(main=lambda: seen.append(sys.argv) or 3)
    monkeypatch.setitem(sys.modules, "electra_tf.cli.convert_checkpoint", module)
    monkeypatch.setattr(sys, "argv", ["electra-tf", "convert", "--from=a", "--to=b"])
    assert commands.main() == 3
    assert seen == [["electra-tf convert", "--from=a", "--to=b"]]


@pytest.mark.parametrize(
    ("arguments", "shown"), [([], "build-data"), (["help"], "build-data"), (["--version"], electra_tf.__version__)]
)
def test_help_and_version_are_printed(capsys, arguments, shown):
    assert commands.main(arguments) == 0
    assert shown in capsys.readouterr().out


def test_an_unknown_subcommand_is_one_line_with_the_nearest_name(capsys):
    assert commands.main(["pretrian", "--config=small"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "pretrian" in error and "pretrain?" in error


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--output_dir="], "--output_dir is empty"),
        (["--seeds", "1", ""], "--seeds is empty"),
        (["--steps=0"], "--steps: found '0'"),
        (["--steps=1.5"], "--steps: found '1.5'"),
        (["--steps=x"], "error: argument --steps: found 'x'; expected a positive integer; see PROGRAM --help\n"),
        (
            ["--outputdir=a=b c"],
            "error: unrecognized arguments: --outputdir=a=b c; did you mean --output_dir? See PROGRAM --help\n",
        ),
        (["--zzz"], "error: unrecognized arguments: --zzz; see PROGRAM --help\n"),
    ],
)
def test_a_mistake_in_a_flag_is_one_line(capsys, arguments, line):
    parser = flag_parser("what it does")
    parser.add_argument("--output_dir", default="out")
    parser.add_argument("--work_dir", default="")
    parser.add_argument("--seeds", nargs="*")
    parser.add_argument("--steps", type=positive_int)
    allowed = vars(parser.parse_args(["--steps=3"]))
    assert allowed == {"output_dir": "out", "work_dir": "", "seeds": None, "steps": 3}
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert line.replace("PROGRAM", parser.prog) in error and error.count("\n") == 1


def test_the_help_shows_defaults_except_empty_ones():
    parser = flag_parser("what it does")
    parser.add_argument("--seed", default=0, help="of the draw")
    parser.add_argument("--name", help="of the run (default: the model's)")
    parser.add_argument("--force", action="store_true", help="replace it")
    parser.add_argument("--cased", action=argparse.BooleanOptionalAction, default=False, help="keep capitals")
    defaults = re.findall(r"(\S+) \(default: (.*)\)", parser.format_help())
    assert defaults == [("draw", "0"), ("run", "the model's"), ("capitals", "False")]


def test_inputs_of_build_data_add_up_and_accents_can_be_kept():
    required = ["--input=text:a*", "--vocab_file=v", "--output_dir=d"]
    flags = build_pretraining_dataset.parse_flags([*required, "--input=book:b", "--no-strip_accents", "--unicode=18"])
    assert flags.inputs == ["text:a*", "book:b"]
    assert (flags.strip_accents, flags.unicode) == (False, 18)


def test_the_strategies_of_the_flag_are_those_that_can_be_started():
    parser = flag_parser("what it does")
    add_strategy_flags(parser)
    assert f"--strategy {{{','.join(STRATEGIES)}}}" in parser.format_help()
