import tensorflow as tf

from electra_tf.train.device_loop import Trainer


def test_the_batches_of_one_replica_have_no_buffer_of_tf_distribute():
    # Its iterator would end up to a minute after the run.
    for strategy in (tf.distribute.OneDeviceStrategy("CPU:0"), tf.distribute.MirroredStrategy(["CPU:0"])):
        batches = Trainer(None, strategy, None, None).read(lambda context: tf.data.Dataset.range(3, 8))
        assert isinstance(batches, tf.data.Iterator) and next(batches) == 3
