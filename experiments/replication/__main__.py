"""The ladder: ELECTRA and BERT at equal FLOPs after one length of training, then fine-tuned alike.

    python -m experiments.replication --budget_steps=90000 --data_dir=DATA32 --data_dir=DATA64 --glue_dir=GLUE \\
        --probe_dir=PROBE --output_dir=RUNS90000 --records=experiments/replication/records/ladder_90000.jsonl

Each arm is a configuration of configs/pretrain/replication with one run per seed, in RUNS/ARM-seedN. The budget is the
FLOPs of ELECTRA's steps as devices compute them (docs/notes/flops.md); BERT gets the steps that this budget pays for.
DATA32 and DATA64 are the data sets of the two input stages, built with --examples=authors, GLUE has the folders of its
tasks, and train-v1.1.json and dev-v1.1.json of SQuAD, PROBE is the output of experiments.truecasing.

All runs are trained, then scored. The same command continues interrupted processes and skips finished ones. If a
process fails, the others continue and the exit status is 1. Output is in RUNS/logs. As each process ends, the results
of its run are written to a line of the file of records, from which experiments.replication.ladder makes the page's
table and picture.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from experiments.processes import core_shares, run_all
from experiments.replication.arms import ARMS, STAGES


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    return run_command(lambda: _replicate(arguments))


def _flags() -> ArgumentParser:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add(
        "--data_dir",
        action="append",
        required=True,
        dest="data_dirs",
        metavar="DIR",
        help="output of electra-tf build-data; one for each input stage",
    )
    add("--glue_dir", type=Path, required=True, metavar="DIR", help="directory with GLUE's folders")
    add("--probe_dir", type=Path, required=True, metavar="DIR", help="output of experiments.truecasing")
    add("--output_dir", type=Path, required=True, metavar="DIR", help="local directory of the runs")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="one run of each arm per seed")
    add("--only", nargs="+", choices=ARMS, metavar="ARM", help="arms to run; default: both")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="stages to run")
    add("--jobs", type=int, default=1, metavar="N", help="simultaneous processes, which share the cores")
    add(
        "--budget_steps",
        type=int,
        required=True,
        metavar="N",
        help="steps of ELECTRA, which set the budget: 64 or more",
    )
    add("--records", type=Path, metavar="FILE", help="file of records; default: OUTPUT_DIR/records.jsonl")
    return parser


def _replicate(arguments: Namespace) -> bool:
    """Returns: whether all processes of the chosen arms and stages have succeeded."""
    if not arguments.glue_dir.is_dir():
        raise UserError(f"--glue_dir={arguments.glue_dir}: expected a directory with GLUE's folders")
    if not all((arguments.probe_dir / f"{split}.jsonl").is_file() for split in ("train", "dev")):
        raise UserError(f"--probe_dir={arguments.probe_dir}: expected train.jsonl and dev.jsonl of truecasing")
    shares = core_shares(arguments.jobs)

    from experiments.replication.plan import plan
    from experiments.replication.record import note_start, write_run_record

    runs, processes = plan(arguments)
    records = arguments.records or arguments.output_dir / "records.jsonl"
    records.parent.mkdir(parents=True, exist_ok=True)
    for run in filter(lambda run: run.training.is_trained(), runs):
        write_run_record(run, records)
    run_all(
        processes,
        shares,
        before=lambda process: note_start(process.run),
        after=lambda process: write_run_record(process.run, records),
    )
    if left := [process.name for process in processes if not process.is_done()]:
        print(f"not done (failed, or not trained): {', '.join(left)}", file=sys.stderr)
    return not left


if __name__ == "__main__":
    sys.exit(main())
