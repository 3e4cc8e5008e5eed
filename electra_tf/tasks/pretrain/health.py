"""Checks on the reported metrics that a pre-training run still learns.

A run whose discriminator predicts the same for every token, or whose generator predicts no better than chance, runs at
full speed and shows no other symptom.
"""

import math

from electra_tf.tasks.base import HealthCheck
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.terms import BinaryEntropy

# The loss of always predicting the replaced fraction is the entropy of that fraction. A discriminator that has learnt
# only that [CLS] and [SEP] are never replaced, and which tokens are frequent, is 1.1 to 1.4 % below it: a run of 5,000
# steps was there for its first 1,500 (held-out AUC 0.54), passed 2 % when it began to use the context (0.57 to 0.59),
# and ended 6 % below. Runs broken by 60 times the learning rate stayed 0.0 to 3.8 % above.
_NOT_BELOW_CONSTANT = 0.02
# With a masked-LM loss within this share of ln V the generator has not even learnt the frequencies of tokens. They
# alone reduce the loss by a third (to 7 of 10.3 nats at 30,522 entries), in hundreds of steps, warm-up included.
_NOT_BELOW_UNIFORM = 0.05
# An alarm is due when this share of the best gain over ln V, or of the best sampled accuracy, is lost. A healthy run
# does not lose it: a change of data or sequence length costs tenths of a nat.
_LOST_SHARE = 0.5
# A best accuracy below this is chance: too few hits, or a temperature that flattens the samples.
_ACCURACY_THAT_COUNTS = 0.05


def pretraining_health_checks(config: PretrainingConfig) -> list[HealthCheck]:
    """The checks that apply to the objective's losses."""
    checks: list[HealthCheck] = []
    if config.objective.learns_replaced_tokens:
        checks.append(check_discriminator)
    if config.objective.learns_masked_lm:
        checks.append(MaskedLmCheck(config.encoder.vocab_size))
    return checks


def check_discriminator(metrics: dict[str, float]) -> str | None:
    """Compares `replaced_token` with the loss of always predicting the reported `replaced_fraction`."""
    if not {"replaced_token", "replaced_fraction"} <= metrics.keys():
        return None
    loss, replaced_fraction = metrics["replaced_token"], metrics["replaced_fraction"]
    entropy = BinaryEntropy(replaced_fraction, 1.0).value()
    if loss < (1.0 - _NOT_BELOW_CONSTANT) * entropy:
        return None
    return (
        f"the discriminator has learnt nothing: its loss is {loss:.4f}, and the same answer for every token gives "
        f"{entropy:.4f} ({replaced_fraction:.1%} of the tokens are replaced); usual causes: a learning rate that is "
        "too high (optimizer.learning_rate; 5e-4 is Small's, 2e-4 Base's; try a fifth), a batch that is too small "
        "(train.batch_size below about 32), a generator whose samples cannot be told from the original "
        "(objective.generator.size_fraction; 0.25 to 0.5); more steps rarely help: start anew with one of these changed"
    )


class MaskedLmCheck:
    """Compares `masked_lm` and `sampled_masked_lm_accuracy` with chance and with the best values so far."""

    def __init__(self, vocab_size: int):
        self._uniform_loss = math.log(vocab_size)
        self._best_loss, self._best_accuracy = math.inf, 0.0

    def __call__(self, metrics: dict[str, float]) -> str | None:
        if "masked_lm" not in metrics:
            return None
        loss, accuracy = metrics["masked_lm"], metrics.get("sampled_masked_lm_accuracy")
        self._best_loss = min(self._best_loss, loss)
        self._best_accuracy = max(self._best_accuracy, accuracy or 0.0)
        problem = self._problem(loss, accuracy)
        return problem and (
            f"the masked-LM predictions are no use: {problem}; usual causes: a learning rate that is too high or "
            "without warm-up (optimizer.learning_rate, optimizer.warmup_steps), a batch that is too small "
            "(train.batch_size), damaged text or another vocabulary than the text was built with; start anew from an "
            "earlier milestone (--init_from) or from the start with one of these changed"
        )

    def _problem(self, loss: float, accuracy: float | None) -> str | None:
        uniform, best = self._uniform_loss, self._best_loss
        if loss > (1.0 - _NOT_BELOW_UNIFORM) * uniform:
            return f"the loss is {loss:.3f}, and equal probabilities for all tokens give {uniform:.3f}"
        if loss > best + _LOST_SHARE * (uniform - best):
            return f"the loss is {loss:.3f} and was {best:.3f} at its best"
        counts = accuracy is not None and self._best_accuracy >= _ACCURACY_THAT_COUNTS
        if counts and accuracy < _LOST_SHARE * self._best_accuracy:
            return f"{accuracy:.1%} of the sampled tokens are right, and {self._best_accuracy:.1%} were at best"
        return None
