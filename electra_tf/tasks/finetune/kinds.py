"""The kinds of fine-tuning tasks: a row for each; its file has all that the rest of the program knows about it."""

from electra_tf.tasks.finetune.classification import Classification, MultiLabel
from electra_tf.tasks.finetune.kind import Kind
from electra_tf.tasks.finetune.multiple_choice import MultipleChoice
from electra_tf.tasks.finetune.question_answering import QuestionAnswering
from electra_tf.tasks.finetune.regression import Regression
from electra_tf.tasks.finetune.similarity import Similarity
from electra_tf.tasks.finetune.tagging import Tagging

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
