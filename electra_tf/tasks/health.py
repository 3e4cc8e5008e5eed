"""Whether a run still learns: alarms while it trains, and a verdict on a pre-training run at its end.

A network that has learnt no more than the frequencies of tokens trains at full speed and shows no other symptom. Every
run is on this plateau at first.
"""

import functools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from electra_tf.config.schema import TrainConfig
from electra_tf.tasks.terms import BinaryEntropy

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.config import PretrainingConfig

# Takes the metrics of a report and returns the problem in one clause, or None.
HealthCheck = Callable[[dict[str, float]], str | None]

_FEWEST_STEPS = 500
# A loss counts as below its baseline from 2 % on. On the plateau discriminators of all tokens are within 1 % of theirs,
# with a held-out AUC of 0.50 to 0.61; the first sign of context took them past 2 %, and those that learnt ended 22 to
# 35 % below. Masked language models leave the plateau by 0.1 of 7 nats before anything else shows.
_NOT_BELOW_BASELINE = 0.02
# Where the unigram loss is missing: a masked LM within this share of ln V has not even learnt the token frequencies,
# which alone reduce the loss by a third (to 7 of 10.3 nats at 30,522 entries), in hundreds of steps.
_NOT_BELOW_UNIFORM = 0.05
# An alarm is due when this share of the best gain over ln V, or of the best sampled accuracy, is lost. A healthy run
# does not lose it: a change of data or sequence length costs tenths of a nat.
_LOST_SHARE = 0.5
# A best accuracy below this is chance: too few hits, or a temperature that flattens the samples.
_ACCURACY_THAT_COUNTS = 0.05


