"""Speed of an exported encoder, compared with transformers on PyTorch.

    python -m benchmarks.serving --peers_python=PEERS/bin/python --vocab_file=vocab.txt

Both compute a vector for each token of raw text, with ELECTRA-Small and random weights: ours by the `embed` signature
of an export, called with TensorFlow alone. Contenders and limits are in benchmarks/contenders.py. Texts have 8, 32 and
128 tokens; latency is measured with one text, throughput with 32 at once. A --baseline is measured with its own export.
The machine must be quiet. Prints a table and PASS or FAIL for each limit, and exits 1 if one fails. See
docs/notes/performance.md.
"""

import argparse
import dataclasses
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.contenders import LATENCY_LIMITS, SERVING, THROUGHPUT_LIMITS, Limit
from benchmarks.harness import (
    PROJECT,
    Process,
    Verdict,
    comparison_flags,
    conclude,
    in_checkout,
    judge,
    last_line,
    print_table,
    processes_of,
    ratio,
    run,
    running,
    take_turns,
)
from benchmarks.processor import print_processor
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError

_WARM_UP_CALLS = 3
_EXPORT = """
import argparse, json, pathlib, sys
from benchmarks.serving.__main__ import write_export
print(json.dumps(write_export(argparse.Namespace(**json.loads(sys.argv[1])), pathlib.Path(sys.argv[2]))))
"""


Rounds = list[list[float]]  # the seconds of the calls of each round
Results = dict[tuple[int, int], dict[str, Rounds]]  # by (batch size, tokens), then by contender


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, SERVING, batch_size="texts in a batch", rounds=7)
    sample = PROJECT / "sample" / "vocab.txt"
    parser.add_argument("--vocab_file", type=Path, default=sample, metavar="FILE", help="lower-case vocabulary")
    parser.add_argument("--tokens", default="8,32,128", metavar="A,B", help="tokens in a text, at least 3")
    parser.add_argument("--calls", type=int, default=30, help="calls with one text in a turn")
    parser.add_argument("--batches", type=int, default=3, help="calls with a batch in a turn")
    flags = parser.parse_args(arguments)
    flags.tokens = [int(number) for number in flags.tokens.split(",")]
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    processor = print_processor()
    with tempfile.TemporaryDirectory() as directory:
        texts = {tokens: made_up_texts(flags.vocab_file, tokens, flags.batch_size) for tokens in flags.tokens}
        texts_file = Path(directory) / "texts.json"
        texts_file.write_text(json.dumps(texts), encoding="utf-8")
        encoder, export = _export(flags, PROJECT, Path(directory) / "ours")
        exports = {PROJECT: export}
        if flags.baseline:
            checkout = flags.baseline.resolve()
            exports[checkout] = _export(flags, checkout, Path(directory) / "baseline")[1]
        options = {"num_threads": flags.threads, "vocab_file": str(flags.vocab_file.resolve()), "encoder": encoder}
        options |= {"config": str(texts_file)}
        processes: dict[str, Process] = {}
        for name, contender in flags.contenders.items():
            settings = {"num_threads": flags.threads, "compiled": False, **contender.settings}
            row = {name: dataclasses.replace(contender, settings=settings)}
            in_checkouts = {each: {"settings": {**settings, "export": path}} for each, path in exports.items()}
            processes |= processes_of(row, "benchmarks.serving.worker", flags, options, in_checkouts.__getitem__)
        results = measure_calls(flags, processes)
        _print_results(results)
    times = {f"{size} x {tokens}": by_name for (size, tokens), by_name in results.items()}
    return conclude(judge_calls(results), flags.json, flags, {"processor": processor, "seconds": times})


def made_up_texts(vocab_file: Path, num_tokens: int, num_texts: int) -> list[str]:
    """Texts of words that are one token each; with [CLS] and [SEP] they have `num_tokens` tokens."""
    tokens = vocab_file.read_text(encoding="utf-8").splitlines()
    words = [token for token in tokens if token.isascii() and token.isalpha() and token.islower() and len(token) > 2]
    draw = random.Random(num_tokens)
    return [" ".join(draw.choices(words, k=num_tokens - 2)) for _ in range(num_texts)]


