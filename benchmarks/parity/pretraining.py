"""Our model of a golden set of pre-training, and its differences from what the authors' code computed."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import tensorflow as tf

from benchmarks.parity.golden import Arrays, Comparison, Differences, encoder_settings, load_arrays, require_same_names
from electra_tf.models.layers import ForwardContext
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.train.step import compile_task
from electra_tf.weights.names import named_variables
from electra_tf.weights.warm_start import initialize_from

# Figure (a) of the README is a third of these: what the order of summing changes on another processor.
FORWARD = 1e-5  # absolute, any entry of any tensor
GRADIENTS = 1e-5  # relative to each gradient's own norm
LOSSES = 2e-6  # relative, any loss of any step
WEIGHTS = 1e-5  # relative to each variable's own norm
# A gradient that is zero in theory holds only rounding noise. Differences are divided by at least this share of the
# global norm.
_SMALLEST_NORM_SHARE = 1e-6
_TRAJECTORY_NAMES = {"masked_lm": "mlm_loss", "replaced_token": "disc_loss", "loss": "total_loss"}
_GREEDY = ForwardContext(training=False)
# The authors' graph of the masked-LM baseline computes these too, but does not use them.
_UNUSED_BY_BERT = ("sampled_ids", "corrupted_input_ids", "is_replaced")


def comparisons(directory: Path, settings: dict) -> Iterator[Comparison]:
    """Compares the forward pass, every gradient, and a training with the real step.

    Args:
        settings: the set's config.json.
    """
    objective, batches = build(settings, str(directory / "init.ckpt")), load_arrays(directory / "batches.npz")
    yield Comparison("forward", forward_differences(objective, batches, directory), FORWARD)
    yield Comparison("gradients", gradient_differences(objective, batches, directory), GRADIENTS)
    losses, weights = trajectory_differences(objective, batches, directory)
    yield Comparison("training: losses", losses, LOSSES)
    yield Comparison("training: final weights", weights, WEIGHTS)


def config_of(settings: dict) -> PretrainingConfig:
    """Our configuration with the settings of a golden set's config.json."""
    optimizer = settings["optimizer"]
    values = {
        "encoder": encoder_settings(settings),
        "objective": _electra(settings)
        if settings["electra_objective"]
        else {"name": "bert_mlm", "masked_lm_loss_weight": settings["gen_weight"]},
        "masking": {"masked_fraction": settings["mask_prob"], "mask_token_fraction": settings["mask_replace_prob"]},
        "data": {"max_seq_length": settings["max_seq_length"]},
        "optimizer": {
            "name": "adamw",
            "learning_rate": settings["learning_rate"],
            "warmup_steps": settings["num_warmup_steps"],
            "decay_power": settings["lr_decay_power"],
            **{name: optimizer[name] for name in ("weight_decay_rate", "beta_1", "beta_2", "epsilon")},
            "clip_norm": optimizer["clip_global_norm"],
            "exclude_from_weight_decay": optimizer["exclude_from_weight_decay_regexes"],
        },
        "train": {"num_steps": settings["num_train_steps"], "batch_size": settings["batch_size"]},
    }
    return parse_config(values, source="config.json of the golden set")


def _electra(settings: dict) -> dict:
    tying = "none" if settings["untied_generator_embeddings"] else "embeddings"
    return {
        "name": "electra",
        "generator": {
            "size_fraction": settings["generator_hidden_size_fraction"],
            "num_layers": settings["generator_num_hidden_layers"],
            "num_heads": settings["generator_num_attention_heads"],
            **{name: settings[f"generator_{name}"] for name in ("hidden_size", "intermediate_size", "embedding_size")},
        },
        "tying": tying if settings["untied_generator"] else "all",
        "masked_lm_loss_weight": settings["gen_weight"],
        "replaced_token_loss_weight": settings["disc_weight"],
        "sampling": "greedy",
        "temperature": settings["temperature"],
        "disallow_correct": settings["disallow_correct"],
    }


def build(settings: dict, checkpoint: str) -> Objective:
    """The compiled objective with the golden set's initial weights."""
    objective = compile_task(build_objective(config_of(settings)))
    initialize_from(objective, checkpoint)
    return objective


def _batch(batches: Arrays, step: int) -> dict[str, tf.Tensor]:
    batch = {name: tf.constant(values[step]) for name, values in batches.items()}
    # Golden batches do not record which tokens are [MASK], so metrics over [MASK] have no weight.
    nothing = tf.zeros_like(batch["masked_lm_weights"])
    return {**batch, "mask_token_weights": nothing, "unigram_losses": nothing}


def forward_differences(objective: Objective, batches: Arrays, directory: Path) -> Differences:
    """The largest absolute difference in each tensor of the forward pass on batch 0."""
    expected = load_arrays(directory / "forward.npz")
    computed = tf.function(_forward_tensors)(objective, _batch(batches, 0))
    if objective.config.objective.name == "bert_mlm":
        expected = {name: value for name, value in expected.items() if name not in _UNUSED_BY_BERT}
    require_same_names(expected, computed, "tensors")
    used = batches["masked_lm_weights"][0] > 0
    differences = {}
    for name, golden in expected.items():
        difference = np.abs(golden.astype(np.float64) - computed[name].numpy().astype(np.float64))
        # An unused slot holds a prediction for position 0, which rounding may change.
        differences[name] = float(np.max(difference[used] if name == "sampled_ids" else difference))
    return differences


