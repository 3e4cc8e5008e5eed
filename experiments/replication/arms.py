"""What the replication compares: its arms, its tasks, and the pairs that were registered before the first run."""

STAGES = ("train", "score", "milestones", "beside")
UNTRAINED = "untrained"
# Arms that are trained and scored seed by seed, the most important comparison first.
ORDER = (("electra", "bert_mlm"), ("bert_mlm_paper_flops",), ("electra_15",), ("all_tokens_mlm",), (UNTRAINED,))
ARMS = tuple(arm for arms in ORDER for arm in arms)
AS_MASKED_LM_ARMS = ("electra", "bert_mlm", "bert_mlm_paper_flops")
MILESTONE_ARMS = ("electra", "bert_mlm")
# The arm that is expected to have the higher scores, and the other.
PAIRS = (
    ("electra", "bert_mlm"),
    ("electra", "bert_mlm_paper_flops"),
    ("electra", "electra_15"),
    ("all_tokens_mlm", "bert_mlm"),
)

SCORE = "score"  # the mean over SCORE_TASKS
SCORE_TASKS = ("qnli", "stsb", "mnli", "qqp")
PROBE = "truecasing"
MEASURES = (SCORE, PROBE)  # by which arms are compared
BESIDE_TASKS = ("mrpc", "rte", "sst2", "cola")
TASKS = {"score": (*SCORE_TASKS, PROBE), "beside": BESIDE_TASKS}  # at the end of training, by stage
NUM_FINETUNING_SEEDS = 3
EVALUATIONS = 8  # of a run, evenly over its steps
MILESTONES = (0.25, 0.5, 0.75, 1.0)
