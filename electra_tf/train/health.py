"""Whether a run still learns: alarms while it goes on, and what is to be said when it cannot.

A run whose discriminator answers the same for every token, or whose generator has fallen back to chance, looks well on
a machine's monitors: it is as fast as ever. And of a loss that is no longer finite nobody knows afterwards where it
came from. Both are found here, while they can still be explained.
"""

import math
from collections.abc import Callable, Iterable

import numpy as np
import tensorflow as tf

from electra_tf.tasks.base import Objective
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.train.step import summed_gradients

# A discriminator that always answers the replaced share has exactly that share's entropy as its loss, and more if it
# answers anything else to all tokens: never less. One that knows no more than that [CLS] and [SEP] are never replaced
# and which tokens are frequent comes 1.1 to 1.4 % below it: a run of 5,000 steps stood there for its first 1,500 (held-
# out AUC 0.54), passed 2 % when it began to read the context (0.57 to 0.59), and ended 6 % below. Runs that were killed
# by 60 times the learning rate stayed at 0.0 to 3.8 % above.
_NOT_BELOW_CONSTANT = 0.02
# A masked-LM loss within this share of ln V: the generator has not even learnt how frequent tokens are. That alone is
# worth a third of it (7 of 10.3 nats at 30,522 entries), and takes hundreds of steps, warm-up included.
_NOT_BELOW_UNIFORM = 0.05
# Lost again of what was gained over ln V, and of the best sampled accuracy. Learning that goes on loses neither: a
# change of data or sequence length costs tenths of a nat.
_LOST_SHARE = 0.5
# Below this the best accuracy is chance: too few hits, or a temperature that flattens the samples.
_ACCURACY_THAT_COUNTS = 0.05

_NUM_NAMED = 5


class _Episode:
    """A state that is bad for some time: said once, and again if it comes back."""

    def __init__(self, alarm_after_steps: int):
        self._alarm_after_steps = alarm_after_steps
        self.since: int | None = None
        self._is_said = False

    def observe(self, first_step: int, last_step: int, is_bad: bool) -> bool:
        """Whether it must be said now, after a report on the steps from `first_step` to `last_step`."""
        if not is_bad:
            self.since, self._is_said = None, False
            return False
        if self.since is None:
            self.since = first_step
        if self._is_said or last_step - self.since + 1 < self._alarm_after_steps:
            return False
        self._is_said = True
        return True


class HealthMonitor:
    """Watches the reports of a run and says when nothing has been learnt for `train.alarm_after_steps` steps.

    What it says follows from the reports so far, so a run that continues shows it those of its metrics.jsonl first.
    """

    def __init__(self, config: PretrainingConfig):
        objective = config.objective
        self._is_on = config.train.alarm_after_steps > 0
        self._discriminator_learns = objective.learns_replaced_tokens
        self._generator_learns = objective.learns_masked_lm
        self._uniform_loss = math.log(config.encoder.vocab_size)
        self._discriminator = _Episode(config.train.alarm_after_steps)
        self._generator = _Episode(config.train.alarm_after_steps)
        self._best_loss, self._best_accuracy = math.inf, 0.0
        self._last_step = 0

    def observe(self, step: int, metrics: dict[str, float | None]) -> list[str]:
        """Takes the report of a step; what it lacks or has no value for is not judged.

        Args:
            metrics: means over the steps since the last report, as in metrics.jsonl: `masked_lm`, `replaced_token`,
                `replaced_fraction`, `sampled_masked_lm_accuracy`.
        Returns: alarms, one line each.
        """
        first_step, self._last_step = self._last_step + 1, step
        if not self._is_on:
            return []
        found = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
        alarms = []
        if self._discriminator_learns and {"replaced_token", "replaced_fraction"} <= found.keys():
            alarms += self._judge_discriminator(first_step, step, found["replaced_token"], found["replaced_fraction"])
        if self._generator_learns and "masked_lm" in found:
            alarms += self._judge_generator(first_step, step, found["masked_lm"], found)
        return alarms

    def _judge_discriminator(self, first_step: int, step: int, loss: float, replaced_fraction: float) -> list[str]:
        entropy = binary_entropy(replaced_fraction)
        if not self._discriminator.observe(first_step, step, loss >= (1.0 - _NOT_BELOW_CONSTANT) * entropy):
            return []
        return [
            f"since step {self._discriminator.since} the discriminator has learnt nothing: its loss is {loss:.4f}, and "
            f"that of one which answers the same for every token is {entropy:.4f} ({replaced_fraction:.1%} of the "
            "tokens are replaced); usual causes: a learning rate that is too high (optimizer.learning_rate; 5e-4 is "
            "Small's, 2e-4 Base's; try a fifth), a batch that is too small (train.batch_size below about 32), a "
            "generator so good that nothing can be told from the original (objective.generator.size_fraction; 0.25 to "
            "0.5); more steps rarely mend it: start anew with one of these changed"
        ]

    def _judge_generator(self, first_step: int, step: int, loss: float, metrics: dict[str, float]) -> list[str]:
        accuracy = metrics.get("sampled_masked_lm_accuracy")
        self._best_loss = min(self._best_loss, loss)
        self._best_accuracy = max(self._best_accuracy, accuracy or 0.0)
        problem = self._generator_problem(loss, accuracy)
        if not self._generator.observe(first_step, step, problem is not None):
            return []
        return [
            f"since step {self._generator.since} the masked-LM predictions are no use: {problem}; usual causes: a "
            "learning rate that is too high or without warm-up (optimizer.learning_rate, optimizer.warmup_steps), a "
            "batch that is too small (train.batch_size), damaged text or another vocabulary than the text was built "
            "with; start anew from an earlier milestone (--init_from) or from the start with one of these changed"
        ]

    def _generator_problem(self, loss: float, accuracy: float | None) -> str | None:
        uniform, best = self._uniform_loss, self._best_loss
        if loss > (1.0 - _NOT_BELOW_UNIFORM) * uniform:
            return f"the loss is {loss:.3f}, and {uniform:.3f} is that of equal chances for all tokens"
        if loss > best + _LOST_SHARE * (uniform - best):
            return f"the loss is {loss:.3f} and was {best:.3f} at its best"
        counts = accuracy is not None and self._best_accuracy >= _ACCURACY_THAT_COUNTS
        if counts and accuracy < _LOST_SHARE * self._best_accuracy:
            return f"{accuracy:.1%} of the sampled tokens are right, and {self._best_accuracy:.1%} were at best"
        return None


