"""The fine-tuning models: heads and losses, settings, layerwise learning rates; similarity."""

import logging
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.models.encoder import EncoderOutput
from electra_tf.models.layers import INFERENCE, ForwardContext
from electra_tf.tasks.finetune.datasets import task_facts
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.finetune.kinds.similarity import mean_vectors
from tests.tasks.finetune.steps import CHOICE, CLASSES, CONTRASTIVE, SCORED, build, choice_batch, pair_batch, text_batch
from tests.toy import gelu, log_softmax, toy_finetuning_config


def headed(task: dict, hidden: list, **encoder):
    """A task whose encoder gives `hidden` [B, S, H], and a batch of B rows."""
    hidden = tf.constant(hidden, tf.float32)
    sizes = {"hidden_size": hidden.shape[2], "num_heads": 1} | encoder
    built = build_finetuning_task(toy_finetuning_config(task, encoder=sizes))
    built.encode = lambda batch, context: EncoderOutput(hidden, hidden[:, 0], hidden, (), ())
    batch = {name: tf.ones(hidden.shape[:2], tf.int32) for name in ("input_mask", "segment_ids")}
    built.outputs(batch, built.forward(batch, INFERENCE))  # creates the variables
    return built, batch


def set_weights(layer: keras.layers.Dense, kernel: list, bias: list) -> None:
    layer.kernel.assign(kernel)
    layer.bias.assign(bias)


MODERN = {"block": "modern", "layer_norm_epsilon": 0.25}


def modern_head(x: np.ndarray) -> np.ndarray:
    """GELU and LayerNorm with weight [2, 1], for vectors of two numbers after a dense layer [[1, 0], [2, 1]]."""
    values = gelu(x @ np.array([[1.0, 0.0], [2.0, 1.0]]))
    values = values - values.mean(axis=-1, keepdims=True)
    return values / np.sqrt((values**2).mean(axis=-1, keepdims=True) + 0.25) * [2.0, 1.0]


def test_the_head_of_answers_on_the_modern_block_has_every_bias_where_the_encoder_has_them():
    answers = {"kind": "question_answering", "version_2": True, "head": "huggingface"}
    with pytest.raises(UserError, match="needs joint_prediction: false and answerable_classifier: false"):
        toy_finetuning_config(answers)
    answers |= {"joint_prediction": False, "answerable_classifier": False}
    hidden, biases = [[1.0, -2.0], [0.5, 3.0]], {"norm_bias": True, "classifier_bias": True}
    task, batch = headed(answers, [hidden], **MODERN, **biases)
    set_weights(task.hidden_layer, [[1, 0], [2, 1]], [0, 0])
    task.hidden_norm.gamma.assign([2, 1])
    task.hidden_norm.beta.assign([0, 5])
    set_weights(task.start_layer, [[1], [0]], [0.5])
    set_weights(task.end_layer, [[0], [1]], [0.5])
    predictions = task.outputs(batch, task.forward(batch, INFERENCE))
    expected = modern_head(np.array(hidden)) + [0, 5] + 0.5
    assert predictions["start_logits"].numpy()[0] == pytest.approx(expected[:, 0], abs=1e-6)
    assert predictions["end_logits"].numpy()[0] == pytest.approx(expected[:, 1], abs=1e-6)


HEADS = [
    (CLASSES, "linear", {}, ["head"]),
    (CLASSES, "huggingface", {}, ["head", "hidden"]),
    (CLASSES, "linear", MODERN, ["head"]),
    (CLASSES, "huggingface", MODERN, ["hidden"]),
    (CHOICE, "linear", {}, ["head"]),
    (CHOICE, "huggingface", {}, ["hidden"]),
]


@pytest.mark.parametrize(("kind", "head", "encoder", "dropouts"), HEADS)
def test_dropout_precedes_each_layer_of_a_bert_head_and_else_only_the_last(monkeypatch, kind, head, encoder, dropouts):
    task, seen = build(kind | {"head": head, "dropout": 0.3}, encoder=encoder), []
    monkeypatch.setattr(ForwardContext, "dropout", lambda self, x, rate, name: seen.append((name, rate)) or x)
    task.forward(choice_batch() if kind is CHOICE else text_batch(), INFERENCE)
    assert [each for each in seen if each[1] == 0.3] == [(name, 0.3) for name in dropouts]


