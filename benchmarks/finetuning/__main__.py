"""Speed of fine-tuning, compared with Hugging Face's Trainer.

    python -m benchmarks.finetuning --peers_python=PEERS/bin/python --data_dir=GLUE --vocab_file=vocab.txt

All train ELECTRA-Small from random weights on the same tokenized examples: ours with the batches and loops of
`electra-tf finetune`, the peer with the defaults of Trainer and DataCollatorWithPadding. Contenders and limits are in
benchmarks/contenders.py. In its turn each trains --steps_per_round steps and evaluates the whole dev set. Before the
first round, ours trains one batch of each padded length: `lengths, s` is the time for this, which includes compiling.
The machine must be quiet. Prints tables and PASS or FAIL for each limit, and exits 1 if one fails. See
docs/notes/performance.md.
"""

import argparse
import statistics
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.contenders import FINETUNING, FINETUNING_LIMITS
from benchmarks.finetuning.examples import SPLITS, Examples, save
from benchmarks.harness import (
    Process,
    comparison_flags,
    conclude,
    judge,
    print_disturbed,
    print_table,
    processes_of,
    running,
    shown,
    take_turns,
)
from benchmarks.processor import print_processor
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.weights.hugging_face.layouts import config_entries

TASKS = ("cola", "mrpc")


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, FINETUNING, batch_size="examples in a batch")
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="folder with GLUE's tasks")
    parser.add_argument("--vocab_file", required=True, metavar="FILE", help="BERT's vocabulary of 30,522 tokens")
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="A,B", help="classification tasks of GLUE")
    parser.add_argument("--max_seq_length", type=int, default=128, help="longer examples are cut")
    parser.add_argument("--steps_per_round", type=int, default=30, help="training steps in a turn")
    return parser.parse_args(arguments)


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    verdicts, report = [], {"processor": print_processor()}
    with tempfile.TemporaryDirectory() as directory:
        for task in flags.tasks.split(","):
            report[task] = measure_task(task, flags, Path(directory))
            for part in ("training", "evaluation"):
                rates = {name: measured[part] for name, measured in report[task].items() if measured[part]}
                seconds = {name: [1.0 / rate for rate in of_rounds] for name, of_rounds in rates.items()}
                verdicts += judge(seconds, flags.contenders, FINETUNING_LIMITS[part], f"{task}, {part}: ")
    return conclude(verdicts, flags.json, flags, report)


def measure_task(task: str, flags: argparse.Namespace, directory: Path) -> dict[str, dict]:
    """Trains and evaluates with all contenders in turns.

    Returns: for each contender `training` (empty if it only evaluates) and `evaluation`, the examples per second of
        each round, and further columns of the table.
    """
    encoder, splits = tokenized(task, flags)
    file = directory / f"{task}.npz"
    save(str(file), splits)
    options = {
        "config": str(file),
        "encoder": encoder.model_dump(),
        "network": config_entries(encoder),
        "num_threads": flags.threads,
        "vocab_file": str(Path(flags.vocab_file).resolve()),
        "batch_size": flags.batch_size,
        "max_seq_length": flags.max_seq_length,
    }
    processes = processes_of(flags.contenders, "benchmarks.finetuning.worker", flags, options)
    with running(processes, flags.patience) as alive:
        warmed = {name: process.ask("warm_up") for name, process in alive.items()}
        calls = {name: partial(_turn, name, process, flags) for name, process in alive.items()}
        turns = take_turns(calls, flags.rounds, flags.patience)
    num_trained, num_evaluated = flags.steps_per_round * flags.batch_size, len(splits["validation"].label_ids)
    results = {
        name: {
            "training": [num_trained / turn["training"]["seconds"] for turn in turns[name] if "training" in turn],
            "evaluation": [num_evaluated / turn["evaluation"]["seconds"] for turn in turns[name]],
            "start": process.start_seconds[0],
            "lengths": warmed[name],
            "others": [max(answer["others"] for answer in turn.values()) for turn in turns[name]],
        }
        for name, process in alive.items()
    }
    _print_results(task, results)
    return results


def _turn(name: str, process: Process, flags: argparse.Namespace) -> dict[str, dict]:
    """The answers to the commands of a contender's turn, by the part that they measure."""
    commands = {"training": f"train {flags.steps_per_round}", "evaluation": "evaluate"}
    if "_sorted" in name:
        del commands["training"]
    return {part: process.ask_watched(command) for part, command in commands.items()}


def tokenized(task: str, flags: argparse.Namespace) -> tuple[EncoderConfig, dict[str, Examples]]:
    """The encoder's settings, and the examples of a GLUE task, made as in `electra-tf finetune`."""
    from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS
    from electra_tf.tasks.finetune.data import TaskData
    from electra_tf.tasks.finetune.datasets import read_task
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.wordpiece import BertTokenizer

    if task not in GLUE_TASKS or GLUE_TASKS[task].kind != "classification":
        known = ", ".join(name for name, each in GLUE_TASKS.items() if each.kind == "classification")
        raise UserError(f"--tasks: {task!r}; expected one of {known}")
    vocabulary = Vocabulary.load(flags.vocab_file)
    encoder = load_config(flags.config, [*flags.overrides, f"encoder.vocab_size={vocabulary.size}"]).encoder
    settings = {"data": {"data_dir": str(flags.data_dir), "max_seq_length": flags.max_seq_length}}
    source = read_task(task, settings, task, encoder, None)
    data = TaskData(source.config, BertTokenizer(vocabulary), source.train, source.evaluated)
    splits = {
        split: Examples(each.input_ids, each.segment_ids, each.row_splits, each.row_targets["label_ids"])
        for split, each in zip(SPLITS, (data.train, data.evaluation), strict=True)
    }
    return encoder, splits


def _print_results(task: str, results: dict[str, dict]) -> None:
    headings = ["", "training, examples/s", "evaluation, examples/s", "first step, s", "lengths, s", "others"]
    rows = []
    for name, each in results.items():
        rates = [shown(each[part]) if each[part] else "" for part in ("training", "evaluation")]
        lengths = f"{each['lengths']['seconds']:.1f} ({each['lengths']['num_lengths']})"
        rows.append([name, *rates, f"{each['start']:.1f}", lengths, f"{statistics.median(each['others']):.0%}"])
    print_table(task, headings, rows)
    print_disturbed([share for each in results.values() for share in each["others"]])


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
