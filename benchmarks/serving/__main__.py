"""Speed of an exported encoder beside transformers on PyTorch, and of concurrent clients of a local server.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.serving --peers_python=PEERS/bin/python --vocab_file=vocab.txt

Both map raw text to a vector a token with ELECTRA-Small of random weights: ours is the `embed` signature of an export,
called as a program that knows TensorFlow alone calls it; the peer is ElectraModel in inference mode with its fast
tokenizer, as it is (`eager`) and with torch.compile (`compile`; it needs a C++ compiler). With one text, waking a
second thread may cost more than it gives, so there are contenders whose operations use one thread. Texts are of 8, 32
and 128 tokens, [CLS] and [SEP] included. Latency is of one text, throughput of 32 at once. Each contender runs in its
own process. They take turns, round by round, so that other load on the machine affects all; each ratio is the median
of the ratios within rounds.

Then 1, 4 and 16 clients ask examples/serving/serve_locally.py for one text at a time over gRPC, and it merges what
they ask at the same time. Their answers must be those to single requests; `padded` counts those that came back wider,
as a longer text was in the same batch.

The machine must be quiet, see `benchmarks.train_step`; each round waits up to --patience seconds for other programs to
end. Prints tables and PASS or FAIL for each limit; exits 1 if one fails.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.common import PROJECT, Verdict, run_check
from benchmarks.serving.clients import measure_clients
from benchmarks.train_step.contenders import Contender, NotAvailable, Process, wait_for_quiet
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.config.errors import UserError

OURS, EAGER = "ours", "eager"
# Kind, whether it is compiled, and the threads that an operation may use: one, or None for all of --threads.
CONTENDERS = {
    OURS: ("ours", False, None),
    f"{OURS}_1_thread": ("ours", False, 1),
    EAGER: ("pytorch", False, None),
    f"{EAGER}_1_thread": ("pytorch", False, 1),
    "compile": ("pytorch", True, None),
}
LATENCY, THROUGHPUT = 1.0, 1.3  # the eager peer's seconds over ours, for one text and for a batch
_WARM_UP_CALLS = 3


@dataclass(frozen=True)
class ServingContender(Contender):
    """Ours or the peer, as a process of `benchmarks.serving.worker`.

    Attributes:
        num_threads: that one operation may use.        export: the version directory of ours.
    """

    num_threads: int = 1
    export: str = ""

    def settings(self) -> dict[str, object]:
        own = {"export": self.export} if self.kind == "ours" else {"compiled": self.compiled}
        return {"num_threads": self.num_threads, **own}

    def worker_module(self) -> str:
        return "benchmarks.serving.worker"


@dataclass
class Measured:
    """The seconds of calls: one list a round."""

    rounds: list[list[float]] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        return sorted(second for calls in self.rounds for second in calls)

    def percentile(self, percent: int) -> float:
        """The smallest time that so many per cent of the calls do not exceed."""
        return self.seconds[-(-len(self.seconds) * percent // 100) - 1]

    def over(self, other: "Measured") -> float:
        """How many times as long as the other's: the median over the rounds."""
        pairs = zip(self.rounds, other.rounds, strict=True)
        return statistics.median(statistics.median(mine) / statistics.median(theirs) for mine, theirs in pairs)


