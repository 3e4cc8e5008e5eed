import subprocess
import sys
from pathlib import Path

import grpc
import grpc_client
import pytest
import tensorflow as tf
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    get_model_status_pb2,
    model_service_pb2_grpc,
    predict_pb2,
    prediction_service_pb2_grpc,
)


@pytest.fixture(scope="module")
def channel(server):
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as opened:
        yield opened


@pytest.fixture(scope="module")
def stub(channel):
    return prediction_service_pb2_grpc.PredictionServiceStub(channel)


def request(name="toy", signature="", **inputs) -> predict_pb2.PredictRequest:
    tensors = {key: tf.make_tensor_proto(value) for key, value in inputs.items()}
    return predict_pb2.PredictRequest(model_spec={"name": name, "signature_name": signature}, inputs=tensors)


def status_of(call, *arguments) -> tuple[str, str]:
    with pytest.raises(grpc.RpcError) as caught:
        call(*arguments, timeout=20)
    return caught.value.code().name, caught.value.details()


def test_the_client_prints_outputs_and_errors_in_lines(server, capsys):
    flags = [f"--server=127.0.0.1:{server.port}", "--model_name=toy", "--timeout=20"]
    assert grpc_client.main([*flags, "--signature=serving_default", "a bc"]) == 0
    assert "num_words [1]: [2]\n" in (printed := capsys.readouterr().out)
    assert "words [1, 2]: [['a' 'bc']]" in printed
    assert grpc_client.main([*flags, "--signature=none", "a"]) == 1
    printed = capsys.readouterr().err
    assert printed.endswith('FAILED_PRECONDITION: Serving signature key "none" not found.\n')


def test_the_client_does_not_import_tensorflow(server):
    program = """
import sys, grpc_client
with grpc_client.open_channel(sys.argv[1]) as channel:
    outputs = grpc_client.predict(channel, "toy", "", {"text": ["a ü", "b"]}, 20)
assert outputs["words"].tolist() == [[b"a", "ü".encode()], [b"b", b""]]
assert outputs["num_words"].tolist() == [2, 1]
assert outputs["rows_of_batch"].tolist() == [2, 2]
assert "tensorflow" not in sys.modules and "tensorflow.python" not in sys.modules
"""
    folder = Path(grpc_client.__file__).parent
    command = [sys.executable, "-c", program, f"127.0.0.1:{server.port}"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]


def test_a_wrong_request_is_answered_with_a_status(stub):
    code, details = status_of(stub.Predict, request(name="other", text=["a"]))
    assert code == "NOT_FOUND" and details.startswith("Servable not found for request: Latest(other)")
    code, details = status_of(stub.Predict, request(texts=["a"]))
    assert code == "INVALID_ARGUMENT" and "Sent extra: {texts}" in details


def test_only_requested_outputs_are_returned(stub):
    sent = request(text=["a b"])
    sent.output_filter.append("num_words")
    answer = stub.Predict(sent, timeout=20)
    assert list(answer.outputs) == ["num_words"]
    assert (answer.model_spec.name, answer.model_spec.version.value) == ("toy", 3)
    sent.output_filter.append("none")
    assert status_of(stub.Predict, sent) == ("INVALID_ARGUMENT", "output tensor alias not found in signature: none")


def test_metadata_and_status_name_signatures_and_version(stub, channel):
    asked = get_model_metadata_pb2.GetModelMetadataRequest(model_spec={"name": "toy"}, metadata_field=["signature_def"])
    answer = stub.GetModelMetadata(asked, timeout=20)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    assert answer.metadata["signature_def"].Unpack(signatures)
    assert set(signatures.signature_def) == {"serving_default", "weigh"}
    assert signatures.signature_def["weigh"].inputs["ids"].dtype == tf.int32.as_datatype_enum
    models = model_service_pb2_grpc.ModelServiceStub(channel)
    state = models.GetModelStatus(get_model_status_pb2.GetModelStatusRequest(model_spec={"name": "toy"}), timeout=20)
    assert [(each.version, each.state) for each in state.model_version_status] == [(3, 30)]  # AVAILABLE
