"""Writes an encoder as a folder of sentence-transformers: a text's vector is the mean of its tokens' vectors.

It is a Hugging Face folder with three small files. They have the form that sentence-transformers 3, 5 and 6 read; the
one that version 6 writes stops older versions.
"""

import json

from electra_tf.weights.hugging_face.writer import SENTENCES, encoder_alone, require_classes, write_folder
from electra_tf.weights.stored_model import StoredModel

_MODULES = ("Transformer", ""), ("Pooling", "1_Pooling")  # class and folder
_OTHER_POOLINGS = ("cls_token", "max_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_NOTES = ("[CLS] and [SEP] count as tokens; padding does not.",)


def write_sentence_transformers(model: StoredModel, output_dir: str) -> list[str]:
    """Writes the encoder of a model, whose heads are left out, with its tokenizer and its card.

    Returns: lines for the log.
    Raises: UserError: the model does not fit its vocabulary, or transformers has no class for its encoder.
    """
    require_classes(model)
    model.require_fitting_vocabulary()
    network = encoder_alone(model, _NOTES, SENTENCES)
    pooling = {
        "word_embedding_dimension": model.encoder.hidden_size,
        "pooling_mode_mean_tokens": True,
        **{f"pooling_mode_{name}": False for name in _OTHER_POOLINGS},
        "include_prompt": True,
    }
    modules = [
        {"idx": index, "name": str(index), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for index, (name, folder) in enumerate(_MODULES)
    ]
    # Casing is the tokenizer's.
    lengths = {"max_seq_length": model.trained_length, "do_lower_case": False}
    files = {"modules.json": modules, "1_Pooling/config.json": pooling, "sentence_bert_config.json": lengths}
    contents = {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in files.items()}
    return write_folder(output_dir, model, network, contents)
