"""Hugging Face's folders as stored models: what is shared, what is refused, what is only doubted."""

import numpy as np
import pytest

from electra_tf.config.errors import UserError
from electra_tf.convert.hugging_face_reader import Given, is_hugging_face, read_hugging_face

TABLE = "electra.embeddings.word_embeddings.weight"
# One head for 64 units is the rule; 3 heads for 12 units are doubted unless this program has written them.
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


def test_a_masked_language_model_alone_is_said_to_be_one(folder, stored_electra):
    found, notes = read_hugging_face(str(folder("generator", OURS)))
    assert found.objective == "bert_mlm" and found.encoder == stored_electra().generator
    assert "is a masked language model alone, read as one that was trained so; if it is the generator" in notes[0]


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
    assert notes[0].endswith("is a fine-tuned model; its encoder alone is read, not qa_outputs.bias")
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
        ({"id2label": {"0": "a", "1": "b"}}, "id2label is {'0': 'a', '1': 'b'}, the classifier has 3 labels; name 0"),
        ({"id2label": 5}, "id2label is 5, the classifier has 3 labels; name 0 to 2"),
        ({"id2label": {"0": "a", "1": "b", "2": "a"}}, "id2label names 'a' twice; give each label a name of its own"),
        ({"id2label": {"0": "a", "1": None, "2": "c"}}, "id2label has None, expected a text; correct it"),
        ({"id2label": {"0": "a", "1": "\ud800", "2": "c"}}, "config.json is damaged: expected a JSON object of valid"),
        ({"problem_type": ["x"]}, "problem_type is ['x'], expected one of"),
        ({"problem_type": "ranking"}, "problem_type is 'ranking', expected one of single_label_classification, "),
    ],
)
def test_a_classifier_that_its_configuration_contradicts_is_refused(finetuned, config, message):
    assert message in refusal(finetuned(SENTENCE_HEAD, config))


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        ("classifier.out_proj.bias", [], "classifier.out_proj.bias has shape [], expected [3]"),
        ("classifier.out_proj.weight", [], "classifier.out_proj.weight has shape [], expected [0, 12]"),
        ("classifier.dense.weight", [12, 7], "classifier.dense.weight has shape [12, 7], expected [12, 12]"),
    ],
)
def test_a_head_whose_tensors_do_not_fit_is_refused(finetuned, name, shape, expected):
    assert expected in refusal(finetuned(SENTENCE_HEAD | {name: np.ones(shape, np.float32)}))


