"""Hugging Face folders as stored models: shared weights, heads, refusals and warnings."""

import json

import numpy as np
import pytest

from electra_tf.weights.hugging_face.reader import read_hugging_face
from tests.toy import VOCABULARY
from tests.weights import conftest
from tests.weights.conftest import TWO_LAYERS, assert_same_weights

TABLE = "electra.embeddings.word_embeddings.weight"
OURS = {"electra_tf": {"objective": "electra_15", "step": 9, "data": ["5ea"]}}


@pytest.fixture
def electra(stored):
    """`electra(("generator",))`: the model of the folders, without weights whose names begin with `generator`."""
    return lambda without=(): stored(without, encoder=TWO_LAYERS)


def refusal(path) -> str:
    return conftest.refusal(read_hugging_face, str(path))


def test_embeddings_that_differ_in_one_bit_stay_separate(folder, networks, tmp_path):
    table = networks["generator"].tensors[TABLE].copy()
    table[3, 2] = np.nextafter(table[3, 2], np.float32(9))
    folder("discriminator", OURS)
    folder("generator", OURS, {TABLE: table})
    model = read_hugging_face(str(tmp_path))
    np.testing.assert_array_equal(model.weights["generator/embeddings/word_embeddings"], table)
    assert len([name for name in model.weights if name.startswith("generator/embeddings/")]) == 5


def test_a_discriminator_alone_is_read(folder, electra):
    model = read_hugging_face(str(folder("discriminator", OURS)))
    assert_same_weights(model.weights, electra(("generator",)).weights)
    assert (model.generator, model.notes) == (None, ())
    assert (model.objective, model.step, model.facts) == ("electra_15", 9, {"data": ["5ea"]})


def test_code_in_a_folder_is_ignored(folder, electra, tmp_path):
    place = folder("discriminator", {"auto_map": {"AutoModel": "modeling.Electra"}, "trust_remote_code": True})
    (place / "modeling.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\nclass Electra: ...")
    assert_same_weights(read_hugging_face(str(place)).weights, electra(("generator",)).weights)
    assert not (tmp_path / "ran").exists()


def test_a_masked_language_model_alone_gives_a_warning(folder, electra):
    model = read_hugging_face(str(folder("generator", OURS)))
    assert model.objective == "bert_mlm" and model.encoder == electra().generator
    assert "is a masked language model alone" in model.notes[0]


@pytest.mark.parametrize(
    ("of_encoder", "of_head", "part"),
    [
        ("", None, ""),
        ("electra.", None, ""),
        ("_orig_mod.", None, "'_orig_mod.' before the names"),
        ("model.electra.", None, "'model.' before the names"),
        ("module._orig_mod.electra.", "module._orig_mod.", "'module._orig_mod.' before the names"),
        ("module.electra.", "", "without it: discriminator_predictions.dense.bias"),
        ("electra._orig_mod.", "", "without it: discriminator_predictions.dense.bias"),
    ],
)
def test_what_a_wrapper_puts_before_names_is_left_out(folder, networks, electra, of_encoder, of_head, part):
    tensors = dict.fromkeys(networks["discriminator"].tensors)
    for name, value in networks["discriminator"].tensors.items():
        if name.startswith("electra."):
            tensors[of_encoder + name.removeprefix("electra.")] = value
        elif of_head is not None:
            tensors[of_head + name] = value
    model = read_hugging_face(str(folder("discriminator", OURS, tensors)))
    without = ("generator",) if of_head is not None else ("generator", "discriminator")
    assert_same_weights(model.weights, electra(without).weights)
    assert model.objective == ("" if of_head is None else "electra_15")
    assert len(model.notes) == bool(part) and part in "".join(model.notes)


def test_two_networks_in_one_file_are_not_taken_for_one_with_a_prefix(folder, networks):
    tensors = dict.fromkeys(networks["discriminator"].tensors)
    for name, value in networks["discriminator"].tensors.items():
        tensors |= {f"query.{name}": value, f"passage.{name}": value}
    assert f"there is no {TABLE}" in refusal(folder("discriminator", OURS, tensors))


