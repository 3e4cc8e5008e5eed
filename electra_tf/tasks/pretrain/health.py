"""Whether a pre-training run has left the plateau of token frequencies, by its reports and at its end.

A network that has learnt no more than the frequencies of tokens trains at full speed and shows no other symptom. Every
run is on this plateau at first.
"""

import math
from collections.abc import Mapping

from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.terms import BinaryEntropy

# A loss counts as below its baseline from 2 % on. On the plateau discriminators of all tokens are within 1 % of theirs,
# with a held-out AUC of 0.50 to 0.61; the first sign of context took them past 2 %, and those that learnt ended 22 to
# 35 % below. Masked language models leave the plateau by 0.1 of 7 nats before anything else shows.
_BELOW_BASELINE = 0.98
# Where the unigram loss is missing: a masked LM above this share of ln V has not even learnt the token frequencies,
# which alone reduce the loss by a third (to 7 of 10.3 nats at 30,522 entries), in hundreds of steps.
_BELOW_UNIFORM = 0.95
_CAUSES = (
    "too few updates, a learning rate that is too high or without warm-up (optimizer.learning_rate; try a fifth), a "
    "batch that is too small (train.batch_size; 32 or more), a generator whose samples are too good "
    "(objective.generator.size_fraction; 0.25 to 0.5), damaged text"
)


def baselines(config: PretrainingConfig, metrics: Mapping[str, float]) -> dict[str, tuple[str, float]]:
    """For each loss with a baseline in a report: the metric that is compared with it, and its value on the plateau.

    The discriminator is compared with the same answer for every word, the masked LM with token frequencies.
    """
    objective, compared = config.objective, {}
    unigram = metrics.get("unigram_loss", 0.0)  # 0: no token is shown as [MASK]; NaN: frequencies are unknown
    if objective.learns_masked_lm and "mask_token_loss" in metrics and unigram > 0.0:
        compared["masked_lm"] = "mask_token_loss", unigram
    name = "replaced_token" if "replaced_token" in metrics else "replaced_token_loss"  # in training, held out
    if objective.learns_replaced_tokens and {name, "replaced_fraction"} <= metrics.keys():
        words = constant_over_words(metrics["replaced_fraction"], objective.specials_fraction(config))
        compared["replaced_token"] = name, words
    return compared


def plateau_problem(config: PretrainingConfig, metrics: dict[str, float]) -> str | None:
    """The networks that a report of training shows on the plateau, and the usual causes, in a clause; None for none."""
    problems = []
    for loss, (metric, baseline) in baselines(config, metrics).items():
        if metrics[metric] < _BELOW_BASELINE * baseline:
            continue
        if loss == "replaced_token":
            problems.append(
                f"the discriminator has learnt nothing: its loss is {metrics[metric]:.4f}, and the same answer for "
                f"every word gives {baseline:.4f} ({metrics['replaced_fraction']:.1%} of the tokens are replaced)"
            )
        else:
            problems.append(
                f"the masked LM has learnt nothing: its loss on [MASK] is {metrics[metric]:.3f}, and token frequencies "
                f"alone give {baseline:.3f}"
            )
    return f"{'; '.join(problems)}; usual causes: {_CAUSES}" if problems else None


def plateau_verdict(config: PretrainingConfig, metrics: dict[str, float]) -> str | None:
    """One line on whether a run has left the plateau, from its metrics on held-out text.

    There is no conclusion where a token's frequency alone may reveal whether it was replaced.

    Returns: None if the objective, or the evaluation, lacks the metrics.
    """
    names = ("replaced_token_loss", "constant_predictor_loss", "replaced_fraction", "replaced_token_auc")
    loss, constant, fraction, auc = (metrics.get(name, math.nan) for name in names)
    masked_lm, unigram = (metrics.get(name, math.nan) for name in ("mask_token_loss", "unigram_loss"))
    objective, texts, left = config.objective, [], []
    is_conclusive = config.masking.scheme != "rare_tokens"  # whose frequencies are not those of the text
    if objective.learns_replaced_tokens and math.isfinite(loss + fraction + auc) and constant > 0.0:
        left.append(loss < _BELOW_BASELINE * constant_over_words(fraction, objective.specials_fraction(config)))
        texts.append(f"discriminator loss {_gain(1.0 - loss / constant, '.1%')} the constant predictor, AUC {auc:.2f}")
        highest = _BELOW_UNIFORM * math.log(config.encoder.vocab_size) if math.isnan(unigram) else unigram
        if left[0] and objective.has_generator_network and masked_lm > highest:
            texts[0] += " (on samples of a generator that is worse than token frequencies)"
            is_conclusive = False
        is_conclusive &= not objective.frequencies_reveal_replaced_tokens
    owner = "generator" if hasattr(objective, "generator") else ""
    if objective.learns_masked_lm and math.isfinite(masked_lm + unigram):
        left.append(masked_lm < _BELOW_BASELINE * unigram)
        whose = f"{owner}'s " if owner else ""
        texts.append(f"{whose}masked-LM loss {_gain(unigram - masked_lm, '.2f', ' nat')} unigram on [MASK]")
    if not texts:
        return None
    if not is_conclusive:
        return f"the run ends with held-out {'; '.join(texts)}; no verdict: token frequencies alone may explain this"
    network = "run" if objective.learns_replaced_tokens else owner or "run"
    reached = "has left" if any(left) else "is still on"
    return f"the {network} {reached} the plateau of token frequencies: held-out {'; '.join(texts)}"


def _gain(gain: float, form: str, unit: str = "") -> str:
    return f"{abs(gain):{form}}{unit} {'below' if gain >= 0 else 'above'}"


def constant_over_words(replaced_fraction: float, specials_fraction: float) -> float:
    """Loss of a predictor that recognises [CLS] and [SEP] as original and gives all words the same probability."""
    words = 1.0 - specials_fraction
    return words * BinaryEntropy(min(replaced_fraction, words), words).value()