def write_export(flags: argparse.Namespace, directory: Path) -> tuple[dict, str]:
    """Exports an encoder with random weights. Returns: its entries of config.json, and the version directory.

    `_export` also calls this function in other checkouts, so its name and arguments must not change.
    """
    from electra_tf.serving.saved_model import export_saved_model
    from electra_tf.serving.text_encoder import TextEncoder
    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.tasks.served import ServingShapes
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.wordpiece import BertTokenizer
    from electra_tf.weights.hugging_face.layouts import config_entries

    vocabulary = Vocabulary.load(flags.vocab_file)
    config = load_config(flags.config, [*flags.overrides, f"encoder.vocab_size={vocabulary.size}"])
    longest = config.encoder.max_position_embeddings
    if max(flags.tokens) > longest:
        raise UserError(f"--tokens: {max(flags.tokens)} is more than the model's {longest} positions")
    model = TextEncoder(build_objective(config), BertTokenizer(vocabulary), ServingShapes(longest))
    return config_entries(config.encoder), export_saved_model(model, directory / "export")


def _export(flags: argparse.Namespace, checkout: Path, directory: Path) -> tuple[dict, str]:
    """Runs a checkout's `write_export` in a new process."""
    settings = {"config": str(in_checkout(flags.config, checkout)), "vocab_file": str(flags.vocab_file.resolve())}
    settings |= {"overrides": flags.overrides, "tokens": flags.tokens}
    command = [sys.executable, "-c", _EXPORT, json.dumps(settings), str(directory)]
    _, output = run(command, checkout)
    return json.loads(last_line(output))


def measure_calls(flags: argparse.Namespace, processes: Mapping[str, Process]) -> Results:
    """The seconds of all contenders' calls, measured in turns."""
    cases = [(size, tokens) for size in (1, flags.batch_size) for tokens in flags.tokens]
    num_calls = {1: flags.calls, flags.batch_size: flags.batches}

    def call(process: Process) -> list[list[float]]:
        return [process.ask(f"calls {tokens} {size} {num_calls[size]}")["seconds"] for size, tokens in cases]

    with running(processes, flags.patience) as alive:
        for process in alive.values():
            for size, tokens in cases:
                shape = process.ask(f"calls {tokens} {size} {_WARM_UP_CALLS}")["shape"]
                assert shape[:2] == [size, tokens], f"vectors of shape {shape}: is --vocab_file in lower case?"
        turns = take_turns({name: partial(call, each) for name, each in alive.items()}, flags.rounds, flags.patience)
    return {case: {name: [turn[i] for turn in turns[name]] for name in turns} for i, case in enumerate(cases)}


def judge_calls(results: Results) -> list[Verdict]:
    """The verdicts on latency (one text) and throughput (several)."""
    verdicts = []
    for (size, tokens), by_name in results.items():
        seconds = {name: list(map(statistics.median, rounds)) for name, rounds in by_name.items()}
        limits = latency_limits(tokens) if size == 1 else THROUGHPUT_LIMITS
        verdicts += judge(seconds, SERVING, limits, f"{size} x {tokens} tokens: ")
    return verdicts


def latency_limits(tokens: int) -> tuple[Limit, ...]:
    """The limits for one text: those of the longest listed length up to `tokens`, or of the shortest."""
    return LATENCY_LIMITS[max((each for each in LATENCY_LIMITS if each <= tokens), default=min(LATENCY_LIMITS))]


def _print_results(results: Results) -> None:
    first = next(iter(next(iter(results.values()))))
    headings = ["texts", "tokens", "", "p50, ms", "texts/s", f"its time / {first}'s"]
    rows = []
    for (size, tokens), by_name in results.items():
        medians = {name: list(map(statistics.median, rounds)) for name, rounds in by_name.items()}
        for name, rounds in by_name.items():
            p50 = statistics.median(chain.from_iterable(rounds))
            times = [f"{1e3 * p50:.2f}", f"{size / p50:.1f}", f"{ratio(medians[name], medians[first]):.2f}"]
            rows.append([str(size), str(tokens), name, *times])
    print_table("Calls", headings, rows)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
