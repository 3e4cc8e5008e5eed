"""How a pre-training run gets the weights that it begins with: random, or another model's.

Most runs have no source, so the readers of trained models are imported only for those that have one.
"""

import os

from electra_tf.config.errors import UserError
from electra_tf.tasks.pretrain import Objective
from electra_tf.tasks.pretrain.fast_electra import FastElectra
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.start import Start


def start_from(
    init_from: str | os.PathLike | None, fresh_generator: bool, with_optimizer: bool, grow: str | None
) -> Start:
    """How a new run starts, by the flags of these names. Raises: UserError: they do not go together."""
    flags = {"fresh_generator": fresh_generator, "with_optimizer": with_optimizer, "grow": grow}
    given = [f"--{flag}" for flag, is_given in flags.items() if is_given]
    if given and init_from is None:
        raise UserError(f"{given[0]} requires --init_from")
    if with_optimizer and len(given) > 1:
        raise UserError(
            f"--with_optimizer takes the moments of the source's own weights; remove one of {', '.join(given)}"
        )
    if grow not in (None, "stack"):
        raise UserError(f"--grow is {grow!r}, expected 'stack'")

    def initialize(task: Objective, source: str | None, tokenizer: StoredTokenizer | None) -> list[str]:
        return initial_weights(task, source, fresh_generator, tokenizer, stacks=grow == "stack")

    return Start(init_from, initialize, with_optimizer)


def initial_weights(
    task: Objective,
    path: str | os.PathLike | None,
    fresh_generator: bool,
    tokenizer: StoredTokenizer | None,
    stacks: bool = False,
) -> list[str]:
    """Sets the weights of a new run that are not random: those of `path`, if given, and of a frozen generator.

    Args: as for `electra_tf.weights.warm_start.initialize_from`.
    Returns: lines for the log; none if all weights are random.
    Raises: UserError: as `initialize_from` and `load_auxiliary`.
    """
    if path is None and not isinstance(task, FastElectra):
        return []
    from electra_tf.weights.warm_start import initialize_from, load_auxiliary  # which need the readers of all formats

    lines = [] if path is None else initialize_from(task, path, fresh_generator, tokenizer, stacks)
    return [*lines, *load_auxiliary(task, tokenizer)] if isinstance(task, FastElectra) else lines
