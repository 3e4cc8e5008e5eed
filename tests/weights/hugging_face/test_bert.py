"""Folders of BERT: transformers' Bert classes, written and read back; its pooler; what starts from one."""

import dataclasses

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from electra_tf.models.layers import INFERENCE
from electra_tf.tasks.finetune.kinds import build_finetuning_task
from electra_tf.tasks.pretrain import build_objective
from electra_tf.weights.hugging_face.reader import read_hugging_face
from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face
from electra_tf.weights.source import load_pretrained, load_trained
from electra_tf.weights.warm_start import initialize_from
from electra_tf.weights.write import write_model
from tests.weights import conftest
from tests.weights.conftest import BERT, HEADS, assert_same_weights, refusal, shapes_of, weights_of

MASKED_LM = {"encoder": BERT, "objective": conftest.MASKED_LM}
LAYER = {
    **{f"attention.self.{name}": [16, 16] for name in ("query", "key", "value")},
    **{"attention.output.dense": [16, 16], "attention.output.LayerNorm": [16]},
    **{"intermediate.dense": [20, 16], "output.dense": [16, 20], "output.LayerNorm": [16]},
}
POOLER = {"bert.pooler.dense.weight": [16, 16], "bert.pooler.dense.bias": [16]}
POOLER_VALUES = {name: np.random.default_rng(5).normal(size=shape).astype(np.float32) for name, shape in POOLER.items()}


def encoder_shapes() -> dict[str, list[int]]:
    """The tensors of a BertModel of one layer below `bert.`, without a pooler."""
    rows = {"word_embeddings": 47, "position_embeddings": 13, "token_type_embeddings": 2}
    shapes = {f"bert.embeddings.{name}.weight": [number, 16] for name, number in rows.items()}
    layers = {"embeddings.LayerNorm": [16]} | {f"encoder.layer.0.{name}": shape for name, shape in LAYER.items()}
    for name, shape in layers.items():
        shapes |= {f"bert.{name}.weight": shape, f"bert.{name}.bias": shape[:1]}
    return shapes


MASKED_LM_HEAD = {
    "cls.predictions.bias": [47],
    **{"cls.predictions.transform.dense.weight": [16, 16], "cls.predictions.transform.dense.bias": [16]},
    **{"cls.predictions.transform.LayerNorm.weight": [16], "cls.predictions.transform.LayerNorm.bias": [16]},
}


def test_a_masked_language_model_of_berts_family_is_written_as_one(stored):
    (network,) = hugging_face_networks(stored(**MASKED_LM))
    assert (network.architecture, network.layout.model_type) == ("BertForMaskedLM", "bert")
    assert shapes_of(network) == encoder_shapes() | MASKED_LM_HEAD
    expected = {
        **{"architectures": ["BertForMaskedLM"], "model_type": "bert", "hidden_act": "gelu", "layer_norm_eps": 1e-12},
        **{"vocab_size": 47, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2},
        **{"intermediate_size": 20, "max_position_embeddings": 13, "type_vocab_size": 2},
        **{"pad_token_id": 0, "tie_word_embeddings": True},
    }
    assert {name: network.config[name] for name in expected} == expected and "embedding_size" not in network.config


def test_without_the_setting_a_masked_language_model_is_electras_unless_bert_is_asked_for(stored, tmp_path):
    model = stored(encoder={"embedding_size": 16}, objective={"name": "bert_mlm"})
    (network,) = hugging_face_networks(model)
    assert network.architecture == "ElectraForMaskedLM"
    assert "BertForMaskedLM, 26 tensors" in write_model(model, "bert", tmp_path / "bert")[0]
    found = load_trained(tmp_path / "bert").finished()
    assert_same_weights(found.weights, model.weights)
    assert found.encoder == model.encoder.model_copy(update={"family": "bert"})