def binary_entropy(fraction: float) -> float:
    """In nats: the loss of the best constant predictor of a yes/no share."""
    return -sum(share * math.log(share) for share in (fraction, 1.0 - fraction) if share > 0.0)


def explain_nonfinite(
    objective: Objective, strategy: tf.distribute.Strategy, batches_from: Callable[[int], Iterable], step: int
) -> str:
    """One line on why a step was not finite, by computing its loss and gradients again.

    Random numbers belong to (seed, step, example), so with the weights as they were it is the same computation. Every
    worker of a cluster must call it.

    Args:
        objective: compiled, with the weights from before the step.
        batches_from: gives the distributed batches from a step on.
        step: how many steps came before. The message names the one that came to nothing, the next.
    """
    variables = objective.trained_variables

    def on_replica(batch: dict[str, tf.Tensor]):
        terms, gradients = summed_gradients(objective, batch, tf.constant(step, tf.int64))
        return (
            terms,
            tf.stack([_is_finite(gradient) for gradient in gradients]),
            tf.stack([_norm(gradient) for gradient in gradients]),
            tf.stack([_is_finite(variable) for variable in variables]),
        )

    @tf.function
    def on_replicas(batch):
        return strategy.run(on_replica, args=(batch,))

    results = on_replicas(next(iter(batches_from(step))))
    first = tf.nest.map_structure(lambda value: strategy.experimental_local_results(value)[0].numpy(), results)
    terms, gradient_is_finite, norms, weight_is_finite = first
    names = [variable.name.partition(":")[0] for variable in variables]
    what, causes = _what_and_causes(step + 1, terms, bool(gradient_is_finite.all()))
    where = [what]
    if not weight_is_finite.all():
        where.append(f"weights that were not finite before: {_named(names, weight_is_finite)}")
    if not gradient_is_finite.all():
        where.append(f"gradients that are not: {_named(names, gradient_is_finite)}")
    else:
        largest = sorted(zip(norms.tolist(), names, strict=True), reverse=True)[:_NUM_NAMED]
        where.append("largest gradient norms: " + ", ".join(f"{name} {norm:.3g}" for norm, name in largest))
    return (
        f"{'; '.join(where)}; usual causes: {causes}; nothing of the step was applied and the checkpoint is from "
        "before it: continue with --set train.on_nonfinite=skip, or start anew with a lower optimizer.learning_rate, "
        "more optimizer.warmup_steps or --set train.precision=float32"
    )


def _what_and_causes(step: int, terms: dict[str, float], gradients_are_finite: bool) -> tuple[str, str]:
    shown = ", ".join(f"{name} {value:.4g}" for name, value in terms.items())
    if not all(math.isfinite(value) for value in terms.values()):
        return f"the loss of step {step} is not finite ({shown})", (
            "a learning rate that is too high, too short a warm-up, weights that grew out of bounds in the steps before"
        )
    if not gradients_are_finite:
        return f"gradients of step {step} are not finite, though its losses are ({shown})", (
            "an overflow on the way back: a learning rate that is too high, logits that grew without bound"
        )
    return f"the loss or a gradient of step {step} was not finite, but all are when computed again ({shown})", (
        "a faulty device or memory; gradients so large that only their joint norm overflows"
    )


def _named(names: list[str], is_finite: np.ndarray) -> str:
    """Those that are not finite, the last ones first: they lie nearest to the losses, where trouble starts."""
    broken = [name for name, finite in zip(names, is_finite, strict=True) if not finite][::-1]
    more = len(broken) - _NUM_NAMED
    return ", ".join(broken[:_NUM_NAMED]) + (f" and {more} more" if more > 0 else "")


def _is_finite(values: tf.Tensor) -> tf.Tensor:
    return tf.reduce_all(tf.math.is_finite(values))


def _norm(values: tf.Tensor) -> tf.Tensor:
    """The Euclidean norm, also where the squares would overflow. Scalar float32."""
    largest = tf.reduce_max(tf.abs(values))
    return largest * tf.norm(tf.math.divide_no_nan(values, largest))
