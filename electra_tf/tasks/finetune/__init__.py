"""Fine-tuning tasks: a model and the meaning of its outputs for each kind."""

from typing import TYPE_CHECKING

from electra_tf.tasks.finetune.config import FinetuningConfig

if TYPE_CHECKING:
    from electra_tf.tasks.finetune.task import FinetuningTask

__all__ = ["build_finetuning_task"]


def build_finetuning_task(config: FinetuningConfig) -> "FinetuningTask":
    """The task of the configuration's kind, with its variables created."""
    # Imported here, so that the settings beside these modules are read without TensorFlow.
    from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
    from electra_tf.tasks.finetune.sentence import SentenceTask
    from electra_tf.tasks.finetune.tagging import TaggingTask

    models = {"tagging": TaggingTask, "question_answering": QuestionAnsweringTask}
    task = models.get(config.task.kind, SentenceTask)(config, name="finetuning")
    task.create_variables()
    return task
