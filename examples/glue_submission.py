"""Predicts GLUE's test sets with fine-tuned models, and writes the zip for its site.

    electra-tf finetune --task=glue --init_from=RUN --data_dir=GLUE --output_dir=ft/glue --seeds 0 1 2 3 4
    python examples/glue_submission.py ft/glue GLUE submission.zip

Each task's seed with the best dev score predicts, MNLI's also the diagnostic set AX. WNLI gets its majority label: the
accuracy is 65.1 %, more than plain classifiers reach, because its test set contradicts its training set.
"""

import argparse
import csv
import json
import logging
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

# The site's files: the model, the test set's official file and that of nyu-mll/glue, and the number of rows.
FILES = {
    "CoLA": ("cola", "CoLA/test.tsv", "cola/test", 1063),
    "SST-2": ("sst2", "SST-2/test.tsv", "sst2/test", 1821),
    "MRPC": ("mrpc", "MRPC/test.tsv", "mrpc/test", 1725),
    "STS-B": ("stsb", "STS-B/test.tsv", "stsb/test", 1379),
    "QQP": ("qqp", "QQP/test.tsv", "qqp/test", 390965),
    "MNLI-m": ("mnli", "MNLI/test_matched.tsv", "mnli/test_matched", 9796),
    "MNLI-mm": ("mnli", "MNLI/test_mismatched.tsv", "mnli/test_mismatched", 9847),
    "QNLI": ("qnli", "QNLI/test.tsv", "qnli/test", 5463),
    "RTE": ("rte", "RTE/test.tsv", "rte/test", 3000),
    "AX": ("mnli", "diagnostic/diagnostic.tsv", "ax/test", 1104),
}
# The site's labels where they differ from ours.
LABELS = {
    "CoLA": {"unacceptable": "0", "acceptable": "1"},
    "SST-2": {"negative": "0", "positive": "1"},
    "MRPC": {"not_equivalent": "0", "equivalent": "1"},
    "QQP": {"not_duplicate": "0", "duplicate": "1"},
}
WNLI_ROWS = [(str(row), "0") for row in range(146)]


def test_set(data_dir: Path, name: str) -> Path:
    """The test set's file for a file of the site."""
    _, official, parquet, _ = FILES[name]
    files = [data_dir / official, data_dir / f"{parquet}-00000-of-00001.parquet"]
    found = [file for file in files if file.exists()]
    if not found:
        sys.exit(f"error: {data_dir} has no test set for {name}.tsv; looked for {files[0]} and {files[1]}")
    return found[0]


def predict(model_dir: Path, input_file: Path) -> list[tuple[str, str]]:
    """The id and the prediction of each row."""
    with tempfile.TemporaryDirectory() as directory:
        output_file = Path(directory) / "predictions.tsv"
        flags = f"--model_dir={model_dir}", f"--input_file={input_file}", f"--output_file={output_file}"
        subprocess.run([sys.executable, "-m", "electra_tf", "finetune", "--predict", *flags], check=True)
        with output_file.open(encoding="utf-8", newline="") as stream:
            return [(row["id"], row["prediction"]) for row in csv.DictReader(stream, delimiter="\t")]


def site_lines(name: str, rows: Sequence[tuple[str, str]]) -> str:
    """The text of a file of the site, from ids and predictions."""
    if name == "STS-B":
        rows = [(row, f"{min(max(float(value), 0.0), 5.0):.3f}") for row, value in rows]
    of_site = LABELS.get(name, {})
    lines = [f"{row}\t{of_site.get(value, value)}\n" for row, value in rows]
    return "".join(["index\tprediction\n", *lines])


def write_zip(path: Path, predictions: Mapping[str, Sequence[tuple[str, str]]]) -> None:
    """Writes the site's files, from ids and predictions by the files' names. Warns of what the site would refuse."""
    for name, rows in predictions.items():
        if len(rows) != FILES[name][-1]:
            logging.warning("%s.tsv has %d rows, the site's test set has %d", name, len(rows), FILES[name][-1])
    if missing := [f"{name}.tsv" for name in FILES if name not in predictions]:
        logging.warning("the site accepts only all eleven files; missing: %s", ", ".join(missing))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, rows in {**predictions, "WNLI": WNLI_ROWS}.items():
            archive.writestr(f"{name}.tsv", site_lines(name, rows))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("finetuned", type=Path, help="the --output_dir of --task=glue, with a directory for each task")
    parser.add_argument("data_dir", type=Path, help="GLUE's folders, as for --data_dir")
    parser.add_argument("zip_file", type=Path, help="the file to write")
    flags = parser.parse_args(argv)
    test_sets = {name: test_set(flags.data_dir, name) for name in FILES if (flags.finetuned / FILES[name][0]).is_dir()}
    predictions = {}
    for name, input_file in test_sets.items():
        directory = flags.finetuned / FILES[name][0]
        summary = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        scores = {seed["seed"]: seed["metrics"][summary["primary_metric"]] for seed in summary["seeds"]}
        best = max(scores, key=lambda seed: -1.0 if scores[seed] is None else scores[seed])
        predictions[name] = predict(directory / f"seed_{best}", input_file)
    write_zip(flags.zip_file, predictions)


if __name__ == "__main__":
    main()
