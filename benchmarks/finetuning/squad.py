"""Measures the time of one core to read SQuAD questions and make windows of tokens from them.

    python -m benchmarks.finetuning.squad ours dev-v2.0.json vocab.txt

Prints a JSON object. `authors` is the authors' algorithm in TensorFlow's Model Garden: BERT's FullTokenizer, question
by question. The time includes the tokenizer's start, but no imports.
"""

import json
import os
import sys
import time
from collections.abc import Callable

_SIZES = {"max_seq_length": 512, "doc_stride": 128, "max_query_length": 64}  # the authors' for SQuAD


def ours(file: str, vocab_file: str) -> Callable[[], tuple[int, int]]:
    """A function that makes windows like `electra-tf finetune` and returns the numbers of questions and windows."""
    from electra_tf.cli.process import import_tensorflow

    import_tensorflow()
    import tensorflow as tf

    from electra_tf.tasks.finetune.squad import read_squad
    from electra_tf.tasks.finetune.squad_features import squad_windows
    from electra_tf.text.vocabulary import Vocabulary
    from electra_tf.text.wordpiece import BertTokenizer

    tf.config.set_visible_devices([], "GPU")
    tf.constant(0)  # starts TensorFlow

    def featurise() -> tuple[int, int]:
        questions = read_squad(file)
        windows = squad_windows(questions, BertTokenizer(Vocabulary.load(vocab_file)), **_SIZES)
        return len(questions), windows.features.num_rows

    return featurise


def authors(file: str, vocab_file: str) -> Callable[[], tuple[int, int]]:
    """The counterpart of `ours` with Model Garden's functions."""
    from official.nlp.data import squad_lib
    from official.nlp.tools import tokenization

    def featurise() -> tuple[int, int]:
        tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case=True)
        examples = squad_lib.read_squad_examples(file, is_training=False, version_2_with_negative=True)
        windows = []
        squad_lib.convert_examples_to_features(
            examples,
            tokenizer,
            **_SIZES,
            is_training=False,
            batch_size=1,  # a larger batch would be filled up with copies
            output_fn=lambda feature, *_, **__: windows.append(feature),
        )
        return len(examples), len(windows)

    return featurise


def main() -> None:
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    name, file, vocab_file = sys.argv[1:]
    featurise = {"ours": ours, "authors": authors}[name](file, vocab_file)
    start = time.perf_counter()
    num_questions, num_windows = featurise()
    seconds = time.perf_counter() - start
    print(json.dumps({"seconds": seconds, "num_questions": num_questions, "num_windows": num_windows}))


if __name__ == "__main__":
    main()
