"""The objectives by the name that a configuration gives them."""

from electra_tf.config.schema import PretrainingConfig
from electra_tf.objectives.base import Objective
from electra_tf.objectives.bert_mlm import BertMlm
from electra_tf.objectives.electra import Electra

OBJECTIVES: dict[str, type[Objective]] = {"electra": Electra, "bert_mlm": BertMlm}


def build_objective(config: PretrainingConfig) -> Objective:
    """The objective that `config.objective.name` names, with its variables created."""
    objective = OBJECTIVES[config.objective.name](config, name=config.objective.name)
    objective.create_variables()
    return objective
