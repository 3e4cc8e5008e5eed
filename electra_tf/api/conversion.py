"""The orders that give a trained model another form: `convert` and `export`."""

import os
from collections.abc import Sequence

from electra_tf.api.process import users_process
from electra_tf.serving.saved_model import Precision, export_saved_model, load_served_model
from electra_tf.text.packing import max_bytes
from electra_tf.weights.source import load_trained, source_overrides
from electra_tf.weights.write import require_empty, write_model


@users_process()
def convert(
    source: str | os.PathLike[str],
    format: str,
    output_dir: str | os.PathLike[str],
    *,
    vocab_file: str | None = None,
    cased: bool = False,
    num_heads: int | None = None,
    generator_num_heads: int | None = None,
    text_columns: Sequence[str] | None = None,
    layers: int | None = None,
) -> str:
    """Writes a trained model in another format, as `electra-tf convert` does with the flags of these names.

    Args:
        source: a run, a fine-tuned seed, a checkpoint, a Hugging Face folder, or `hf://OWNER/NAME` of the Hub.
        format: see `Model.save`; without `saved_model`.
        output_dir: a new or empty directory.
        vocab_file: the vocabulary, for a source without one.
        cased: True if `vocab_file` is cased: text is not lower-cased.
        num_heads: the attention heads, for a source that does not state them; None: one for 64 hidden units.
        generator_num_heads: the same for the generator.
        text_columns: the columns of a published model's texts, two of one for pairs.
        layers: write the encoder alone, with its first layers; None: the whole model.

    Returns:
        Lines on what was read and written.

    Raises:
        UserError: there is no such model, the directory is not empty, or the format cannot hold the model.
    """
    require_empty(os.fspath(output_dir))
    model = load_trained(source, source_overrides(vocab_file, cased, num_heads, generator_num_heads)).finished()
    read = f"read {model.source}: {len(model.weights)} variables"
    if text_columns:
        model = model.with_text_columns(text_columns)
    if layers is not None:
        model = model.truncated(layers)
    return "\n".join([read, *write_model(model, format, output_dir)])


@users_process()
def export(
    model_dir: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    max_seq_length: int | None = None,
    batch_size: int | None = None,
    pad_to_max_length: bool = False,
    precision: Precision | None = None,
    overwrite: bool = False,
) -> str:
    """Writes a trained model as a SavedModel, as `electra-tf export` does with the flags of these names.

    Args:
        model_dir: a run, one of its checkpoints, a fine-tuned seed, or a Hugging Face folder.
        output_dir: a new directory; the SavedModel is written to its `1/`.
        max_seq_length: the most tokens of a text; longer ones are cut, or split into windows; None: the run's.
        batch_size: a fixed number of texts in a call; None: any.
        pad_to_max_length: pad every text to `max_seq_length` tokens, so that shapes are static.
        precision: of matrix products; None: the run's.
        overwrite: replace an existing `1/` on a local disk.

    Returns:
        A line on what was written.

    Raises:
        UserError: there is no such model, it does not allow the length, or the directory has other files.
    """
    model = load_served_model(model_dir, max_seq_length, batch_size, pad_to_max_length, precision)
    version_dir = export_saved_model(model, os.fspath(output_dir), overwrite)
    longest, windowed = (max_bytes(model.shapes.max_seq_length, is_windowed) for is_windowed in (False, True))
    texts = f"texts are read up to {longest} bytes" + (f" (in windows: {windowed})" if model.has_windows else "")
    if not model.tokenizer.runs_in_graphs:
        texts = "they take ids, which the model's tokenizer.json makes: TensorFlow cannot split text as it does"
    return f"wrote {version_dir}: signatures {', '.join(sorted(model.signatures()))}; {texts}"
