"""The configuration files of TensorFlow Serving."""

import re
from pathlib import Path

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

FOLDER = Path(__file__).parents[3] / "examples" / "serving"


def test_the_server_finds_the_model_by_its_configuration():
    text = (FOLDER / "models.config").read_text()
    (model,) = text_format.Parse(text, model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("electra", "/models/electra", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_of_any_size_are_allowed_and_masks_are_not_padded_with_ones():
    values = dict(re.findall(r"^(\w+) \{ value: (\d+) \}", (FOLDER / "batching.config").read_text(), re.MULTILINE))
    assert values.pop("max_batch_size") == "128"
    # Neither allowed_batch_sizes nor pad_variable_length_inputs.
    assert values.keys() == {"batch_timeout_micros", "num_batch_threads", "max_enqueued_batches"}


def test_metrics_are_served_for_prometheus():
    config = (FOLDER / "monitoring.config").read_text().split("\n", 1)[1]
    assert config.startswith('prometheus_config {\n  enable: true\n  path: "/monitoring/prometheus/metrics"')
