"""Compares this project with numbers that the authors' own code computed.

    python -m benchmarks.parity DIR

DIR holds one golden set: config.json, init.ckpt, batches.npz, forward.npz, gradients.npz, trajectory.npz and
final_variables.npz, made by running google-research/electra with dropout off and greedy sampling. The checkpoint is
loaded into our model, and the forward pass, every gradient and the training trajectory with the real optimizer are
compared. Prints one JSON object with the largest differences; exits 0 only if all are within the limits.
"""

import json
import sys
from pathlib import Path

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError

LIMITS = {
    "forward": 2e-5,  # absolute, any entry of any tensor
    "gradients": 1e-4,  # of each gradient's own norm
    "trajectory_losses": 1e-4,  # relative, any loss of any step
    "final_weights": 1e-4,  # of each variable's own norm
}
# A gradient that is zero in theory holds rounding noise only: its norm counts as at least this share of the global one.
_SMALLEST_NORM_SHARE = 1e-6


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("directory", metavar="DIR", help="one golden set")
    arguments = parser.parse_args(argv)
    within_limits = []
    status = run_command(lambda: within_limits.append(compare(Path(arguments.directory))))
    return status or (0 if within_limits[0] else 1)


def compare(directory: Path) -> bool:
    """Runs every comparison, prints the JSON, returns whether all are within the limits."""
    from benchmarks import parity_model

    settings = _read_settings(directory)
    differences, details = {}, {}
    objective = parity_model.build(settings, str(directory / "init.ckpt"))
    batches = parity_model.load_arrays(directory / "batches.npz")
    for name, measure in (
        ("forward", parity_model.forward_differences),
        ("gradients", parity_model.gradient_differences),
        ("trajectory", parity_model.trajectory_differences),
    ):
        for key, found in measure(objective, batches, directory, _SMALLEST_NORM_SHARE).items():
            group = name if name != "trajectory" else key.split("/", 1)[0]
            details[key if name == "trajectory" else f"{name}/{key}"] = found
            # A NaN compares as neither larger nor smaller; it must fail.
            differences[group] = max(differences.get(group, 0.0), found if found == found else float("inf"))
    passed = {name: differences[name] <= limit for name, limit in LIMITS.items()}
    worst = dict(sorted(details.items(), key=lambda item: -item[1])[:5])
    report = {
        "set": settings["name"],
        "largest_differences": differences,
        "limits": LIMITS,
        "within_limits": all(passed.values()),
        "num_compared": len(details),
        "five_largest": worst,
    }
    print(json.dumps(report, indent=1))
    return all(passed.values())


def _read_settings(directory: Path) -> dict:
    try:
        return json.loads((directory / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{directory} is no golden set: config.json: {error}; give a directory that holds one"
        ) from None


if __name__ == "__main__":
    sys.exit(main())