@pytest.fixture
def finetuned(folder, networks):
    """`finetuned({"classifier.bias": ...}, {...})`: a folder of the encoder with these tensors and config entries."""

    def write(head: dict, config: dict | None = None):
        other = {name: None for name in networks["discriminator"].tensors if name.startswith("discriminator_")}
        return folder("discriminator", OURS | (config or {}), other | head)

    return write


SENTENCE_HEAD = {
    "classifier.dense.weight": np.arange(256, dtype=np.float32).reshape(16, 16),
    "classifier.dense.bias": np.ones(16, np.float32),
    "classifier.out_proj.weight": np.arange(48, dtype=np.float32).reshape(3, 16),
    "classifier.out_proj.bias": np.arange(3, dtype=np.float32),
}
TAGGING_HEAD = {"classifier.weight": np.ones([3, 16], np.float32), "classifier.bias": np.arange(3, dtype=np.float32)}


def test_only_the_encoder_of_a_model_with_another_head_is_read(finetuned, electra):
    model = read_hugging_face(str(finetuned({"qa_outputs.bias": np.ones(2, np.float32)})))
    assert_same_weights(model.weights, electra(("generator", "discriminator")).weights)
    assert model.finetuned is None and model.notes[0].endswith("not read: qa_outputs.bias")


@pytest.mark.parametrize(
    ("noted", "is_kept"),
    [
        ({"name": "mrpc"}, False),  # of an older version, without labels
        ({"name": "mnli"}, True),
        ({"name": "squad_v2", "version_2": True}, False),
        ({"name": "topics", "labels": ["a", "b", "c"]}, False),
        ({"name": "topics", "kind": "multi_label", "labels": ["entailment", "neutral", "contradiction"]}, False),
        ({"name": "topics", "kind": "classification", "labels": ["entailment", "neutral", "contradiction"]}, True),
    ],
)
def test_a_note_on_another_head_is_ignored(finetuned, noted, is_kept):
    labels = {"id2label": {"0": "entailment", "1": "neutral", "2": "contradiction"}}
    noted = {"text_columns": ["x", "y"], "max_seq_length": 9} | noted
    note = {"objective": "electra_15", "step": 9, "finetuned": noted}
    model = read_hugging_face(str(finetuned(SENTENCE_HEAD, labels | {"electra_tf": note})))
    found = model.finetuned.name, model.finetuned.task.text_columns, model.finetuned.data.max_seq_length, model.step
    assert found == ((noted["name"], ("x", "y"), 9, 9) if is_kept else ("classification", (), 13, 0))


IDENTITY, SIGMOID = "torch.nn.modules.linear.Identity", "torch.nn.modules.activation.Sigmoid"


@pytest.mark.parametrize(
    ("num_outputs", "config", "kind"),
    [
        (1, {"problem_type": "regression"}, "regression"),
        (1, {}, "multi_label"),
        (1, {"problem_type": "single_label_classification"}, "multi_label"),
        (1, {"sentence_transformers": {"activation_fn": IDENTITY, "version": "5.0"}}, "regression"),
        (1, {"sbert_ce_default_activation_function": IDENTITY}, "regression"),
        (1, {"sbert_ce_default_activation_function": SIGMOID}, "multi_label"),
        (3, {"sbert_ce_default_activation_function": SIGMOID}, "multi_label"),
        (3, {"problem_type": "multi_label_classification"}, "multi_label"),
        (3, {}, "classification"),
        (3, {"sentence_transformers": {"activation_fn": IDENTITY}}, "classification"),
    ],
)
def test_a_head_is_read_as_the_kind_that_computes_what_its_library_does(finetuned, num_outputs, config, kind):
    head = SENTENCE_HEAD | {name: SENTENCE_HEAD[name][:num_outputs] for name in SENTENCE_HEAD if "out_proj" in name}
    model = read_hugging_face(str(finetuned(head, config)))
    task = model.finetuned.task
    labels = () if kind == "regression" else ("LABEL_0", "LABEL_1", "LABEL_2")[:num_outputs]
    assert (task.kind, task.labels, task.head, model.notes) == (kind, labels, "huggingface", ())
    assert (task.min_value, task.max_value) == (0, 1)
    kernel = model.weights[f"task_specific/{kind}/hidden/kernel"]
    np.testing.assert_array_equal(kernel, SENTENCE_HEAD["classifier.dense.weight"].T)


