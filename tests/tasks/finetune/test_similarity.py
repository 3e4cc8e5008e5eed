"""Similarity: vectors, both losses, steps on replicas and in micro-batches, features, metrics, predictions, alarm."""

import logging
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.data.tables import Table
from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune import build_finetuning_task
from electra_tf.tasks.finetune.data import TaskData
from electra_tf.tasks.finetune.datasets import derived_settings, read_dataset
from electra_tf.tasks.finetune.examples import Examples
from electra_tf.tasks.finetune.similarity import mean_vectors
from electra_tf.text.tokenizer import load_tokenizer
from electra_tf.text.vocabulary import StoredTokenizer
from electra_tf.train.step import compile_task, splits_batches
from tests.toy import VOCABULARY, step_on_replicas, toy_finetuning_config

SCORED = {"kind": "similarity", "is_contrastive": False, "min_value": 1.0, "max_value": 5.0}
CONTRASTIVE = {"kind": "similarity", "is_contrastive": True, "num_candidates": 2, "temperature": 0.5}


def build(task: dict, strategy: tf.distribute.Strategy | None = None, encoder: dict | None = None, **train):
    train = {"batch_size": 4, "num_steps": 9, "fused_ops": False, **train}
    optimizer = {"learning_rate": 1e-2, "warmup_fraction": 0}
    config = toy_finetuning_config(task, encoder=encoder or {}, optimizer=optimizer, train=train)
    tf_keras.utils.set_random_seed(5)
    with (strategy or tf.distribute.get_strategy()).scope():
        return compile_task(build_finetuning_task(config))


def batch_of(length: int = 7) -> dict[str, tf.Tensor]:
    """Four pairs; the first texts have 5 tokens, the second ones 3. The last pair fills the batch up."""
    ids = np.random.default_rng(2).integers(5, 47, [4, 2, 5])
    ids[:, 1, 3:] = 0
    ids = np.pad(ids, [(0, 0), (0, 0), (0, length - 5)])
    texts = {"input_ids": ids, "input_mask": ids > 0, "segment_ids": np.zeros_like(ids), "row_index": [0, 1, 2, -1]}
    batch = {name: tf.constant(np.int32(values)) for name, values in texts.items()}
    return batch | {"row_weights": tf.constant([1.0, 1.0, 1.0, 0.0]), "targets": tf.constant([0.0, 0.25, 1.0, 0.0])}


def test_padding_does_not_count_in_the_mean():
    values = tf.constant([[[1.0, 2.0], [3.0, 8.0], [9.0, 9.0]], [[5.0, 7.0], [9.0, 9.0], [9.0, 9.0]]])
    assert mean_vectors(values, tf.constant([[1, 1, 0], [1, 0, 0]])).numpy().tolist() == [[2.0, 5.0], [5.0, 7.0]]
    assert mean_vectors(values, tf.zeros([2, 3], tf.int32)).numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("encoder", [{}, {"block": "modern"}], ids=["bert", "modern"])
def test_each_text_is_encoded_alone(encoder):
    task, batch = build(SCORED, encoder=encoder), batch_of()
    vectors = task.forward(batch, INFERENCE).numpy()
    swapped = {name: values[:, ::-1] if len(values.shape) == 3 else values for name, values in batch.items()}
    np.testing.assert_allclose(task.forward(swapped, INFERENCE).numpy(), vectors[:, ::-1], atol=1e-6)
    np.testing.assert_allclose(task.forward(batch_of(length=9), INFERENCE).numpy(), vectors, atol=1e-6)
    assert np.abs(vectors[:, 0] - vectors[:, 1]).max() > 1e-3


def test_the_loss_of_a_score_is_the_squared_difference_to_the_cosine():
    vectors = tf.constant([[[3.0, 4.0], [6.0, 8.0]], [[1.0, 0.0], [0.0, 2.0]], [[1.0, 1.0], [1.0, 0.0]]])
    losses = build(SCORED).row_losses({"targets": tf.constant([0.75, 0.5, 0.0])}, vectors)
    np.testing.assert_allclose(losses, [0.0625, 0.25, 0.5], rtol=1e-6)


