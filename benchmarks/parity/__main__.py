"""Compares this project with what the authors' own code computed.

    python -m benchmarks.parity DIR

DIR holds one golden set: config.json, init.ckpt, batches.npz, forward.npz, gradients.npz, trajectory.npz and
final_variables.npz, which google-research/electra computed with dropout off and greedy sampling. The command loads the
checkpoint into our model and compares the forward pass, every gradient, and the training trajectory with the real
optimizer. It prints one JSON object with the largest differences, and exits 1 if one exceeds its limit.
"""

import json
import math
import sys
from pathlib import Path

from benchmarks.golden import load_arrays, read_json
from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command

LIMITS = {
    "forward": 2e-5,  # absolute, any entry of any tensor
    "gradients": 1e-4,  # relative to each gradient's own norm
    "trajectory_losses": 1e-4,  # relative, any loss of any step
    "final_weights": 1e-4,  # relative to each variable's own norm
}


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("directory", type=Path, metavar="DIR", help="one golden set")
    arguments = parser.parse_args(argv)
    return run_command(lambda: compare(arguments.directory))


def compare(directory: Path) -> bool:
    """Runs every comparison and prints the JSON. Returns: whether all differences are within the limits."""
    from benchmarks.parity import model

    settings = read_json(directory / "config.json")
    objective = model.build(settings, str(directory / "init.ckpt"))
    batches = load_arrays(directory / "batches.npz")
    details = {
        **model.forward_differences(objective, batches, directory),
        **model.gradient_differences(objective, batches, directory),
        **model.trajectory_differences(objective, batches, directory),
    }
    # NaN must fail, but compares as false.
    details = {name: math.inf if math.isnan(value) else value for name, value in details.items()}
    largest = {group: max(value for name, value in details.items() if name.startswith(f"{group}/")) for group in LIMITS}
    passed = all(largest[group] <= limit for group, limit in LIMITS.items())
    report = {
        "set": settings["name"],
        "largest_differences": largest,
        "limits": LIMITS,
        "within_limits": passed,
        "num_compared": len(details),
        "five_largest": dict(sorted(details.items(), key=lambda item: -item[1])[:5]),
    }
    print(json.dumps(report, indent=1))
    return passed


if __name__ == "__main__":
    sys.exit(main())
