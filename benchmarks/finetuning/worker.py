"""One contender of `benchmarks.finetuning` in its own process: see `benchmarks.worker`.

    python -m benchmarks.finetuning.worker '{"kind": "ours", "num_threads": 2, ...}'

Commands: `step`, `warm_up`, `train N` and `evaluate`.
"""

from benchmarks.worker import run_worker

if __name__ == "__main__":
    run_worker("benchmarks.finetuning")
