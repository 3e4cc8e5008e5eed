"""Packed examples give what their sequences give alone; surplus rows of a word table, 53 for 47 tokens, nothing."""

import functools
import math

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from electra_tf.data.masking import mask_batch
from electra_tf.data.records import ExampleSerializer, parse_examples
from electra_tf.models.generators import UniformGenerator
from electra_tf.models.layers import ForwardContext
from electra_tf.ops.fused import FusedOps
from electra_tf.ops.random import RandomStream
from electra_tf.ops.reference import REFERENCE
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.tasks.pretrain.stages import open_stages
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compile_task
from tests.toy import MODERN, VOCABULARY, evaluation_values, follows, training_values

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
            slots = np.flatnonzero(values["masked_lm_weights"][row] * np.isin(positions, places))
            cut |= {name: values[name][row, slots] for name in SLOT_TENSORS}
            cut["masked_lm_positions"] = positions[slots] - places.start
            sizes = {name: LENGTH if name in TOKEN_TENSORS else len(positions) for name in cut}
            rows.append({name: np.pad(each, [0, sizes[name] - len(each)]) for name, each in cut.items()})
    return {name: tf.constant(np.stack([row[name] for row in rows])) for name in rows[0]}


BLOCKS = pytest.mark.parametrize("block", [{}, MODERN], ids=["bert", "modern"])


@BLOCKS
@pytest.mark.parametrize("ops", [REFERENCE, pytest.param(FusedOps("cpu", False), marks=pytest.mark.slow)])
def test_losses_and_gradients_are_those_of_the_sequences_apart(build, packed, apart, block, ops):
    electra = build("electra", {**SMALL, "encoder": block}, sampling="greedy")
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


@BLOCKS
def test_in_bfloat16_too_no_token_sees_another_sequence(build, packed, block):
    """Keras would round the numbers of the sequences, float32, by which rows are known to be packed."""
    objective = build("electra", {**SMALL, "encoder": block, "train": {"precision": "bfloat16"}})
    changed = packed["input_ids"].numpy()
    changed[1, 3:7] = 46 - changed[1, 3:7] % 40
    before = objective.call(packed).sequence_output
    after = objective.call(packed | {"input_ids": tf.constant(changed)}).sequence_output
    assert before.dtype == tf.bfloat16
    differs = (before != after).numpy().any(axis=-1)
    assert np.argwhere(differs).tolist() == [[1, 3], [1, 4], [1, 5], [1, 6]]


@pytest.mark.parametrize("name", ["electric", "teams"])
def test_objectives_with_networks_of_their_own_see_no_token_of_another_sequence(build, packed, apart, name):
    objective = build(name, SMALL)
    values, expected = (objective.detection_logits(batch).numpy() for batch in (packed, apart))
    sequences = [(row, places) for row, example in enumerate(EXAMPLES) for places in ranges(example)]
    for (row, places), alone in zip(sequences, expected, strict=True):
        assert values[row][places] == pytest.approx(alone[: len(places)], abs=1e-5)


def test_a_mixture_with_packed_data_has_positions_and_is_refused_where_an_example_has_one_output(
    tiny_config, write_data, tmp_path
):
    directory = write_data(tmp_path / "data")
    manifest = Manifest.load(directory).model_copy(update={"examples": "pack"})
    (directory / MANIFEST_FILE).write_text(manifest.to_json(), encoding="utf-8")
    with pytest.raises(UserError, match="contrastive.*examples=carry"):
        open_stages(tiny_config(objective={"name": "contrastive"}), [directory])
    (stage,) = open_stages(tiny_config(), [{write_data(tmp_path / "other"): 3, directory: 1}])
    context = tf.distribute.InputContext()
    for batches in (stage.training_batches(0, context), stage.evaluation_batches(context)):
        batch = next(batches.as_numpy_iterator())
        assert np.array_equal(batch["position_ids"], np.arange(10) * batch["input_mask"])


NUM_TOKENS, NUM_ROWS = 47, 53