Results = dict[tuple[int, int], dict[str, Measured]]  # (batch size, tokens) -> contender -> its times


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    sample = PROJECT / "sample" / "vocab.txt"
    parser.add_argument("--vocab_file", type=Path, default=sample, metavar="FILE", help="vocabulary, lower case")
    parser.add_argument("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch")
    small = PROJECT / "configs" / "pretrain" / "small.yaml"
    parser.add_argument("--config", type=Path, default=small, metavar="FILE", help="YAML file with the encoder's sizes")
    add_set_flag(parser)
    parser.add_argument("--contenders", default=",".join(CONTENDERS), metavar="A,B", help="who takes part")
    parser.add_argument("--tokens", default="8,32,128", metavar="A,B", help="tokens of a text")
    parser.add_argument("--batch_size", type=int, default=32, help="texts of a batch")
    parser.add_argument("--threads", type=int, default=2, help="cores that each may use")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
    parser.add_argument("--calls", type=int, default=30, help="calls of a turn with one text")
    parser.add_argument("--batches", type=int, default=3, help="calls of a turn with a batch")
    parser.add_argument("--clients", default="1,4,16", metavar="A,B", help="numbers of clients; the first must be 1")
    parser.add_argument("--requests", type=int, default=192, help="requests of all clients together")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds a round waits for a quiet machine")
    parser.add_argument("--json", metavar="FILE", help="file for all measurements")
    flags = parser.parse_args(arguments)
    for name in ("batch_size", "threads", "rounds", "calls", "batches", "requests"):
        if getattr(flags, name) <= 0:
            parser.error(f"--{name} must be positive")
    flags.tokens, flags.clients = (
        [int(number) for number in text.split(",")] for text in (flags.tokens, flags.clients)
    )
    flags.contenders = flags.contenders.split(",")
    if unknown := set(flags.contenders) - set(CONTENDERS):
        parser.error(f"--contenders: {min(unknown)} is none of {', '.join(CONTENDERS)}")
    if OURS not in flags.contenders:
        parser.error(f"--contenders must name {OURS}")
    if min(flags.tokens) < 3 or flags.clients[0] != 1:
        parser.error("--tokens must be at least 3, and the first of --clients 1")
    return flags


