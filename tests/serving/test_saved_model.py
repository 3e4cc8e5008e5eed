"""The SavedModel: the outputs of its signatures, in this process and in one without the project, and its files."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.files import names_in, read_bytes
from electra_tf.serving.saved_model import export_saved_model, served_model
from electra_tf.serving.text_encoder import TextEncoder
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.served import ServingShapes
from electra_tf.text.vocabulary import BERT_TEXT

TEXTS = ["Old SEA", "old seaside who"]  # "seaside" is two tokens


@pytest.fixture(scope="module")
def text_encoder(served) -> TextEncoder:
    return served("pretraining")


@pytest.fixture(scope="module")
def version_dir(exported) -> str:
    return exported("pretraining")


@pytest.fixture(scope="module")
def objective(tiny_config, word_tokenizer):
    """`objective(name="electric")`: one for the vocabulary of the tokenizer."""
    vocab_size = word_tokenizer.vocabulary.size
    return lambda **settings: build_objective(tiny_config(encoder={"vocab_size": vocab_size}, objective=settings))


def test_a_model_with_nan_weights_is_not_exported(objective, word_tokenizer):
    broken, name = objective(), "layer_0/attention_self/query/kernel"
    (weight,) = (each for each in broken.encoder.trainable_variables if name in each.path)
    weight.assign(tf.fill(weight.shape, float("nan")))
    with pytest.raises(UserError, match="the model: .* holds NaN or infinity"):
        served_model(broken, word_tokenizer, 6)


@pytest.mark.slow
def test_a_process_without_the_project_detects_from_raw_text(version_dir, text_encoder, tmp_path):
    program = """
