"""The Python interface: trained models on texts, and fine-tuning on data in memory.

    import electra_tf

    model = electra_tf.load("runs/small")
    vectors = model.encode(["One text.", "Another."])  # [2, H]
    result = electra_tf.finetune("classification", train, validation, init_from="runs/small", output_dir="ft/topics")
    rows = result.model().predict(["A text about football."])

Paths, settings and columns mean what they mean to the commands, which share the code. `train` and `validation` are
tables of pandas or pyarrow, lists of rows (dictionaries), or dictionaries of columns.
"""

from electra_tf.api.finetuning import FinetuningResult, finetune
from electra_tf.api.model import Model, load

__all__ = ["FinetuningResult", "Model", "finetune", "load"]
