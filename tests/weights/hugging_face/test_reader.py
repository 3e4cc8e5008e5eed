"""Hugging Face folders as stored models: shared weights, heads, refusals and warnings."""

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.weights.hugging_face.reader import is_hugging_face, read_hugging_face
from electra_tf.weights.stored_model import SourceOverrides

TABLE = "electra.embeddings.word_embeddings.weight"
# One head for 64 units is the rule; a folder of others with 3 heads for 12 units gives a warning.
OURS = {"electra_tf": {"objective": "electra_15", "step": 9, "data": ["5ea"]}}


def assert_same_weights(found: dict, expected: dict) -> None:
    assert found.keys() == expected.keys()
    assert [name for name, value in expected.items() if value.tobytes() != found[name].tobytes()] == []


def refusal(path) -> str:
    with pytest.raises(UserError) as caught:
        read_hugging_face(str(path))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def pair(folder, tmp_path):
    """`pair(generator_tensors)`: the directory of a discriminator and a generator."""

    def write(tensors: dict | None = None):
        folder("discriminator", OURS)
        folder("generator", OURS, tensors)
        return tmp_path

    return write


def test_a_pair_that_shares_its_embeddings(pair, stored_electra):
    expected = stored_electra()
    found, notes = read_hugging_face(str(pair()))
    assert_same_weights(found.weights, expected.weights)
    assert (found.encoder, found.generator, notes) == (expected.encoder, expected.generator, [])
    assert (found.objective, found.step, found.facts) == ("electra_15", 9, {"data": ["5ea"]})
    assert found.vocabulary_file == expected.vocabulary_file


def test_a_pair_whose_embeddings_differ_in_one_bit(pair, networks):
    table = networks["generator"][TABLE].copy()
    table[3, 2] = np.nextafter(table[3, 2], np.float32(9))
    found, _ = read_hugging_face(str(pair({TABLE: table})))
    np.testing.assert_array_equal(found.weights["generator/embeddings/word_embeddings"], table)
    assert len([name for name in found.weights if name.startswith("generator/embeddings/")]) == 5


