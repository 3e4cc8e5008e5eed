"""The ladder's arms, their tasks, and how each encoder is scored."""

ARMS = ("ladder_electra", "ladder_bert_mlm")  # the first one's steps set the budget
PROBE = "truecasing"
SQUAD = "squad_v1"
TASKS = (PROBE, "stsb", SQUAD)
# An encoder of 64 positions leaves 37 of them to the context. Reading the dev set takes as long as an epoch.
SETTINGS_OF_TASK = {SQUAD: ("task.max_query_length=24", "evaluation.every_steps=0")}
NUM_FINETUNING_SEEDS = 3
EVALUATIONS = 8  # evenly over the steps of a run
STAGES = ("train", "score")
