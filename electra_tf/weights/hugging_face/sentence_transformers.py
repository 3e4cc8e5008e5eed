"""Reads and writes how a folder of sentence-transformers makes a text's vector from those of its tokens.

It is a Hugging Face folder with a few small files. They are written in the form that sentence-transformers 3, 5 and 6
read; the one that version 6 writes stops older versions.
"""

import json
import os
import re

from electra_tf.config.errors import UserError
from electra_tf.files import read_bytes, read_json
from electra_tf.weights.hugging_face.writer import SENTENCES, encoder_alone, require_classes, write_folder
from electra_tf.weights.stored_model import StoredModel

MODULES_FILE = "modules.json"
_POOLING = re.compile("(mean|cls|max)(, Normalize)?")
_MODULES = ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")  # class and folder
_MODE = "pooling_mode_"
_MODES = ("cls_token", "max_tokens", "mean_tokens", "mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")


def pooling_of(source: str, pooling: str) -> tuple[str, bool]:
    """Whether a text's vector is the `mean`, `cls` or `max` of its tokens' vectors, and whether its length becomes 1.

    Raises: UserError: `pooling` is none of these, with or without ", Normalize".
    """
    if known := _POOLING.fullmatch(pooling):
        return known[1], bool(known[2])
    raise UserError(f"{source}: the pooling is {pooling!r}, expected mean, cls or max")


def read_pooling(path: str) -> tuple[str, int | None]:
    """The pooling of a folder, see `pooling_of`, and the tokens of the longest text.

    Returns: `mean` and None for other folders. What `pooling_of` does not know names modules, pooling and prompt.
    """
    file = os.path.join(path, MODULES_FILE)
    modules = {each["path"]: each["type"].rsplit(".", 1)[-1] for each in json.loads(read_bytes(file) or b"[]")}
    if not modules:
        return "mean", None
    # None outside of this one: above its root there is nothing.
    folders = [os.path.join(path, os.path.normpath(f"/{folder}").lstrip("/")) for folder in modules]
    longest = read_json(os.path.join(folders[0], "sentence_bert_config.json")).get("max_seq_length")
    # Else the tokenizer's, as in sentence-transformers; transformers writes 1e30 for none.
    longest = longest or read_json(os.path.join(folders[0], "tokenizer_config.json")).get("model_max_length")
    first, *kinds = modules.values()
    if kinds[:1] == ["Pooling"]:
        config = read_json(os.path.join(folders[1], "config.json"))
        # A flag for each kind, or since version 6 their names.
        flags = [name[len(_MODE) :].split("_token")[0] for name in config if name.startswith(_MODE) and config[name]]
        modes = config.get("pooling_mode") or flags or ["mean"]
        kinds[:1] = [modes] if isinstance(modes, str) else modes
    prompt = read_json(os.path.join(path, "config_sentence_transformers.json")).get("default_prompt_name")
    parts = [first] * (first != "Transformer") + kinds + [f"prompt {prompt}"] * bool(prompt)
    return ", ".join(parts) or "mean", longest


def write_sentence_transformers(model: StoredModel, output_dir: str) -> list[str]:
    """Writes the encoder of a model, whose heads are left out, with its tokenizer and its card.

    Returns: lines for the log.
    Raises: UserError: the model does not fit its vocabulary or has a foreign pooling, or transformers has no class for
        its encoder.
    """
    require_classes(model)
    model.require_fitting_vocabulary()
    mode, normalize = pooling_of(model.source, model.pooling)
    note = f"Pooling: {model.pooling}. [CLS] and [SEP] count as tokens; padding does not."
    network = encoder_alone(model, (note,), SENTENCES)
    pooling = {
        "word_embedding_dimension": model.encoder.hidden_size,
        **{f"{_MODE}{name}": name.split("_token")[0] == mode for name in _MODES},
        "include_prompt": True,
    }
    modules = [
        {"idx": index, "name": str(index), "path": folder, "type": f"sentence_transformers.models.{name}"}
        for index, (name, folder) in enumerate(_MODULES[: 2 + normalize])
    ]
    # Casing is the tokenizer's.
    lengths = {"max_seq_length": model.trained_length, "do_lower_case": False}
    files = {MODULES_FILE: modules, "1_Pooling/config.json": pooling, "sentence_bert_config.json": lengths}
    contents = {name: (json.dumps(content, indent=2) + "\n").encode() for name, content in files.items()}
    return write_folder(output_dir, model, network, contents)
