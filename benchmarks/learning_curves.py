"""Draws the curves of a pre-training run from its metrics.jsonl.

    python -m benchmarks.learning_curves RUN/metrics.jsonl docs/mini_learning_curves.png

Three panels over the tokens seen: the replaced-token loss beside that of the best constant predictor, the area under
its ROC curve, and the masked-LM accuracy, all on held-out documents.
"""

import json
import sys
from pathlib import Path

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain.config import load_config

# Title of the panel, then its curves: metric and label.
PANELS = (
    ("loss in nats", (("replaced_token_loss", "discriminator"), ("constant_predictor_loss", "constant predictor"))),
    ("area under the ROC curve", (("replaced_token_auc", "discriminator"),)),
    ("masked-LM accuracy", (("masked_lm_accuracy", "generator"),)),
)


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("metrics_file", help="metrics.jsonl in a run's directory, beside its config.yaml")
    parser.add_argument("picture", help="PNG file to write")
    arguments = parser.parse_args(argv)
    return run_command(lambda: draw(Path(arguments.metrics_file), Path(arguments.picture)))


def draw(metrics_file: Path, picture: Path) -> None:
    """Writes the picture. Raises: UserError: if there are no evaluations to draw."""
    reports = _held_out_reports(metrics_file)
    config = load_config(metrics_file.parent / "config.yaml")
    tokens_per_step = config.train.batch_size * config.data.max_seq_length

    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 3.5), layout="constrained")
    for axes, (title, curves) in zip(figure.subplots(1, len(PANELS)), PANELS, strict=True):
        for metric, label in curves:
            millions = [report["step"] * tokens_per_step / 1e6 for report in reports]
            axes.plot(millions, [report[metric] for report in reports], marker=".", label=label)
        axes.set_title(title)
        axes.set_xlabel("tokens seen, millions")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(picture, dpi=100)


def _held_out_reports(metrics_file: Path) -> list[dict]:
    try:
        lines = metrics_file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise UserError(f"{metrics_file}: {error.strerror}; give the metrics.jsonl of a run") from None
    reports = [report for report in map(json.loads, lines) if report["split"] == "held_out"]
    if not reports:
        raise UserError(f"{metrics_file} holds no evaluation; train with --set evaluation.every_steps=100")
    return reports


if __name__ == "__main__":
    sys.exit(main())
