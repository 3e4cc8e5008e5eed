"""The comparisons of the replication: their arms and tasks. The pairs of arms to compare are in docs/notes."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

UNTRAINED = "untrained"
SCORE_TASKS = ("qnli", "stsb", "mnli", "qqp")
PROBE = "truecasing"
SMALL_TASKS = ("mrpc", "rte", "sst2", "cola")
SQUAD = "squad_v1"
# An encoder of 64 positions leaves 37 of them to the context. Reading the dev set takes as long as an epoch.
SETTINGS_OF_TASK = {SQUAD: ("task.max_query_length=24", "evaluation.every_steps=0")}
NUM_FINETUNING_SEEDS = 3
EVALUATIONS = 8  # evenly over the steps of a run
MILESTONES = (0.25, 0.5, 0.75, 1.0)
STAGES = ("train", "score", "milestones", "small_tasks")

# The masked language model that gives an arm its samples.
AUXILIARY_OF = {"fast_electra": "auxiliary", "modern_fast_electra": "modern_auxiliary"}
# The arm that begins with another one's weights: those at the end of its first training phase.
SOURCE_OF = {"mlm_restarted": "two_stage"}
BY_PAPER_FLOPS = "_paper_flops"  # the ending of an arm whose budget is counted as in the paper
WITH_AUXILIARY = "_with_auxiliary"  # of an arm whose budget also pays for its auxiliary model
# The generator's own variables: the embeddings that it shares with the discriminator keep the common rate.
_GENERATORS_OWN = "^generator_network/(?!generator/embeddings/)"
# The arms of a search: their changes of the configuration that is the first part of their name.
VARIED: dict[str, tuple[str, ...]] = {
    f"ladder_electra,generator={fraction},generator_rate={factor}x,lambda={weight}": (
        f"objective.generator.size_fraction={fraction}",
        f'optimizer.learning_rate_multipliers={{"{_GENERATORS_OWN}": {factor}}}',
        f"objective.replaced_token_loss_weight={weight}",
    )
    for fraction, factor, weight in itertools.product((0.25, 0.5), (1, 2), (20, 50))
} | {
    f"ladder_bert_mlm,rate={rate}": (f"optimizer.learning_rate={rate}",)
    for rate in ("2.5e-4", "5e-4", "7e-4", "1e-3", "1.4e-3", "2e-3", "2.8e-3", "4e-3")
}


@dataclass(frozen=True)
class Comparison:
    """Arms with equal FLOPs.

    Attributes:
        order: of training and scoring: group by group, each seed by seed.
        tasks: at the end of training, by stage.
        milestone_tasks: for `milestone_arms` at earlier steps.
        as_masked_lm_arms: those whose accuracy as masked language models is measured.
        single: arms with one run, of seed 0, which is not fine-tuned.
        untrained_as: the arm whose initial values the untrained encoders have.
        seeds_of_task: the number of seeds of fine-tuning, for tasks with fewer than others.
    """

    order: tuple[tuple[str, ...], ...]
    tasks: dict[str, tuple[str, ...]]
    milestone_tasks: tuple[str, ...] = ()
    milestone_arms: tuple[str, ...] = ()
    as_masked_lm_arms: tuple[str, ...] = ()
    single: tuple[str, ...] = ()
    untrained_as: str = "electra"
    seeds_of_task: Mapping[str, int] = field(default_factory=dict)

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(arm for arms in self.order for arm in arms)


_CANDIDATES = (PROBE, "sst2", "qnli", "stsb", "cola", SQUAD)
_TELLING = (PROBE, "stsb", SQUAD)  # those in which the instrument's BERT gains two points or more
_FOUR = ("electra", "modern", "fast_electra", "modern_fast_electra")
COMPARISONS = {
    "paper": Comparison(
        order=(
            ("electra", "bert_mlm"),
            ("bert_mlm_paper_flops",),
            ("electra_15",),
            ("all_tokens_mlm",),
            (UNTRAINED,),
        ),
        tasks={"score": (*SCORE_TASKS, PROBE), "small_tasks": SMALL_TASKS},
        milestone_tasks=(*SCORE_TASKS, PROBE),
        milestone_arms=("electra", "bert_mlm"),
        as_masked_lm_arms=("electra", "bert_mlm", "bert_mlm_paper_flops"),
    ),
    "modern": Comparison(
        order=(
            ("auxiliary", "modern_auxiliary"),
            _FOUR,
            ("fast_electra_with_auxiliary", "modern_fast_electra_with_auxiliary"),
            (UNTRAINED,),
        ),
        tasks={"score": (PROBE,), "small_tasks": ("stsb", "qnli")},
        milestone_tasks=(PROBE,),
        milestone_arms=_FOUR,
        single=("auxiliary", "modern_auxiliary"),
    ),
    "instrument": Comparison(
        order=(("bert_mlm",), (UNTRAINED,)),
        tasks={"score": _CANDIDATES},
        untrained_as="bert_mlm",
    ),
    "switch": Comparison(
        order=(("two_stage", "mlm_restarted"),),
        tasks={"score": _TELLING},
        seeds_of_task={SQUAD: 1},
    ),
    "ladder_search": Comparison(
        order=(tuple(VARIED),),
        tasks={"score": (PROBE,)},
    ),
    "ladder": Comparison(
        order=(("ladder_electra", "ladder_bert_mlm"),),
        tasks={"score": _TELLING},
        seeds_of_task={SQUAD: 1},
    ),
}
ARMS = tuple(dict.fromkeys(arm for comparison in COMPARISONS.values() for arm in comparison.arms))


def settings_of(arm: str) -> str:
    """The name of the configuration of an arm."""
    return arm.partition(",")[0].removesuffix(BY_PAPER_FLOPS).removesuffix(WITH_AUXILIARY)