def test_one_network_in_both_roles(folder, networks, tmp_path):
    folder("discriminator", OURS)
    tensors = {name: None for name in networks["generator"]} | networks["discriminator"]
    tensors |= {name: None for name in tensors if name.startswith("discriminator_predictions")}
    head = {"dense.weight": [6, 12], "dense.bias": [6], "LayerNorm.weight": [6], "LayerNorm.bias": [6]}
    tensors |= {f"generator_predictions.{name}": np.ones(shape, np.float32) for name, shape in head.items()}
    sizes = {"hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 10}
    folder("generator", OURS | sizes, tensors | {"generator_lm_head.bias": np.ones(8, np.float32)})
    found, _ = read_hugging_face(str(tmp_path))
    assert not any(name.startswith("generator/") for name in found.weights)
    assert found.generator == found.encoder and "generator_predictions/output_bias" in found.weights


def test_a_discriminator_alone(folder, stored_electra):
    found, _ = read_hugging_face(str(folder("discriminator", OURS)))
    assert_same_weights(found.weights, stored_electra(("generator",)).weights)
    assert found.generator is None


def test_a_masked_language_model_alone_gives_a_warning(folder, stored_electra):
    found, notes = read_hugging_face(str(folder("generator", OURS)))
    assert found.objective == "bert_mlm" and found.encoder == stored_electra().generator
    assert "is a masked language model alone" in notes[0]


@pytest.mark.parametrize("prefix", ["", "electra."])
def test_an_encoder_alone_with_and_without_the_prefix(folder, networks, stored_electra, prefix):
    tensors = dict.fromkeys(networks["discriminator"])
    for name, value in networks["discriminator"].items():
        if name.startswith("electra."):
            tensors[prefix + name.removeprefix("electra.")] = value
    found, _ = read_hugging_face(str(folder("discriminator", OURS, tensors)))
    assert_same_weights(found.weights, stored_electra(("generator", "discriminator")).weights)
    assert found.objective == ""


@pytest.fixture
def finetuned(folder, networks):
    """`finetuned({"classifier.bias": ...}, {...})`: the folder of an encoder with these tensors and settings more."""

    def write(head: dict, config: dict | None = None):
        gone = {name: None for name in networks["discriminator"] if name.startswith("discriminator_predictions")}
        return folder("discriminator", OURS | (config or {}), gone | head)

    return write


SENTENCE_HEAD = {
    "classifier.dense.weight": np.arange(144, dtype=np.float32).reshape(12, 12),
    "classifier.dense.bias": np.ones(12, np.float32),
    "classifier.out_proj.weight": np.arange(36, dtype=np.float32).reshape(3, 12),
    "classifier.out_proj.bias": np.arange(3, dtype=np.float32),
}
TAGGING_HEAD = {"classifier.weight": np.ones([3, 12], np.float32), "classifier.bias": np.arange(3, dtype=np.float32)}
LABELS = {"id2label": {"0": "O", "1": "B-X", "2": "I-X"}}


def test_of_a_fine_tuned_model_with_another_head_the_encoder_is_read(finetuned, stored_electra):
    found, notes = read_hugging_face(str(finetuned({"qa_outputs.bias": np.ones(2, np.float32)})))
    assert_same_weights(found.weights, stored_electra(("generator", "discriminator")).weights)
    assert notes[0].endswith(": not read: qa_outputs.bias")
    assert found.finetuned is None


@pytest.mark.parametrize(
    ("config", "kind", "labels"),
    [
        ({}, "classification", ("LABEL_0", "LABEL_1", "LABEL_2")),
        (LABELS | {"problem_type": "multi_label_classification"}, "multi_label", ("O", "B-X", "I-X")),
    ],
)
def test_a_classifier_is_a_task_with_hugging_faces_head(finetuned, config, kind, labels):
    found, notes = read_hugging_face(str(finetuned(SENTENCE_HEAD, config)))
    task = found.finetuned.task
    assert (task.kind, task.labels, task.head, notes) == (kind, labels, "huggingface", [])
    scope = f"task_specific/{kind}"
    np.testing.assert_array_equal(found.weights[f"{scope}/hidden/kernel"], SENTENCE_HEAD["classifier.dense.weight"].T)
    np.testing.assert_array_equal(found.weights[f"{scope}/dense/kernel"], SENTENCE_HEAD["classifier.out_proj.weight"].T)
    assert found.weights[f"{scope}/dense/bias"].tolist() == [0, 1, 2]


def test_one_output_is_a_number_in_the_unit_of_the_data(finetuned):
    head = SENTENCE_HEAD | {name: SENTENCE_HEAD[name][:1] for name in SENTENCE_HEAD if "out_proj" in name}
    task = read_hugging_face(str(finetuned(head)))[0].finetuned.task
    assert (task.kind, task.labels, task.min_value, task.max_value) == ("regression", (), 0, 1)


@pytest.mark.parametrize(
    ("labels", "scheme"), [("O B-X I-X", "iob2"), ("S-X B-X I-X", "bioes"), ("NOUN VERB X", "plain")]
)
def test_a_classifier_of_tokens_is_tagging(finetuned, labels, scheme):
    config = {"id2label": dict(zip("012", labels.split(), strict=True)), "classifier_dropout": 0.3}
    task = read_hugging_face(str(finetuned(TAGGING_HEAD, config)))[0].finetuned.task
    assert (task.kind, task.labels, task.scheme, task.dropout) == ("tagging", tuple(labels.split()), scheme, 0.3)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"id2label": {"0": "a", "1": "b"}}, "id2label is {'0': 'a', '1': 'b'}, the classifier has 3 labels"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label is "),
        ({"problem_type": "ranking"}, "problem_type is 'ranking'"),
    ],
)
def test_a_classifier_that_its_configuration_contradicts_is_refused(finetuned, config, message):
    assert message in refusal(finetuned(SENTENCE_HEAD, config))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("classifier.out_proj.weight", [2, 12], "classifier.out_proj.weight has shape [2, 12], expected [3, 12]"),
        ("classifier.dense.weight", [12, 7], "classifier.dense.weight has shape [12, 7], expected [12, 12]"),
    ],
)
def test_a_head_whose_tensors_do_not_fit_is_refused(finetuned, name, shape, expected):
    assert expected in refusal(finetuned(SENTENCE_HEAD | {name: np.ones(shape, np.float32)}))


def test_an_answering_head_is_question_answering_with_independent_ends(finetuned):
    head = {"qa_outputs.weight": np.arange(24, dtype=np.float32).reshape(2, 12), "qa_outputs.bias": np.float32([3, 4])}
    found, notes = read_hugging_face(str(finetuned(head)))
    task, scope = found.finetuned.task, "task_specific/question_answering"
    assert (task.kind, task.version_2, task.joint_prediction, notes) == ("question_answering", False, False, [])
    for column, layer in enumerate(("dense", "dense_1")):
        np.testing.assert_array_equal(found.weights[f"{scope}/{layer}/kernel"][:, 0], head["qa_outputs.weight"][column])
        assert found.weights[f"{scope}/{layer}/bias"].tolist() == [3 + column]


