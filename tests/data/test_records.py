import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data import records


def fixed_length_record(**features: list[int]) -> bytes:
    example = tf.train.Example()
    for name, values in features.items():
        example.features.feature[name].int64_list.value.extend(values)
    return example.SerializeToString()


def test_compact_examples_are_padded_with_mask_and_segments():
    serialized = [
        records.ExampleSerializer()([101, 7, 8, 102, 9, 102], [4, 2]),
        records.ExampleSerializer()([101, 30000, 102], [3]),
    ]
    batch = records.parse_examples(tf.constant(serialized), max_seq_length=7)
    assert batch["input_ids"].numpy().tolist() == [[101, 7, 8, 102, 9, 102, 0], [101, 30000, 102, 0, 0, 0, 0]]
    assert batch["input_mask"].numpy().tolist() == [[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 0, 0, 0, 0]]
    assert batch["segment_ids"].numpy().tolist() == [[0, 0, 0, 0, 1, 1, 0], [0, 0, 0, 0, 0, 0, 0]]
    assert {tensor.dtype for tensor in batch.values()} == {tf.int32}


def test_packed_examples_have_positions_that_begin_anew_with_each_sequence():
    serialize = records.ExampleSerializer()
    serialized = [
        serialize([101, 7, 102, 101, 8, 9, 102, 6, 102], [3, 0, 4, 2]),
        serialize([101, 5, 102, 4, 102], [3, 2]),
        records.ExampleSerializer()([101, 102], [2]),  # not packed: one sequence
        records.padding_example("packed", 10),
    ]
    batch = records.parse_examples(tf.constant(serialized), max_seq_length=10, is_packed=True)
    rows = {name: values.numpy().tolist() for name, values in batch.items()}
    assert rows["input_ids"][0] == [101, 7, 102, 101, 8, 9, 102, 6, 102, 0]
    assert [sum(row) for row in rows["input_mask"]] == [9, 5, 2, 0]
    assert rows["segment_ids"] == [[0] * 7 + [1, 1, 0], [0] * 3 + [1, 1] + [0] * 5, [0] * 10, [0] * 10]
    assert rows["position_ids"][:2] == [[0, 1, 2, 0, 1, 2, 3, 4, 5, 0], [0, 1, 2, 3, 4, 0, 0, 0, 0, 0]]
    assert rows["position_ids"][2:] == [[0, 1] + [0] * 8, [0] * 10]


@pytest.mark.parametrize("is_packed", [False, True])
def test_sequence_length_is_static_inside_a_pipeline(is_packed):
    dataset = tf.data.Dataset.from_tensors([records.ExampleSerializer()([101, 5, 102], [3])])
    dataset = dataset.map(lambda serialized: records.parse_examples(serialized, 6, is_packed))
    assert {spec.shape[1] for spec in dataset.element_spec.values()} == {6}


@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        (records.ExampleSerializer()([101, 4, 5, 102], [4]), "longer than max_seq_length"),
        (fixed_length_record(input_ids=[7, 5, 8], input_mask=[1] * 3, segment_ids=[0] * 3), "not a compact record"),
    ],
    ids=["too long", "fixed length"],
)
def test_a_record_that_is_too_long_or_of_another_format_is_an_error(record, complaint):
    with pytest.raises(tf.errors.InvalidArgumentError, match=complaint):
        records.parse_examples([record], max_seq_length=3)


def test_the_format_of_a_record_is_detected_by_its_features():
    assert records.record_format(records.ExampleSerializer()([101, 5, 102], [3]), "file", 4) == ("compact", 3)
    record = fixed_length_record(input_ids=[1] * 8, input_mask=[1] * 8, segment_ids=[0] * 8)
    assert records.record_format(record, "file", 4) == ("fixed_length", 8)
    with pytest.raises(UserError, match="file has records with the features .*tokens"):
        records.record_format(fixed_length_record(tokens=[1, 2]), "file", 4)
