"""One contender of `benchmarks.serving` in its own process: see `benchmarks.worker`.

    python -m benchmarks.serving.worker '{"kind": "ours", "num_threads": 2, "config": "texts.json", ...}'

Commands: `step`, the first call, and `calls NUM_TOKENS BATCH_SIZE N`, answered with the seconds of each of N calls.
"""

import json
from collections.abc import Callable

from benchmarks.worker import Commands, run_worker, timed


def answer_texts(options: dict, commands: Commands, embed: Callable[[list[str]], tuple[int, ...]]) -> None:
    """Answers all commands. `embed` returns the shape of the vectors of texts."""
    with open(options["config"], encoding="utf-8") as file:
        texts = json.load(file)

    def calls(num_tokens: int, batch_size: int, num_calls: int) -> dict:
        batch = texts[str(num_tokens)][:batch_size]
        return {"shape": embed(batch), "seconds": timed(lambda: embed(batch), num_calls)}

    commands.answer_all(step=lambda: {"shape": embed(next(iter(texts.values()))[:1])}, calls=calls)


if __name__ == "__main__":
    run_worker("benchmarks.serving")
