import math

import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import open_data
from electra_tf.data.damage import damaged_data_reported
from electra_tf.data.pretraining_input import training_batches
from electra_tf.tasks.pretrain import build_objective
from electra_tf.train.step import compile_task


@pytest.mark.slow
def test_a_batch_of_nothing_but_damaged_records_changes_nothing_and_is_finite(tmp_path, write_data, tiny_config):
    config = tiny_config(data={"on_damaged_record": "skip"}, optimizer={"weight_decay_rate": 0.0})
    directory = write_data(tmp_path / "set", train=(5,))
    data = open_data(directory, config)
    (directory / "train-00000-of-00001.tfrecord").write_bytes(b"")
    settings = {"seed": 3, "batch_size": 4, "first_step": 0}
    batches = training_batches(data.train, config.masking, data.masking_vocabulary, **settings)
    model = compile_task(build_objective(config))
    before = [variable.numpy() for variable in model.trainable_variables]
    metrics = {name: float(value) for name, value in model.train_step(next(iter(batches))).items()}
    assert all(math.isfinite(value) for value in metrics.values())
    assert metrics["loss"] == metrics["gradient_norm"] == metrics["nonfinite"] == 0.0
    after = [variable.numpy() for variable in model.trainable_variables]
    assert all((new == old).all() for new, old in zip(after, before, strict=True))


def test_a_damaged_record_under_a_loop_on_two_devices_is_one_line(tmp_path, write_data, tiny_config, two_replicas):
    config = tiny_config()
    directory = write_data(tmp_path / "set", train=(9,))
    shard = directory / "train-00000-of-00001.tfrecord"
    data = open_data(directory, config)
    content = bytearray(shard.read_bytes())
    content[20] ^= 1
    shard.write_bytes(content)

    def pipeline(context: tf.distribute.InputContext) -> tf.data.Dataset:
        settings = {"seed": 3, "batch_size": 4, "first_step": 0, "input_context": context}
        return training_batches(data.train, config.masking, data.masking_vocabulary, **settings)

    @tf.function
    def loop(iterator) -> tf.Tensor:
        total = tf.constant(0)
        for _ in tf.range(3):
            counts = two_replicas.run(lambda batch: tf.reduce_sum(batch["input_mask"]), args=(next(iterator),))
            total += two_replicas.reduce(tf.distribute.ReduceOp.SUM, counts, axis=None)
        return total

    with pytest.raises(UserError) as caught, damaged_data_reported():
        loop(iter(two_replicas.distribute_datasets_from_function(pipeline)))
    assert str(caught.value).startswith(f"{shard}: record 0 at byte 0: its checksum does not match its content; copy ")
    assert "\n" not in str(caught.value)