def test_tensors_that_electra_does_not_have_are_left_out_with_a_line(folder):
    place = folder("discriminator", OURS, {"electra.pooler.dense.bias": np.ones(2, np.float32)})
    assert read_hugging_face(str(place))[1] == [f"{place}/model.safetensors: not read: electra.pooler.dense.bias"]


def test_sizes_follow_from_the_tensors_whatever_the_configuration_states(folder, stored_electra):
    found, _ = read_hugging_face(str(folder("generator", OURS | {"intermediate_size": 1024})))
    assert found.encoder == stored_electra().generator


MNLI_LABELS = {"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}}
NOTED = {"name": "mnli", "max_seq_length": 9, "text_columns": ["premise", "hypothesis"], "stride": None}


def test_what_transformers_does_not_know_of_a_task_is_noted_and_read(finetuned):
    ours = {"electra_tf": OURS["electra_tf"] | {"finetuned": NOTED}} | MNLI_LABELS
    found = read_hugging_face(str(finetuned(SENTENCE_HEAD, ours)))[0].finetuned
    assert (found.name, found.task.text_columns, found.task.stride) == ("mnli", ("premise", "hypothesis"), None)
    assert found.data.max_seq_length == 9


@pytest.mark.parametrize("name", ["mnli", "sst2", "stsb", "squad_v2", "a/b", "", ".."])
def test_a_noted_name_that_is_not_the_tasks_is_left_out(finetuned, name):
    """By the name of a GLUE task its labels are put in the authors' order."""
    ours = {"electra_tf": OURS["electra_tf"] | {"finetuned": NOTED | {"name": name}}} | LABELS
    assert read_hugging_face(str(finetuned(SENTENCE_HEAD, ours)))[0].finetuned.name == "classification"


def test_a_stored_tied_table_is_left_out_and_another_one_refused(folder, networks):
    table = networks["generator"][TABLE]
    found, _ = read_hugging_face(str(folder("generator", OURS, {"generator_lm_head.weight": table})))
    assert len(found.weights) == len(networks["generator"])
    untied = folder("generator", OURS, {"generator_lm_head.weight": table + 1}, name="untied")
    assert "generator_lm_head.weight is not the word table" in refusal(untied)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num_attention_heads": 3}, "hidden_size 4 does not divide into num_heads 3"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new'"),
        ({"model_type": "bert"}, "model_type is 'bert'"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key'"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout"),
    ],
)
def test_a_configuration_that_is_wrong_is_named(folder, config, message):
    assert message in refusal(folder("generator", config))


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {
                "electra.encoder.layer.1.output.dense.bias": None,
                "electra.encoder.layer.0.attention.self.key.bias": None,
            },
            "there is no electra.encoder.layer.0.attention.self.key.bias; there is no electra.encoder.layer.1.output.",
        ),
        (
            {"electra.encoder.layer.1.intermediate.dense.weight": np.ones([12, 10], np.float32)},
            "layer.1.intermediate.dense.weight has shape [12, 10], expected [10, 12]; ",
        ),
        ({TABLE: None}, "holds no matrix electra/embeddings/word_embeddings"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, tensors, message):
    assert message in refusal(folder("discriminator", OURS, tensors))


def test_an_unusual_number_of_heads_gives_a_warning_unless_the_user_states_it(folder):
    place = folder("generator")
    _, notes = read_hugging_face(str(place))
    assert "num_attention_heads 2 for hidden_size 4" in notes[0]
    found, notes = read_hugging_face(str(place), SourceOverrides(num_heads=1))
    assert found.encoder.num_heads == 1 and not any("num_attention_heads" in note for note in notes)


@pytest.mark.parametrize("wrong", ["discriminator", "generator"])
def test_folders_that_are_no_pair_are_refused(folder, tmp_path, wrong):
    """Two discriminators, or two generators."""
    right = {"discriminator": "generator", "generator": "discriminator"}[wrong]
    folder(right, OURS)
    folder(right, OURS, name=wrong)
    network = {"discriminator": "ElectraForPreTraining", "generator": "ElectraForMaskedLM"}[wrong]
    assert f"{tmp_path}/{wrong} is no {network}: it has no such head" in refusal(tmp_path)


def test_networks_with_different_tokens_are_refused(pair):
    place = pair()
    changed = (place / "generator" / "vocab.txt").read_text().split()
    changed[-1], changed[-2] = changed[-2:]
    (place / "generator" / "vocab.txt").write_text("".join(f"{token}\n" for token in changed))
    assert "differ in vocabulary or casing" in refusal(place)


def test_a_folder_is_known_by_its_configuration(folder, tmp_path):
    assert not is_hugging_face(str(tmp_path))
    assert is_hugging_face(str(folder("generator"))) and is_hugging_face(str(tmp_path))
