"""Our model of a golden set of pre-training, and its differences from what the authors' code computed."""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from benchmarks.parity.golden import Arrays, Comparison, Differences, GoldenSet, relative, require_same_names
from electra_tf.models.layers import INFERENCE
from electra_tf.ops.reference import REFERENCE
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, parse_config
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.train.step import compile_task, summed_gradients, unstacked
from electra_tf.weights.names import named_variables
from electra_tf.weights.warm_start import initialize_from

# Figure (a) of the README is a third of these: what the order of summing changes on another processor.
FORWARD = 1e-5  # absolute, any entry of any tensor
GRADIENTS = 1e-5  # relative to each gradient's own norm
LOSSES = 2e-6  # relative, any loss of any step
WEIGHTS = 1e-5  # relative to each variable's own norm
_RATES = 1e-6  # relative to the peak
_OF_TRAINING = {"masked_lm": "mlm_loss", "replaced_token": "disc_loss", "loss": "total_loss"}
# The authors' graph of the masked-LM baseline computes these too, but does not use them.
_UNUSED_BY_BERT = ("sampled_ids", "corrupted_input_ids", "is_replaced")


def comparisons(golden: GoldenSet) -> Iterator[Comparison]:
    """Compares the forward pass, every gradient, and a training with the real step, as far as the set has them."""
    objective, batches = build(golden), golden.arrays("batches.npz")
    if golden.has("forward.npz"):
        yield Comparison("forward", forward_differences(objective, batches, golden.arrays("forward.npz")), FORWARD)
    if golden.has("gradients.npz"):
        yield Comparison(
            "gradients", gradient_differences(objective, batches, golden.arrays("gradients.npz")), GRADIENTS
        )
    yield Comparison("training: losses", loss_differences(objective, batches, golden.arrays("trajectory.npz")), LOSSES)
    if golden.has("final_variables.npz"):
        expected, variables = golden.arrays("final_variables.npz"), named_variables(objective)
        expected.pop("global_step", None)
        require_same_names(expected, variables, "final variables")
        yield Comparison("training: final weights", relative(variables, expected, np.linalg.norm), WEIGHTS)


def build(golden: GoldenSet) -> Objective:
    """The compiled objective with the golden set's initial weights."""
    objective = compile_task(build_objective(config_of(golden)))
    initialize_from(objective, golden.directory / "init.ckpt")
    return objective


def config_of(golden: GoldenSet) -> PretrainingConfig:
    """Our configuration with the settings of a golden set's config.json."""
    settings = golden.settings
    values = {
        "encoder": golden.encoder_settings,
        "objective": _electra(settings)
        if settings["electra_objective"]
        else {"name": "bert_mlm", "masked_lm_loss_weight": settings["gen_weight"]},
        "masking": {"masked_fraction": settings["mask_prob"], "mask_token_fraction": settings["mask_replace_prob"]},
        "data": {"max_seq_length": settings["max_seq_length"]},
        "optimizer": {
            "name": "adamw",
            "warmup_steps": settings["num_warmup_steps"],
            "decay_power": settings["lr_decay_power"],
            "weight_decay_rate": settings["optimizer"]["weight_decay_rate"],
            "clip_norm": settings["optimizer"]["clip_global_norm"],
            **golden.optimizer_settings,
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


def batch_of(batches: Arrays, step: int) -> dict[str, tf.Tensor]:
    batch = {name: tf.constant(values[step]) for name, values in batches.items()}
    # Golden batches do not record which tokens are [MASK], so metrics over [MASK] have no weight.
    nothing = tf.zeros_like(batch["masked_lm_weights"])
    return {**batch, "mask_token_weights": nothing, "unigram_losses": nothing}


def forward_differences(objective: Objective, batches: Arrays, expected: Arrays) -> Differences:
    """The largest absolute difference in each tensor of the forward pass on batch 0."""
    computed = tf.function(forward_tensors)(objective, batch_of(batches, 0))
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


def forward_tensors(objective: Objective, batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
    """The tensors of forward.npz."""
    is_electra = objective.config.objective.name == "electra"
    forward = objective.forward(batch, INFERENCE)
    generated = forward.generated if is_electra else forward
    ratios = objective.as_ratios(batch, objective.training_terms(batch, INFERENCE))
    losses = {name: ratios[name].total / ratios[name].weight for name in objective.loss_weights}
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


def _encoder_tensors(prefix: str, output) -> dict[str, tf.Tensor]:
    return {
        f"{prefix}_embedding_output": output.embedding_output,
        f"{prefix}_all_layers": tf.stack(output.all_layer_outputs),
        f"{prefix}_attention_probs": tf.stack(output.attention_probs),
        f"{prefix}_sequence_output": output.sequence_output,
    }


def gradient_differences(objective: Objective, batches: Arrays, expected: Arrays) -> Differences:
    """The relative differences of gradients on batch 0, in Euclidean norms, and that of the global norm."""
    global_norm, ours = float(expected.pop("global_norm")), gradients(objective, batches)
    require_same_names(expected, ours, "gradients")
    our_norm = float(tf.linalg.global_norm(list(ours.values())))
    return {**relative(ours, expected, np.linalg.norm), "global_norm": abs(our_norm / global_norm - 1.0)}


def gradients(objective: Objective, batches: Arrays) -> Arrays:
    """The gradients of batch 0, by the authors' names."""
    step = tf.constant(0, tf.int64)
    compute = tf.function(lambda batch: summed_gradients(objective, batch, step, REFERENCE))
    of_variables = unstacked(objective, compute(batch_of(batches, 0))[1])
    by_variable = dict(zip(map(id, objective.trained_variables), of_variables, strict=True))
    return {name: by_variable[id(variable)].numpy() for name, variable in named_variables(objective).items()}


def loss_differences(objective: Objective, batches: Arrays, expected: Arrays) -> Differences:
    """Trains on the golden batches with the real training step. Returns: relative differences of losses.

    A learning rate that differs counts as an infinite difference.
    """
    train_step = tf.function(objective.train_step)
    differences: Differences = {}
    for step, rate in enumerate(expected["learning_rate"]):
        metrics = {name: float(value) for name, value in train_step(batch_of(batches, step)).items()}
        for ours, golden in _OF_TRAINING.items():
            if golden in expected:
                differences[f"{golden}/step_{step}"] = abs(metrics[ours] / float(expected[golden][step]) - 1.0)
        if abs(metrics["learning_rate"] - rate) > _RATES * objective.config.optimizer.learning_rate:
            differences[f"learning_rate/step_{step}"] = float("inf")
    return differences
