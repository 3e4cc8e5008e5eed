"""The last step of every pipeline of batches."""

import tensorflow as tf


def prefetched(batches: tf.data.Dataset) -> tf.data.Dataset:
    """Prepares a pipeline's batches ahead of the loop that reads them, and keeps their order."""
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False  # an autotuned iterator may take a minute to end, see train/device_loop.py
    # Each pipeline takes its share itself: TensorFlow must not shard the files or batches again.
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.OFF
    return batches.prefetch(tf.data.AUTOTUNE).with_options(options)
