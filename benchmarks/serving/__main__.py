"""Speed of an exported encoder, compared with transformers on PyTorch, and of a local server with several clients.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.serving --peers_python=PEERS/bin/python --vocab_file=vocab.txt

Both compute a vector for each token of raw text, with ELECTRA-Small and random weights. Ours is the `embed` signature
of an export, called with TensorFlow alone. The peer is ElectraModel in inference mode with its fast tokenizer, without
(`eager`) and with torch.compile (`compile`; it needs a C++ compiler). For one text a second thread may cost more than
it gains, so some contenders use one thread. `ours_frozen` has one thread and TF_ONEDNN_ASSUME_FROZEN_WEIGHTS=1, with
which TensorFlow rearranges the weights once and not in each call (docs/serving.md). With `_avx512`, MKL is made to use
AVX-512 on a processor that is not Intel's; these peers exist only on such processors. Limits are checked against the
fastest eager and the fastest compiled peer. Texts have 8, 32 and 128 tokens, including [CLS] and [SEP]. Latency is
measured with one text, throughput with 32 at once. A --baseline is measured with its own export.

Then 1, 4 and 16 clients send one text at a time over gRPC to examples/serving/serve_locally.py, which merges
simultaneous requests. The answers must equal those to single requests. `padded` counts answers that are wider than
their text, because a longer text was in the same batch.

The processor's name and both libraries' rates of matrix products are printed first, because the ratios depend on them.
The machine must be quiet, see `benchmarks.train_step`. Prints tables and PASS or FAIL for each limit, and exits 1 if
one fails.
"""

import argparse
import contextlib
import json
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path

from benchmarks.harness import (
    PROJECT,
    Process,
    Verdict,
    comparison_flags,
    conclude,
    in_checkout,
    last_line,
    print_table,
    ratio,
    running,
    take_turns,
)
from benchmarks.processor import (
    AVX512,
    HAS_AVX512_ROWS,
    mkl_with_avx512,
    print_processor,
    print_processor_and_products,
)
from benchmarks.serving.clients import measure_clients
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError

OURS, EAGER, COMPILE, BASELINE = "ours", "eager", "compile", "baseline"
# Floors of the other's seconds over ours, for one text by its number of tokens (see `latency_limit`) and for a batch.
LATENCY = {EAGER: {8: 2.0, 32: 1.3, 128: 1.0}, COMPILE: {8: 0.9, 32: 1.0, 128: 0.9}, BASELINE: {8: 0.95}}
THROUGHPUT = {EAGER: 1.3, COMPILE: 1.0, BASELINE: 0.95}
_WARM_UP_CALLS = 3
_EXPORT = """
import argparse, json, pathlib, sys
from benchmarks.serving.__main__ import write_export
print(json.dumps(write_export(argparse.Namespace(**json.loads(sys.argv[1])), pathlib.Path(sys.argv[2]))))
"""


@dataclass(frozen=True)
class Contender:
    """A way to compute the vectors.

    Attributes:
        kind: `ours` or `pytorch`.        compiled: whether torch.compile compiles the model.
        num_threads: of an operation; None: all of --threads.        avx512: whether MKL is made to use AVX-512.
        frozen: whether TensorFlow may assume that weights do not change.
    """

    kind: str
    compiled: bool = False
    num_threads: int | None = None
    avx512: bool = False
    frozen: bool = False


def all_contenders(has_avx512_rows: bool) -> dict[str, Contender]:
    """All contenders by name. The name begins with `OURS`, `EAGER` or `COMPILE`."""
    chosen = {OURS: Contender("ours"), f"{OURS}_1_thread": Contender("ours", num_threads=1)}
    chosen[f"{OURS}_frozen"] = Contender("ours", num_threads=1, frozen=True)
    for suffix, avx512 in {"": False, AVX512: True}.items() if has_avx512_rows else [("", False)]:
        chosen[f"{EAGER}{suffix}"] = Contender("pytorch", avx512=avx512)
        chosen[f"{EAGER}{suffix}_1_thread"] = Contender("pytorch", num_threads=1, avx512=avx512)
        chosen[f"{COMPILE}{suffix}"] = Contender("pytorch", compiled=True, avx512=avx512)
    return chosen


