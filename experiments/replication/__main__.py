"""The paper's central comparison in small: ELECTRA and masked language models at equal FLOPs, fine-tuned alike.

    python -m experiments.replication --data_dir=DATA32 --data_dir=DATA64 --glue_dir=GLUE --probe_dir=PROBE \\
        --output_dir=RUNS --jobs=2
    python -m experiments.replication --remake

The runs are those of configs/pretrain/replication, one for each seed, in RUNS/ARM-seedN. The budget is the FLOPs of
ELECTRA's steps as devices compute them (docs/flops.md), and each other arm gets the steps that it pays for;
bert_mlm_paper_flops is BERT again, with what the paper's count pays for. DATA32 and DATA64 are the data sets of the
two input stages, GLUE has the folders of its tasks, PROBE is the output of experiments.truecasing.

The stages are train; score (fine-tuning, also of untrained encoders, and the accuracy of appendix G); milestones (the
same during training); and beside (the small tasks of GLUE). The same command continues what was interrupted and skips
what is finished. What fails is noted, the rest goes on, and the exit status is 1. RUNS/logs has what processes print.

As each process ends, RUNS/records/ARM-seedN.json gets what is known of its run;
--record_dir=experiments/replication/records replaces the project's own records. From these alone --remake writes
the results into docs/notes/replication.md and docs/notes/replication.png.
"""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from electra_tf.cli.flags import flag_parser
from electra_tf.config.errors import UserError
from experiments.processes import PROJECT, core_shares, local_directory, run_all, run_experiment
from experiments.replication.arms import ARMS, STAGES

OWN_RECORDS = Path(__file__).parent / "records"
PAGE = PROJECT / "docs" / "notes" / "replication.md"
_MIN_STEPS = 64  # the other arms get less, and are evaluated eight times


def main(argv: list[str] | None = None) -> int:
    arguments = _flags().parse_args(argv)
    return run_experiment(lambda: _replicate(arguments))


def _flags() -> ArgumentParser:
    parser = flag_parser(__doc__)
    add = parser.add_argument
    add(
        "--data_dir",
        action="append",
        default=[],
        dest="data_dirs",
        metavar="DIR",
        help="output of build_pretraining_dataset.py; given once for each input stage",
    )
    add("--glue_dir", type=Path, metavar="DIR", help="directory with GLUE's folders")
    add("--probe_dir", type=Path, metavar="DIR", help="output of experiments.truecasing")
    add("--output_dir", type=local_directory, metavar="DIR", help="local directory of the runs")
    add("--seeds", type=int, nargs="+", default=[0, 1, 2], metavar="N", help="one run each")
    add("--only", nargs="+", choices=ARMS, default=ARMS, metavar="ARM", help=f"of {', '.join(ARMS)}; default: all")
    add("--stages", nargs="+", choices=STAGES, default=STAGES, metavar="STAGE", help="default: all, in their order")
    add("--jobs", type=int, default=1, metavar="N", help="processes at once, each on its share of the cores")
    add("--budget_steps", type=int, metavar="N", help="of ELECTRA, whose FLOPs are the budget; default: its file's")
    add(
        "--record_dir",
        type=local_directory,
        metavar="DIR",
        help="gets ARM-seedN.json; default: OUTPUT_DIR/records, or with --remake alone experiments/replication/records",
    )
    add("--remake", action="store_true", help="only write the results into docs/notes/replication.md")
    return parser


def _replicate(arguments: Namespace) -> bool:
    """Returns: whether everything that was asked for is done."""
    record_dir = arguments.record_dir or (arguments.output_dir / "records" if arguments.output_dir else OWN_RECORDS)
    if arguments.remake:
        from experiments.replication.results import remake

        remake(record_dir, PAGE)
        return True
    needed = ("data_dir", "glue_dir", "probe_dir", "output_dir")
    given = vars(arguments) | {"data_dir": arguments.data_dirs}
    if missing := [f"--{flag}" for flag in needed if not given[flag]]:
        raise UserError(f"{', '.join(missing)} missing; give {', '.join(f'--{flag}' for flag in needed)}, or --remake")
    if arguments.budget_steps is not None and arguments.budget_steps < _MIN_STEPS:
        raise UserError(f"--budget_steps={arguments.budget_steps}: expected {_MIN_STEPS} or more")
    if len(set(arguments.seeds)) < len(arguments.seeds):
        raise UserError(f"--seeds {' '.join(map(str, arguments.seeds))}: give each once")
    if not arguments.glue_dir.is_dir():
        raise UserError(f"--glue_dir={arguments.glue_dir}: expected a directory with GLUE's folders")
    if not all((arguments.probe_dir / f"{split}.jsonl").is_file() for split in ("train", "dev")):
        raise UserError(
            f"--probe_dir={arguments.probe_dir}: expected a directory with train.jsonl and dev.jsonl, the output of "
            "experiments.truecasing"
        )
    shares = core_shares(arguments.jobs)

    from experiments.replication.plan import plan
    from experiments.replication.record import require_same_record, write_run_record

    runs, processes = plan(arguments)
    for run in runs:
        require_same_record(run, record_dir)
    try:
        record_dir.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{record_dir} cannot be made: {error.strerror}; give another --record_dir") from None
    for run in filter(lambda run: run.is_trained(), runs):
        write_run_record(run, record_dir)
    run_all(
        [process for process in processes if not process.is_done()],
        shares,
        lambda process: process.is_ready(),
        lambda process: write_run_record(process.run, record_dir),
    )
    if left := [process.name for process in processes if not process.is_done()]:
        print(f"not done, as they failed or their run is not trained: {', '.join(left)}", file=sys.stderr)
    return not left


if __name__ == "__main__":
    sys.exit(main())
