"""Trains all seeds of an arm of the ladder in one program on one GPU. Imports JAX and NumPy alone.

    python experiments/replication/stacked_program.py ARM

ARM is a directory of `experiments.replication.stacked prepare`. Its seeds train side by side: weights and moments of a
seed are a row of a matrix, the step of one seed is mapped over the rows, and the program repeats it without the host.
It is the step of `electra_tf.train.step` (a test compares losses and weights); masks and samples follow the same laws
as there, with other random bits. At the end ARM/seedN.npy has the weights of seed N. The same command goes on from
ARM/state.npz, which every call of the program replaces.
"""

import argparse
import functools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

Weights = dict[str, jax.Array]
Batch = dict[str, jax.Array]
_MASKED_SCORE = -10000.0


def draw_masks(key: jax.Array, ids: jax.Array, arm: dict, num_slots: int) -> Batch:
    """The batch of `electra_tf.data.masking.mask_batch` with distinct, uniformly drawn tokens. `ids`: [B, S] int32."""
    num_rows, length = ids.shape
    mask, is_sep = ids != arm["pad_id"], ids == arm["sep_id"]
    candidates = mask & ~is_sep & (ids != arm["cls_id"]) & (ids != arm["mask_id"])
    count = jnp.maximum(jnp.round(mask.sum(1) * np.float32(arm["masked_fraction"])).astype(jnp.int32), 1)
    count = jnp.minimum(count, jnp.minimum(candidates.sum(1), num_slots))
    scores, choice, token = jnp.split(
        jax.random.uniform(key, (num_rows, length + 2 * num_slots)), (length, length + num_slots), axis=1
    )
    _, positions = jax.lax.top_k(jnp.where(candidates, scores, -1.0), num_slots)
    weights = jnp.arange(num_slots) < count[:, None]
    original = jnp.take_along_axis(ids, positions, axis=1)
    random_ids = jnp.minimum((token * arm["vocab_size"]).astype(jnp.int32), arm["vocab_size"] - 1)
    is_random = choice < arm["mask_token_fraction"] + arm["random_token_fraction"]
    shown = jnp.where(is_random, random_ids, original)
    shown = jnp.where(choice < arm["mask_token_fraction"], arm["mask_id"], shown)
    return {
        "input_ids": ids,
        "input_mask": mask.astype(jnp.int32),
        "segment_ids": ((jnp.cumsum(is_sep, axis=1) - is_sep > 0) & mask).astype(jnp.int32),
        "masked_input_ids": put_at_positions(ids, shown, positions, weights),
        "masked_lm_positions": positions,
        "masked_lm_ids": original,
        "masked_lm_weights": weights.astype(jnp.float32),
    }


def put_at_positions(ids: jax.Array, values: jax.Array, positions: jax.Array, weights: jax.Array) -> jax.Array:
    """Writes `values` [B, M] at distinct `positions` [B, M] of `ids` [B, S], where `weights` is not 0."""
    positions = jnp.where(weights > 0, positions, ids.shape[1])
    return jax.vmap(lambda row, where, what: row.at[where].set(what, mode="drop"))(ids, positions, values)


def losses_of(weights: Weights, batch: Batch, arm: dict, noise: jax.Array | float) -> dict[str, jax.Array]:
    """The losses of a batch. `noise` [B, M, V] is added to the logits that tokens are chosen by: Gumbel's, or 0."""
    generator = _Network(weights, arm["generator"], arm)
    hidden = generator.encode(batch["masked_input_ids"], batch)
    logits = generator.masked_lm_logits(jnp.take_along_axis(hidden, batch["masked_lm_positions"][..., None], axis=1))
    chosen = jnp.take_along_axis(logits, batch["masked_lm_ids"][..., None], axis=2)[..., 0]
    losses = jax.nn.logsumexp(logits, axis=2) - chosen
    results = {"masked_lm": _mean(losses, batch["masked_lm_weights"])}
    if arm["discriminator"] is None:
        return results | {"loss": results["masked_lm"]}
    sampled = jnp.argmax(jax.lax.stop_gradient(logits) + noise, axis=2)
    ids = batch["input_ids"]
    corrupted = put_at_positions(ids, sampled, batch["masked_lm_positions"], batch["masked_lm_weights"])
    discriminator = _Network(weights, arm["discriminator"], arm)
    scores = discriminator.replaced_token_logits(discriminator.encode(corrupted, batch))
    entropy = jnp.maximum(scores, 0) - scores * (corrupted != ids) + jnp.log1p(jnp.exp(-jnp.abs(scores)))
    results["replaced_token"] = _mean(entropy, batch["input_mask"])
    return results | {"loss": results["masked_lm"] + arm["replaced_token_loss_weight"] * results["replaced_token"]}


def _mean(values: jax.Array, weights: jax.Array) -> jax.Array:
    return (values * weights).sum() / weights.sum()


