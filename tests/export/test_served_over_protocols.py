"""Every signature through examples/serving: both clients get the outputs of the served function."""

import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "serving"))  # as where scripts run

import grpc_client
import rest_client
from batching import BatchedModel
from serve_locally import Server

TEXTS = ["The old seaside (sea) who?", "ΣΙΣ σ é E\u0301 東京 d. İ", ""]
CASES = [
    ("pretraining", "embed", ("text",)),
    ("pretraining", "detect", ("text",)),
    ("classification", "classify", ("text",)),
    ("pairs", "classify", ("text", "text_pair")),
    ("multi_label", "classify", ("text",)),
    ("regression", "regress", ("text",)),
    ("tagging", "tag", ("text",)),
    ("squad_v2", "answer", ("question", "context")),
]


@pytest.mark.slow
@pytest.mark.parametrize("kind, signature, names", CASES, ids=[f"{kind}-{name}" for kind, name, _ in CASES])
def test_both_clients_get_the_outputs_of_the_function(served, exported, kind, signature, names):
    inputs = dict(zip(names, (TEXTS, TEXTS[::-1]), strict=False))
    expected = getattr(served(kind), signature)(*(tf.constant(inputs[name]) for name in names))
    expected = {name: value.numpy() for name, value in expected.items()}
    export = str(Path(exported(kind)).parent)
    with Server(BatchedModel("electra", export, max_batch_size=8, batch_timeout=0.0), 0, 0) as server:
        with grpc_client.open_channel(f"127.0.0.1:{server.port}") as channel:
            over_grpc = grpc_client.predict(channel, "electra", signature, inputs, timeout=100)
        address = f"http://127.0.0.1:{server.rest_api_port}"
        over_rest = rest_client.predict(address, "electra", signature, inputs, timeout=100)
    assert over_grpc.keys() == expected.keys()
    for name, value in expected.items():
        rows = [row[name] for row in over_rest] if len(expected) > 1 else over_rest
        if value.dtype == object:
            assert over_grpc[name].tolist() == value.tolist(), name
            assert np.char.encode(np.array(rows, str), "utf-8").tolist() == value.astype(bytes).tolist(), name
        else:
            assert over_grpc[name].dtype == value.dtype
            np.testing.assert_allclose(over_grpc[name], value, atol=1e-5, err_msg=name)
            np.testing.assert_allclose(np.array(rows), value, atol=1e-5, err_msg=name)
