"""The names that Hugging Face's classes give tensors, from the names of the authors' code.

Their ElectraForPreTraining is the authors' discriminator, ElectraForMaskedLM the generator, each with an `electra.` of
its own. Products are stored transposed, as `weight` [out, in].
Source: transformers 5, models/electra/modeling_electra.py.
"""

import re
from typing import NamedTuple

# Begin, or all, of the authors' name, and what stands for it.
_SCOPES = (
    (r"(electra|generator)/", "electra."),
    (r"discriminator_predictions/dense_1/", "discriminator_predictions.dense_prediction."),
    (r"generator_predictions/output_bias$", "generator_lm_head.bias"),
)
_ENDINGS = {"gamma": "weight", "beta": "bias", "kernel": "weight"}


class HuggingFaceTensor(NamedTuple):
    """Where the value of one of the authors' variables is stored.

    Attributes:
        transposed: whether the tensor is the variable's transpose.
    """

    name: str
    transposed: bool


def hugging_face_tensor(name: str) -> HuggingFaceTensor:
    """The tensor of one of the authors' variables, which is not of a fine-tuned head.

    The word embeddings of a generator and of a discriminator that share them have one name there and one here, and
    stand in both files.
    """
    new = name
    for pattern, replacement in _SCOPES:
        new = re.sub(f"^{pattern}", replacement, new)
    new = re.sub(r"/layer_(\d+)/", r"/layer/\1/", new)
    *parents, ending = re.split(r"[/.]", new)
    if ending.endswith("_embeddings"):  # a table
        return HuggingFaceTensor(".".join([*parents, ending, "weight"]), False)
    return HuggingFaceTensor(".".join([*parents, _ENDINGS.get(ending, ending)]), ending == "kernel")