class _Network:
    """An encoder and its head. Products are in the arm's precision; sums, norms and probabilities in float32."""

    def __init__(self, weights: Weights, names: dict[str, str], arm: dict):
        self.weights, self.names, self.arm, self.dtype = weights, names, arm, jnp.dtype(arm["precision"])

    def encode(self, ids: jax.Array, batch: Batch) -> jax.Array:
        """[B, S] int32 -> [B, S, H]."""
        word, position, segment = (
            self.weights[f"{self.names['embeddings']}/{table}_embeddings"]
            for table in ("word", "position", "token_type")
        )
        segments = jax.nn.one_hot(batch["segment_ids"], len(segment), dtype=jnp.float32) @ segment
        hidden = self._norm(word[ids] + position[: ids.shape[1]] + segments, self.names["embeddings"])
        if f"{self.names['encoder']}/embeddings_project/kernel" in self.weights:
            hidden = self._dense(hidden, f"{self.names['encoder']}/embeddings_project").astype(self.dtype)
        hidden_scores = (1 - batch["input_mask"])[:, None, None] * _MASKED_SCORE
        for index in range(self.arm["num_layers"]):
            hidden = self._layer(hidden, hidden_scores, f"{self.names['encoder']}/layer_{index}")
        return hidden

    def masked_lm_logits(self, hidden: jax.Array) -> jax.Array:
        """[B, M, H] -> [B, M, V] float32."""
        head, table = self.names["head"], self.weights[f"{self.names['embeddings']}/word_embeddings"]
        vectors = self._norm(_gelu(self._dense(hidden, f"{head}/dense")), head)
        product = jnp.einsum("bme,ve->bmv", vectors, table.astype(self.dtype), preferred_element_type=jnp.float32)
        return product + self.weights[f"{head}/output_bias"]

    def replaced_token_logits(self, hidden: jax.Array) -> jax.Array:
        """[B, S, H] -> [B, S] float32."""
        head = self.names["head"]
        vectors = _gelu(self._dense(hidden, f"{head}/dense")).astype(self.dtype).astype(jnp.float32)
        return (vectors @ self.weights[f"{head}/dense_1/kernel"] + self.weights[f"{head}/dense_1/bias"])[..., 0]

    def _layer(self, hidden: jax.Array, hidden_scores: jax.Array, name: str) -> jax.Array:
        def heads(part: str) -> jax.Array:
            values = self._dense(hidden, f"{name}/attention_self/{part}").astype(self.dtype)
            return values.reshape(*values.shape[:2], self.arm["num_heads"][self.names["encoder"]], -1)

        query, key, value = map(heads, ("query", "key", "value"))
        scores = jnp.einsum("bqad,bkad->baqk", query * query.shape[-1] ** -0.5, key).astype(jnp.float32)
        probs = jax.nn.softmax(scores + hidden_scores).astype(self.dtype)
        mixed = jnp.einsum("baqk,bkad->bqad", probs, value).reshape(hidden.shape)
        hidden = self._add_norm(mixed, hidden, f"{name}/attention_output")
        expanded = _gelu(self._dense(hidden, f"{name}/intermediate")).astype(self.dtype)
        return self._add_norm(expanded, hidden, f"{name}/output")

    def _add_norm(self, values: jax.Array, residual: jax.Array, name: str) -> jax.Array:
        return self._norm(self._dense(values, f"{name}/dense") + residual.astype(jnp.float32), name)

    def _dense(self, values: jax.Array, name: str) -> jax.Array:
        """[..., H] -> [..., F] float32."""
        product = values @ self.weights[f"{name}/kernel"].astype(self.dtype)
        return product.astype(jnp.float32) + self.weights[f"{name}/bias"]

    def _norm(self, values: jax.Array, name: str) -> jax.Array:
        centred = values - values.mean(-1, keepdims=True)
        deviation = jax.lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + self.arm["layer_norm_epsilon"])
        gamma, beta = (self.weights[f"{name}/LayerNorm/{part}"] for part in ("gamma", "beta"))
        return (centred * deviation * gamma + beta).astype(self.dtype)


def _gelu(values: jax.Array) -> jax.Array:
    return jax.nn.gelu(values, approximate=False)


