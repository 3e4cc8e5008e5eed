"""Whether a pre-training run has left the plateau of token frequencies: an alarm while it trains, a verdict at its end.

A network that has learnt no more than the frequencies of tokens trains at full speed and shows no other symptom. Every
run is on this plateau at first.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from electra_tf.config.schema import TrainConfig
from electra_tf.tasks.terms import BinaryEntropy

if TYPE_CHECKING:
    from electra_tf.tasks.pretrain.config import PretrainingConfig

_FEWEST_STEPS = 500
# A loss counts as below its baseline from 2 % on. On the plateau discriminators of all tokens are within 1 % of theirs,
# with a held-out AUC of 0.50 to 0.61; the first sign of context took them past 2 %, and those that learnt ended 22 to
# 35 % below. Masked language models leave the plateau by 0.1 of 7 nats before anything else shows.
_NOT_BELOW_BASELINE = 0.02
# Where the unigram loss is missing: a masked LM within this share of ln V has not even learnt the token frequencies,
# which alone reduce the loss by a third (to 7 of 10.3 nats at 30,522 entries), in hundreds of steps.
_NOT_BELOW_UNIFORM = 0.05


class PlateauAlarm:
    """An alarm when every report of `train.alarm_after_steps` steps shows the plateau, once per episode.

    In a short run it is due after half of the steps, but not in the first few hundred. It follows from the reports
    alone, so a continued run first observes the reports of its metrics.jsonl.

    Args:
        problem_of: the problem that a report's finite means show, in one clause; None for none.
        first_step: the step before the run's first one: not 0 where a run goes on from another's.
    """

    def __init__(self, train: TrainConfig, problem_of: Callable[[dict[str, float]], str | None], first_step: int = 0):
        self._after = min(train.alarm_after_steps, max(_FEWEST_STEPS, train.num_steps // 2))
        self._problem_of = problem_of
        self._since: int | None = None
        self._last_step = first_step

    def observe(self, step: int, metrics: dict[str, float | None]) -> str | None:
        """Takes the report of a step, means since the last one. Returns: the alarm that is due, or None."""
        last_step, self._last_step = self._last_step, step
        finite = {name: value for name, value in metrics.items() if isinstance(value, float) and math.isfinite(value)}
        problem = self._problem_of(finite)
        self._since = None if problem is None else self._since or last_step + 1
        # Due with this report and not with the one before.
        if self._since is None or not last_step - self._since + 1 < self._after <= step - self._since + 1:
            return None
        return f"since step {self._since} {problem}"


def plateau_problem(config: "PretrainingConfig", metrics: dict[str, float]) -> str | None:
    """The networks that a report of training shows on the plateau, and the usual causes, in one clause; None for none.

    The discriminator is compared with the same answer for every word, the masked LM with token frequencies.
    """
    problems = []
    if config.objective.learns_replaced_tokens and {"replaced_token", "replaced_fraction"} <= metrics.keys():
        loss, fraction = metrics["replaced_token"], metrics["replaced_fraction"]
        baseline = constant_over_words(fraction, config.objective.specials_fraction(config))
        if not _is_below(loss, baseline):
            problems.append(
                f"the discriminator has learnt nothing: its loss is {loss:.4f}, and the same answer for every word "
                f"gives {baseline:.4f} ({fraction:.1%} of the tokens are replaced)"
            )
    if config.objective.learns_masked_lm and {"mask_token_loss", "unigram_loss"} <= metrics.keys():
        loss, unigram = metrics["mask_token_loss"], metrics["unigram_loss"]
        if unigram and not _is_below(loss, unigram):  # 0: no token is shown as [MASK]
            problems.append(
                f"the masked LM has learnt nothing: its loss on [MASK] is {loss:.3f}, and token frequencies alone give "
                f"{unigram:.3f}"
            )
    if not problems:
        return None
    return (
        f"{'; '.join(problems)}; usual causes: too few updates, a learning rate that is too high or without warm-up "
        "(optimizer.learning_rate; try a fifth), a batch that is too small (train.batch_size; 32 or more), a generator "
        "whose samples are too good (objective.generator.size_fraction; 0.25 to 0.5), damaged text"
    )


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
