"""Runs of ELECTRA and of BERT side by side as masked language models (paper, appendix G).

    python -m benchmarks.masked_language_models --data_dir=DATA RUN_OF_ELECTRA RUN_OF_BERT [--set a.b=VALUE]

Each line is what `run_pretraining.py --evaluate --as_masked_lm` prints of a run: all are asked the same tokens.
"""

import math
import sys
from pathlib import Path

from electra_tf.cli.flags import add_set_flag, flag_parser, run_command
from electra_tf.tasks.pretrain.config import load_config

COLUMNS = ("run", "objective", "step", "tokens", "accuracy", "generator alone", "in candidates")
PAPER = (
    ("paper, Base", "electra", "766K", "", "75.5 %", "", "about 95 %"),
    ("paper, Base", "bert_mlm", "1M", "", "77.9 %", "", ""),
)


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("model_dirs", nargs="+", metavar="RUN", help="directories of runs with the same vocabulary")
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="data with a held-out split")
    add_set_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: compare(arguments.model_dirs, arguments.data_dir, arguments.overrides))


def compare(model_dirs: list[str], data_dir: str, overrides: list[str]) -> None:
    """Prints the table. Raises: UserError: as `electra_tf.runs.masked_lm_evaluation.evaluate_as_masked_lm`."""
    from electra_tf.runs.loop import Run
    from electra_tf.runs.masked_lm_evaluation import evaluate_as_masked_lm
    from electra_tf.runs.directory import RunDirectory
    from electra_tf.train.distribution import build_strategy

    rows = [COLUMNS]
    for model_dir in model_dirs:
        directory = RunDirectory(model_dir)
        config = load_config(directory.config_file, overrides)
        run = Run(config, directory, build_strategy("one_device", "local"))
        rows.append(row_of(Path(model_dir).name, config.objective.name, evaluate_as_masked_lm(run, [data_dir])))
    print_table([*rows, *PAPER])


def row_of(name: str, objective: str, found: dict[str, float]) -> tuple[str, ...]:
    """A line of the table; accuracies with their standard errors over the tokens."""
    shares = ("masked_lm_accuracy", "generator_accuracy", "candidates_accuracy")
    tokens = int(found["masked_tokens"])
    return name, objective, str(found["step"]), str(tokens), *(_percent(found.get(share), tokens) for share in shares)


def _percent(share: float | None, tokens: int) -> str:
    if share is None:
        return ""
    return f"{100 * share:.1f} +- {100 * math.sqrt(share * (1 - share) / tokens):.1f} %"


def print_table(rows: list[tuple[str, ...]]) -> None:
    """Prints rows of text under each other."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


if __name__ == "__main__":
    sys.exit(main())