def test_losses_are_cross_entropies_times_the_weight_of_the_class_and_the_squared_error_of_the_scaled_number():
    logits, batch = tf.constant([[math.log(3), 0], [math.log(3), 0]], tf.float32), {"label_ids": tf.constant([0, 1])}
    for weights, factor in ({}, 1), ({"class_weights": (1.0, 3.0)}, 3):
        task, _ = headed({**CLASSES, "labels": ("a", "b"), **weights}, [[[1.0]]])
        assert task.row_losses(batch, logits).numpy() == pytest.approx([math.log(4 / 3), factor * math.log(4)])
    task, _ = headed({"kind": "multi_label", "labels": ("a", "b"), "class_weights": (1.0, 3.0)}, [[[1.0]]])
    losses = task.row_losses({"label_ids": tf.constant([[1, 0]])}, tf.constant([[0.0, math.log(3)]]))
    assert losses.numpy() == pytest.approx([(math.log(2) + 3 * math.log(4)) / 2])
    task, _ = headed({"kind": "regression", "min_value": 1.0, "max_value": 5.0}, [[[1.0]]])
    losses = task.row_losses({"targets": tf.constant([0.25, 0.5])}, tf.constant([[0.75], [2.0]]))
    assert losses.numpy().tolist() == [0.25, 2.25]


def test_tagging_sums_the_losses_of_first_pieces_and_predicts_each_token():
    task, batch = headed({"kind": "tagging", "labels": ("O", "X")}, [[[0.0], [1.0], [2.0]]])
    set_weights(task.output_layer, [[0, math.log(3)]], [0, 0])  # logits 0 and 0, log 3, log 9
    logits = task.forward(batch, INFERENCE)
    targets = {"label_ids": tf.constant([[0, 0, 1]]), "label_weights": tf.constant([[0.0, 1.0, 1.0]])}
    assert task.row_losses(targets, logits).numpy() == pytest.approx([math.log(4) + math.log(10 / 9)])
    predictions = {name: values.numpy()[0] for name, values in task.outputs(targets, logits).items()}
    assert predictions["label_ids"].tolist() == [0, 1, 1]
    assert predictions["probabilities"] == pytest.approx([0.5, 0.75, 0.9])


