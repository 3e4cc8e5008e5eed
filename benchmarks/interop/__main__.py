"""Logits of transformers' classes against ours, on models written for Hugging Face.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    python -m benchmarks.interop --peers_python=PEERS/bin/python [--model_dir RUN ...]

Builds models with random weights, a tiny and a small one of each objective and each fine-tuned head that transformers
has a class for; or takes runs, pre-trained or fine-tuned (`OUTPUT/seed_0`). Writes them as folders for Hugging Face,
lets transformers read these, model and tokenizer, and compares on sentences from sample/: ids, which must be equal;
outputs of every real token; and the first answers of pipeline("fill-mask") and pipeline("text-classification") with
what our outputs mean. Prints a table; exits 1 if a difference is above its limit or a folder lacks a tensor.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.harness import PROJECT, Verdict, last_line, run_check
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import import_tensorflow
from electra_tf.config.errors import UserError

LIMIT = 1e-5
# Where a head has more labels than half its hidden units: a rounding of 16 to 32, the shift, in each of these units.
SHIFT_LIMIT = 1e-4
SIZES = ("tiny", "small")
_WORDS = 24  # of a sentence
_NOT_COMPARED = -500.0  # our logits of a start or end outside the context are 1000 lower; theirs are as they come


def parse_flags(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = flag_parser(__doc__)
    parser.add_argument("--peers_python", default=sys.executable, metavar="PYTHON", help="interpreter that has PyTorch")
    parser.add_argument("--sizes", nargs="*", choices=SIZES, default=SIZES, help="of the built models (tiny small)")
    parser.add_argument("--model_dir", nargs="*", default=[], metavar="RUN", help="runs to compare instead")
    parser.add_argument("--output_dir", metavar="DIR", help="keep the folders there (a temporary directory)")
    return parser.parse_args(arguments)


def sentences() -> list[list[str]]:
    """Real sentences, alone and in pairs; one has [MASK] in place of a word."""
    lines = (PROJECT / "sample" / "wikipedia" / "wiki_00").read_text(encoding="utf-8").splitlines()
    texts = [" ".join(line.split()[:_WORDS]) for line in lines if len(line.split()) >= _WORDS][:8]
    words = texts[7].split()
    masked = " ".join([*words[:9], "[MASK]", *words[10:]])
    return [[texts[0]], [texts[1], texts[2]], [texts[3][:40]], [texts[4], texts[5][:60]], [texts[6]], [masked]]


def measure(flags: argparse.Namespace) -> bool:
    """Prints the table; returns whether every limit holds."""
    import_tensorflow()
    from benchmarks.interop.cases import built_cases, case_of_run

    cases = map(case_of_run, flags.model_dir) if flags.model_dir else (
        case for size in flags.sizes for case in built_cases(size)
    )  # fmt: skip
    verdicts = []
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(flags.output_dir or temporary)
        written = [each for number, case in enumerate(cases) for each in write(case, directory / f"{number}")]
        arrays, report = ask_peer(flags.peers_python, written, directory)
        print(f"transformers {report['versions']['transformers']}, torch {report['versions']['torch']}\n")
        print(f"{'':<54} {'class':<33} {'difference':>17}  {'pipeline':<20} difference")
        for each in written:
            verdicts += judge(each, arrays, report[each.name])
    print("", *(verdict for verdict in verdicts if not verdict.holds), sep="\n")
    print(f"{sum(verdict.holds for verdict in verdicts)} of {len(verdicts)} hold")
    return all(verdict.holds for verdict in verdicts)


@dataclass(frozen=True)
class Written:
    """A network in a folder for Hugging Face.

    Attributes:
        batch: the sentences as our tokenizer gives them.        outputs: ours, by transformers' names.
        is_shifted: whether its head is one of `linear_as_shift`.
    """

    name: str
    folder: Path
    batch: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]
    is_shifted: bool


def write(case, directory: Path) -> list[Written]:
    """Writes the networks of a case, and computes what they give."""
    from benchmarks.interop.cases import batch_of
    from electra_tf.text.tokenizer import BertTokenizer
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face

    model = case.model
    write_hugging_face(model, str(directory))
    networks = hugging_face_networks(model)
    vocabulary = Vocabulary.from_bytes(model.vocabulary_file, model.source)
    batch = batch_of(sentences(), BertTokenizer(vocabulary, model.lower_case, model.strip_accents))
    arrays, written = {name: values.numpy() for name, values in batch.items()}, []
    for network in networks:
        folder = directory / network.name if len(networks) > 1 else directory
        is_shifted = network.tensors.get("classifier.dense.bias", np.zeros(1)).min() > 6.0
        outputs = case.outputs[network.name](batch)
        written.append(Written(f"{case.name}, {network.name}", folder, arrays, outputs, bool(is_shifted)))
    return written


def judge(written: Written, arrays: dict[str, np.ndarray], report: dict) -> list[Verdict]:
    """Compares one network with what transformers gave, and prints a line."""
    name = written.name
    different_ids = sum(
        int((arrays[f"{name}|{key}"] != written.batch[ours]).sum())
        for key, ours in
        (("input_ids", "input_ids"), ("attention_mask", "input_mask"), ("token_type_ids", "segment_ids"))
    )  # fmt: skip
    differences = (
        largest_difference(arrays[f"{name}|{key}"], ours, written.batch) for key, ours in written.outputs.items()
    )
    difference, answer = max(differences), report["pipeline"]
    limit = SHIFT_LIMIT if written.is_shifted else LIMIT
    verdicts = [
        Verdict(f"{name}: ids that differ", different_ids, 0, is_ceiling=True),
        Verdict(f"{name}: largest difference", difference, limit, is_ceiling=True),
        Verdict(f"{name}: {report['problems']}", len(report["problems"]), 0, is_ceiling=True),
    ]
    shown = ""
    if answer and answer["kind"] in ("fill-mask", "text-classification"):
        of_pipeline = pipeline_difference(answer, written)
        verdicts.append(Verdict(f"{name}: {answer}", of_pipeline, LIMIT, is_ceiling=True))
        shown = f"{of_pipeline:.1e}"
    largest = max(np.abs(values[values > _NOT_COMPARED]).max() for values in written.outputs.values())
    kind = answer["kind"] if answer else ""
    print(f"{name:<54} {report['class']:<33} {difference:7.1e} of {largest:6.2f}  {kind:<20} {shown}", flush=True)
    return verdicts


def ask_peer(python: str, written: list[Written], directory: Path) -> tuple[dict[str, np.ndarray], dict]:
    """What transformers makes of folders: arrays by `name|output`, and a report. Raises: UserError: if it fails."""
    request_file, answer_file = directory / "request.json", directory / "answer.npz"
    request = {"texts": sentences(), "folders": {each.name: str(each.folder) for each in written}}
    request_file.write_text(json.dumps(request), encoding="utf-8")
    command = [python, str(Path(__file__).with_name("peer.py")), str(request_file), str(answer_file)]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment)
    except OSError as error:
        raise UserError(f"--peers_python={python} cannot be run: {error.strerror}") from None
    if done.returncode:
        raise UserError(
            f"--peers_python={python}, exit status {done.returncode}: {last_line(done.stderr)}; it needs "
            "benchmarks/requirements-peers.txt"
        )
    with np.load(answer_file) as arrays:
        return dict(arrays), json.loads(last_line(done.stdout))


def largest_difference(found: np.ndarray, expected: np.ndarray, batch: dict[str, np.ndarray]) -> float:
    """Of what is compared: real tokens, and starts and ends that are allowed."""
    if found.shape != expected.shape:
        return float("inf")
    compared, mask = expected > _NOT_COMPARED, batch["input_mask"].astype(bool)
    if expected.shape[:2] == mask.shape:
        compared &= mask.reshape(mask.shape + (1,) * (expected.ndim - 2))
    return float(np.max(np.abs(found - expected)[compared]))


def pipeline_difference(answer: dict, written: Written) -> float:
    """Of the first answer's score; infinite where the answer is another one than ours."""
    config, tokenizer = (
        json.loads((written.folder / name).read_text(encoding="utf-8")) for name in ("config.json", "tokenizer.json")
    )
    logits = written.outputs["logits"]
    if answer["kind"] == "fill-mask":
        mask_id = tokenizer["model"]["vocab"]["[MASK]"]
        ((row, position),) = np.argwhere(written.batch["input_ids"] == mask_id)
        scores, found = softmax(logits[row, position]), answer["token"]
    else:
        apply = {"regression": np.asarray, "multi_label_classification": sigmoid}.get(config["problem_type"], softmax)
        scores, found = apply(logits[0]), config["label2id"][answer["label"]]
    return abs(float(scores[found]) - answer["score"]) if found == scores.argmax() else float("inf")


def softmax(logits: np.ndarray) -> np.ndarray:
    exponentials = np.exp(logits - logits.max())
    return exponentials / exponentials.sum()


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-logits))


def main(arguments: list[str] | None = None) -> int:
    flags = parse_flags(arguments)
    return run_check(lambda: measure(flags))


if __name__ == "__main__":
    sys.exit(main())