@pytest.fixture(scope="module")
def pair(build):
    """`pair(name, **settings)`: an objective, and the same with surplus rows that would win every prediction."""

    def build_both(name: str, **settings):
        changes = {"optimizer": {"weight_decay_rate": 0.0}, "evaluation": {"as_masked_lm": {"num_candidates": 50}}}
        plain, padded = (
            compile_task(build(name, changes | {"encoder": {"vocab_size": rows}}, fresh=True, **settings))
            for rows in (NUM_TOKENS, NUM_ROWS)
        )
        for objective in (plain, padded):
            objective.adopt_tokenizer(StoredTokenizer(VOCABULARY))
        for source, target in zip(plain.variables, padded.variables, strict=True):
            surplus = [(0, theirs - ours) for ours, theirs in zip(source.shape, target.shape, strict=True)]
            target.assign(np.pad(source.numpy(), surplus, constant_values=9.0))
        return plain, padded

    return build_both


SETTINGS = [{"generator": {"kind": "uniform"}}, {"tying": "gradient_disentangled"}, {"sampling": "greedy"}]
SETTINGS += [{"disallow_correct": True}, {"temperature": 1000.0}]
SLOW = [*((name, {}) for name in OBJECTIVES if name != "bert_mlm"), *(("electra", each) for each in SETTINGS)]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("bert_mlm", {}),
        ("electra", {"generator": {"kind": "unigram"}}),
        *(pytest.param(*case, marks=pytest.mark.slow) for case in SLOW),
    ],
)
def test_surplus_rows_change_no_loss_no_metric_and_no_sample(pair, batch, sampling, name, settings):
    plain, padded = pair(name, **settings)
    if settings == {"generator": {"kind": "unigram"}}:
        for objective in (plain, padded):
            objective.generator.adopt_counts(np.arange(NUM_TOKENS))
    pairs = [*zip(plain.phases(), padded.phases(), strict=True)]
    exactly = functools.partial(pytest.approx, rel=0, abs=0, nan_ok=True)
    for first, second in pairs:
        assert training_values(second, batch, sampling) == exactly(training_values(first, batch, sampling))
    if name in ("bert_mlm", "electra", "electric") and not settings:
        pairs.append((plain.as_masked_lm(), padded.as_masked_lm()))
    for first, second in pairs:
        assert evaluation_values(second, batch, sampling) == exactly(evaluation_values(first, batch, sampling))


def test_a_uniform_generator_proposes_every_token_and_no_surplus_row():
    generator = UniformGenerator(NUM_ROWS)
    generator.adopt_num_tokens(NUM_TOKENS)
    distribution = generator(None, positions=tf.zeros([40, 100], tf.int32)).distribution
    sampled = distribution.sample(ForwardContext(random=RandomStream(0, 0, 0))).numpy()
    assert follows(sampled, [1.0] * NUM_TOKENS + [0.0] * 6)
    assert distribution.losses(tf.constant([[5]])).numpy() == pytest.approx(math.log(NUM_TOKENS))


def test_a_step_leaves_surplus_rows_as_they_are_and_moves_the_others_equally(pair, batch):
    plain, padded = pair("all_tokens_mlm")
    before = [variable.numpy() for variable in padded.trainable_variables]
    metrics = [{key: float(value) for key, value in each.train_step(batch).items()} for each in (plain, padded)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-6)
    num_tables = 0
    for old, new, other in zip(before, padded.trainable_variables, plain.trainable_variables, strict=True):
        if new.shape != other.shape:
            num_tables += 1
            assert np.array_equal(new[NUM_TOKENS:], old[NUM_TOKENS:])
            assert not np.array_equal(new[:NUM_TOKENS], old[:NUM_TOKENS])
            new = new[:NUM_TOKENS]
        np.testing.assert_allclose(new, other, rtol=1e-5, atol=1e-7)
    assert num_tables == 3


def test_in_other_programs_too_a_new_head_predicts_no_surplus_row(tiny_config):
    objective = build_objective(tiny_config(encoder={"vocab_size": NUM_ROWS}))
    objective.adopt_tokenizer(StoredTokenizer(VOCABULARY))
    bias = objective.generator.head.output_bias.numpy()
    assert not bias[:NUM_TOKENS].any() and (bias[NUM_TOKENS:] == -100.0).all()