def alarm_after(train: TrainConfig) -> int:
    """The steps after which a failing check is an alarm: at most half of a run, but at least its first few hundred."""
    return min(train.alarm_after_steps, max(_FEWEST_STEPS, train.num_steps // 2))


class HealthMonitor:
    """Raises an alarm when a check has failed in every report of `alarm_after_steps` steps, once per episode.

    The alarms follow from the reports alone, so a continued run first observes the reports of its metrics.jsonl.

    Args:
        alarm_after_steps: 0 for no alarms.
        checks: used by this monitor alone, as they may remember what they have seen.
        first_step: the step before the run's first one: not 0 where a run goes on from another's.
    """

    def __init__(self, alarm_after_steps: int, checks: Sequence[HealthCheck], first_step: int = 0):
        self._alarm_after_steps = alarm_after_steps
        self._checks = checks
        self._failing_since: dict[HealthCheck, int] = {}
        self._last_step = first_step

    def observe(self, step: int, metrics: dict[str, float | None]) -> list[str]:
        """Takes the report of a step. Returns the alarms, one line each.

        Args:
            metrics: means over the steps since the last report, as in metrics.jsonl; values that are not finite are
                ignored.
        """
        last_step, self._last_step = self._last_step, step
        finite = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
        alarms = []
        for check in self._checks:
            problem = check(finite)
            if problem is None:
                self._failing_since.pop(check, None)
                continue
            since = self._failing_since.setdefault(check, last_step + 1)
            # Due with this report and not with the one before.
            if last_step - since + 1 < self._alarm_after_steps <= step - since + 1:
                alarms.append(f"since step {since} {problem}")
        return alarms


def pretraining_health_checks(config: "PretrainingConfig") -> list[HealthCheck]:
    """Checks of the losses that the objective minimises, for one monitor."""
    checks: list[HealthCheck] = []
    if config.objective.learns_replaced_tokens:
        specials = config.objective.specials_fraction(config)
        checks.append(functools.partial(check_discriminator, specials_fraction=specials))
    if config.objective.learns_masked_lm:
        checks.append(MaskedLmCheck(config.encoder.vocab_size))
    return checks


def check_discriminator(metrics: dict[str, float], specials_fraction: float) -> str | None:
    """Compares the discriminator's loss with the loss of giving every word the same probability of being replaced.

    The latter follows from `replaced_fraction` and the share of [CLS] and [SEP], `specials_fraction`.
    """
    if not {"replaced_token", "replaced_fraction"} <= metrics.keys():
        return None
    loss, replaced_fraction = metrics["replaced_token"], metrics["replaced_fraction"]
    baseline = constant_over_words(replaced_fraction, specials_fraction)
    if _is_below(loss, baseline):
        return None
    return (
        f"the discriminator has learnt nothing: its loss is {loss:.4f}, and the same answer for every word gives "
        f"{baseline:.4f} ({replaced_fraction:.1%} of the tokens are replaced); usual causes: too few updates, a "
        "learning rate that is too high (optimizer.learning_rate; try a fifth), a batch that is too small "
        "(train.batch_size; 32 or more), a generator whose samples are too good (objective.generator.size_fraction; "
        "0.25 to 0.5)"
    )


class MaskedLmCheck:
    """Compares the masked LM with token frequencies, with equal probabilities, and with its best values so far."""

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
            f"the masked-LM predictions are useless: {problem}; usual causes: too few updates, a learning rate that is "
            "too high or without warm-up (optimizer.learning_rate, optimizer.warmup_steps), a batch that is too small "
            "(train.batch_size), damaged text, another vocabulary than the text was built with"
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


# How far a network has come, in order.
_PROGRESS = (
    "has not reached the plateau of token frequencies yet",
    "is still on the plateau of token frequencies",
    "has left the plateau of token frequencies",
)
_LEFT = len(_PROGRESS) - 1


def plateau_verdict(config: "PretrainingConfig", metrics: dict[str, float]) -> str | None:
    """One line on whether a run has left the plateau of token frequencies, from its metrics on held-out text.

    Returns: None if the objective, or the evaluation, lacks the metrics.
    """
    networks = (_discriminator_progress(config, metrics), _masked_lm_progress(config, metrics))
    progress = [network for network in networks if network is not None]
    if not progress:
        return None
    texts, reached = zip(*progress, strict=True)
    held_out = f"held-out {'; '.join(texts)}"
    # The frequencies of tokens that are masked by rarity are not those of the text, which the baselines are made of.
    if None in reached or config.masking.scheme == "rare_tokens":
        return f"the run ends with {held_out}"
    has_generator = hasattr(config.objective, "generator")
    whose = "generator" if has_generator and not config.objective.learns_replaced_tokens else "run"
    in_part = " in part" if max(reached) == _LEFT > min(reached) else ""
    return f"the {whose} {_PROGRESS[max(reached)]}{in_part}: {held_out}"


def _discriminator_progress(config: "PretrainingConfig", metrics: dict[str, float]) -> tuple[str, int | None] | None:
    """The discriminator's result in words, and its index in `_PROGRESS`.

    The index is None if a token's frequency alone may reveal whether it was replaced.
    """
    objective = config.objective
    names = ("replaced_token_loss", "constant_predictor_loss", "replaced_fraction", "replaced_token_auc")
    loss, constant, replaced_fraction, auc = values = [metrics.get(name, math.nan) for name in names]
    if not (objective.learns_replaced_tokens and all(map(math.isfinite, values)) and constant > 0.0):
        return None
    share = 1.0 - loss / constant
    text = f"discriminator loss {abs(share):.1%} {_side(share)} the constant predictor, AUC {auc:.2f}"
    if objective.frequencies_reveal_replaced_tokens:
        return text, None
    progress = _progress(loss, constant_over_words(replaced_fraction, objective.specials_fraction(config)))
    unigram = metrics.get("unigram_loss", math.nan)
    unigram = (1.0 - _NOT_BELOW_UNIFORM) * math.log(config.encoder.vocab_size) if math.isnan(unigram) else unigram
    if progress == _LEFT and objective.has_generator_network and metrics.get("mask_token_loss", 0.0) > unigram:
        return f"{text} (on samples of a generator that is worse than token frequencies)", None
    return text, progress


def _masked_lm_progress(config: "PretrainingConfig", metrics: dict[str, float]) -> tuple[str, int] | None:
    """The masked LM's result in words, and its index in `_PROGRESS`."""
    loss, unigram = (metrics.get(name, math.nan) for name in ("mask_token_loss", "unigram_loss"))
    if not config.objective.learns_masked_lm or not math.isfinite(loss + unigram):
        return None
    gain = unigram - loss
    owner = "generator's " if hasattr(config.objective, "generator") else ""
    return f"{owner}masked-LM loss {abs(gain):.2f} nat {_side(gain)} unigram on [MASK]", _progress(loss, unigram)


def _progress(loss: float, baseline: float) -> int:
    return (loss <= (1.0 + _NOT_BELOW_BASELINE) * baseline) + _is_below(loss, baseline)


def _is_below(loss: float, baseline: float) -> bool:
    return loss < (1.0 - _NOT_BELOW_BASELINE) * baseline


def _side(gain: float) -> str:
    return "below" if gain >= 0 else "above"


def constant_over_words(replaced_fraction: float, specials_fraction: float) -> float:
    """Loss of a predictor that recognises [CLS] and [SEP] as original and gives all words the same probability."""
    words = 1.0 - specials_fraction
    return words * BinaryEntropy(min(replaced_fraction, words), words).value()
