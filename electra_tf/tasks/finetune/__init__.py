"""Fine-tuning: a model, its data and its metrics for each kind of task, and training with several seeds."""

from typing import TYPE_CHECKING

from electra_tf.tasks.finetune.config import FinetuningConfig

if TYPE_CHECKING:
    from electra_tf.tasks.finetune.task import FinetuningTask

__all__ = ["build_finetuning_task"]


def build_finetuning_task(config: FinetuningConfig) -> "FinetuningTask":
    """Builds the task that the configuration describes, with its variables."""
    # Imported here, so that the settings can be imported without TensorFlow.
    from electra_tf.tasks.finetune.multiple_choice import MultipleChoiceTask
    from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
    from electra_tf.tasks.finetune.sentence import SentenceTask
    from electra_tf.tasks.finetune.similarity import SimilarityTask
    from electra_tf.tasks.finetune.tagging import TaggingTask

    models = {
        "tagging": TaggingTask,
        "question_answering": QuestionAnsweringTask,
        "multiple_choice": MultipleChoiceTask,
        "similarity": SimilarityTask,
    }
    task = models.get(config.task.kind, SentenceTask)(config, name="finetuning")
    task.create_variables()
    return task
