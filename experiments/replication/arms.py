"""The arms and tasks of the replication, and the pairs of arms that were registered before the first run."""

STAGES = ("train", "score", "milestones", "small_tasks")
UNTRAINED = "untrained"
# The order of training and scoring: group by group, each seed by seed.
ORDER = (("electra", "bert_mlm"), ("bert_mlm_paper_flops",), ("electra_15",), ("all_tokens_mlm",), (UNTRAINED,))
ARMS = tuple(arm for arms in ORDER for arm in arms)
AS_MASKED_LM_ARMS = ("electra", "bert_mlm", "bert_mlm_paper_flops")
MILESTONE_ARMS = ("electra", "bert_mlm")
# In each pair the first arm is expected to have the higher scores.
PAIRS = (
    ("electra", "bert_mlm"),
    ("electra", "bert_mlm_paper_flops"),
    ("electra", "electra_15"),
    ("all_tokens_mlm", "bert_mlm"),
)

SCORE = "score"  # the mean over SCORE_TASKS
SCORE_TASKS = ("qnli", "stsb", "mnli", "qqp")
PROBE = "truecasing"
MEASURES = (SCORE, PROBE)  # for comparing arms
SMALL_TASKS = ("mrpc", "rte", "sst2", "cola")
TASKS = {"score": (*SCORE_TASKS, PROBE), "small_tasks": SMALL_TASKS}  # at the end of training, by stage
NUM_FINETUNING_SEEDS = 3
EVALUATIONS = 8  # evenly over the steps of a run
MILESTONES = (0.25, 0.5, 0.75, 1.0)
