"""The settings of every objective that ships with the project; one file each.

An objective outside of it brings its own, see `electra_tf.objectives.registry`.
"""

from electra_tf.config.objectives.adversarial import AdversarialConfig
from electra_tf.config.objectives.all_tokens_mlm import AllTokensMlmConfig
from electra_tf.config.objectives.base import OBJECTIVE_SETTINGS, ObjectiveSettings, common_settings
from electra_tf.config.objectives.bert_mlm import BertMlmConfig
from electra_tf.config.objectives.contrastive import ContrastiveConfig
from electra_tf.config.objectives.electra import ElectraConfig
from electra_tf.config.objectives.electra_15 import Electra15Config
from electra_tf.config.objectives.electric import ElectricConfig
from electra_tf.config.objectives.hard_mlm import HardMlmConfig
from electra_tf.config.objectives.replace_mlm import ReplaceMlmConfig
from electra_tf.config.objectives.two_stage import TwoStageConfig

__all__ = [
    "OBJECTIVE_SETTINGS",
    "AdversarialConfig",
    "AllTokensMlmConfig",
    "BertMlmConfig",
    "ContrastiveConfig",
    "Electra15Config",
    "ElectraConfig",
    "ElectricConfig",
    "HardMlmConfig",
    "ObjectiveSettings",
    "ReplaceMlmConfig",
    "TwoStageConfig",
    "common_settings",
]
