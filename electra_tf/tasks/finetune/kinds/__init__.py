"""The kinds of fine-tuning tasks: a row for each; its file has all that the rest of the program knows about it."""

from electra_tf.tasks.finetune.kind import Kind
from electra_tf.tasks.finetune.kinds.classification import Classification
from electra_tf.tasks.finetune.kinds.multi_label import MultiLabel
from electra_tf.tasks.finetune.kinds.multiple_choice import MultipleChoice
from electra_tf.tasks.finetune.kinds.question_answering import QuestionAnswering
from electra_tf.tasks.finetune.kinds.regression import Regression
from electra_tf.tasks.finetune.kinds.similarity import Similarity
from electra_tf.tasks.finetune.kinds.tagging import Tagging
from electra_tf.tasks.finetune.settings import FinetuningRunConfig
from electra_tf.tasks.finetune.task import FinetuningTask

KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Classification(),
        MultiLabel(),
        Regression(),
        Tagging(),
        QuestionAnswering(),
        MultipleChoice(),
        Similarity(),
    )
}


def build_finetuning_task(config: FinetuningRunConfig) -> FinetuningTask:
    """Builds the task that the configuration describes, with its variables."""
    task = KINDS[config.task.kind].model(config, name="finetuning")
    task.create_variables()
    return task
