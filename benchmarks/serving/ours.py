"""Our contender: the `embed` signature of an export, called with TensorFlow alone."""

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the tokenizer's operations)

from benchmarks.serving.worker import answer_texts
from benchmarks.worker import Commands


def answer_all(options: dict, commands: Commands) -> None:
    tf.config.set_visible_devices([], "GPU")
    tf.config.threading.set_intra_op_parallelism_threads(options["settings"]["num_threads"])
    tf.config.threading.set_inter_op_parallelism_threads(options["num_threads"])  # a server's default: its cores
    signature = tf.saved_model.load(options["settings"]["export"]).signatures["embed"]
    answer_texts(options, commands, lambda texts: signature(text=tf.constant(texts))["sequence_output"].numpy().shape)
