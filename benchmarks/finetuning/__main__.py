"""Speed of fine-tuning and of its evaluation beside Hugging Face's Trainer, and of SQuAD's features.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.finetuning --peers_python=PEERS/bin/python --data_dir=GLUE --vocab_file=vocab.txt \\
        --squad_file=dev-v2.0.json

Both train ELECTRA-Small with random weights on the same tokenized examples, in float32 and in batches of 32; ours with
the batches and loops of `run_finetuning.py`, the peer with the defaults of Trainer and DataCollatorWithPadding, which
pads each batch to its longest row. Each runs in its own process. They take turns, round by round, so that other load
on the machine affects both; each ratio is the median of the ratios within rounds. Before the first round every length
that ours pads to is met once: `lengths, s` is what compiling for them takes. A turn trains --steps_per_round steps,
random batches of the epoch, and evaluates the whole dev set.

SQuAD's features are made by one core, from the JSON file to windows of tokens, each time in a new process. Without
--squad_file they are left out.

The machine must be quiet, see `benchmarks.train_step`; each turn waits up to --patience seconds for other programs to
end. Prints tables and PASS or FAIL for each limit; exits 1 if one fails.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.common import PROJECT, Verdict, last_line, run_check
from benchmarks.finetuning.examples import SPLITS, Examples, save
from benchmarks.train_step.contenders import QUIET, Contender, NotAvailable, Process, wait_for_quiet
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.config.errors import UserError

TASKS = ("cola", "mrpc")
OURS, PEER = "ours", "hugging_face"
TRAINING, EVALUATION, FEATURES = 1.5, 2.0, 10.0  # ours over the others'


@dataclass(frozen=True)
class FinetuningContender(Contender):
    """Ours or the peer, as a process of `benchmarks.finetuning.worker`."""

    def settings(self) -> list[str]:
        return []

    def worker_module(self) -> str:
        return "benchmarks.finetuning.worker"


CONTENDERS = {
    OURS: FinetuningContender("ours", "float32", compiled=False),
    PEER: FinetuningContender("pytorch", "float32", compiled=False),
}


@dataclass
class Measured:
    """All measurements of one contender on one task.

    Attributes:
        start: seconds from the start of its process to the end of the first step.
        lengths: seconds in which every length is met once, and the dev set evaluated.        num_lengths: how many.
        training, evaluation: examples a second of each round.
        padding: the shares of padding in training and in evaluation.
        others: the share of the cores that other programs used in each turn.
    """

    start: float
    lengths: float
    num_lengths: int
    training: list[float] = field(default_factory=list)
    evaluation: list[float] = field(default_factory=list)
    padding: tuple[float, float] = (0.0, 0.0)
    others: list[float] = field(default_factory=list)


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="folder of GLUE's tasks")
    parser.add_argument("--vocab_file", required=True, metavar="FILE", help="BERT's vocabulary, of 30,522 tokens")
    parser.add_argument("--squad_file", metavar="FILE", help="a SQuAD 2.0 file, such as dev-v2.0.json")
    parser.add_argument("--tasks", default=",".join(TASKS), metavar="A,B", help="GLUE's tasks with classes")
    parser.add_argument("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch")
    small = PROJECT / "configs" / "pretrain" / "small.yaml"
    parser.add_argument("--config", type=Path, default=small, metavar="FILE", help="YAML file with the encoder's sizes")
    add_set_flag(parser)
    parser.add_argument("--batch_size", type=int, default=32, help="examples of a step and of a batch of evaluation")
    parser.add_argument("--max_seq_length", type=int, default=128, help="longer examples are cut off")
    parser.add_argument("--threads", type=int, default=2, help="cores that each may use")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each")
    parser.add_argument("--steps_per_round", type=int, default=30, help="training steps of a turn")
    parser.add_argument("--squad_rounds", type=int, default=2, help="turns of each with SQuAD's features")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a turn waits for a quiet machine")
    parser.add_argument("--json", metavar="FILE", help="file for all measurements")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "threads", "rounds", "steps_per_round", "squad_rounds"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    flags.tasks = flags.tasks.split(",")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether every limit holds."""
    verdicts, report = [], {"flags": {name: str(value) for name, value in vars(flags).items()}}
    with tempfile.TemporaryDirectory() as directory:
        for task in flags.tasks:
            results = measure_task(task, flags, Path(directory))
            print_table(task, results)
            verdicts += judge(task, results)
            report[task] = {name: asdict(measured) for name, measured in results.items()}
        if flags.squad_file:
            rates = measure_squad(flags)
            print(f"{'squad: questions/s':>16}  " + "  ".join(f"{name} {median(rates[name]):,.0f}" for name in rates))
            verdicts.append(Verdict("squad features over the authors'", ratio(rates[OURS], rates["authors"]), FEATURES))
            report["squad"] = rates
    print("", *verdicts, sep="\n")
    if flags.json:
        Path(flags.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return all(verdict.holds for verdict in verdicts)


def measure_task(task: str, flags: argparse.Namespace, directory: Path) -> dict[str, Measured]:
    """Trains and evaluates with both contenders in turns."""
    encoder, splits = tokenized(task, flags)
    file = directory / f"{task}.npz"
    save(str(file), splits)
    options = {
        "encoder": encoder,
        "num_threads": flags.threads,
        "vocab_file": str(Path(flags.vocab_file).resolve()),
        "batch_size": flags.batch_size,
        "max_seq_length": flags.max_seq_length,
    }
    num_trained, num_evaluated = flags.steps_per_round * flags.batch_size, len(splits["validation"].label_ids)
    results: dict[str, Measured] = {}
    with ExitStack() as stack:
        processes = {}
        for name, contender in CONTENDERS.items():
            wait_for_quiet(flags.patience)
            try:
                processes[name] = stack.enter_context(Process(name, contender, flags.peers_python, file, options))
            except NotAvailable as reason:
                raise UserError(f"{reason}; --peers_python needs benchmarks/requirements-peers.txt") from None
            warmed = processes[name].ask("warm_up")
            results[name] = Measured(processes[name].start_seconds, warmed["seconds"], warmed["num_lengths"])
        for _ in range(flags.rounds):
            for name, process in processes.items():
                wait_for_quiet(flags.patience)
                measured = results[name]
                training, others = process.ask_watched(f"train {flags.steps_per_round}")
                evaluation, others_then = process.ask_watched("evaluate")
                measured.training.append(num_trained / training["seconds"])
                measured.evaluation.append(num_evaluated / evaluation["seconds"])
                measured.padding = training["padding"], evaluation["padding"]
                measured.others.append(max(others, others_then))
    return results


def tokenized(task: str, flags: argparse.Namespace) -> tuple[dict, dict[str, Examples]]:
    """The encoder's sizes, and the examples of a GLUE task as `run_finetuning.py` makes them."""
    from electra_tf.tasks.finetune.config import resolve
    from electra_tf.tasks.finetune.datasets import GlueDataset
    from electra_tf.tasks.finetune.glue import GLUE_TASKS
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary import Vocabulary

    if task not in GLUE_TASKS or GLUE_TASKS[task].problem != "classification":
        known = ", ".join(name for name, each in GLUE_TASKS.items() if each.problem == "classification")
        raise UserError(f"--tasks: {task!r} is none of {known}")
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
    """Questions a second of ours and the authors' algorithm, in turns."""
    rates: dict[str, list[float]] = {OURS: [], "authors": []}
    num_windows = {}
    for _ in range(flags.squad_rounds):
        for name in rates:
            wait_for_quiet(flags.patience)
            files = [str(Path(file).resolve()) for file in (flags.squad_file, flags.vocab_file)]
            command = [sys.executable, "-m", "benchmarks.finetuning.squad", name, *files]
            done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
            if done.returncode:
                raise UserError(f"squad features, {name}, exit status {done.returncode}: {last_line(done.stderr)}")
            answer = json.loads(last_line(done.stdout))
            rates[name].append(answer["num_questions"] / answer["seconds"])
            num_windows[name] = answer["num_windows"]
    if len(set(num_windows.values())) > 1:
        raise UserError(f"squad features: the numbers of windows differ, {num_windows}")
    return rates


def ratio(ours: list[float], others: list[float]) -> float:
    """How many times as fast: the median over the rounds."""
    return statistics.median(mine / theirs for mine, theirs in zip(ours, others, strict=True))


def judge(task: str, results: dict[str, Measured]) -> list[Verdict]:
    """The limits of a task."""
    ours, peer = results[OURS], results[PEER]
    return [
        Verdict(f"{task}, training, examples/s over {PEER}", ratio(ours.training, peer.training), TRAINING),
        Verdict(f"{task}, evaluation, examples/s over {PEER}", ratio(ours.evaluation, peer.evaluation), EVALUATION),
    ]


def print_table(task: str, results: dict[str, Measured]) -> None:
    """Prints one row for each contender."""
    print(
        f"{task:>16}  {'training, examples/s':>24}  {'padding':>7}  {'evaluation, examples/s':>24}  {'padding':>7}  "
        f"{'first step, s':>13}  {'lengths, s':>14}  {'others':>6}"
    )
    for name, measured in results.items():
        print(
            f"{name:>16}  {_rates(measured.training):>24}  {measured.padding[0]:7.1%}  "
            f"{_rates(measured.evaluation):>24}  {measured.padding[1]:7.1%}  {measured.start:13.1f}  "
            f"{measured.lengths:8.1f} ({measured.num_lengths:3d})  {median(measured.others):6.0%}"
        )
    disturbed = sum(share > QUIET for measured in results.values() for share in measured.others)
    if disturbed:
        print(f"{disturbed} turns were disturbed: others used more than {QUIET:.0%} of the cores; measure again")
    print(flush=True)


def median(values: list[float]) -> float:
    return statistics.median(values)


def _rates(values: list[float]) -> str:
    return f"{median(values):.1f} ({min(values):.1f} to {max(values):.1f})"


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_check(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
