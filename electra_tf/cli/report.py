"""Puts runs side by side: a table in Markdown, and a picture of their metrics over FLOPs as figure 1 of the paper.

    python report.py runs/* --output=report.md --picture=report.png

Runs that differ in nothing but their seed (same settings, data and initial weights) are one row and one line: the
median, and the range from lowest to highest. Read are config.yaml, metrics.jsonl, data.json, warm_start.json and, where
benchmarks/linear_probe.py wrote it, linear_probe.json of each run.
"""

import os
import sys
from pathlib import Path

from electra_tf.cli.flags import flag_parser, run_command
from electra_tf.cli.modules import add_objective_module_flag, load_module
from electra_tf.config.errors import UserError


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("model_dirs", nargs="+", metavar="RUN", help="directory of a run")
    parser.add_argument("--output", metavar="FILE", help="Markdown file to write (default: print the table)")
    parser.add_argument("--picture", metavar="FILE", help="PNG file to write; needs matplotlib")
    parser.add_argument(
        "--flops", choices=("paper", "hardware"), default="paper", help="how the picture counts them, see docs/flops.md"
    )
    parser.add_argument(
        "--metric",
        action="append",
        dest="metrics",
        metavar="NAME",
        help="a column and a panel, repeatable (default: all that are known of the runs)",
    )
    parser.add_argument("--overwrite", action="store_true", help="replace files that --output and --picture name")
    add_objective_module_flag(parser)
    arguments = parser.parse_args(argv)
    return run_command(lambda: _report(arguments))


def _report(arguments) -> None:
    _require_free(arguments)
    if arguments.objective_module:
        load_module(arguments.objective_module)

    from electra_tf.reports.pictures import png_picture
    from electra_tf.reports.runs import group_runs, read_run
    from electra_tf.reports.tables import chosen_metrics, markdown_table
    from electra_tf.runs.directory import write_atomically

    groups = group_runs(read_run(model_dir) for model_dir in arguments.model_dirs)
    metrics = chosen_metrics(groups, arguments.metrics)
    text = markdown_table(groups, metrics)
    if arguments.picture:
        write_atomically(Path(arguments.picture), png_picture(groups, metrics, arguments.flops))
        text += f"\n![The metrics over FLOPs]({_link(arguments.picture, arguments.output)})\n"
    if arguments.output:
        write_atomically(Path(arguments.output), text.encode())
    else:
        print(text, end="")


def _require_free(arguments) -> None:
    """Raises: UserError: if a file to write exists and may not be replaced, or one is to be both page and picture."""
    files = {flag: Path(getattr(arguments, flag)) for flag in ("output", "picture") if getattr(arguments, flag)}
    if len(files) == 2 and files["output"].resolve() == files["picture"].resolve():
        raise UserError(f"--output and --picture both name {files['output']}; give each a file of its own")
    for flag, file in files.items():
        if file.exists() and not arguments.overwrite:
            raise UserError(f"--{flag}={file} exists; give another name, or --overwrite to replace it")


def _link(picture: str, page: str | None) -> str:
    """The picture's path as seen from the page's directory; a page that is printed is taken to stand here."""
    return Path(os.path.relpath(picture, Path(page).parent if page else ".")).as_posix()


if __name__ == "__main__":
    sys.exit(main())
