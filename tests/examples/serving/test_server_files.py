"""The configuration files of TensorFlow Serving: read with its own messages where its package has them."""

from pathlib import Path

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from tensorflow_serving.config import model_server_config_pb2

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


def parse(name, into):
    return text_format.Parse((Path(__file__).parents[3] / "examples" / "serving" / name).read_text(), into)


def test_the_server_finds_the_model_by_its_configuration():
    (model,) = parse("models.config", model_server_config_pb2.ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("electra", "/models/electra", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


def test_batches_of_any_size_are_allowed():
    parameters = parse("batching.config", batching_parameters())
    assert parameters.max_batch_size.value == 128
    assert list(parameters.allowed_batch_sizes) == []
    assert not parameters.pad_variable_length_inputs  # the server would fill up a mask with ones


def test_metrics_are_served_for_prometheus():
    config = parse("monitoring.config", message(prometheus_config={"enable": _BOOL, "path": _STRING}))
    assert config.prometheus_config.enable
    assert config.prometheus_config.path == "/monitoring/prometheus/metrics"
