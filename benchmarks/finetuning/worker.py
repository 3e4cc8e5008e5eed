"""One contender of `benchmarks.finetuning` in its own process: see `benchmarks.worker`.

    python -m benchmarks.finetuning.worker '{"kind": "ours", "num_threads": 2, ...}'

Commands: `step`, `warm_up`, `train N` and `evaluate`.
"""

# Imports count as a contender's start, so each contender imports its own libraries.
from benchmarks.worker import Commands, run_worker


def ours(options: dict, commands: Commands) -> None:
    from electra_tf.cli.process import import_tensorflow

    import_tensorflow()
    from benchmarks.finetuning.ours import answer_all

    answer_all(options, commands)


def pytorch(options: dict, commands: Commands) -> None:
    from benchmarks.finetuning.pytorch import answer_all

    answer_all(options, commands)


if __name__ == "__main__":
    run_worker({"ours": ours, "pytorch": pytorch})
