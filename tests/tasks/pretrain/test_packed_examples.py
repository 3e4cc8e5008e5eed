"""A batch of packed examples gives what its sequences give in rows of their own."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.data.masking import mask_batch
from electra_tf.data.records import ExampleSerializer, parse_examples
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import REFERENCE
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.stages import open_stages
from tests.toy import MODERN, evaluation_values

LENGTH = 12
# The lengths of A and of B, with [CLS] and [SEP], of the sequences of each example. Padded: 1, 0, 0 and all tokens.
EXAMPLES = [[(4, 2), (5, 0)], [(3, 0), (2, 2), (5, 0)], [(7, 5)], []]
TOKEN_TENSORS = ("input_ids", "masked_input_ids", "input_mask", "segment_ids")
SLOT_TENSORS = ("masked_lm_ids", "masked_lm_weights", "mask_token_weights", "unigram_losses")
SMALL = {"data": {"max_seq_length": LENGTH}, "masking": {"masked_fraction": 0.4}}


@pytest.fixture(scope="module")
def packed(tiny_config, masking_vocabulary) -> dict[str, tf.Tensor]:
    words, serialize = np.random.default_rng(0), ExampleSerializer()
    records = []
    for example in EXAMPLES:
        ids = []
        for first, second in example:
            ids += [2, *words.integers(5, 47, first - 2), 3]
            ids += [*words.integers(5, 47, second - 1), 3] if second else []
        records.append(serialize(ids, [length for lengths in example for length in lengths] or [0]))
    batch = parse_examples(tf.constant(records), LENGTH, is_packed=True)
    return mask_batch(batch, tiny_config(**SMALL).masking, masking_vocabulary, RandomStream(1, 0, 0))


def ranges(example: list[tuple[int, int]]) -> list[range]:
    """The places of each sequence in its example."""
    ends = np.cumsum([0, *map(sum, example)]).tolist()
    return [range(*each) for each in zip(ends[:-1], ends[1:], strict=True)]


@pytest.fixture(scope="module")
def apart(packed) -> dict[str, tf.Tensor]:
    """The sequences of the packed batch with their masks, in a row each, as unpacked examples."""
    values, rows = {name: each.numpy() for name, each in packed.items()}, []
    for row, example in enumerate(EXAMPLES):
        positions = values["masked_lm_positions"][row]
        for places in ranges(example):
            cut = {name: values[name][row, places.start : places.stop] for name in TOKEN_TENSORS}
            slots = [
                slot
                for slot, place in enumerate(positions)
                if place in places and values["masked_lm_weights"][row, slot]
            ]
            cut |= {name: values[name][row, slots] for name in SLOT_TENSORS}
            cut["masked_lm_positions"] = positions[slots] - places.start
            sizes = {name: LENGTH if name in TOKEN_TENSORS else len(positions) for name in cut}
            rows.append({name: np.pad(each, [0, sizes[name] - len(each)]) for name, each in cut.items()})
    return {name: tf.constant(np.stack([row[name] for row in rows])) for name in rows[0]}


def of_sequences(values: np.ndarray) -> list[np.ndarray]:
    """The values of the tokens of each sequence, from those of packed rows."""
    return [values[row][places] for row, example in enumerate(EXAMPLES) for places in ranges(example)]


def test_the_batches_hold_the_same_tokens_and_masks(packed, apart):
    assert packed["position_ids"].numpy()[1].tolist() == [0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 4]
    assert apart["masked_lm_weights"].shape[0] == 6
    assert np.sum(packed["masked_lm_weights"]) == np.sum(apart["masked_lm_weights"]) == 3 * 4


def build(tiny_config, block=None, **objective):
    encoder = {"hidden_dropout": 0.0, "attention_dropout": 0.0, "initializer_range": 0.3, **(block or {})}
    keras.utils.set_random_seed(2)
    return build_objective(tiny_config(**SMALL, encoder=encoder, objective=objective))


@pytest.fixture(scope="module", params=[{}, MODERN], ids=["bert", "modern"])
def electra(request, tiny_config):
    return build(tiny_config, name="electra", sampling="greedy", block=request.param)


@pytest.mark.parametrize("ops", [REFERENCE, pytest.param(FusedOps("cpu", False), marks=pytest.mark.slow)])
def test_losses_and_gradients_are_those_of_the_sequences_apart(electra, packed, apart, ops):
    context = ForwardContext(training=True, random=RandomStream(4, 0, 0), ops=ops)
    values, gradients = [], []
    for batch in (packed, apart):
        with tf.GradientTape() as tape:
            ratios = electra.as_ratios(batch, electra.training_terms(batch, context))
            loss = sum(ratios[name].total / ratios[name].weight for name in electra.loss_weights)
        gradients.append([tf.convert_to_tensor(each) for each in tape.gradient(loss, electra.trainable_variables)])
        values.append({name: ratio.value() for name, ratio in ratios.items()})
    assert values[0] == pytest.approx(values[1], rel=1e-6)
    for variable, ours, expected in zip(electra.trainable_variables, *gradients, strict=True):
        # Of the largest number: sums over 35 tokens, rounded at 6e-8. The gradient of a key's bias is rounding alone.
        tolerance = max(2e-6 * float(np.abs(expected).max()), 1e-8)
        assert ours.numpy() == pytest.approx(expected.numpy(), abs=tolerance), variable.name


def test_evaluation_gives_the_values_of_the_sequences_apart(electra, packed, apart):
    context = ForwardContext(random=RandomStream(4, 0, 0))
    values, expected = (evaluation_values(electra, batch, context) for batch in (packed, apart))
    assert values == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("block", [{}, MODERN], ids=["bert", "modern"])
def test_in_bfloat16_too_no_token_sees_another_sequence(tiny_config, packed, block):
    """Keras would round the numbers of the sequences, float32, by which rows are known to be packed."""
    encoder = {"initializer_range": 0.3, **block}
    objective = build_objective(tiny_config(**SMALL, encoder=encoder, train={"precision": "bfloat16"}))
    changed = packed["input_ids"].numpy()
    changed[1, 3:7] = 46 - changed[1, 3:7] % 40
    before, after = (
        objective.call(packed | {"input_ids": ids}).sequence_output
        for ids in (packed["input_ids"], tf.constant(changed))
    )
    assert before.dtype == tf.bfloat16
    differs = (before != after).numpy().any(axis=-1)
    assert np.argwhere(differs).tolist() == [[1, 3], [1, 4], [1, 5], [1, 6]]


@pytest.mark.parametrize("name", ["electric", "teams"])
def test_objectives_with_networks_of_their_own_see_no_token_of_another_sequence(tiny_config, packed, apart, name):
    objective = build(tiny_config, name=name)
    values, expected = (objective.detection_logits(batch).numpy() for batch in (packed, apart))
    lengths = [len(places) for example in EXAMPLES for places in ranges(example)]
    for ours, row, length in zip(of_sequences(values), expected, lengths, strict=True):
        assert ours == pytest.approx(row[:length], abs=1e-5)


@pytest.fixture
def packed_data(tmp_path, write_data):
    """A data set of `--examples=pack`, whose examples happen to have one sequence each."""
    directory = write_data(tmp_path / "data")
    manifest = Manifest.load(directory).model_copy(update={"examples": "pack"})
    (directory / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    return directory


def test_batches_of_a_mixture_with_packed_data_have_positions(tiny_config, packed_data, write_data, tmp_path):
    (stage,) = open_stages(tiny_config(), [{write_data(tmp_path / "other"): 3, packed_data: 1}])
    context = tf.distribute.InputContext()
    for batches in (stage.training_batches(0, context), stage.evaluation_batches(context)):
        batch = next(batches.as_numpy_iterator())
        assert np.array_equal(batch["position_ids"], np.arange(10) * batch["input_mask"])


def test_packed_data_is_refused_where_an_example_has_one_output(tiny_config, packed_data):
    with pytest.raises(UserError, match="contrastive.*examples=carry"):
        open_stages(tiny_config(objective={"name": "contrastive"}), [packed_data])
