"""Fine-tuning: a row for each kind of task, its data, model and scores, and training with several seeds."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from electra_tf.tasks.finetune.config import FinetuningConfig
    from electra_tf.tasks.finetune.task import FinetuningTask

__all__ = ["build_finetuning_task"]


def build_finetuning_task(config: "FinetuningConfig") -> "FinetuningTask":
    """Builds the task that the configuration describes, with its variables."""
    # Imported here, so that pre-training does without it.
    from electra_tf.tasks.finetune.kinds import KINDS

    task = KINDS[config.task.kind].model(config, name="finetuning")
    task.create_variables()
    return task
