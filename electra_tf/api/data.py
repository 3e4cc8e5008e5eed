"""Vocabularies and data sets from text, by the code of `electra-tf build-vocab` and `electra-tf build-data`."""

import contextlib
import importlib
import os
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import tensorflow as tf

from electra_tf.api.process import users_process
from electra_tf.checkout import data_prep_parent


@users_process()
def build_vocab(
    inputs: str | Iterable[str],
    output: str | os.PathLike[str],
    *,
    vocab_size: int = 30522,
    num_processes: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """Trains a vocabulary on text and writes it, as `electra-tf build-vocab` does with the flags of these names.

    Args:
        inputs: the text: one or more of FORMAT:GLOB, or GLOB if the content shows the format.
        output: the file to write, such as vocab.txt or spm.model.
        vocab_size: tokens, the special ones included.
        num_processes: processes to use; any number gives the same bytes.
        **settings: the command's other flags, such as `model="bpe"` or `lower_case=False`.

    Returns:
        The report that is also written to OUTPUT.json: the settings, and how well the vocabulary fits the text.

    Raises:
        UserError: a setting is wrong, or the text cannot be read.
    """
    given = settings | {"inputs": _texts(inputs), "output": os.fspath(output)}
    given |= {"vocab_size": vocab_size, "num_processes": num_processes}
    given["coverage_inputs"] = _texts(settings.get("coverage_inputs", ()))
    with _builder() as module:
        values = module("settings").VocabularySettings(**given)
        return module("vocabulary").build_vocabulary(values)


@users_process()
def build_dataset(
    inputs: str | Iterable[str],
    vocab_file: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    *,
    max_seq_length: int = 128,
    num_processes: int = 1,
    **settings: Any,
) -> dict[str, Any]:
    """Turns text into TFRecords for `pretrain`, as `electra-tf build-data` does with the flags of these names.

    The same call continues an interrupted one. A data set that is there already stays, if its text and settings are
    these.

    Args:
        inputs: the text: one or more of FORMAT:GLOB, or GLOB if the content shows the format.
        vocab_file: the vocabulary, a vocab.txt, spm.model or tokenizer.json.
        output_dir: the directory for shards, vocabulary and manifest, local or a URL.
        max_seq_length: tokens of the longest example.
        num_processes: processes to use; any number gives the same bytes.
        **settings: the command's other flags, such as `held_out_fraction=0.01` or `work_dir="/tmp/work"`.

    Returns:
        The content of manifest.json: the counts of documents, tokens and examples, and the settings. {} if other
        machines (`machine="0/3"`) have work left.

    Raises:
        UserError: a setting is wrong, the text cannot be read, or too much of it is faulty.
    """
    given = settings | {"vocab_file": os.fspath(vocab_file), "output_dir": os.fspath(output_dir)}
    given |= {"inputs": _texts(inputs), "max_seq_length": max_seq_length, "num_processes": num_processes}
    with _builder() as module:
        values = module("settings").BuildSettings(**given)
        manifest = module("build").build(values)
        return manifest.model_dump(mode="json") if manifest else {}


@contextlib.contextmanager
def _builder() -> Iterator[Callable[[str], Any]]:
    """Yields a function that imports a module of `data_prep`, which is on no path of an installed program.

    Keeps TensorFlow's devices and threads for the user's program, and the program out of the worker processes.
    """
    tf.config.list_logical_devices()  # what the builder changes in a process of its own cannot be changed from now on
    folder = str(data_prep_parent())
    sys.path.insert(0, folder)  # also of the workers; first, so that no other `data_prep` is taken for this one
    # Workers would run a script without `if __name__ == "__main__":` again.
    main, sys.modules["__main__"] = sys.modules["__main__"], types.ModuleType("__main__")
    try:
        yield lambda name: importlib.import_module(f"data_prep.{name}")
    finally:
        sys.modules["__main__"] = main
        sys.path.remove(folder)


def _texts(inputs: str | Iterable[str]) -> tuple[str, ...]:
    return tuple(map(os.fspath, [inputs] if isinstance(inputs, str | os.PathLike) else inputs))