def test_a_text_finds_its_own_among_the_candidates_of_its_group():
    # Cosines of the first group: own 1 and 0, the other's 0 and 1; both logits are doubled by the temperature of 0.5.
    right, wrong = [[1.0, 0.0], [2.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]]
    alone = [[0.0, 3.0], [0.0, 5.0]]
    vectors = tf.constant([right, [[0.0, 1.0], [0.0, 1.0]], wrong, [[1.0, 0.0], [0.0, 1.0]], alone, [[1.0, 0.0]] * 2])
    losses = build(CONTRASTIVE).row_losses({"row_weights": tf.constant([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])}, vectors)
    good, bad = math.log1p(math.exp(-2.0)), math.log1p(math.exp(2.0))
    np.testing.assert_allclose(
        losses[:5], [good, good, bad, bad, 0.0], atol=1e-6
    )  # the last one's candidate is padding


def metrics_and_weights(task, step_of=lambda task: task.train_step(batch_of())):
    task.seed.assign(3)
    metrics = {name: float(value) for name, value in step_of(task).items()}
    return metrics, [variable.numpy() for variable in task.trainable_variables]


def assert_same_step(found, expected) -> None:
    assert found[0] == pytest.approx(expected[0], rel=1e-5)
    assert max(np.abs(a - b).max() for a, b in zip(found[1], expected[1], strict=True)) < 1e-5


@pytest.mark.parametrize("settings", [SCORED, CONTRASTIVE], ids=["scored", "contrastive"])
def test_micro_batches_train_like_one_batch_dropout_included(settings):
    assert_same_step(
        metrics_and_weights(build(settings, gradient_accumulation_steps=2)), metrics_and_weights(build(settings))
    )


@pytest.mark.parametrize(("num_candidates", "is_split"), [(2, True), (4, False)])
def test_a_group_of_candidates_is_not_split(num_candidates, is_split):
    settings = CONTRASTIVE | {"num_candidates": num_candidates}
    whole, fused = build(settings), build(settings, fused_ops=True)
    assert splits_batches(fused.config.train, fused.config.rows_together) is is_split
    assert_same_step(metrics_and_weights(fused), metrics_and_weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [SCORED, CONTRASTIVE], ids=["scored", "contrastive"])
def test_two_replicas_train_like_one_dropout_included(two_replicas, settings):
    task = build(settings, two_replicas)
    step = tf.function(task.train_step)
    found = metrics_and_weights(task, lambda _: step_on_replicas(two_replicas, step, batch_of()))
    assert_same_step(found, metrics_and_weights(build(settings)))


@pytest.fixture(scope="module")
def data_of():
    """`data_of(SCORED, [1.0, 3.0, 5.0])`: three pairs as data of training, with these scores; else only predicted."""

    def build_data(
        task: dict,
        labels: list[float] | None,
        is_train: bool = True,
        second: tuple[str, ...] = ("w9 w9 w9", "w5", "w6"),
    ) -> TaskData:
        texts = (["w5", "w6 w7", "w8"], list(second))
        examples = Examples(texts, labels, ["a", "b", "c"], "dev.csv", [2, 3, 4])
        tokenizer = load_tokenizer(StoredTokenizer(VOCABULARY), "a test")
        return TaskData(toy_finetuning_config(task), tokenizer, examples if is_train else None, {"dev": examples})

    return build_data


PAIRS = {"question": ["w5", "w6"], "answer": ["w7", "w8"]}


def similarity_of(columns: dict, **data) -> dict:
    """The settings that follow from a table of pairs."""
    table = Table("pairs", columns, range(1, 3))
    task = {"kind": "similarity", "text_columns": ("question", "answer")}
    config = toy_finetuning_config(task, data=data).model_copy(update={"name": "similarity"})
    return derived_settings(config, read_dataset(config, {"train": table, "validation": table}).train)


