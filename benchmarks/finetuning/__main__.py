"""Speed of fine-tuning, compared with Hugging Face's Trainer, and of making SQuAD features.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.finetuning --peers_python=PEERS/bin/python --data_dir=GLUE --vocab_file=vocab.txt \\
        --squad_file=dev-v2.0.json

All train ELECTRA-Small from random weights on the same tokenized examples, in float32 and in batches of 32: ours with
the batches and loops of `run_finetuning.py`, the peer with the defaults of Trainer and DataCollatorWithPadding, which
pads each batch to its longest row. `hugging_face_sorted` only evaluates, with its rows sorted by length.
`hugging_face_compile` trains and evaluates with torch.compile, which needs a C++ compiler. With `_avx512`, MKL is made
to use AVX-512 on a processor that is not Intel's; these peers exist only on such processors, and limits are checked
against the faster of the two. In its turn each trains --steps_per_round steps on random batches and evaluates the
whole dev set. Before the first round, ours trains one batch of each padded length: `lengths, s` is the time for this,
which includes compiling. With --squad_file one core makes SQuAD features, from the JSON file to windows of tokens, each
time in a new process.

The processor's name and both libraries' rates of matrix products are printed first, because the ratios depend on them.
The machine must be quiet, see `benchmarks.train_step`. Prints tables and PASS or FAIL for each limit, and exits 1 if
one fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from benchmarks.processor import (
    AVX512,
    HAS_AVX512_ROWS,
    mkl_with_avx512,
    print_processor,
    print_processor_and_products,
)
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.config.networks import EncoderConfig
from electra_tf.weights.hugging_face.layouts import config_entries

TASKS = ("cola", "mrpc")
OURS, BASELINE, AUTHORS = "ours", "baseline", "authors"
PEER, SORTED, COMPILE = "hugging_face", "hugging_face_sorted", "hugging_face_compile"
# Floors of our speed over the others'.
TRAINING = {PEER: 1.6, COMPILE: 1.0, BASELINE: 0.95}
EVALUATION = {PEER: 1.7, SORTED: 1.1, COMPILE: 1.0, BASELINE: 0.95}
FEATURES = {AUTHORS: 10.0, BASELINE: 0.95}


@dataclass(frozen=True)
class Contender:
    """A trainer.

    Attributes:
        kind: `ours` or `pytorch`.        has_sorted_rows: whether it only evaluates, in the order of lengths.
        compiled: whether torch.compile compiles the model.        avx512: whether MKL is made to use AVX-512.
    """

    kind: str
    has_sorted_rows: bool = False
    compiled: bool = False
    avx512: bool = False


def all_contenders(has_avx512_rows: bool) -> dict[str, Contender]:
    """All contenders by name, except the baseline."""
    chosen = {OURS: Contender("ours")}
    for suffix, avx512 in {"": False, AVX512: True}.items() if has_avx512_rows else [("", False)]:
        chosen[f"{PEER}{suffix}"] = Contender("pytorch", avx512=avx512)
        chosen[f"{SORTED}{suffix}"] = Contender("pytorch", has_sorted_rows=True, avx512=avx512)
        chosen[f"{COMPILE}{suffix}"] = Contender("pytorch", compiled=True, avx512=avx512)
    return chosen


CONTENDERS = all_contenders(HAS_AVX512_ROWS)


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, batch_size="examples in a batch")
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="folder with GLUE's tasks")
    parser.add_argument("--vocab_file", required=True, metavar="FILE", help="BERT's vocabulary of 30,522 tokens")
    parser.add_argument("--squad_file", metavar="FILE", help="a SQuAD 2.0 file, such as dev-v2.0.json")
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="A,B", help="classification tasks of GLUE")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="A,B", help="contenders to measure")
    parser.add_argument("--max_seq_length", type=int, default=128, help="longer examples are cut")
    parser.add_argument("--steps_per_round", type=int, default=30, help="training steps in a turn")
    parser.add_argument("--squad_rounds", type=int, default=2, help="turns of each contender with SQuAD features")
    flags = parser.parse_args(arguments)
    flags.tasks, flags.contenders = flags.tasks.split(","), flags.contenders.split(",")
    if OURS not in flags.contenders or set(flags.contenders) - CONTENDERS.keys():
        parser.error(f"--contenders: expected {OURS} and others of {', '.join(CONTENDERS)}")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    has_peer = any(CONTENDERS[name].kind == "pytorch" for name in flags.contenders)
    verdicts, report = [], {"processor": print_processor_and_products(flags) if has_peer else print_processor()}
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
    with running(_processes(options, flags), flags.patience) as alive:
        warmed = {name: process.ask("warm_up") for name, process in alive.items()}
        turns = take_turns(
            {name: partial(_turn, process, _commands(name, flags)) for name, process in alive.items()},
            flags.rounds,
            flags.patience,
        )
    num_trained, num_evaluated = flags.steps_per_round * flags.batch_size, len(splits["validation"].label_ids)
    results = {
        name: {
            "training": [num_trained / turn["training"]["seconds"] for turn in turns[name] if "training" in turn],
            "evaluation": [num_evaluated / turn["evaluation"]["seconds"] for turn in turns[name]],
            "padding": {part: answer["padding"] for part, answer in turns[name][-1].items()},
            "start": process.start_seconds[0],
            "lengths": warmed[name],
            "others": [max(answer["others"] for answer in turn.values()) for turn in turns[name]],
        }
        for name, process in alive.items()
    }
    _print_results(task, results)
    return results


def _processes(options: dict, flags: argparse.Namespace) -> dict[str, Process]:
    worker, processes = "benchmarks.finetuning.worker", {}
    ours = {**options, "kind": "ours"}
    for name in flags.contenders:
        contender = CONTENDERS[name]
        if contender.kind == "ours":
            processes[name] = Process(name, worker, ours)
            continue
        settings = {"has_sorted_rows": contender.has_sorted_rows, "compiled": contender.compiled}
        own = {**options, "kind": contender.kind, "settings": settings}
        environment = mkl_with_avx512 if contender.avx512 else None
        processes[name] = Process(name, worker, own, flags.peers_python, environment=environment)
    if flags.baseline:
        processes[BASELINE] = Process(BASELINE, worker, ours, checkout=flags.baseline.resolve())
    return processes


def _commands(name: str, flags: argparse.Namespace) -> dict[str, str]:
    """The commands of a contender's turn, by the part that they measure."""
    training = {"training": f"train {flags.steps_per_round}"}
    only_evaluates = name in CONTENDERS and CONTENDERS[name].has_sorted_rows
    return {**({} if only_evaluates else training), "evaluation": "evaluate"}