def test_electra_is_never_bert_but_its_encoder_can_be(stored, tmp_path):
    model = stored(encoder={"embedding_size": 16}, objective={"tying": "none"})
    first, *others = write_model(model, "bert", tmp_path / "bert")
    assert "only its encoder is converted" in first and "BertModel, 21 tensors" in others[0]
    assert any("There is no pooler" in line for line in others)
    assert_same_weights(load_trained(tmp_path / "bert").finished().weights, model.part("electra/"))
    networks = hugging_face_networks(stored(encoder=BERT))  # the setting has no effect on its pre-training
    assert [each.architecture for each in networks] == ["ElectraForPreTraining", "ElectraForMaskedLM"]


@pytest.fixture
def published(folder, stored):
    """`published({"cls.predictions.bias": None}, {...})`: the folder of a masked LM that we did not write."""
    (network,) = hugging_face_networks(stored(**MASKED_LM))
    heads = {"num_attention_heads": 1}
    return lambda tensors=None, config=None, name="published": folder(network, heads | (config or {}), tensors, name)


NO_HEAD = dict.fromkeys(MASKED_LM_HEAD)


def test_a_bert_for_pre_training_is_read_without_its_next_sentence_head(published, stored, tmp_path):
    weights = stored(**MASKED_LM).weights
    table, bias = weights["electra/embeddings/word_embeddings"], weights["generator_predictions/output_bias"]
    next_sentence = {"cls.seq_relationship.weight": np.ones([2, 16], np.float32), "cls.seq_relationship.bias": bias[:2]}
    tied = {"cls.predictions.decoder.weight": table, "cls.predictions.decoder.bias": bias}
    place = published({**next_sentence, **tied, **POOLER_VALUES}, {"architectures": ["BertForPreTraining"]})
    model = read_hugging_face(str(place))
    kernel, bias = POOLER_VALUES["bert.pooler.dense.weight"].T, POOLER_VALUES["bert.pooler.dense.bias"]
    assert_same_weights(model.weights, weights | {"pooler/dense/kernel": kernel, "pooler/dense/bias": bias})
    (note,) = model.notes
    assert note.endswith("not read: cls.seq_relationship.bias, cls.seq_relationship.weight")
    assert (model.encoder.family, model.encoder.embedding_size, model.objective) == ("bert", 16, "bert_mlm")
    lines = write_hugging_face(model, str(tmp_path / "again"))
    assert "BertForMaskedLM, 26 tensors" in lines[0] and "The pooler is left out" in lines[1]
    lines = write_model(model, "tf1", tmp_path / "tf1")
    assert any("the authors' code has no pooler" in line for line in lines)


@pytest.mark.parametrize(("pooler", "prefix"), [(POOLER_VALUES, ""), ({}, "bert.")], ids=["pooler", "no pooler"])
def test_an_encoder_converted_again_has_the_same_bytes(published, stored, tmp_path, pooler, prefix):
    masked_lm = hugging_face_networks(stored(**MASKED_LM))[0].tensors
    encoder = {name: tensor for name, tensor in (masked_lm | pooler).items() if name.startswith("bert.")}
    renamed = {prefix + name.removeprefix("bert."): tensor for name, tensor in encoder.items()}
    place = published(dict.fromkeys(masked_lm) | renamed, {"architectures": ["BertModel"]})
    model = load_trained(place).finished()
    assert model.objective == "" and len(model.pooler) == len(pooler)
    write_hugging_face(model, str(tmp_path / "again"))
    again = safetensors.numpy.load_file(tmp_path / "again" / "model.safetensors")
    assert_same_weights(again, {name.removeprefix("bert."): tensor for name, tensor in encoder.items()})