def measure(flags: argparse.Namespace) -> bool:
    """Prints the report; returns whether every limit holds."""
    with tempfile.TemporaryDirectory() as directory:
        texts = {tokens: made_up_texts(flags.vocab_file, tokens, flags.batch_size) for tokens in flags.tokens}
        encoder, export = write_export(flags, Path(directory))
        results = measure_calls(flags, encoder, export, texts, Path(directory) / "texts.json")
        verdicts = judge(results, flags.batch_size)
        print_table(results)
        mixed = [text for row in zip(*texts.values(), strict=True) for text in row]
        runs = measure_clients(export, mixed, flags.clients, flags.requests)
    print(f"{'clients':>8}  {'requests/s':>10}  {'padded':>6}  {'largest difference':>18}")
    for run in runs:
        counts = f"{run.num_clients:8d}  {run.requests_per_second:10.1f}  {run.num_merged:6d}"
        print(f"{counts}  {run.largest_difference:18.1e}")
        verdicts.append(Verdict(f"{run.num_clients} clients, largest difference", run.largest_difference, 1e-5, True))
        verdicts.append(Verdict(f"{run.num_clients} clients, requests without an answer", run.num_lost, 0, True))
    print("", *verdicts, sep="\n")
    if flags.json:
        times = {f"{batch} x {tokens}": {name: each.rounds for name, each in by_name.items()}
                 for (batch, tokens), by_name in results.items()}  # fmt: skip
        report = {"flags": {name: str(value) for name, value in vars(flags).items()}, "seconds": times}
        report["clients"] = [asdict(run) for run in runs]
        Path(flags.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return all(verdict.holds for verdict in verdicts)


def made_up_texts(vocab_file: Path, num_tokens: int, num_texts: int) -> list[str]:
    """Texts of so many tokens with [CLS] and [SEP]: each word is a token."""
    tokens = vocab_file.read_text(encoding="utf-8").splitlines()
    words = [token for token in tokens if token.isascii() and token.isalpha() and token.islower() and len(token) > 2]
    draw = random.Random(num_tokens)
    return [" ".join(draw.choices(words, k=num_tokens - 2)) for _ in range(num_texts)]


def write_export(flags: argparse.Namespace, directory: Path) -> tuple[dict, str]:
    """The encoder's sizes, and the version directory of an export of it with random weights."""
    from electra_tf.export.saved_model import export_saved_model
    from electra_tf.export.served_model import ServingShapes
    from electra_tf.export.text_encoder import TextEncoder
    from electra_tf.tasks.pretrain import build_objective
    from electra_tf.tasks.pretrain.config import load_config
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary import Vocabulary

    vocabulary = Vocabulary.load(flags.vocab_file)
    config = load_config(flags.config, [*flags.overrides, f"encoder.vocab_size={vocabulary.size}"])
    longest = config.encoder.max_position_embeddings
    if max(flags.tokens) > longest:
        raise UserError(f"--tokens: {max(flags.tokens)} is more than the model's {longest} positions")
    model = TextEncoder(build_objective(config), BertTokenizer(vocabulary), ServingShapes(longest))
    return config.encoder.model_dump(), export_saved_model(model, directory / "export")


def measure_calls(
    flags: argparse.Namespace, encoder: dict, export: str, texts: dict[int, list[str]], texts_file: Path
) -> Results:
    """The times of all contenders in turns."""
    texts_file.write_text(json.dumps(texts), encoding="utf-8")
    contenders = {}
    for name in flags.contenders:
        kind, compiled, num_threads = CONTENDERS[name]
        threads = num_threads or flags.threads
        contenders[name] = ServingContender(kind, "float32", compiled, num_threads=threads, export=export)
    options = {"num_threads": flags.threads, "vocab_file": str(flags.vocab_file.resolve()), "encoder": encoder}
    cases = [(size, tokens) for size in (1, flags.batch_size) for tokens in flags.tokens]
    results: Results = {case: {} for case in cases}
    with ExitStack() as stack:
        processes = {}
        for name, contender in contenders.items():
            try:
                processes[name] = stack.enter_context(Process(name, contender, flags.peers_python, texts_file, options))
                for size, tokens in cases:
                    check_shape(name, processes[name].ask(f"calls {tokens} {size} {_WARM_UP_CALLS}"), size, tokens)
            except NotAvailable as reason:
                print(f"without {name}: {reason}")
        for _ in range(flags.rounds):
            wait_for_quiet(flags.patience)
            for size, tokens in cases:
                num_calls = flags.calls if size == 1 else flags.batches
                for name, process in processes.items():
                    answer = process.ask(f"calls {tokens} {size} {num_calls}")
                    results[size, tokens].setdefault(name, Measured()).rounds.append(answer["seconds"])
    return results


def check_shape(name: str, answer: dict, batch_size: int, num_tokens: int) -> None:
    """Raises: UserError: if the vectors are not those of the texts."""
    if answer["shape"][:2] != [batch_size, num_tokens]:
        raise UserError(
            f"{name}: vectors of shape {answer['shape']}, expected {batch_size} texts of {num_tokens} tokens; give a "
            "--vocab_file in lower case, such as BERT's uncased one"
        )


def judge(results: Results, batch_size: int) -> list[Verdict]:
    """The limits: the fastest of ours, by its number of threads, against the fastest eager peer."""
    verdicts = []
    for (size, tokens), by_name in results.items():
        ours, eager = (fastest(by_name, prefix) for prefix in (OURS, EAGER))
        if eager:
            what = "latency of 1 text" if size == 1 else f"throughput of {batch_size} texts"
            limit = LATENCY if size == 1 else THROUGHPUT
            ratio = by_name[eager].over(by_name[ours])
            verdicts.append(Verdict(f"{what} of {tokens} tokens, {eager}'s time over {ours}'s", ratio, limit))
    return verdicts


def fastest(by_name: dict[str, Measured], prefix: str) -> str | None:
    """The name of the one with the smallest median."""
    names = [name for name in by_name if name.startswith(prefix)]
    return min(names, key=lambda name: by_name[name].percentile(50), default=None)


def print_table(results: Results) -> None:
    """Prints a row for each contender in each case."""
    times = f"{'p50, ms':>9}  {'p99, ms':>9}  {'texts/s':>9}  {'its time / ours':>15}"
    print(f"{'texts':>6}  {'tokens':>6}  {'':>14}  {times}")
    for (size, tokens), by_name in results.items():
        for name, measured in by_name.items():
            p50, p99 = measured.percentile(50), measured.percentile(99)
            ratio = measured.over(by_name[OURS])
            times = f"{1e3 * p50:9.2f}  {1e3 * p99:9.2f}  {size / p50:9.1f}  {ratio:15.2f}"
            print(f"{size:6d}  {tokens:6d}  {name:>14}  {times}")
    print(flush=True)


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_check(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