def test_the_activation_of_a_cross_encoder_may_be_in_a_file_of_its_own(finetuned):
    place = finetuned(SENTENCE_HEAD, {"sentence_transformers": {"version": "5.0"}})
    (place / "config_sentence_transformers.json").write_text(f'{{"activation_fn": "{SIGMOID}"}}')
    assert read_hugging_face(str(place)).finetuned.task.kind == "multi_label"


@pytest.mark.parametrize(
    ("noted", "labels", "scheme"),
    [
        (None, "O B-X I-X", "iob2"),
        (None, "S-X B-X I-X", "bioes"),
        (None, "NOUN VERB X", "plain"),
        ("iob1", "O B-X I-X", "iob1"),
        ("iob1", "NOUN VERB X", "plain"),  # the tags do not belong to the noted scheme
        ("plain", "O B-X I-X", "iob2"),
    ],
)
def test_a_token_classifier_is_read_as_tagging(finetuned, noted, labels, scheme):
    config = {"id2label": dict(zip("012", labels.split(), strict=True)), "classifier_dropout": 0.3}
    if noted:
        config["electra_tf"] = {"finetuned": {"name": "tagging", "max_seq_length": 12, "scheme": noted}}
    task = read_hugging_face(str(finetuned(TAGGING_HEAD, config))).finetuned.task
    assert (task.kind, task.labels, task.scheme, task.dropout) == ("tagging", tuple(labels.split()), scheme, 0.3)


def test_an_answering_head_is_read_with_independent_starts_and_ends(finetuned):
    head = {"qa_outputs.weight": np.arange(32, dtype=np.float32).reshape(2, 16), "qa_outputs.bias": np.float32([3, 4])}
    model = read_hugging_face(str(finetuned(head)))
    task, scope = model.finetuned.task, "task_specific/question_answering"
    assert (task.kind, task.version_2, task.joint_prediction, model.notes) == ("question_answering", False, False, ())
    for column, layer in enumerate(("dense", "dense_1")):
        np.testing.assert_array_equal(model.weights[f"{scope}/{layer}/kernel"][:, 0], head["qa_outputs.weight"][column])


CHOICE_HEAD = {"classifier.weight": np.ones([1, 16], np.float32), "classifier.bias": np.float32([4])}
SUMMARY = {"sequence_summary.summary.weight": np.ones([16, 16]), "sequence_summary.summary.bias": np.ones(16)}
LINEAR = {"architectures": ["ElectraForMultipleChoice"], "summary_use_proj": False, "summary_activation": ""}


def test_a_linear_head_of_multiple_choice_is_known_by_its_class(finetuned):
    model = read_hugging_face(str(finetuned(CHOICE_HEAD, LINEAR)))
    task = model.finetuned.task
    assert (task.kind, task.head, task.dropout, model.notes) == ("multiple_choice", "linear", 0.1, ())
    assert model.weights["task_specific/multiple_choice/dense/bias"].tolist() == [4]


TANH = {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}


@pytest.mark.parametrize(
    ("head", "config", "message"),
    [
        (CHOICE_HEAD, LINEAR | {"summary_type": "mean"}, "config.json: summary_type is 'mean', expected 'first'"),
        (CHOICE_HEAD | SUMMARY, {"summary_activation": "tanh"}, "config.json: summary_activation is 'tanh', expected"),
        (SENTENCE_HEAD, TANH, "activation.Tanh"),
        (TAGGING_HEAD, {"id2label": {"0": "a", "1": "a", "2": "b"}}, "config.json: id2label is "),
        (TAGGING_HEAD, {"id2label": {"0": "a", "1": "b", "3": "c"}}, " 3 different labels"),
    ],
)
def test_a_head_that_is_not_computed_or_whose_labels_do_not_fit_is_refused(finetuned, head, config, message):
    assert message in refusal(finetuned(head, config))