# Question answering. [CLS] question [SEP] three tokens of context [SEP] padding
MASK = np.array([[1, 1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
SEGMENTS = np.array([[0, 0, 0, 1, 1, 1, 1, 0], [0, 0, 1, 1, 1, 1, 1, 1]])
ALLOWED = np.array([[1, 0, 0, 1, 1, 1, 1, 0], [1, 0, 1, 1, 1, 1, 1, 1]])
TARGETS = {"start_positions": [3, 0], "end_positions": [5, 0], "is_impossible": [0, 1]}
HIDDEN = np.random.default_rng(8).normal(size=[2, 8, 3])
QA_LAYERS = ("start_layer", "end_layer", "end_hidden_layer", "answerable_layer", "answerable_hidden_layer")


def question_answering(**settings):
    """The task with random weights, its batch, and each layer as a numpy function."""
    settings = {"kind": "question_answering", "version_2": False, "head_size": 5, "beam_size": 4, **settings}
    task, batch = headed(settings, HIDDEN)
    batch |= {"input_mask": tf.constant(MASK, tf.int32), "segment_ids": tf.constant(SEGMENTS, tf.int32)}
    batch |= {name: tf.constant(values) for name, values in TARGETS.items()}
    rng, layers = np.random.default_rng(4), {}
    for name in QA_LAYERS:
        if (layer := getattr(task, name)) is not None:
            kernel, bias = rng.normal(size=layer.kernel.shape), rng.normal(size=layer.bias.shape)
            set_weights(layer, kernel, bias)
            layers[name] = lambda *vectors, w=kernel, b=bias: np.concatenate(vectors, axis=-1) @ w + b
    return task, batch, layers


def masked(row: int, logits: list) -> np.ndarray:
    return np.array(logits).reshape(-1) + 1000.0 * (ALLOWED[row] - 1)


def start_logits(layers, row: int) -> np.ndarray:
    return masked(row, layers["start_layer"](HIDDEN[row]))


def end_logits(layers, row: int, start: int) -> np.ndarray:
    """Of the joint head, one pair of vectors after the other."""
    h = HIDDEN[row]
    return masked(row, [layers["end_layer"](gelu(layers["end_hidden_layer"](h[start], h_t))) for h_t in h])


def answerable_logit(layers, row: int) -> float:
    h, shares = HIDDEN[row], np.exp(log_softmax(start_logits(layers, row)))
    return layers["answerable_layer"](gelu(layers["answerable_hidden_layer"](h[0], shares @ h))).item()


def test_without_start_logits_the_answerable_classifier_reads_cls_alone():
    task, batch, layers = question_answering(answerable_uses_start_logits=False)
    expected = layers["answerable_layer"](HIDDEN[:, 0])[:, 0]
    assert task.forward(batch, INFERENCE).answerable_logits.numpy() == pytest.approx(expected, abs=1e-5)


def test_the_loss_is_the_mean_of_start_and_end_plus_the_weighted_classifier():
    task, batch, layers = question_answering(answerable_loss_weight=0.25)
    expected = []
    for row, (start, end, impossible) in enumerate(zip(*TARGETS.values(), strict=True)):
        of_start = -log_softmax(start_logits(layers, row))[start]
        of_end = -log_softmax(end_logits(layers, row, start))[end]
        sign = 1 if impossible else -1  # positive: no answer
        of_answerable = np.log1p(np.exp(-sign * answerable_logit(layers, row)))
        expected.append((of_start + of_end) / 2 + 0.25 * of_answerable)
    losses = task.row_losses(batch, task.forward(batch, INFERENCE)).numpy()
    assert losses == pytest.approx(expected, abs=1e-4)


def test_independent_ends_have_their_own_dense_layer():
    task, batch, layers = question_answering(joint_prediction=False, answerable_classifier=False)
    forward = task.forward(batch, INFERENCE)
    predictions = task.outputs(batch, forward)
    assert set(predictions) == {"start_logits", "end_logits"} and forward.answerable_logits is None
    for row in range(2):
        ends = masked(row, layers["end_layer"](HIDDEN[row]))
        assert predictions["end_logits"][row].numpy() == pytest.approx(ends, abs=1e-4)
        of_start = -log_softmax(start_logits(layers, row))[TARGETS["start_positions"][row]]
        of_end = -log_softmax(ends)[TARGETS["end_positions"][row]]
        loss = task.row_losses(batch, forward)[row]
        assert float(loss) == pytest.approx((of_start + of_end) / 2, abs=1e-4)


def test_the_beam_has_the_best_starts_and_the_best_ends_for_each():
    task, batch, layers = question_answering()
    beam = {name: values.numpy() for name, values in task.outputs(batch, task.forward(batch, INFERENCE)).items()}
    assert beam["end_top_index"].shape == (2, 4, 4)
    for row in range(2):
        starts = log_softmax(start_logits(layers, row))
        best = np.argsort(-starts)[:4]
        assert beam["start_top_index"][row].tolist() == best.tolist()
        assert beam["start_top_log_probs"][row] == pytest.approx(starts[best], abs=1e-4)
        for slot, start in enumerate(best):
            ends = log_softmax(end_logits(layers, row, start))
            assert beam["end_top_index"][row, slot].tolist() == np.argsort(-ends)[:4].tolist()
            assert beam["end_top_log_probs"][row, slot] == pytest.approx(np.sort(ends)[:-5:-1], abs=1e-4)
    wide, batch, _ = question_answering(beam_size=20)  # at most as wide as the sequence
    assert wide.outputs(batch, wide.forward(batch, INFERENCE))["end_top_log_probs"].shape == (2, 8, 8)


@pytest.mark.parametrize(
    ("top", "encoder", "powers"),
    [
        ("authors", {}, {"embeddings": 5, "layer_0": 4, "layer_2": 2}),
        ("even", {}, {"embeddings": 4, "layer_0": 3, "layer_2": 1}),
        ("authors", MODERN, {"embeddings": 5, "layer_0": 4, "layer_2": 2, "final_LayerNorm": 2}),
    ],
)
def test_the_learning_rate_falls_with_every_layer(top, encoder, powers):
    decay = {"layerwise_decay": 0.5, "layerwise_decay_top": top}
    task = build_finetuning_task(toy_finetuning_config(CLASSES, encoder={"num_layers": 3} | encoder, optimizer=decay))
    rates = {v.path: task.learning_rate_multiplier(v) for v in task.trainable_variables}
    for part, power in powers.items():
        assert {rate for name, rate in rates.items() if name.startswith(f"electra/{part}")} == {0.5**power}, part
    assert {rate for name, rate in rates.items() if not name.startswith("electra/")} == {1.0}


@pytest.mark.parametrize(("settings", "warmup"), [({}, 2.3), ({"warmup_steps": 4, "warmup_fraction": 0.5}, 4)])
def test_the_warm_up_is_an_unrounded_fraction_of_the_steps_or_a_number_of_them(settings, warmup):
    config = toy_finetuning_config(CLASSES, optimizer=settings)
    assert config.optimizer.warmups([23]) == pytest.approx([warmup])


def test_a_setting_that_contradicts_the_task_is_refused():
    with pytest.raises(UserError, match=r"task.text_columns is \['a'\], but with task=rte it is \['sentence1', 'sen"):
        task_facts("rte", {"task": {"text_columns": ["a"]}}, "set")
    for name in ("rte", "squad_v1"):
        facts = task_facts(name, {}, "")
        assert task_facts(name, {"task": facts}, "") == facts  # as a run records them


def test_the_number_of_steps_is_the_batches_of_an_epoch_times_the_epochs():
    train = toy_finetuning_config(CLASSES, num_rows=33, train={"batch_size": 16, "num_epochs": 2.5}).train
    assert (train.num_steps, train.save_every_steps) == (7, 3)
    assert toy_finetuning_config(CLASSES, num_rows=3, train={"num_epochs": 0.1}).train.num_steps == 1
    both = {"batch_size": 16, "num_epochs": 2}
    assert toy_finetuning_config(CLASSES, num_rows=33, train={**both, "num_steps": 6})
    with pytest.raises(UserError, match="2 epochs are 6 steps, not 7"):
        toy_finetuning_config(CLASSES, num_rows=33, train={**both, "num_steps": 7})


def test_padding_does_not_count_in_the_mean():
    values = tf.constant([[[1.0, 2.0], [3.0, 8.0], [9.0, 9.0]], [[5.0, 7.0], [9.0, 9.0], [9.0, 9.0]]])
    assert mean_vectors(values, tf.constant([[1, 1, 0], [1, 0, 0]])).numpy().tolist() == [[2.0, 5.0], [5.0, 7.0]]
    assert mean_vectors(values, tf.zeros([2, 3], tf.int32)).numpy().tolist() == [[0.0, 0.0], [0.0, 0.0]]


def test_each_text_is_encoded_alone():
    task, batch = build(SCORED), pair_batch()
    vectors = task.forward(batch, INFERENCE).numpy()
    swapped = {name: values[:, ::-1] if len(values.shape) == 3 else values for name, values in batch.items()}
    np.testing.assert_allclose(task.forward(swapped, INFERENCE).numpy(), vectors[:, ::-1], atol=1e-6)
    np.testing.assert_allclose(task.forward(pair_batch(length=9), INFERENCE).numpy(), vectors, atol=1e-6)
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
    # The last one's candidate is padding.
    np.testing.assert_allclose(losses[:5], [good, good, bad, bad, 0.0], atol=1e-6)


def test_pairs_without_scores_are_named(task_of, caplog):
    caplog.set_level(logging.INFO)
    pairs, settings = {"one": ["w5", "w6"], "two": ["w7", "w8"]}, {"task": {"text_columns": ["one", "two"]}}
    assert task_of("similarity", settings, train=pairs | {"score": [1.5, 4.0]}).config.task.is_contrastive
    (message,) = caplog.messages
    assert "train.csv has no scores in 'label'" in message and "label_column" in message


DIRECTIONS = np.float32([[[2, 0], [1, 0]], [[0, 1], [3, 4]], [[1, 0], [0, 1]]])  # cosines 1, 0.8, 0
OUTPUTS = {"vectors": DIRECTIONS, "loss": np.float32([0.5, 1.0, 3.0])}


@pytest.fixture(scope="module")
def pairs_of(data_of):
    """`pairs_of(SCORED, [1.0, 3.0, 5.0])`: three pairs with these scores."""
    return lambda task, labels, second=("w9 w9 w9", "w5", "w6"), **options: data_of(
        task, (["w5", "w6 w7", "w8"], list(second)), labels, **options
    )


def test_a_row_has_a_sequence_for_each_text(pairs_of):
    features = pairs_of(SCORED, [1.0, 2.0, 5.0]).train
    assert features.num_choices == 2
    assert features.choice_splits.tolist() == [0, 3, 8, 12, 15, 18, 21]
    assert features.row_splits.tolist() == [0, 8, 15, 21]
    assert features.row_targets["targets"].tolist() == [0.0, 0.25, 1.0]
    assert not features.segment_ids.any()


def test_metrics_are_correlations_of_cosines_or_the_share_of_texts_that_find_their_own(pairs_of):
    metrics = pairs_of(SCORED, [4.0, 5.0, 1.0]).evaluated(OUTPUTS).metrics
    pearson = np.corrcoef([1.0, 0.8, 0.0], [4.0, 5.0, 1.0])[0, 1]
    assert metrics == pytest.approx({"spearmanr": 0.5, "pearson": pearson, "loss": 1.5})
    # The nearest second vectors of the three first ones: the first, the third, the first. Of equal texts any is right.
    for second, share in (("w9 w9 w9", "w5", "w6"), 1 / 3), (("w9", "w5", "w9"), 2 / 3):
        metrics = pairs_of(CONTRASTIVE, [True] * 3, second).evaluated(OUTPUTS).metrics
        assert metrics == pytest.approx({"accuracy": share, "loss": 1.5})


def test_predictions_are_cosines(pairs_of):
    content = pairs_of(SCORED, [4.0, 5.0, 1.0]).evaluated(OUTPUTS).table
    assert content.decode() == "id\tlabel\tprediction\na\t4.0\t1.000000\nb\t5.0\t0.800000\nc\t1.0\t0.000000\n"
    content = pairs_of(SCORED, None, is_train=False).evaluated(OUTPUTS).table
    assert content.decode() == "id\tprediction\na\t1.000000\nb\t0.800000\nc\t0.000000\n"