MNLI_LABELS = {"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}}
NOTED = {"name": "mnli", "max_seq_length": 9, "text_columns": ["premise", "hypothesis"], "stride": None}


def test_what_transformers_does_not_know_of_a_task_is_noted_and_read(finetuned):
    ours = {"electra_tf": OURS["electra_tf"] | {"finetuned": NOTED}} | MNLI_LABELS
    found = read_hugging_face(str(finetuned(SENTENCE_HEAD, ours)))[0].finetuned
    assert (found.name, found.task.text_columns, found.task.stride) == ("mnli", ("premise", "hypothesis"), None)
    assert found.data.max_seq_length == 9


@pytest.mark.parametrize(
    "noted",
    [
        5,
        {"name": 5, "max_seq_length": "9", "text_columns": "body", "stride": 2.5},
        {"max_seq_length": True, "text_columns": [], "stride": 8},  # 9 tokens, of which 7 are text
        {"text_columns": ["a", "b", "c"], "stride": 0},
        {"text_columns": ["a", 5], "stride": True},
    ],
)
def test_a_note_that_is_none_is_left_out(finetuned, noted):
    ours = {"electra_tf": OURS["electra_tf"] | {"finetuned": noted}}
    found = read_hugging_face(str(finetuned(SENTENCE_HEAD, ours)))[0].finetuned
    assert (found.name, found.task.text_columns, found.task.stride) == ("classification", ("text",), None)


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
    assert "generator_lm_head.weight is not the word table, to which ELECTRA ties it" in refusal(untied)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"intermediate_size": 1024},
            "intermediate_size is 1024, the tensors have 5; correct config.json: a generator",
        ),
        ({"num_hidden_layers": 12}, "num_hidden_layers is 12, the tensors have 1; "),
        ({"num_attention_heads": 3}, "4 hidden units do not divide into 3 heads"),
        ({"num_attention_heads": 2.0}, "num_attention_heads is 2.0, expected a whole number"),
        ({"hidden_act": "gelu_new"}, "hidden_act is 'gelu_new', expected 'gelu': "),
        ({"model_type": "bert"}, "model_type is 'bert', expected 'electra': "),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type is 'relative_key', expected 'absolute'"),
        ({"is_decoder": True}, "is_decoder is True, expected False: ELECTRA sees the tokens on both sides"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads is {'0': [1]}, expected {}: ELECTRA has all heads"),
        ({"hidden_size": "4"}, "hidden_size is '4', the tensors have 4"),
        ({"electra_tf": {"step": True}}, "step of electra_tf is True, expected a whole number from 0"),
        ({"electra_tf": {"step": 1.5}}, "step of electra_tf is 1.5, expected a whole number from 0"),
        ({"electra_tf": {"step": -1}}, "step of electra_tf is -1, expected a whole number from 0"),
        ({"electra_tf": {"data": ["a", 5]}}, "data of electra_tf is ['a', 5], expected a list of texts"),
        ({"electra_tf": {"data": "a"}}, "data of electra_tf is 'a', expected a list of texts"),
        ({"hidden_dropout_prob": "much"}, "hidden_dropout is 'much'"),
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
            "holds no electra.encoder.layer.0.attention.self.key.bias, electra.encoder.layer.1.output.dense.bias; give",
        ),
        ({"electra.pooler.dense.bias": np.ones(2, np.float32)}, "holds electra.pooler.dense.bias, of which ELECTRA"),
        (
            {"electra.encoder.layer.1.intermediate.dense.weight": np.ones([12, 10], np.float32)},
            "layer.1.intermediate.dense.weight has shape [12, 10], expected [10, 12]; ",
        ),
        ({TABLE: None}, "holds no variable electra/embeddings/word_embeddings; give a checkpoint of ELECTRA"),
    ],
)
def test_tensors_that_do_not_fit_are_named(folder, tensors, message):
    assert message in refusal(folder("discriminator", OURS, tensors))


def test_an_unusual_number_of_heads_is_doubted_unless_it_is_known(folder):
    place = folder("generator")
    _, notes = read_hugging_face(str(place))
    assert "says num_attention_heads 2 for hidden_size 4; published ELECTRA models have one head for 64" in notes[0]
    found, notes = read_hugging_face(str(place), Given(num_heads=1))
    assert found.encoder.num_heads == 1 and not any("num_attention_heads" in note for note in notes)


@pytest.mark.parametrize(("noted", "doubted"), [({}, False), ({"num_heads": 1}, True), ({"num_heads": None}, True)])
def test_an_unusual_number_of_heads_is_known_where_this_program_has_noted_the_same(folder, noted, doubted):
    _, notes = read_hugging_face(str(folder("generator", {"electra_tf": noted})))
    assert any("says num_attention_heads 2 for hidden_size 4" in note for note in notes) == doubted


def test_what_says_that_nothing_is_pruned_and_no_decoder_is_read(folder):
    """As older transformers wrote it."""
    config = {"is_decoder": False, "pruned_heads": {}}
    assert read_hugging_face(str(folder("discriminator", OURS | config)))[1] == []


@pytest.mark.parametrize("objective", ["mine", 5, ["electra"], {}])
def test_an_objective_that_is_not_known_is_left_out(folder, objective):
    ours = {"electra_tf": {"objective": objective}}
    assert read_hugging_face(str(folder("discriminator", ours)))[0].objective == "electra"


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
    assert "have different vocabularies or casing; give the two networks of one model" in refusal(place)


def test_networks_of_different_casing_are_refused(pair):
    place = pair()
    (place / "generator" / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    assert "have different vocabularies or casing; give the two networks of one model" in refusal(place)


def test_a_folder_is_known_by_its_configuration(folder, tmp_path):
    assert not is_hugging_face(str(tmp_path))
    assert is_hugging_face(str(folder("generator"))) and is_hugging_face(str(tmp_path))
