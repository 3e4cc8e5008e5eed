"""Compares runs: a table in Markdown, and a picture of their metrics over FLOPs as in figure 1 of the paper.

    electra-tf report runs/* --output=report.md --picture=report.png
    electra-tf report runs/* --score=glue --output=report.md --picture=report.png
    electra-tf report ft/topics

Runs that differ only in their seed (same settings, data and initial weights) share one row of the table and one line of
the picture, which show the median and the range. The command reads resolved.yaml, metrics.jsonl, data.json and
warm_start.json in each run's directory.

With --score it shows the scores of the runs' milestones after fine-tuning on a task. It reads them from
finetuning_TASK.json in each run's directory, which electra-tf finetune --milestones writes. The median and the range
are then over all fine-tuning seeds of the runs in a row.

For output directories of electra-tf finetune the table has the scores of the seeds.
"""

import os
from pathlib import Path

from electra_tf.cli.configuration import load_module, require_free
from electra_tf.cli.flags import add_objective_module_flag, flag_parser, refuse_flags
from electra_tf.cli.process import errors_reported
from electra_tf.config.errors import UserError


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("model_dirs", nargs="+", metavar="RUN", help="directory of a run, or of a fine-tuning")
    parser.add_argument("--output", metavar="FILE", help="Markdown file to write (default: print the table)")
    parser.add_argument("--picture", metavar="FILE", help="PNG file to write; requires matplotlib")
    parser.add_argument(
        "--flops", choices=("paper", "hardware"), default="paper", help="FLOPs of the picture; see docs/notes/flops.md"
    )
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument(
        "--score", metavar="TASK", help="show the milestones' scores after fine-tuning on TASK (glue, mrpc, ...)"
    )
    shown.add_argument(
        "--metric",
        action="append",
        metavar="NAME",
        help="metric to show; repeatable (default: the usual ones that the runs have)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace existing output files")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    with errors_reported() as status:
        if not arguments.overwrite:
            require_free(arguments, "output", "picture", remedy=", or add --overwrite")
        load_module(arguments.objective_module)

        from electra_tf.files import write_atomically
        from electra_tf.reports.finetuning import finetunings_table, is_finetuning
        from electra_tf.reports.runs import group_runs, read_runs, score_metric
        from electra_tf.reports.tables import chosen_metrics, points_table, runs_table

        finetunings = [path for path in arguments.model_dirs if is_finetuning(path)]
        if finetunings:
            if others := [path for path in arguments.model_dirs if path not in finetunings]:
                raise UserError(
                    f"{finetunings[0]} is a fine-tuning, but {others[0]} is not; report fine-tunings and runs of "
                    "pre-training separately"
                )
            refuse_flags(parser, arguments, ("picture", "metric"), "with fine-tunings")
            text = finetunings_table(finetunings)
        else:
            groups = group_runs(read_runs(arguments.model_dirs, arguments.score))
            metrics = [score_metric(arguments.score)] if arguments.score else chosen_metrics(groups, arguments.metric)
            text = points_table(groups, *metrics) if arguments.score else runs_table(groups, metrics)
        if arguments.picture:
            from electra_tf.reports.pictures import metric_curves  # imports matplotlib

            write_atomically(arguments.picture, metric_curves(groups, metrics, arguments.flops))
            # The link is relative to the page; a printed page counts as one in the working directory.
            link = os.path.relpath(arguments.picture, Path(arguments.output or "page").parent)
            text += f"\n\n![The metrics over FLOPs]({Path(link).as_posix()})"
        if arguments.output:
            write_atomically(arguments.output, f"{text}\n".encode())
        else:
            print(text)
    return status.code
