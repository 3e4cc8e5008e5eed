"""The settings of every objective that ships with the project; one file each.

An objective outside of it brings its own, see `electra_tf.objectives.registry`.
"""

from electra_tf.config.objectives.base import OBJECTIVE_SETTINGS, ObjectiveSettings
from electra_tf.config.objectives.bert_mlm import BertMlmConfig
from electra_tf.config.objectives.electra import ElectraConfig

__all__ = ["OBJECTIVE_SETTINGS", "BertMlmConfig", "ElectraConfig", "ObjectiveSettings"]
