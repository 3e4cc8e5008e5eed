import functools
import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import rest_client
import serve_locally
from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from tests.byte_level import byte_level

SERVING = Path(serve_locally.__file__).parent


@pytest.fixture(scope="module")
def address(server) -> str:
    return f"http://127.0.0.1:{server.rest_api_port}"


def ask(url: str, body: dict | bytes | None = None) -> tuple[int, dict]:
    content = json.dumps(body).encode() if isinstance(body, dict) else body
    try:
        with urllib.request.urlopen(urllib.request.Request(url, content), timeout=20) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def predict(address: str, body: dict | bytes) -> tuple[int, dict]:
    return ask(f"{address}/v1/models/toy:predict", body)


def test_rows_are_returned_as_objects_and_bytes_as_base64(address):
    rows = predict(address, {"instances": ["a bc", {"b64": "ZA=="}]})[1]["predictions"]
    assert [row["words"] for row in rows] == [["a", "bc"], ["d", ""]]
    assert [row["num_words"] for row in rows] == [2, 1]
    assert rows[1]["whole_bytes"] == {"b64": "ZA=="}


def test_columns_are_answered_with_columns(address):
    assert predict(address, {"inputs": ["a b", "c"]})[1]["outputs"]["num_words"] == [2, 1]
    body = {"signature_name": "weigh", "inputs": {"text": ["ab", "c"], "ids": [[3, 4], [5, 6]]}}
    assert predict(address, body) == (200, {"outputs": [9.0, 12.0]})


WEIGH = {"signature_name": "weigh"}
ERRORS = [
    (b"{", "JSON Parse error"),
    ({"signature_name": "none", "instances": ["a"]}, 'Serving signature name: "none" not found in signature def'),
    ({"instances": ["a", ["b"]]}, "differ in shape"),
    ({**WEIGH, "instances": [{"text": "a"}, {"ids": [1]}]}, "the same inputs"),
    ({**WEIGH, "inputs": {"text": ["a"], "ids": [[1 << 40]]}}, "input ids"),
]


@pytest.mark.parametrize("body, message", ERRORS)
def test_a_wrong_request_is_answered_with_an_error_object(address, body, message):
    status, answer = predict(address, body)
    assert (status, set(answer)) == (400, {"error"}) and message in answer["error"]


def test_another_version_is_not_found_and_another_path_is_malformed(address):
    status, answer = ask(f"{address}/v1/models/toy/versions/2")
    assert status == 404 and answer["error"].startswith("Servable not found for request: ")
    assert ask(f"{address}/v1/models/toy:classify")[0] == 400


def test_status_and_metadata(address):
    states = ask(f"{address}/v1/models/toy/versions/3")[1]["model_version_status"]
    assert [(state["version"], state["state"]) for state in states] == [("3", "AVAILABLE")]
    signatures = ask(f"{address}/v1/models/toy/metadata")[1]["metadata"]["signature_def"]["signature_def"]
    assert signatures["weigh"]["inputs"]["ids"]["dtype"] == "DT_INT32"


def test_the_client_prints_one_line_for_each_row_and_for_an_error(address, capsys):
    flags = [f"--server={address}", "--model_name=toy", "--timeout=20"]
    assert rest_client.main([*flags, "--signature=serving_default", "a bc", "d"]) == 0
    assert [json.loads(line)["num_words"] for line in capsys.readouterr().out.splitlines()] == [2, 1]
    assert rest_client.main([*flags, "--signature=none", "a"]) == 1
    error = f'error: {address}: 400: Serving signature name: "none" not found in signature def\n'
    assert capsys.readouterr().err == error


def test_the_client_needs_python_alone(address):
    without_packages = [sys.executable, "-I", "-S", rest_client.__file__]
    flags = [f"--server={address}", "--model_name=toy", "--timeout=20", "--signature=serving_default", "a bc"]
    done = subprocess.run([*without_packages, *flags], capture_output=True, text=True, timeout=100)
    assert json.loads(done.stdout)["num_words"] == 2, done.stderr


def test_the_client_makes_ids_with_a_tokenizer(tmp_path):
    (tmp_path / "tokenizer.json").write_bytes(byte_level())
    make = functools.partial(rest_client.ids_of, str(tmp_path / "tokenizer.json"))
    assert make({"text": ["the cat", "on"]}) == {
        "input_ids": [[269, 257, 261, 270], [269, 266, 270, 0]],
        "input_mask": [[1, 1, 1, 1], [1, 1, 1, 0]],
        "segment_ids": [[0] * 4] * 2,
    }
    pairs = make({"question": ["on"], "context": ["the cat"]})
    assert pairs["input_ids"] == [[269, 266, 270, 257, 261, 270]] and pairs["segment_ids"] == [[0, 0, 0, 1, 1, 1]]


@pytest.mark.slow
def test_the_program_serves_until_a_signal_ends_it(toy_export):
    program = [sys.executable, serve_locally.__file__]
    command = [*program, toy_export, "--model_name=toy", "--port=0", "--rest_api_port=0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": ""}) as process:
        assert process.stdout.readline() == "toy version 3: signatures serving_default, weigh\n"
        address = re.search(r"REST on (http://\S+?)/v1", process.stdout.readline())[1]
        assert predict(address, {"inputs": ["a b"]})[1]["outputs"]["num_words"] == [2]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


def test_the_server_finds_the_model_by_its_configuration():
    text = (SERVING / "models.config").read_text()
    (model,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("electra", "/models/electra", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_of_any_size_are_allowed_and_masks_are_not_padded_with_ones():
    values = dict(re.findall(r"^(\w+) \{ value: (\d+) \}", (SERVING / "batching.config").read_text(), re.MULTILINE))
    assert values.pop("max_batch_size") == "128"
    # Neither allowed_batch_sizes nor pad_variable_length_inputs.
    assert values.keys() == {"batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"}


def test_metrics_are_served_for_prometheus():
    config = (SERVING / "monitoring.config").read_text().split("\n", 1)[1]
    assert config.startswith('prometheus_config {\n  enable: true\n  path: "/monitoring/prometheus/metrics"')
