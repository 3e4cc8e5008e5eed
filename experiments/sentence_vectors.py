"""Sentence vectors by layer: Spearman's correlation on STS-B's dev set before and after training for similarity.

    python -m experiments.sentence_vectors --model=RUN --data_dir=GLUE --output_dir=OUT --seeds 0 1 2

Prints a table: for each number of layers that the encoder keeps, the correlation of cosines with the scores of the
1,500 pairs, for the mean of the tokens' vectors and for that of [CLS], and after `--task=similarity` (mean vectors) the
median over the seeds. The training data are STS-B's 5,749 pairs.
"""

import sys
from pathlib import Path

import numpy as np

from electra_tf.cli.flags import flag_parser
from electra_tf.cli.process import import_tensorflow, run_command


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--model", required=True, metavar="PATH", help="as --init_from of electra-tf finetune")
    parser.add_argument("--data_dir", required=True, metavar="DIR", help="directory with GLUE's folders")
    parser.add_argument("--output_dir", type=Path, required=True, metavar="DIR", help="for the fine-tuned models")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0], metavar="N", help="of training for similarity")
    arguments = parser.parse_args(argv)
    return run_command(lambda: print(table_by_layer(**vars(arguments))))


def table_by_layer(model: str, data_dir: str, output_dir: Path, seeds: list[int]) -> str:
    """A Markdown table with a row for each number of layers."""
    import_tensorflow()
    import electra_tf
    from electra_tf.reports.tables import markdown_table
    from electra_tf.tasks.finetune.benchmarks import GLUE_TASKS, read_glue

    dev = read_glue(GLUE_TASKS["stsb"], data_dir, "validation")
    rows = []
    for layers in range(1, electra_tf.load(model).config.num_layers + 1):
        loaded = electra_tf.load(model, layers=layers)
        before = [spearman(loaded, dev.inputs, dev.labels, pooling) for pooling in ("mean", "cls")]
        after = electra_tf.finetune(
            "similarity",
            init_from=model,
            data_dir=data_dir,
            output_dir=output_dir / f"layers_{layers}",
            seeds=seeds,
            settings={"encoder.num_layers": layers},
        )
        rows.append([str(layers), *(f"{100 * value:.1f}" for value in (*before, after.score))])
    return markdown_table(["layers", "mean", "[CLS]", "mean, trained"], rows)


def spearman(model, texts: tuple[list[str], list[str]], scores: list[float], pooling: str) -> float:
    """The rank correlation of the cosines of pairs of texts with their scores."""
    from scipy import stats

    first, second = (model.encode(column, pooling) for column in texts)
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return float(stats.spearmanr(np.sum(first * second, axis=1) / norms, scores).statistic)


if __name__ == "__main__":
    sys.exit(main())
