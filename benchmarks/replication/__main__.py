"""A small replication of the paper's table 4: five objectives at equal FLOPs, several seeds each, and a linear probe.

    python -m benchmarks.replication --data_dir=DATA --glue_dir=GLUE --output_dir=RUNS --markdown=results.md

DATA was built with a vocabulary of 8,192 and --max_seq_length=128. The runs are those of configs/pretrain/replication;
the budget is the FLOPs of ELECTRA's runs, counted as devices compute them (docs/flops.md), and each objective gets the
steps that it allows. Every run and probe is its own process, in RUNS/OBJECTIVE-seedN. The same command resumes where it
was interrupted and skips what is finished. Prints the results as Markdown; --markdown also writes them to a file, with
a picture beside it. docs/replication.md has the results of one call.
"""

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.common import PROJECT
from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.config.errors import UserError

if TYPE_CHECKING:
    from benchmarks.replication.plan import PlannedRun


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="output of build_pretraining_dataset.py")
    parser.add_argument("--glue_dir", required=True, metavar="DIR", help="directory with CoLA and SST-2")
    parser.add_argument("--output_dir", required=True, type=Path, metavar="DIR", help="directory of the runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="one run each")
    parser.add_argument(
        "--electra_steps", type=int, default=1_600, metavar="N", help="of ELECTRA's runs, whose FLOPs are the budget"
    )
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="file for the results; the picture is FILE.png")
    arguments = parser.parse_args(argv)
    return run_command(lambda: _replicate(arguments))


def _replicate(arguments) -> None:
    from benchmarks.replication.plan import EVALUATIONS, plan
    from benchmarks.replication.results import picture, results_markdown
    from electra_tf.reports.runs import group_runs, read_runs

    if arguments.electra_steps < EVALUATIONS:
        raise UserError(f"--electra_steps={arguments.electra_steps}: expected {EVALUATIONS} or more")
    runs = plan(arguments.output_dir, arguments.seeds, arguments.electra_steps)
    for number, run in enumerate(runs, start=1):
        print(f"{number}/{len(runs)}: {run.directory.name}, {run.num_steps} steps", file=sys.stderr, flush=True)
        if not run.is_trained():
            _call(_training_command(run, arguments.data_dir))
        if not run.is_probed():
            _call(_probe_command(run, arguments.glue_dir))
    groups = group_runs(read_runs(run.directory for run in runs))
    text = results_markdown(groups)
    print(text, end="")
    if arguments.markdown:
        arguments.markdown.write_text(text, encoding="utf-8")
        arguments.markdown.with_suffix(".png").write_bytes(picture(groups))


def _training_command(run: "PlannedRun", data_dir: str) -> list[str]:
    flags = [f"--config={run.config_file}", f"--data_dir={data_dir}", f"--model_dir={run.directory}"]
    settings = [part for override in run.overrides() for part in ("--set", override)]
    return [sys.executable, str(PROJECT / "run_pretraining.py"), *flags, *settings]


def _probe_command(run: "PlannedRun", glue_dir: str) -> list[str]:
    flags = [f"--model_dir={run.directory}", f"--glue_dir={glue_dir}", f"--output={run.probe_file}"]
    steps = [f"--step={step}" for step in run.probed_steps()]
    return [sys.executable, "-m", "benchmarks.linear_probe", *flags, *steps]


def _call(command: list[str]) -> None:
    """Raises: UserError: if the command fails; its own message is above."""
    finished = subprocess.run(command, stdout=subprocess.DEVNULL)
    if finished.returncode:
        raise UserError(f"the command above ended with status {finished.returncode}; repair it and run this one again")


if __name__ == "__main__":
    sys.exit(main())
