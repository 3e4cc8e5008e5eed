"""Whether a pre-training run learns: checks on its reports, and what its last evaluation says.

A run whose networks know no more than how frequent tokens are runs at full speed and shows no other symptom. Every run
is on this plateau at first.
"""

import functools
import math

from electra_tf.tasks.base import HealthCheck
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.terms import BinaryEntropy

# A loss that is not this share below its baseline. On the plateau discriminators of all tokens are within 1 % of
# theirs, with a held-out AUC of 0.50 to 0.61; the first sign of context took them past 2 %, and those that learnt ended
# 22 to 35 % below. Masked language models leave the plateau by 0.1 of 7 nats before anything else shows.
_NOT_BELOW_BASELINE = 0.02
# Where the unigram loss is not known: with a masked-LM loss within this share of ln V not even the frequencies of
# tokens are learnt. They alone reduce it by a third (to 7 of 10.3 nats at 30,522 entries), in hundreds of steps.
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
        specials = config.objective.specials_fraction(config)
        checks.append(functools.partial(check_discriminator, specials_fraction=specials))
    if config.objective.learns_masked_lm:
        checks.append(MaskedLmCheck(config.encoder.vocab_size))
    return checks


def plateau_verdict(config: PretrainingConfig, metrics: dict[str, float]) -> str | None:
    """One line on whether a run has left the plateau of token frequencies, from its metrics on held-out text.

    Returns: None for an objective, or an evaluation, without metrics that tell.
    """
    found = [part for part in (_of_discriminator(config, metrics), _of_masked_lm(config, metrics)) if part is not None]
    if not found:
        return None
    texts, places = zip(*found, strict=True)
    held_out = f"held-out {'; '.join(texts)}"
    if None in places:
        return f"the run ends with {held_out}"
    has_generator = hasattr(config.objective, "generator")
    whose = "generator" if has_generator and not config.objective.learns_replaced_tokens else "run"
    in_part = " in part" if min(places) < max(places) == 2 else ""
    return f"the {whose} {_PLACES[max(places)]}{in_part}: {held_out}"


# By the place of the network that is farthest on: 0 before the plateau, 1 on it, 2 behind it.
_PLACES = (
    "has not reached the plateau of token frequencies yet",
    "is still on the plateau of token frequencies",
    "has left the plateau of token frequencies",
)


def _of_discriminator(config: PretrainingConfig, metrics: dict[str, float]) -> tuple[str, int | None] | None:
    """How far the discriminator has come, and its place; None for the place where frequencies tell what is replaced."""
    names = ("replaced_token_loss", "constant_predictor_loss", "replaced_fraction", "replaced_token_auc")
    loss, constant, replaced_fraction, auc = (metrics.get(name, math.nan) for name in names)
    known = all(map(math.isfinite, (loss, constant, replaced_fraction, auc))) and constant > 0.0
    if not config.objective.learns_replaced_tokens or not known:
        return None
    baseline = constant_over_words(replaced_fraction, config.objective.specials_fraction(config))
    place = None if config.objective.frequencies_tell_replaced_tokens else _place(loss, baseline)
    share = 1.0 - loss / constant
    return f"discriminator loss {abs(share):.1%} {_side(share)} the constant predictor, AUC {auc:.2f}", place


def _of_masked_lm(config: PretrainingConfig, metrics: dict[str, float]) -> tuple[str, int] | None:
    """How far the masked LM has come, if it learns, and its place."""
    loss, unigram = (metrics.get(name, math.nan) for name in ("mask_token_loss", "unigram_loss"))
    if not config.objective.learns_masked_lm or not math.isfinite(loss + unigram):
        return None
    gain = unigram - loss
    owner = "generator's " if hasattr(config.objective, "generator") else ""
    return f"{owner}masked-LM loss {abs(gain):.2f} nat {_side(gain)} unigram on [MASK]", _place(loss, unigram)


def _place(loss: float, baseline: float) -> int:
    """0 before the plateau, 1 on it, 2 behind it."""
    return 2 if _is_below(loss, baseline) else 1 if loss <= (1.0 + _NOT_BELOW_BASELINE) * baseline else 0


def _is_below(loss: float, baseline: float) -> bool:
    return loss < (1.0 - _NOT_BELOW_BASELINE) * baseline


def constant_over_words(replaced_fraction: float, specials_fraction: float) -> float:
    """The loss of who knows that [CLS] and [SEP] are never replaced, and gives one answer for all other tokens."""
    words = 1.0 - specials_fraction
    return words * BinaryEntropy(min(replaced_fraction, words), words).value()


def check_discriminator(metrics: dict[str, float], specials_fraction: float) -> str | None:
    """Compares `replaced_token` with the loss of one answer for all words, which follows from `replaced_fraction`."""
    if not {"replaced_token", "replaced_fraction"} <= metrics.keys():
        return None
    loss, replaced_fraction = metrics["replaced_token"], metrics["replaced_fraction"]
    baseline = constant_over_words(replaced_fraction, specials_fraction)
    if _is_below(loss, baseline):
        return None
    return (
        f"the discriminator has learnt nothing: its loss is {loss:.4f}, and the same answer for every word gives "
        f"{baseline:.4f} ({replaced_fraction:.1%} of the tokens are replaced); usual causes: too few updates yet "
        "(sequences of 32 need the fewest), a learning rate that is too high (optimizer.learning_rate; "
        "5e-4 is Small's, 2e-4 Base's; try a fifth), a batch that is too small (train.batch_size below about 32), a "
        "generator whose samples cannot be told from the original (objective.generator.size_fraction; 0.25 to 0.5)"
    )


class MaskedLmCheck:
    """Compares the masked LM with token frequencies, or else with chance, and with its best values so far."""

    def __init__(self, vocab_size: int):
        self._uniform_loss = math.log(vocab_size)
        self._best_loss, self._best_accuracy = math.inf, 0.0

    def __call__(self, metrics: dict[str, float]) -> str | None:
        if "masked_lm" not in metrics:
            return None
        loss, accuracy = metrics["masked_lm"], metrics.get("sampled_masked_lm_accuracy")
        self._best_loss = min(self._best_loss, loss)
        self._best_accuracy = max(self._best_accuracy, accuracy or 0.0)
        problem = _no_more_than_frequencies(metrics) or self._problem(loss, accuracy)
        return problem and (
            f"the masked-LM predictions are no use: {problem}; usual causes: too few updates yet (sequences of 32 need "
            "the fewest), a learning rate that is too high or without warm-up (optimizer.learning_rate, "
            "optimizer.warmup_steps), a batch that is too small (train.batch_size), damaged text or another vocabulary "
            "than the text was built with; start anew from an earlier milestone (--init_from) or from the start with "
            "one of these changed"
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


def _no_more_than_frequencies(metrics: dict[str, float]) -> str | None:
    if not {"mask_token_loss", "unigram_loss"} <= metrics.keys():
        return None
    loss, unigram = metrics["mask_token_loss"], metrics["unigram_loss"]
    if _is_below(loss, unigram) or not unigram:  # 0: no token is shown as [MASK]
        return None
    return f"the loss on [MASK] is {loss:.3f}, and token frequencies alone give {unigram:.3f}"


def _side(gain: float) -> str:
    return "below" if gain >= 0 else "above"
