"""Each signature of each kind of model: operations, warm-up requests, hard texts, TensorFlow's session."""

import functools
import os
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import prediction_log_pb2

from electra_tf.serving.saved_model import WARMUP_FILE
from tests.serving.conftest import HARD_TEXTS, LONG_TEXTS, OF_BYTES, OF_OTHER_BYTES, OF_PIECES, TASKS

pytestmark = pytest.mark.slow

OF_TASKS = {"multiple_choice": "choose", "question_answering": "answer", "regression": "regress", "tagging": "tag"}
SIGNATURES = {
    "pretraining": ("embed", "detect"),
    **{
        kind: (OF_TASKS.get(TASKS[kind.partition(" of ")[0]]["kind"], "classify"), "embed")
        for kind in (*TASKS, f"regression{OF_PIECES}", *(f"squad_v2{of}" for of in (OF_PIECES, OF_BYTES)))
    },
}
every_kind = pytest.mark.parametrize("kind", SIGNATURES)

# The operations of TensorFlow Text that the graphs use. A stock server has them from 2.12 on.
OF_TENSORFLOW_TEXT = {"FastBertNormalize", "FastWordpieceTokenizeWithOffsets", "NormalizeUTF8"}
# Those of a SentencePiece vocabulary.
OF_SENTENCE_PIECE = {
    *("SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp"),
    *("NormalizeUTF8", "NormalizeUTF8WithOffsetsMap", "FindSourceOffsets"),
}  # and of byte-level BPE


@pytest.fixture(scope="module")
def loaded(exported):
    """`loaded("pairs")`: the signatures of its export, loaded once."""
    load = functools.cache(lambda kind: tf.saved_model.load(exported(kind)))  # it must outlive its signatures
    return lambda kind: load(kind).signatures


@every_kind
def test_each_kind_has_its_signatures_and_its_default(kind, loaded):
    own, embed = SIGNATURES[kind]
    assert set(loaded(kind)) == {"serving_default", own, f"{own}_ids", embed, f"{embed}_ids"}
    default = "embed" if kind == "pretraining" else own
    same, outputs = (loaded(kind)[name] for name in (default, "serving_default"))
    assert set(outputs.structured_outputs) == set(same.structured_outputs)
    assert outputs.structured_input_signature == same.structured_input_signature


def graph_in(version_dir: str):
    """The graph of an export."""
    content = Path(version_dir, "saved_model.pb").read_bytes()
    return saved_model_pb2.SavedModel.FromString(content).meta_graphs[0].graph_def


@every_kind
def test_a_graph_uses_core_operations_and_three_of_tensorflow_text(kind, exported):
    """tf.raw_ops has the operations that TensorFlow was built with. Importing a library adds none to it."""
    graph = graph_in(exported(kind))
    functions = graph.library.function
    operations = {node.op for part in (graph.node, *(each.node_def for each in functions)) for node in part}
    operations -= {each.signature.name for each in functions}
    assert len(operations) > 50
    beyond = {operation for operation in operations if not hasattr(tf.raw_ops, operation)} - {"_Arg", "_Retval"}
    assert not [operation for operation in operations if "PyFunc" in operation]
    if kind.endswith((OF_PIECES, OF_BYTES)):
        assert beyond <= OF_SENTENCE_PIECE
        assert "SentencepieceOp" in beyond
    else:
        assert beyond <= OF_TENSORFLOW_TEXT
        assert "FastWordpieceTokenizeWithOffsets" in beyond


def test_all_signatures_share_two_functions_with_the_layers(exported):
    functions = graph_in(exported("tagging")).library.function
    layers = [function for function in functions if "Erf" in {node.op for node in function.node_def}]  # of GELU
    assert len(layers) == 2  # for half of a batch, and for two halves of a sequence
    assert all(function.attr["_noinline"].b for function in layers)


def _inputs(function, texts: list, turn: int = 0) -> dict[str, tf.Tensor]:
    """The texts for each text input of a signature, rotated by `turn` so that the texts of a row differ.

    Of choices there are two, a text and "".
    """
    specs = sorted(tf.nest.flatten(function.structured_input_signature), key=lambda spec: spec.name)
    rotated = {spec: tf.constant(texts[at * turn :] + texts[: at * turn], tf.string) for at, spec in enumerate(specs)}
    return {
        spec.name: values if len(spec.shape) == 1 else tf.stack([values, tf.zeros_like(values)], axis=1)
        for spec, values in rotated.items()
    }