def unpacked(vector: jax.Array, arm: dict) -> Weights:
    """The weights by their names, from one vector."""
    ends = np.cumsum([np.prod(shape, dtype=int) for _, shape in arm["weights"]])
    parts = jnp.split(vector, ends[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(arm["weights"], parts, strict=True)}


def update(vectors: tuple[jax.Array, ...], step: jax.Array, batch: Batch, arm: dict, noise: jax.Array | float):
    """One update of a seed.

    Args:
        vectors: weights and first and second moments, [P] float32 each.        step: scalar int32, from 0.
    Returns: the vectors after it, and the losses.
    """
    weights, first, second = vectors

    def total(parts: Weights):
        losses = losses_of(parts, batch, arm, noise)
        return losses["loss"], losses

    gradients, losses = jax.grad(total, has_aux=True)(unpacked(weights, arm))
    gradient = jnp.concatenate([gradients[name].ravel() for name, _ in arm["weights"]])
    decays = np.concatenate(
        [np.full(np.prod(s, dtype=int), n in arm["decayed"], np.float32) for n, s in arm["weights"]]
    )
    optimizer = arm["optimizer"]
    gradient *= optimizer["clip_norm"] / jnp.maximum(jnp.linalg.norm(gradient), optimizer["clip_norm"])
    first = optimizer["beta_1"] * first + (1 - optimizer["beta_1"]) * gradient
    second = optimizer["beta_2"] * second + (1 - optimizer["beta_2"]) * jnp.square(gradient)
    rate = optimizer["learning_rate"] * jnp.minimum(1.0, step / optimizer["warmup_steps"])
    rate *= jnp.maximum(0.0, 1.0 - step / arm["num_steps"])
    change = first / (jnp.sqrt(second) + optimizer["epsilon"]) + optimizer["weight_decay_rate"] * decays * weights
    return (weights - rate * change, first, second), losses


def trainer(arm: dict, num_slots: int):
    """A compiled function (vectors [N, P], texts, rows [K, N, B], first step) -> (vectors, losses [K, N])."""

    def seed_step(vectors, seed, step, ids):
        masking, sampling = jax.random.split(jax.random.fold_in(jax.random.key(seed), step))
        batch = draw_masks(masking, ids, arm, num_slots)
        shape = (*batch["masked_lm_ids"].shape, arm["vocab_size"])
        noise = 0.0 if arm["discriminator"] is None else jax.random.gumbel(sampling, shape)
        return update(vectors, step, batch, arm, noise)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(vectors, texts, rows, first_step):
        def step(vectors, inputs):
            number, chosen = inputs
            ids = texts[chosen].astype(jnp.int32)  # [N, B, S]
            return jax.vmap(seed_step, in_axes=(0, 0, None, 0))(vectors, jnp.array(arm["seeds"]), number, ids)

        return jax.lax.scan(step, vectors, (first_step + jnp.arange(len(rows)), rows))

    return train


def row_numbers(seed: int, stage: int, num_texts: int, count: int) -> np.ndarray:
    """[count] int32: the texts in the order of a seed: every epoch permutes all of them."""
    generator, num_epochs = np.random.default_rng([seed, stage]), -(-count // num_texts)
    return np.concatenate([generator.permutation(num_texts).astype(np.int32) for _ in range(num_epochs)])[:count]


def steps_of_a_call(length: int) -> int:
    """The steps of a stage that one call of the program computes. A remainder would be compiled apart."""
    divisors = [size for size in range(1000, 15001) if length % size == 0]
    return divisors[-1] if divisors else min(length, 10000)


def train_arm(directory: Path) -> Iterator[dict]:
    """Trains an arm from its initial weights, or from the state of a call that was ended, and writes the weights.

    Yields: a report of the mean losses of each seed, after every call of the program.
    """
    arm = json.loads((directory / "arm.json").read_text(encoding="utf-8"))
    done, vectors = _state(directory)
    first_step, began = 0, time.monotonic()
    for number, stage in enumerate(arm["stages"]):
        texts = jnp.asarray(np.load(directory.parent / f"texts{stage['max_seq_length']}.npy"))
        train, (size, length) = trainer(arm, stage["num_slots"]), (stage["batch_size"], stage["num_steps"])
        rows = [row_numbers(seed, number, len(texts), length * size).reshape(length, size) for seed in arm["seeds"]]
        for begin in range(0, length, count := steps_of_a_call(length)):
            if first_step + begin < done:
                continue
            part = np.stack([of_seed[begin : begin + count] for of_seed in rows], axis=1)
            vectors, losses = train(vectors, texts, part, first_step + begin)
            means = {name: np.asarray(values).mean(axis=0).tolist() for name, values in losses.items()}
            step = first_step + begin + len(part)
            yield {"step": step, "seconds": round(time.monotonic() - began, 1), **means}
            if not np.isfinite([means["loss"], np.asarray(vectors[0]).sum(axis=1)]).all():
                raise FloatingPointError(f"step {step}: the losses are {means}")
            _write_state(directory, step, vectors)
        first_step += length
    for seed, vector in zip(arm["seeds"], np.asarray(vectors[0]), strict=True):
        np.save(directory / f"seed{seed}.npy", vector)


def _state(directory: Path) -> tuple[int, tuple[jax.Array, ...]]:
    """The number of steps that are done; weights and first and second moments, [N, P] each."""
    if not (directory / "state.npz").exists():
        weights = jnp.asarray(np.load(directory / "initial.npy"))
        return 0, (weights, jnp.zeros_like(weights), jnp.zeros_like(weights))
    with np.load(directory / "state.npz") as stored:
        return int(stored["step"]), tuple(jnp.asarray(stored[name]) for name in ("weights", "first", "second"))


def _write_state(directory: Path, step: int, vectors: tuple[jax.Array, ...]) -> None:
    weights, first, second = map(np.asarray, vectors)
    np.savez(directory / "unfinished.npz", step=step, weights=weights, first=first, second=second)
    (directory / "unfinished.npz").replace(directory / "state.npz")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("arm", type=Path, metavar="ARM", help="directory of an arm")
    for report in train_arm(parser.parse_args().arm):
        print(json.dumps(report), flush=True)