def test_pairs_without_scores_are_named(caplog):
    caplog.set_level(logging.INFO)
    assert similarity_of(PAIRS | {"score": [1.5, 4.0]})["is_contrastive"]
    (message,) = caplog.messages
    assert "pairs has no scores in 'label'" in message and "--label_column" in message


def test_one_score_for_all_pairs_and_flags_beside_stsb_are_refused():
    with pytest.raises(UserError, match=r"has the score 1\.0 for all pairs"):
        similarity_of(PAIRS | {"label": [1, 1]})
    with pytest.raises(UserError, match="--train_file has no effect with --task=similarity and --data_dir"):
        similarity_of(PAIRS, data_dir="GLUE")


def test_a_row_has_a_sequence_for_each_text(data_of):
    features = data_of(SCORED, [1.0, 2.0, 5.0]).train
    assert features.num_choices == 2
    assert features.choice_splits.tolist() == [0, 3, 8, 12, 15, 18, 21]
    assert features.row_splits.tolist() == [0, 8, 15, 21]
    assert features.row_targets["targets"].tolist() == [0.0, 0.25, 1.0]
    assert not features.segment_ids.any()


VECTORS = np.float32(
    [[[2.0, 0.0], [1.0, 0.0]], [[0.0, 1.0], [3.0, 4.0]], [[1.0, 0.0], [0.0, 1.0]]]
)  # cosines 1, 0.8, 0


def test_scores_are_compared_with_cosines(data_of):
    metrics = (
        data_of(SCORED, [4.0, 5.0, 1.0]).evaluated({"vectors": VECTORS, "loss": np.float32([0.5, 1.0, 3.0])}).metrics
    )
    assert metrics["spearmanr"] == pytest.approx(0.5)
    assert metrics["pearson"] == pytest.approx(np.corrcoef([1.0, 0.8, 0.0], [4.0, 5.0, 1.0])[0, 1])
    assert metrics["loss"] == 1.5


def test_without_scores_the_share_of_texts_that_find_their_own_is_reported(data_of):
    # The nearest second vectors of the three first ones: the first, the third, the first.
    metrics = (
        data_of(CONTRASTIVE, [True] * 3).evaluated({"vectors": VECTORS, "loss": np.float32([0.5, 1.0, 3.0])}).metrics
    )
    assert metrics == {"accuracy": pytest.approx(1 / 3), "loss": 1.5}


def test_of_equal_second_texts_any_is_a_texts_own_and_chance_is_higher(data_of):
    data, outputs = (
        data_of(CONTRASTIVE, [True] * 3, second=("w9", "w5", "w9")),
        {"vectors": VECTORS, "loss": np.zeros(3)},
    )
    assert data.evaluated(outputs).metrics["accuracy"] == pytest.approx(2 / 3)
    assert data.evaluated(outputs).problem == "the accuracy 0.6667 is that of chance"


def test_predictions_are_cosines(data_of):
    content = data_of(SCORED, [4.0, 5.0, 1.0]).evaluated({"vectors": VECTORS}).table
    assert content.decode() == "id\tlabel\tprediction\na\t4.0\t1.000000\nb\t5.0\t0.800000\nc\t1.0\t0.000000\n"
    content = data_of(SCORED, None, is_train=False).evaluated({"vectors": VECTORS}).table
    assert content.decode() == "id\tprediction\na\t1.000000\nb\t0.800000\nc\t0.000000\n"


def test_a_model_that_has_learnt_nothing_is_named(data_of):
    outputs = {"vectors": VECTORS, "loss": np.zeros(3, np.float32)}
    assert data_of(SCORED, [4.0, 5.0, 1.0]).evaluated(outputs).problem is None
    assert "-1.0000" in data_of(SCORED, [1.0, 2.0, 3.0]).evaluated(outputs).problem
    assert data_of(CONTRASTIVE, [True] * 3).evaluated(outputs).problem == "the accuracy 0.3333 is that of chance"