@pytest.mark.parametrize(
    ("architecture", "rows", "config", "kind"),
    [
        ("SequenceClassification", 1, {}, "multi_label"),
        ("SequenceClassification", 3, {"problem_type": "multi_label_classification"}, "multi_label"),
        ("MultipleChoice", 1, {}, "multiple_choice"),
        ("TokenClassification", 3, {}, "tagging"),  # with a pooler, as older transformers saved it
    ],
)
def test_the_class_names_the_task_of_a_head(published, architecture, rows, config, kind):
    head = {"classifier.weight": np.ones([rows, 16], np.float32), "classifier.bias": np.arange(rows, dtype=np.float32)}
    entries = {"architectures": [f"BertFor{architecture}"], "hidden_dropout_prob": 0.3} | config
    model = read_hugging_face(str(published(NO_HEAD | POOLER_VALUES | head, entries)))
    task, scope = model.finetuned.task, f"task_specific/{kind}"
    assert (task.kind, task.dropout, model.notes) == (kind, 0.3, ())
    if kind != "tagging":
        kernel = model.weights[f"{scope}/hidden/kernel"]
        np.testing.assert_array_equal(kernel, POOLER_VALUES["bert.pooler.dense.weight"].T)
    assert model.weights[f"{scope}/dense/bias"].tolist() == list(range(rows))


def test_an_untied_output_bias_is_refused(published):
    place = published({"cls.predictions.decoder.bias": np.ones(47, np.float32)})
    assert "decoder.bias is not cls.predictions.bias" in refusal(read_hugging_face, str(place))


def test_a_folder_of_an_older_version_that_states_its_class_alone_is_read(published):
    models = [read_hugging_face(str(published(config={"model_type": kind}, name=f"{kind}"))) for kind in ("bert", None)]
    assert [model.encoder.family for model in models] == ["bert", "bert"]
    assert_same_weights(*(model.weights for model in models))


def test_the_head_of_huggingface_is_the_pooler_with_tanh(stored_finetuned):
    model = stored_finetuned(HEADS["SequenceClassification"] | {"head": "huggingface"}, **BERT)
    task = build_finetuning_task(model.finetuned)
    kernel, bias = np.eye(16, dtype=np.float32), np.full(16, 0.5, np.float32)
    task.hidden_layer.set_weights([kernel, bias])
    vectors = np.linspace(-2, 2, 32, dtype=np.float32).reshape(2, 16)
    hidden = task.head_input(tf.constant(vectors), INFERENCE)
    np.testing.assert_allclose(hidden, np.tanh(vectors + 0.5), rtol=1e-6)


@pytest.mark.parametrize("head", ["huggingface", "linear"])
def test_fine_tuning_starts_from_the_pooler_which_leaves_with_the_model(published, stored_finetuned, tmp_path, head):
    place = published(NO_HEAD | POOLER_VALUES, {"architectures": ["BertModel"], "num_attention_heads": 2})
    model = stored_finetuned(HEADS["SequenceClassification"] | {"head": head}, **BERT)
    task = build_finetuning_task(model.finetuned)
    line = load_pretrained(place).initialize(task)
    assert line.endswith(", and its pooler") is (head == "huggingface")
    write_hugging_face(dataclasses.replace(model, weights=weights_of(task)), str(tmp_path / "out"))
    written, before = (safetensors.numpy.load_file(each / "model.safetensors") for each in (tmp_path / "out", place))
    if head == "huggingface":
        assert written.keys() - before.keys() == {"classifier.weight", "classifier.bias"}
        assert_same_weights({name: written[name] for name in before}, before)
        further = load_pretrained(tmp_path / "out")  # a fine-tuned model gives its pooler too
        np.testing.assert_array_equal(further.pooler[0], POOLER_VALUES["bert.pooler.dense.weight"].T)


@pytest.mark.parametrize("family", ["bert", "electra"])
def test_a_masked_lm_goes_on_from_bert(published, stored, tiny_config, family):
    objective = build_objective(tiny_config(encoder=BERT | {"family": family}, objective=MASKED_LM["objective"]))
    lines = initialize_from(objective, published(POOLER_VALUES, {"num_attention_heads": 2}))
    assert_same_weights(weights_of(objective), stored(**MASKED_LM).weights)
    assert any("with encoder.family bert" in line for line in lines) is (family == "electra")
    assert lines[-1] == "ignored: 2 variables, pooler/dense/bias, pooler/dense/kernel"
