"""The objectives by the name that a configuration gives them."""

from collections.abc import Callable

from electra_tf.config.errors import UserError
from electra_tf.tasks.base import Objective
from electra_tf.tasks.pretrain.adversarial import Adversarial
from electra_tf.tasks.pretrain.all_tokens_mlm import AllTokensMlm
from electra_tf.tasks.pretrain.bert_mlm import BertMlm
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.contrastive import Contrastive
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.electra_15 import Electra15
from electra_tf.tasks.pretrain.electric import Electric
from electra_tf.tasks.pretrain.hard_mlm import HardMlm
from electra_tf.tasks.pretrain.replace_mlm import ReplaceMlm
from electra_tf.tasks.pretrain.two_stage import TwoStage

OBJECTIVES: dict[str, type[Objective]] = {
    "adversarial": Adversarial,
    "all_tokens_mlm": AllTokensMlm,
    "bert_mlm": BertMlm,
    "contrastive": Contrastive,
    "electra": Electra,
    "electra_15": Electra15,
    "electric": Electric,
    "hard_mlm": HardMlm,
    "replace_mlm": ReplaceMlm,
    "two_stage": TwoStage,
}


def register_objective(name: str) -> Callable[[type[Objective]], type[Objective]]:
    """A class decorator for an objective outside of this package.

    Its module defines the settings too, a subclass of `ObjectiveSettings` with that name,
    and is named with `--objective_module`.

    Raises: ValueError: if the name is taken.
    """

    def register(objective: type[Objective]) -> type[Objective]:
        if OBJECTIVES.get(name, objective) is not objective:
            raise ValueError(f"the name {name!r} is that of {OBJECTIVES[name].__name__}; choose another")
        OBJECTIVES[name] = objective
        return objective

    return register


def build_objective(config: PretrainingConfig) -> Objective:
    """The objective that `config.objective.name` names, with its variables created.

    Raises: UserError: if a module from outside has defined settings of that name, and no objective.
    """
    name = config.objective.name
    if name not in OBJECTIVES:
        raise UserError(
            f"objective {name!r} has settings, but no class that trains it; put @register_objective({name!r}) over "
            "that class in the module of --objective_module, see docs/objectives.md"
        )
    objective = OBJECTIVES[name](config, name=name)
    objective.create_variables()
    return objective