def test_tensors_that_electra_does_not_have_are_left_out_and_logged(folder):
    place = folder("discriminator", OURS, {"electra.pooler.dense.bias": np.ones(2, np.float32)})
    (note,) = read_hugging_face(str(place)).notes
    assert note == f"{place}/model.safetensors: not read: electra.pooler.dense.bias"


def test_a_stored_tied_table_is_left_out_and_an_untied_one_refused(folder, networks):
    table = networks["generator"].tensors[TABLE]
    model = read_hugging_face(str(folder("generator", OURS, {"generator_lm_head.weight": table})))
    assert len(model.weights) == len(networks["generator"].tensors)
    untied = folder("generator", OURS, {"generator_lm_head.weight": table + 1}, name="untied")
    assert "generator_lm_head.weight" in refusal(untied)


LAYER = "electra.encoder.layer."


@pytest.mark.parametrize(
    ("config", "missing", "message"),
    [
        ({"hidden_act": "gelu_new"}, [], "hidden_act is 'gelu_new'"),
        ({"model_type": "roberta"}, [], "model_type is 'roberta'"),
        ({"model_type": None, "architectures": None}, [], "model_type is None, expected 'electra' or 'bert'"),
        ({"is_decoder": True}, [], "is_decoder is True, expected False"),
        ({"position_embedding_type": "relative_key"}, [], "position_embedding_type is 'relative_key'"),
        ({"intermediate_size": 1024}, [], "intermediate.dense.weight has shape [14, 6], expected [1024, 6]"),
        (
            {},
            [f"{LAYER}1.output.dense.bias", f"{LAYER}0.attention.self.key.bias"],
            f"there is no {LAYER}0.attention.self.key.bias; there is no {LAYER}1.output.dense.bias",
        ),
    ],
)
def test_a_wrong_configuration_or_missing_tensors_are_named(folder, config, missing, message):
    assert message in refusal(folder("generator", config, dict.fromkeys(missing)))


@pytest.mark.parametrize(
    "sizes", [{"num_hidden_layers": 2**31 - 1}, {"hidden_size": 2**20}, {"intermediate_size": 2**30}]
)
def test_a_network_far_larger_than_its_weights_is_refused_before_it_is_built(folder, sizes):
    assert "model.safetensors is too small for" in refusal(folder("discriminator", sizes))


@pytest.mark.parametrize("named", ["..", "../../{}", "{}"])
def test_a_folder_of_sentence_transformers_cannot_name_files_outside_of_it(folder, tmp_path, named):
    place = folder("discriminator")
    (tmp_path / "config.json").write_text('{"pooling_mode": "secret"}')
    pooling = {"path": named.format(tmp_path if named == "{}" else tmp_path.name), "type": "a.Pooling"}
    (place / "modules.json").write_text(json.dumps([{"path": "", "type": "a.Transformer"}, pooling]))
    assert "secret" not in read_hugging_face(str(place)).pooling


@pytest.mark.parametrize("network", ["discriminator", "generator"])
def test_two_folders_of_one_kind_or_with_different_tokens_are_refused(folder, tmp_path, network):
    folder("discriminator", OURS)
    place = folder(network, OURS, name="generator")
    if network == "generator":
        (place / "vocab.txt").write_bytes(VOCABULARY.replace(b"w7\n", b"w7x\n"))
    assert "are not a discriminator and a generator with one vocabulary and casing" in refusal(tmp_path)


def test_tokens_that_need_a_segmenter_are_refused_without_a_setting_that_makes_clauses_unknown(folder):
    place = folder("discriminator")
    (place / "vocab.txt").write_bytes(VOCABULARY.replace(b"w44\nw45\nw46\n", "東京\n京都\n大阪\n".encode()))
    message = refusal(place)
    assert "segmenter" in message and "tokenize_chinese_chars" not in message
