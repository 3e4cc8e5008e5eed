"""The configuration files of TensorFlow Serving: read with its own messages where its package has them."""

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow_serving.config import model_server_config_pb2

from electra_tf.config.errors import UserError
from electra_tf.export.saved_model import export_saved_model
from electra_tf.export.served_model import ServingShapes
from electra_tf.export.server_files import server_files

_INT64, _BOOL, _STRING, _MESSAGE = 3, 8, 9, 11
_OPTIONAL, _REPEATED = 1, 3


def message(**fields):
    """A message that pip's package lacks: fields by name with their type, a list of it, or the fields of a message."""
    file = descriptor_pb2.FileDescriptorProto(name="test.proto", syntax="proto3")
    _describe(file.message_type.add(name="Message"), fields, "Message")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("Message"))()


def _describe(described: descriptor_pb2.DescriptorProto, fields: dict, full_name: str) -> None:
    for number, (name, kind) in enumerate(fields.items(), start=1):
        field = described.field.add(name=name, number=number, label=_REPEATED if isinstance(kind, list) else _OPTIONAL)
        if isinstance(kind, dict):
            field.type, field.type_name = _MESSAGE, f".{full_name}.Of_{name}"
            _describe(described.nested_type.add(name=f"Of_{name}"), kind, f"{full_name}.Of_{name}")
        else:
            field.type = kind[0] if isinstance(kind, list) else kind


def batching_parameters():
    """Fields of session_bundle_config.proto of TensorFlow Serving 2.20."""
    wrapped = ("max_batch_size", "batch_timeout_micros", "max_enqueued_batches", "num_batch_threads")
    others = {"allowed_batch_sizes": [_INT64], "pad_variable_length_inputs": _BOOL}
    return message(**{name: {"value": _INT64} for name in wrapped}, **others)


def test_the_server_finds_the_model_by_its_configuration():
    config = text_format.Parse(
        server_files(ServingShapes(16))["models.config"], model_server_config_pb2.ModelServerConfig()
    )
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("electra", "/models/electra", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


def test_without_a_static_batch_size_any_size_is_allowed():
    parameters = text_format.Parse(server_files(ServingShapes(16))["batching.config"], batching_parameters())
    assert parameters.max_batch_size.value == 128
    assert list(parameters.allowed_batch_sizes) == []
    assert not parameters.pad_variable_length_inputs  # the server would fill up a mask with ones


def test_with_a_static_batch_size_no_other_size_is_allowed():
    text = server_files(ServingShapes(24, batch_size=5, pad_to_max_length=True))["batching.config"]
    parameters = text_format.Parse(text, batching_parameters())
    assert (parameters.max_batch_size.value, list(parameters.allowed_batch_sizes)) == (5, [5])
    assert "take rows of 24\n# tokens." in text


def test_metrics_are_served_for_prometheus():
    config = message(prometheus_config={"enable": _BOOL, "path": _STRING})
    text_format.Parse(server_files(ServingShapes(16))["monitoring.config"], config)
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == "/monitoring/prometheus/metrics"


def test_server_files_are_written_beside_the_version_and_replaced_only_on_request(served, tmp_path):
    files = server_files(ServingShapes(16))
    export_saved_model(served("tagging"), tmp_path, server_files=files)
    assert {path.name for path in tmp_path.iterdir()} == {"1", *files}
    with pytest.raises(UserError, match="already holds 1, .*monitoring.config; give a new directory, or --overwrite"):
        export_saved_model(served("tagging"), tmp_path, server_files=files)
    (tmp_path / "models.config").write_text("mine")
    export_saved_model(served("tagging"), tmp_path, overwrite=True, server_files=files)
    assert (tmp_path / "models.config").read_text() == files["models.config"]
