"""Fine-tuning tasks: a model and the meaning of its outputs for each kind."""

from electra_tf.tasks.finetune.config import FinetuningConfig
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
from electra_tf.tasks.finetune.sentence import SentenceTask
from electra_tf.tasks.finetune.tagging import TaggingTask
from electra_tf.tasks.finetune.task import FinetuningTask

__all__ = ["FinetuningTask", "build_finetuning_task"]

_MODELS: dict[str, type[FinetuningTask]] = {
    "classification": SentenceTask,
    "multi_label": SentenceTask,
    "regression": SentenceTask,
    "tagging": TaggingTask,
    "question_answering": QuestionAnsweringTask,
}


def build_finetuning_task(config: FinetuningConfig) -> FinetuningTask:
    """The task of the configuration's kind, with its variables created."""
    task = _MODELS[config.task.kind](config, name="finetuning")
    task.create_variables()
    return task
