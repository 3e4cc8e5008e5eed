"""Speed of fine-tuning, compared with Hugging Face's Trainer, and of making SQuAD features.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.finetuning --peers_python=PEERS/bin/python --data_dir=GLUE --vocab_file=vocab.txt \\
        --squad_file=dev-v2.0.json

Both train ELECTRA-Small from random weights on the same tokenized examples, in float32 and in batches of 32: ours with
the batches and loops of `run_finetuning.py`, the peer with the defaults of Trainer and DataCollatorWithPadding, which
pads each batch to its longest row. In its turn each trains --steps_per_round steps on random batches and evaluates the
whole dev set. Before the first round, ours trains one batch of each padded length: `lengths, s` is the time for this,
which includes compiling. With --squad_file one core makes SQuAD features, from the JSON file to windows of tokens, each
time in a new process.

The machine must be quiet, see `benchmarks.train_step`. Prints tables and PASS or FAIL for each limit, and exits 1 if
one fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.finetuning.examples import SPLITS, Examples, save
from benchmarks.harness import (
    PROJECT,
    Process,
    Verdict,
    comparison_flags,
    conclude,
    last_line,
    print_disturbed,
    print_table,
    ratio,
    running,
    shown,
    take_turns,
)
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError

TASKS = ("cola", "mrpc")
OURS, BASELINE, PEER, AUTHORS = "ours", "baseline", "hugging_face", "authors"
# Floors of our speed over the others'.
TRAINING, EVALUATION = {PEER: 1.5, BASELINE: 0.95}, {PEER: 2.0, BASELINE: 0.95}
FEATURES = {AUTHORS: 10.0, BASELINE: 0.95}


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, batch_size="examples in a batch")
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="folder with GLUE's tasks")
    parser.add_argument("--vocab_file", required=True, metavar="FILE", help="BERT's vocabulary of 30,522 tokens")
    parser.add_argument("--squad_file", metavar="FILE", help="a SQuAD 2.0 file, such as dev-v2.0.json")
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="A,B", help="classification tasks of GLUE")
    parser.add_argument("--max_seq_length", type=int, default=128, help="longer examples are cut")
    parser.add_argument("--steps_per_round", type=int, default=30, help="training steps in a turn")
    parser.add_argument("--squad_rounds", type=int, default=2, help="turns of each contender with SQuAD features")
    flags = parser.parse_args(arguments)
    flags.tasks = flags.tasks.split(",")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    verdicts, report = [], {}
    with tempfile.TemporaryDirectory() as directory:
        for task in flags.tasks:
            report[task] = measure_task(task, flags, Path(directory))
            verdicts += judge(task, report[task])
    if flags.squad_file:
        report["squad"] = rates = measure_squad(flags)
        print_table("SQuAD features", ["", "questions/s"], [[name, shown(values)] for name, values in rates.items()])
        verdicts += _verdicts("squad features", rates, FEATURES)
    return conclude(verdicts, flags.json, flags, report)


def measure_task(task: str, flags: argparse.Namespace, directory: Path) -> dict[str, dict]:
    """Trains and evaluates with all contenders in turns.

    Returns: for each contender `training` and `evaluation`, the examples per second of each round, and further columns
        of the table.
    """
    encoder, splits = tokenized(task, flags)
    file = directory / f"{task}.npz"
    save(str(file), splits)
    options = {
        "config": str(file),
        "encoder": encoder,
        "num_threads": flags.threads,
        "vocab_file": str(Path(flags.vocab_file).resolve()),
        "batch_size": flags.batch_size,
        "max_seq_length": flags.max_seq_length,
    }
    with running(_processes(options, flags), flags.patience) as alive:
        warmed = {name: process.ask("warm_up") for name, process in alive.items()}
        turns = take_turns(
            {name: partial(_turn, process, flags.steps_per_round) for name, process in alive.items()},
            flags.rounds,
            flags.patience,
        )
    num_trained, num_evaluated = flags.steps_per_round * flags.batch_size, len(splits["validation"].label_ids)
    results = {
        name: {
            "training": [num_trained / training["seconds"] for training, _ in turns[name]],
            "evaluation": [num_evaluated / evaluation["seconds"] for _, evaluation in turns[name]],
            "padding": [answer["padding"] for answer in turns[name][-1]],
            "start": process.start_seconds[0],
            "lengths": warmed[name],
            "others": [max(answer["others"] for answer in turn) for turn in turns[name]],
        }
        for name, process in alive.items()
    }
    _print_results(task, results)
    return results


def _processes(options: dict, flags: argparse.Namespace) -> dict[str, Process]:
    kinds = {OURS: ("ours", sys.executable, PROJECT), PEER: ("pytorch", flags.peers_python, PROJECT)}
    if flags.baseline:
        kinds[BASELINE] = ("ours", sys.executable, flags.baseline.resolve())
    return {
        name: Process(name, "benchmarks.finetuning.worker", {**options, "kind": kind}, python, checkout)
        for name, (kind, python, checkout) in kinds.items()
    }


def _turn(process: Process, num_steps: int) -> tuple[dict, dict]:
    return process.ask_watched(f"train {num_steps}"), process.ask_watched("evaluate")


def tokenized(task: str, flags: argparse.Namespace) -> tuple[dict, dict[str, Examples]]:
    """The encoder's sizes, and the examples of a GLUE task, made as in `run_finetuning.py`."""
    from electra_tf.tasks.finetune.config import resolve
    from electra_tf.tasks.finetune.datasets import GlueDataset
    from electra_tf.tasks.finetune.glue import GLUE_TASKS
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.wordpiece import BertTokenizer

    if task not in GLUE_TASKS or GLUE_TASKS[task].problem != "classification":
        known = ", ".join(name for name, each in GLUE_TASKS.items() if each.problem == "classification")
        raise UserError(f"--tasks: {task!r}; expected one of {known}")
    vocabulary = Vocabulary.load(flags.vocab_file)
    encoder = load_config(flags.config, [*flags.overrides, f"encoder.vocab_size={vocabulary.size}"]).encoder
    source = GlueDataset(GLUE_TASKS[task], flags.data_dir)
    config = resolve(
        {},
        task,
        name=task,
        task=source.settings({}),
        encoder=encoder,
        init_from=None,
        num_epochs=source.num_epochs,
        max_seq_length=flags.max_seq_length,
        num_rows=1,
    )
    data = source.data(config, BertTokenizer(vocabulary))
    splits = {
        split: Examples(each.input_ids, each.segment_ids, each.row_splits, each.row_targets["label_ids"])
        for split, each in zip(SPLITS, (data.train, data.evaluation), strict=True)
    }
    return encoder.model_dump(), splits


