"""A run made small: what a configuration is about stays, its sizes shrink. For trying a configuration in seconds."""

from dataclasses import dataclass

from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config

_SHORTEST = 8  # the schema's least sequence length
_WIDTHS = ("embedding_size", "hidden_size", "intermediate_size")


@dataclass(frozen=True)
class ReducedSizes:
    """What a configuration is reduced to.

    Attributes:
        vocab_size, max_seq_length, num_steps: as the settings of these names.
        hidden_size: the encoder's; every other width keeps its proportion to it.
        batch_size: examples of a step, rounded up until micro-batches divide among two replicas.
    """

    vocab_size: int
    hidden_size: int
    max_seq_length: int
    batch_size: int
    num_steps: int


def reduce_config(config: PretrainingConfig, sizes: ReducedSizes) -> PretrainingConfig:
    """The same run at another size.

    Kinds, shares, rates, weights, tying and the order of stages and phases stay, and so do proportions: widths that
    were equal are equal. Encoders have one layer, or two where a network beside is less deep. There is no warm-up.

    Raises: UserError: if the sizes leave no room for what the configuration asks for.
    """
    values = config.model_dump()
    _narrow(values, config, sizes)
    _shorten(values, config, sizes)
    return parse_config(values, source="reduced")


def _narrow(values: dict, config: PretrainingConfig, sizes: ReducedSizes) -> None:
    """Shrinks widths and depths of the encoder, and of the networks that the objective has beside it."""
    factor, whole = sizes.hidden_size / config.encoder.hidden_size, config.encoder.num_layers
    groups = [group for group in values["objective"].values() if isinstance(group, dict)]
    beside = [group for group in groups if "size_fraction" in group]
    for network in (values["encoder"], *beside):
        for name in _WIDTHS:
            if network.get(name):
                network[name] = max(1, round(network[name] * factor))
        if network.get("num_heads"):
            network["num_heads"] = _heads(network["num_heads"], factor, network.get("hidden_size") or 0)
    less_deep = [
        network
        for network in beside
        if (network["num_layers"] or whole) < whole or (not network["num_layers"] and network["layers_fraction"] < 1.0)
    ]
    values["encoder"] |= {
        "vocab_size": sizes.vocab_size,
        "num_layers": 2 if less_deep else 1,
        "max_position_embeddings": sizes.max_seq_length + 3,
    }
    for network in beside:
        if network["num_layers"]:
            network["num_layers"] = 1 if network in less_deep else values["encoder"]["num_layers"]


def _heads(num_heads: int, factor: float, hidden_size: int) -> int:
    """As many heads as keep their size, or the next fewer that divide the hidden size."""
    wanted = max(1, round(num_heads * factor))
    return next(count for count in range(wanted, 0, -1) if hidden_size % count == 0)


def _shorten(values: dict, config: PretrainingConfig, sizes: ReducedSizes) -> None:
    """Shrinks sequences, batches and the number of steps, also those of stages and phases."""
    parts = 2 * config.train.gradient_accumulation_steps
    batch_size = -(-sizes.batch_size // parts) * parts
    values["data"]["max_seq_length"] = sizes.max_seq_length
    values["optimizer"]["warmup_steps"] = 0
    values["train"] |= {"num_steps": sizes.num_steps, "batch_size": batch_size, "flops_budget": None}
    values["evaluation"]["batch_size"] = None
    for name, value in values["objective"].items():
        if name.endswith("_steps") and value:
            values["objective"][name] = _share(value, config.train.num_steps, sizes.num_steps)
    left = sizes.num_steps
    for index, stage in enumerate(values["stages"]):
        is_last = index + 1 == len(values["stages"])
        num_steps = left if is_last else _share(stage["num_steps"], config.train.num_steps, sizes.num_steps)
        length = round(stage["max_seq_length"] / config.data.max_seq_length * sizes.max_seq_length)
        stage |= {"num_steps": num_steps, "max_seq_length": max(_SHORTEST, length), "batch_size": batch_size}
        left -= num_steps


def _share(steps: int, of_steps: int, num_steps: int) -> int:
    """The same share of another number of steps, with at least one step before its end and one after."""
    return min(max(1, round(steps / of_steps * num_steps)), num_steps - 1)