CONTENDERS = all_contenders(HAS_AVX512_ROWS)

Rounds = list[list[float]]  # the seconds of the calls of each round
Results = dict[tuple[int, int], dict[str, Rounds]]  # by (batch size, tokens), then by contender


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = comparison_flags(__doc__, batch_size="texts in a batch", rounds=7)
    sample = PROJECT / "sample" / "vocab.txt"
    parser.add_argument("--vocab_file", type=Path, default=sample, metavar="FILE", help="lower-case vocabulary")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="A,B", help="contenders to measure")
    parser.add_argument("--tokens", default="8,32,128", metavar="A,B", help="tokens in a text, at least 3")
    parser.add_argument("--calls", type=int, default=30, help="calls with one text in a turn")
    parser.add_argument("--batches", type=int, default=3, help="calls with a batch in a turn")
    parser.add_argument("--clients", default="1,4,16", metavar="A,B", help="numbers of clients; the first must be 1")
    parser.add_argument("--requests", type=int, default=192, help="total requests of all clients")
    flags = parser.parse_args(arguments)
    flags.tokens, flags.clients = (
        [int(number) for number in text.split(",")] for text in (flags.tokens, flags.clients)
    )
    flags.contenders = flags.contenders.split(",")
    if OURS not in flags.contenders or set(flags.contenders) - CONTENDERS.keys():
        parser.error(f"--contenders: expected {OURS} and others of {', '.join(CONTENDERS)}")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Takes all measurements and prints the report. Returns: whether every limit holds."""
    has_peer = any(CONTENDERS[name].kind == "pytorch" for name in flags.contenders)
    processor = print_processor_and_products(flags) if has_peer else print_processor()
    with tempfile.TemporaryDirectory() as directory:
        texts = {tokens: made_up_texts(flags.vocab_file, tokens, flags.batch_size) for tokens in flags.tokens}
        encoder, export = _export(flags, PROJECT, Path(directory) / "ours")
        options = {"num_threads": flags.threads, "vocab_file": str(flags.vocab_file.resolve()), "encoder": encoder}
        texts_file = Path(directory) / "texts.json"
        texts_file.write_text(json.dumps(texts), encoding="utf-8")
        options["config"] = str(texts_file)
        exports = {"ours": export}
        if flags.baseline:
            exports["baseline"] = _export(flags, flags.baseline.resolve(), Path(directory) / "baseline")[1]
        results = measure_calls(flags, _processes(flags, options, exports))
        _print_results(results)
        mixed = list(chain.from_iterable(zip(*texts.values(), strict=True)))
        runs = measure_clients(export, mixed, flags.clients, flags.requests)
    verdicts, rows = judge(results, flags.batch_size), []
    for run in runs:
        rate, difference = f"{run.requests_per_second:.1f}", f"{run.largest_difference:.1e}"
        rows.append([str(run.num_clients), rate, str(run.num_merged), difference])
        verdicts.append(Verdict(f"{run.num_clients} clients, largest difference", run.largest_difference, 1e-5, True))
        verdicts.append(Verdict(f"{run.num_clients} clients, requests without an answer", run.num_lost, 0, True))
    print_table("Clients of one server", ["clients", "requests/s", "padded", "largest difference"], rows)
    times = {f"{size} x {tokens}": by_name for (size, tokens), by_name in results.items()}
    report = {"processor": processor, "seconds": times, "clients": [asdict(run) for run in runs]}
    return conclude(verdicts, flags.json, flags, report)


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
    from electra_tf.export.saved_model import export_saved_model
    from electra_tf.export.served_model import ServingShapes, TextEncoder
    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.tasks.pretrain.config import load_config
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
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        raise UserError(f"{checkout} cannot export the model: {last_line(done.stderr)}")
    return json.loads(last_line(done.stdout))


def _processes(flags: argparse.Namespace, options: dict, exports: Mapping[str, str]) -> dict[str, Process]:
    """The processes of all contenders.

    Args:
        exports: the version directories of `ours` and, if it is measured, of `baseline`.
    """
    processes = {}
    for name in flags.contenders:
        contender = CONTENDERS[name]
        settings = {"num_threads": contender.num_threads or flags.threads, "compiled": contender.compiled}
        common = {**options, "kind": contender.kind}
        if contender.kind == "pytorch":
            own, environment = {**common, "settings": settings}, mkl_with_avx512 if contender.avx512 else None
            processes[name] = Process(
                name, "benchmarks.serving.worker", own, flags.peers_python, environment=environment
            )
            continue
        for who, export in exports.items():
            own = {**common, "settings": {**settings, "export": export}}
            checkout = PROJECT if who == OURS else flags.baseline.resolve()
            renamed = name.replace(OURS, who)
            environment = _frozen_weights if contender.frozen else None
            processes[renamed] = Process(
                renamed, "benchmarks.serving.worker", own, checkout=checkout, environment=environment
            )
    return processes


def _frozen_weights() -> AbstractContextManager[dict[str, str]]:
    return contextlib.nullcontext({"TF_ONEDNN_ASSUME_FROZEN_WEIGHTS": "1"})


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


def ratio_of_calls(over: Rounds, under: Rounds) -> float:
    """The median, over the rounds, of the ratio of the median calls of `over` and `under`."""
    return ratio(list(map(statistics.median, over)), list(map(statistics.median, under)))


def percentile(rounds: Rounds, percent: int) -> float:
    """The smallest time that at least `percent` % of all calls do not exceed."""
    seconds = sorted(chain.from_iterable(rounds))
    return seconds[-(-len(seconds) * percent // 100) - 1]


def judge(results: Results, batch_size: int) -> list[Verdict]:
    """Compares the fastest of ours with the fastest of each kind, whatever their threads and instructions."""
    verdicts = []
    for (size, tokens), by_name in results.items():
        what = "latency of 1 text" if size == 1 else f"throughput of {batch_size} texts"
        for prefix in THROUGHPUT:
            ours, other = (fastest(by_name, name) for name in (OURS, prefix))
            if other:
                limit = latency_limit(prefix, tokens) if size == 1 else THROUGHPUT[prefix]
                seconds = ratio_of_calls(by_name[other], by_name[ours])
                verdicts.append(Verdict(f"{what} of {tokens} tokens, {other}'s time over {ours}'s", seconds, limit))
    return verdicts


def latency_limit(prefix: str, tokens: int) -> float:
    """The limit for one text: that of the largest listed number of tokens up to `tokens`, or of the smallest."""
    limits = LATENCY[prefix]
    return limits[max((listed for listed in limits if listed <= tokens), default=min(limits))]


def fastest(by_name: Mapping[str, Rounds], prefix: str) -> str | None:
    """The name of the contender with the smallest median; None if no name has the prefix."""
    names = [name for name in by_name if name.startswith(prefix)]
    return min(names, key=lambda name: percentile(by_name[name], 50), default=None)


def _print_results(results: Results) -> None:
    headings = ["texts", "tokens", "", "p50, ms", "p99, ms", "texts/s", "its time / ours"]
    rows = []
    for (size, tokens), by_name in results.items():
        for name, rounds in by_name.items():
            p50, p99 = percentile(rounds, 50), percentile(rounds, 99)
            times = [f"{1e3 * p50:.2f}", f"{1e3 * p99:.2f}", f"{size / p50:.1f}"]
            rows.append([str(size), str(tokens), name, *times, f"{ratio_of_calls(rounds, by_name[OURS]):.2f}"])
    print_table("Calls", headings, rows)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_command(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