def _turn(process: Process, commands: Mapping[str, str]) -> dict[str, dict]:
    return {part: process.ask_watched(command) for part, command in commands.items()}


def tokenized(task: str, flags: argparse.Namespace) -> tuple[EncoderConfig, dict[str, Examples]]:
    """The encoder's settings, and the examples of a GLUE task, made as in `run_finetuning.py`."""
    from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS
    from electra_tf.tasks.finetune.config import resolve
    from electra_tf.tasks.finetune.datasets import DataOptions, read_dataset
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.wordpiece import BertTokenizer

    if task not in GLUE_TASKS or GLUE_TASKS[task].kind != "classification":
        known = ", ".join(name for name, each in GLUE_TASKS.items() if each.kind == "classification")
        raise UserError(f"--tasks: {task!r}; expected one of {known}")
    vocabulary = Vocabulary.load(flags.vocab_file)
    encoder = load_config(flags.config, [*flags.overrides, f"encoder.vocab_size={vocabulary.size}"]).encoder
    source = read_dataset(task, DataOptions(data_dir=flags.data_dir))
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
    return encoder, splits


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
        rates = {name: measured[part] for name, measured in results.items() if measured[part]}
        verdicts += _verdicts(f"{task}, {part}, examples/s", rates, limits)
    return verdicts


def _verdicts(what: str, rates: Mapping[str, Sequence[float]], limits: Mapping[str, float]) -> list[Verdict]:
    """Compares ours with each contender that has a limit, or with its row with AVX-512 if that is faster."""
    verdicts = []
    for name, limit in limits.items():
        rows = [row for row in (name, f"{name}{AVX512}") if row in rates]
        if rows:
            other = max(rows, key=lambda row: statistics.median(rates[row]))
            verdicts.append(Verdict(f"{what} over {other}", ratio(rates[OURS], rates[other]), limit))
    return verdicts


def _print_results(task: str, results: dict[str, dict]) -> None:
    headings = ["", "training, examples/s", "padding", "evaluation, examples/s", "padding", "first step, s"]
    rows = []
    for name, each in results.items():
        cells = [name]
        for part in ("training", "evaluation"):
            cells += [shown(each[part]), f"{each['padding'][part]:.1%}"] if each[part] else ["", ""]
        cells.append(f"{each['start']:.1f}")
        lengths = f"{each['lengths']['seconds']:.1f} ({each['lengths']['num_lengths']})"
        rows.append([*cells, lengths, f"{statistics.median(each['others']):.0%}"])
    print_table(task, [*headings, "lengths, s", "others"], rows)
    print_disturbed([share for each in results.values() for share in each["others"]])


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
