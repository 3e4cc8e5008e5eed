"""The comparisons of the replication: their arms and tasks. The pairs of arms to compare are in docs/notes."""

from dataclasses import dataclass

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
BY_PAPER_FLOPS = "_paper_flops"  # the ending of an arm whose budget is counted as in the paper


@dataclass(frozen=True)
class Comparison:
    """Arms with equal FLOPs.

    Attributes:
        order: of training and scoring: group by group, each seed by seed.
        tasks: at the end of training, by stage.
        milestone_tasks: for `milestone_arms` at earlier steps.
        as_masked_lm_arms: those whose accuracy as masked language models is measured.
    """

    order: tuple[tuple[str, ...], ...]
    tasks: dict[str, tuple[str, ...]]
    milestone_tasks: tuple[str, ...] = ()
    milestone_arms: tuple[str, ...] = ()
    as_masked_lm_arms: tuple[str, ...] = ()

    @property
    def arms(self) -> tuple[str, ...]:
        return tuple(arm for arms in self.order for arm in arms)


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
    "ladder": Comparison(
        order=(("ladder_electra", "ladder_bert_mlm"),),
        tasks={"score": (PROBE, "stsb", SQUAD)},
    ),
}
ARMS = tuple(arm for comparison in COMPARISONS.values() for arm in comparison.arms)