@every_kind
@pytest.mark.parametrize("texts", [HARD_TEXTS, LONG_TEXTS, []], ids=["hard", "long", "none"])
def test_every_signature_accepts_any_texts(kind, texts, loaded):
    for name in SIGNATURES[kind]:
        function = loaded(kind)[name]
        for turn in (0, 1):
            outputs = function(**_inputs(function, texts, turn))
            assert {len(value) for value in outputs.values()} == {len(texts)}
            for value in outputs.values():
                if value.dtype == tf.string:
                    assert all(text.decode() is not None for text in value.numpy().reshape(-1))
                else:
                    assert np.isfinite(value).all()  # JSON has nothing else
            if "num_tokens" in outputs:
                width = outputs["tokens"].shape[1]
                assert width == max(outputs["num_tokens"].numpy(), default=width)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (dict.fromkeys(("input_ids", "input_mask", "segment_ids"), [[1] * 41]), "more than 40 tokens"),
        ({"input_mask": [[1, 1, 1]]}, "input_mask has another shape than input_ids"),
        ({"input_mask": [[1, 2, 1], [1, 1, 1]]}, "input_mask has a number that is not below 2"),
        ({"input_ids": [[2, 99, 3], [2, 5, 3]]}, "input_ids has a number that is not below 3"),
    ],
)
def test_ids_of_wrong_shape_or_range_are_refused(loaded, changes, message):
    inputs = {"input_ids": [[2, 9, 3], [2, 5, 3]], "input_mask": [[1, 1, 1]] * 2, "segment_ids": [[0, 0, 0]] * 2}
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        loaded("tagging")["embed_ids"](**{name: tf.constant(rows) for name, rows in (inputs | changes).items()})


def test_a_model_whose_tokenizer_runs_in_no_graph_is_served_with_ids(loaded, finetuned):
    signatures, model = loaded(f"squad_v2{OF_OTHER_BYTES}"), finetuned(f"squad_v2{OF_OTHER_BYTES}")
    assert set(signatures) == {"serving_default", "answer_ids", "embed_ids"}
    ids = tf.constant([model.tokenizer.tokenize(["the cat"]).to_list()[0]], tf.int32)
    batch = {"input_ids": ids, "input_mask": tf.ones_like(ids), "segment_ids": tf.zeros_like(ids)}
    outputs = signatures["serving_default"](**batch)
    for name, value in signatures["answer_ids"](**batch).items():
        np.testing.assert_array_equal(outputs[name], value)
    vectors = model.task.encoder(**batch).sequence_output
    np.testing.assert_allclose(signatures["embed_ids"](**batch)["sequence_output"], vectors, atol=1e-5)


def _warmup_requests(version_dir: str) -> list[tuple[str, dict[str, np.ndarray]]]:
    records = tf.data.TFRecordDataset(os.path.join(version_dir, WARMUP_FILE)).as_numpy_iterator()
    requests = [prediction_log_pb2.PredictionLog.FromString(record).predict_log.request for record in records]
    arrays = [{name: tf.make_ndarray(value) for name, value in request.inputs.items()} for request in requests]
    return [(each.model_spec.signature_name, values) for each, values in zip(requests, arrays, strict=True)]


@every_kind
def test_warmup_requests_and_hard_texts_have_equal_outputs_of_a_session_and_of_the_functions(kind, exported, loaded):
    """TensorFlow Serving's way of running a SavedModel is TensorFlow's C++ session on the whole graph."""
    requests, functions = _warmup_requests(exported(kind)), loaded(kind)
    assert {name for name, _ in requests} == set(functions)
    of_texts = [name for name in functions if not name.endswith("_ids")]
    requests += [(name, _inputs(functions[name], HARD_TEXTS, turn=1)) for name in of_texts]
    expected = [functions[name](**tf.nest.map_structure(tf.constant, inputs)) for name, inputs in requests]
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], exported(kind)).signature_def
        for (name, inputs), of_function in zip(requests, expected, strict=True):
            assert {len(value) for value in of_function.values()} == {len(value) for value in inputs.values()}
            feed = {signatures[name].inputs[key].name: np.asarray(values) for key, values in inputs.items()}
            outputs = {key: info.name for key, info in signatures[name].outputs.items()}
            _assert_close(session.run(outputs, feed), {key: value.numpy() for key, value in of_function.items()})


def _assert_close(outputs: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert outputs.keys() == expected.keys()
    for key, value in expected.items():
        assert outputs[key].shape == value.shape
        if np.issubdtype(value.dtype, np.floating):
            # Logits here are up to 30, and the products' order of summation differs: some units of 2e-6 each.
            # Softmax and sigmoid have slopes of up to 1/4.
            is_logit = "log" in key or "score" in key or key == "value"
            tolerance = 1e-5 if is_logit else 2.5e-6 if "probabilit" in key else 1e-6
            np.testing.assert_allclose(outputs[key], value, rtol=1e-6, atol=tolerance, err_msg=key)
        else:
            assert outputs[key].tolist() == value.tolist()