def _forward_tensors(objective: Objective, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    is_electra = objective.config.objective.name == "electra"
    forward = objective.forward(batch, _GREEDY)
    generated = forward.generated if is_electra else forward
    losses = _losses(objective, batch)
    tensors = {
        **_encoder_tensors("generator", generated.encoder_output),
        "mlm_logits": generated.logits,
        "mlm_per_position_loss": generated.distribution.losses(batch["masked_lm_ids"]),
        "mlm_loss": losses["masked_lm"],
        "total_loss": tf.add_n([objective.loss_weights[name] * loss for name, loss in losses.items()]),
    }
    if not is_electra:
        return tensors
    logits = forward.replaced_token_logits
    labels, mask = (tf.cast(part, tf.float32) for part in (forward.corrupted.is_replaced, batch["input_mask"]))
    per_token = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits) * mask
    return {
        **tensors,
        **_encoder_tensors("discriminator", forward.discriminator_output),
        "sampled_ids": forward.corrupted.sampled_ids,
        "corrupted_input_ids": forward.corrupted.input_ids,
        "is_replaced": forward.corrupted.is_replaced,
        "discriminator_logits": logits,
        "discriminator_probs": tf.sigmoid(logits),
        "discriminator_preds": tf.cast(logits > 0, tf.int32),
        "discriminator_per_example_loss": tf.reduce_sum(per_token, 1) / (1e-6 + tf.reduce_sum(mask, 1)),
        "disc_loss": losses["replaced_token"],
    }


def _losses(objective: Objective, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    ratios = objective.as_ratios(batch, objective.training_terms(batch, _GREEDY))
    return {name: ratios[name].total / ratios[name].weight for name in objective.loss_weights}


def _encoder_tensors(prefix: str, output) -> dict[str, tf.Tensor]:
    return {
        f"{prefix}_embedding_output": output.embedding_output,
        f"{prefix}_all_layers": tf.stack(output.all_layer_outputs),
        f"{prefix}_attention_probs": tf.stack(output.attention_probs),
        f"{prefix}_sequence_output": output.sequence_output,
    }


def gradient_differences(objective: Objective, batches: Arrays, directory: Path) -> Differences:
    """|ours - golden| / |golden| of each variable's gradient on batch 0, in Euclidean norms.

    The bias of the attention keys adds the same value to all scores of a query, so its gradient is zero in theory and
    both sides hold rounding noise. Its difference is divided by the norm of the query bias's gradient.
    """
    expected = load_arrays(directory / "gradients.npz")
    variables = named_variables(objective)
    computed = tf.function(_gradients)(
        objective, {name: each.value for name, each in variables.items()}, _batch(batches, 0)
    )
    global_norm = float(expected.pop("global_norm"))
    require_same_names(expected, variables, "gradients")
    ours = float(tf.linalg.global_norm(list(computed.values())))
    differences = {"global_norm": abs(ours - global_norm) / global_norm}
    for name, golden in expected.items():
        scale = expected[name.replace("/key/bias", "/query/bias")]
        smallest = _SMALLEST_NORM_SHARE * global_norm
        differences[name] = _relative(golden, computed[name].numpy(), _norm(scale), smallest)
    return differences


def _gradients(objective: Objective, variables: dict[str, tf.Variable], batch) -> dict[str, tf.Tensor]:
    with tf.GradientTape() as tape:
        losses = _losses(objective, batch)
        loss = tf.add_n([weight * losses[name] for name, weight in objective.loss_weights.items()])
    gradients = tape.gradient(loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO)
    return {name: tf.convert_to_tensor(gradient) for name, gradient in gradients.items()}


def trajectory_differences(objective: Objective, batches: Arrays, directory: Path) -> tuple[Differences, Differences]:
    """Trains on the golden batches with the real training step. Returns: relative differences of losses and weights."""
    expected = load_arrays(directory / "trajectory.npz")
    train_step = tf.function(objective.train_step)
    losses: Differences = {}
    for step in range(len(expected["step"])):
        metrics = {name: float(value) for name, value in train_step(_batch(batches, step)).items()}
        for ours, golden in _TRAJECTORY_NAMES.items():
            if golden in expected:
                reference = float(expected[golden][step])
                losses[f"{golden}/step_{step}"] = abs(metrics[ours] - reference) / abs(reference)
        rate = float(expected["learning_rate"][step])
        if abs(metrics["learning_rate"] - rate) > 1e-6 * objective.config.optimizer.learning_rate:
            losses[f"learning_rate/step_{step}"] = float("inf")
    final, variables = load_arrays(directory / "final_variables.npz"), named_variables(objective)
    final.pop("global_step", None)
    require_same_names(final, variables, "final variables")
    return losses, {
        name: _relative(final[name], variable.numpy(), _norm(final[name]), _SMALLEST_NORM_SHARE)
        for name, variable in variables.items()
    }


def _norm(values: np.ndarray) -> float:
    return float(np.linalg.norm(values.astype(np.float64)))


def _relative(golden: np.ndarray, ours: np.ndarray, scale: float, smallest_scale: float) -> float:
    return _norm(golden.astype(np.float64) - ours.astype(np.float64)) / max(scale, smallest_scale)