def measure_squad(flags: argparse.Namespace) -> dict[str, list[float]]:
    """Questions per second of all contenders, measured in turns."""
    files = [str(Path(file).resolve()) for file in (flags.squad_file, flags.vocab_file)]
    checkouts = {OURS: PROJECT, AUTHORS: PROJECT, **({BASELINE: flags.baseline} if flags.baseline else {})}

    def featurise(name: str) -> dict:
        kind = AUTHORS if name == AUTHORS else OURS
        command = [sys.executable, "-m", "benchmarks.finetuning.squad", kind, *files]
        done = subprocess.run(command, cwd=checkouts[name], capture_output=True, text=True)
        if done.returncode:
            raise UserError(f"SQuAD features of {name}: exit status {done.returncode}: {last_line(done.stderr)}")
        return json.loads(last_line(done.stdout))

    answers = take_turns({name: partial(featurise, name) for name in checkouts}, flags.squad_rounds, flags.patience)
    num_windows = {name: each[0]["num_windows"] for name, each in answers.items()}
    assert len(set(num_windows.values())) == 1, f"the numbers of windows differ: {num_windows}"
    return {name: [each["num_questions"] / each["seconds"] for each in answers[name]] for name in answers}


def judge(task: str, results: dict[str, dict]) -> list[Verdict]:
    """The verdicts on a task."""
    verdicts = []
    for part, limits in (("training", TRAINING), ("evaluation", EVALUATION)):
        rates = {name: measured[part] for name, measured in results.items()}
        verdicts += _verdicts(f"{task}, {part}, examples/s", rates, limits)
    return verdicts


def _verdicts(what: str, rates: dict[str, list[float]], limits: dict[str, float]) -> list[Verdict]:
    return [
        Verdict(f"{what} over {name}", ratio(rates[OURS], rates[name]), limit)
        for name, limit in limits.items()
        if name in rates
    ]


def _print_results(task: str, results: dict[str, dict]) -> None:
    headings = ["", "training, examples/s", "padding", "evaluation, examples/s", "padding", "first step, s"]
    rows = []
    for name, each in results.items():
        training, evaluation = (f"{share:.1%}" for share in each["padding"])
        cells = [name, shown(each["training"]), training, shown(each["evaluation"]), evaluation, f"{each['start']:.1f}"]
        lengths = f"{each['lengths']['seconds']:.1f} ({each['lengths']['num_lengths']})"
        rows.append([*cells, lengths, f"{statistics.median(each['others']):.0%}"])
    print_table(task, [*headings, "lengths, s", "others"], rows)
    print_disturbed([share for each in results.values() for share in each["others"]])


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