import json, sys, tensorflow as tf, tensorflow_text
assert not any(name.split('.')[0] in ('electra_tf', 'tf_keras') for name in sys.modules)
outputs = tf.saved_model.load(sys.argv[1]).signatures['detect'](text=tf.constant(json.loads(sys.argv[2])))
print(json.dumps({name: value.numpy().tolist() for name, value in outputs.items()}, default=bytes.decode))
"""
    command = [sys.executable, "-I", "-c", program, version_dir, json.dumps(TEXTS)]
    environment = {name: value for name, value in os.environ.items() if name != "TF_USE_LEGACY_KERAS"}
    finished = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, env=environment)
    assert finished.returncode == 0, finished.stderr[-2000:]
    outputs = json.loads(finished.stdout.splitlines()[-1])
    assert outputs["tokens"] == [
        ["[CLS]", "old", "sea", "[SEP]", "", ""],
        ["[CLS]", "old", "sea", "##side", "who", "[SEP]"],
    ]
    expected = text_encoder.detect(tf.constant(TEXTS))["replaced_probability"]
    np.testing.assert_allclose(outputs["replaced_probability"], expected, atol=1e-6)


def test_detect_equals_the_objective_on_the_ids(text_encoder):
    ids, mask = tf.constant([[2, 24, 22, 3, 0, 0], [2, 24, 22, 23, 21, 3]]), tf.constant([[1, 1, 1, 1, 0, 0], [1] * 6])
    inputs = {"input_ids": ids, "input_mask": mask, "segment_ids": tf.zeros_like(ids)}
    expected = text_encoder.get_task().detect(inputs) * tf.cast(mask, tf.float32)
    served = text_encoder.detect(tf.constant(TEXTS))["replaced_probability"]
    np.testing.assert_allclose(served, expected, atol=1e-6)
    assert served[0, 4:].numpy().tolist() == [0.0, 0.0]


def test_embed_returns_the_first_vector_as_pooled_and_zeros_in_padding(text_encoder):
    outputs = {name: value.numpy() for name, value in text_encoder.embed(tf.constant(TEXTS)).items()}
    assert outputs["sequence_output"].shape == (2, 6, 16)
    np.testing.assert_array_equal(outputs["pooled_output"], outputs["sequence_output"][:, 0])
    assert not outputs["sequence_output"][0, 4:].any()
    assert outputs["sequence_output"][1, 5].any()


def test_the_default_signature_is_embed(version_dir):
    signatures = tf.saved_model.load(version_dir).signatures
    assert sorted(signatures) == ["detect", "detect_ids", "embed", "embed_ids", "serving_default"]
    default, embed = (signatures[name](text=tf.constant(TEXTS)) for name in ("serving_default", "embed"))
    assert set(default) == set(embed) == {"pooled_output", "sequence_output", "tokens", "num_tokens", "truncated"}
    np.testing.assert_array_equal(default["pooled_output"], embed["pooled_output"])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_mlm", "all_tokens_mlm", "electric"])
def test_an_objective_is_exported_with_detect_only_if_it_has_a_discriminator(objective, word_tokenizer, tmp_path, name):
    text_encoder = TextEncoder(objective(name=name), word_tokenizer, ServingShapes(10))
    exported = tf.saved_model.load(str(export_saved_model(text_encoder, tmp_path / "model"))).signatures
    names = ["embed", "detect"] if name == "electric" else ["embed"]
    assert set(exported) == {"serving_default", *names, *(f"{name}_ids" for name in names)}
    for signature in names:
        expected = getattr(text_encoder, signature)(tf.constant(TEXTS))
        output = "replaced_probability" if signature == "detect" else "sequence_output"
        served = exported[signature](text=tf.constant(TEXTS))
        np.testing.assert_allclose(served[output], expected[output], atol=1e-6)


def test_only_the_weights_that_are_served_are_in_the_export(version_dir, text_encoder):
    prefix = os.path.join(version_dir, "variables", "variables")
    sizes = [np.prod(shape) for _, shape in tf.train.list_variables(prefix)]
    objective = text_encoder.get_task()
    served = [*objective.discriminator.variables, *objective.replaced_token_head.variables]
    # The checkpoint's own bookkeeping is one scalar string.
    assert sum(sizes) == sum(np.prod(variable.shape) for variable in served) + 1


def test_an_existing_export_is_replaced_on_request_without_a_word_of_tensorflow(version_dir, text_encoder, caplog):
    caplog.set_level("INFO", "tensorflow")
    output_dir = Path(version_dir).parent
    assert export_saved_model(text_encoder, output_dir, overwrite=True) == version_dir
    assert names_in(output_dir) == ["1"]
    assert ".unfinished" not in caplog.text  # the directory that TensorFlow writes to first


class Nothing(tf.Module):
    """A model without a signature, which is written at once."""

    tokenizer = SimpleNamespace(settings=BERT_TEXT)

    def signatures(self) -> dict:
        return {}


def _store(version_dir, model, content: str) -> None:
    for name in ("saved_model.pb", "variables/variables.index"):
        tf.io.write_file(f"{version_dir}/{name}", content)


@pytest.fixture
def small_exports(monkeypatch) -> None:
    """Each export writes a file with `new`."""
    monkeypatch.setattr("electra_tf.serving.saved_model._write_warmup_requests", lambda *_: None)
    monkeypatch.setattr(tf.saved_model, "save", lambda model, path, **_: _store(path, model, "new"))


def _version(output_dir) -> bytes:
    return read_bytes(f"{output_dir}/1/variables/variables.index")


def _fail_after_a_part(model, path, **_):
    _store(path, model, "part")
    raise tf.errors.ResourceExhaustedError(None, None, "no space")


def test_an_export_without_the_serving_api_has_no_warm_up_requests_and_says_so(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(tf.saved_model, "save", lambda model, path, **_: _store(path, model, "new"))
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    export_saved_model(Nothing(), tmp_path)
    assert names_in(tmp_path / "1") == ["saved_model.pb", "variables"]
    assert "no warm-up requests" in caplog.text and "serving" in caplog.text


@pytest.mark.parametrize(("place", "older"), [("ram://export_retried", []), ("{}/new", []), ("{}", ["1"])])
def test_a_failed_export_leaves_what_was_there_and_is_retried(small_exports, tmp_path, monkeypatch, place, older):
    output_dir = place.format(tmp_path)
    if older:
        _store(tmp_path / "1", None, "old")
    with monkeypatch.context() as patched:
        patched.setattr(tf.saved_model, "save", _fail_after_a_part)
        with pytest.raises(UserError, match=f"{output_dir}/1 .*no space"):
            export_saved_model(Nothing(), output_dir, overwrite=bool(older))
    assert names_in(output_dir) == older and (not older or _version(output_dir) == b"old")
    export_saved_model(Nothing(), output_dir, overwrite=bool(older))
    assert (_version(output_dir), names_in(output_dir)) == (b"new", ["1"])


def test_a_version_is_replaced_beside_the_servers_files_and_no_other_file(small_exports, tmp_path):
    _store(tmp_path / "1", None, "old")
    (tmp_path / "models.config").write_text("mine")
    export_saved_model(Nothing(), tmp_path, overwrite=True)
    assert (_version(tmp_path), (tmp_path / "models.config").read_text()) == (b"new", "mine")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="already holds .*notes.txt"):
        export_saved_model(Nothing(), tmp_path, overwrite=True)


def test_a_version_on_a_remote_store_is_never_removed(small_exports):
    _store("ram://export_kept/1", None, "old")
    with pytest.raises(UserError, match="overwrite: ram://export_kept .*new version number, .* ram://export_kept/2"):
        export_saved_model(Nothing(), "ram://export_kept", overwrite=True)
    with pytest.raises(UserError, match="already holds 1; give a new directory"):
        export_saved_model(Nothing(), "ram://export_kept")
    assert _version("ram://export_kept") == b"old"


def test_replacing_a_link_keeps_its_target(small_exports, tmp_path):
    _store(tmp_path.parent / "elsewhere", None, "old")
    os.symlink(tmp_path.parent / "elsewhere", tmp_path / "1")
    export_saved_model(Nothing(), tmp_path, overwrite=True)
    assert _version(tmp_path) == b"new" and os.listdir(tmp_path) == ["1"]
    assert (tmp_path.parent / "elsewhere/variables/variables.index").read_text() == "old"


def test_an_export_is_written_to_any_filesystem_of_tensorflow(text_encoder):
    version_dir = export_saved_model(text_encoder, "ram://exports/model")
    assert (version_dir, names_in("ram://exports/model")) == ("ram://exports/model/1", ["1"])
    assert "detect" in tf.saved_model.load(version_dir).signatures
    with pytest.raises(UserError, match="output_dir=foo://x"):
        export_saved_model(text_encoder, "foo://x")
