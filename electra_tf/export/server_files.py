"""Configuration files of TensorFlow Serving for an export, in the text format of protocol buffers."""

from electra_tf.export.served_model import ServingShapes

MODEL_NAME = "electra"
_LARGEST_BATCH = 128

_MODELS = """\
# tensorflow_model_server --model_config_file=models.config
model_config_list {{
  config {{
    name: "{name}"  # requests name it: /v1/models/{name}:predict
    base_path: "/models/{name}"  # where the server sees the directory that holds 1/: with docker, the target of -v
    model_platform: "tensorflow"
    model_version_policy {{
      latest {{ num_versions: 1 }}
      # To serve chosen versions beside each other instead:
      # specific {{ versions: 1 versions: 2 }}
    }}
    # With a label, requests can name "stable" instead of a number: /v1/models/{name}/labels/stable:predict
    # The server takes labels only of versions that it serves, or with
    # --allow_version_labels_for_unavailable_models=true.
    # version_labels {{ key: "stable" value: 1 }}
  }}
}}
"""

_BATCHING = """\
# tensorflow_model_server --enable_batching --batching_parameters_file=batching.config
# The server joins requests of the same signature that wait at the same time into one batch.
max_batch_size {{ value: {largest} }}  # texts of one call; a request with more is refused
# Do not set enable_large_batch_splitting instead: the server joins the parts' outputs as if all had one width.
batch_timeout_micros {{ value: 2000 }}  # how long a request waits for others; 0: it never waits
num_batch_threads {{ value: 2 }}  # batches computed at the same time; about the number of cores
max_enqueued_batches {{ value: 100 }}  # beyond, requests are refused as unavailable
{sizes}
# Do not set pad_variable_length_inputs: the server fills up with the first value of a row, and a mask filled up with
# ones is wrong. Signatures that take texts do not need it. {ids}
"""

_ANY_SIZE = "# allowed_batch_sizes: batches of any size are taken as they are"
_ONE_SIZE = "allowed_batch_sizes: {size}  # the model takes no other; the server fills smaller batches up"
_ANY_WIDTH = """\
Those that take ids are joined only if
# their rows have the same number of tokens: pad them to one length, or export with --pad_to_max_length."""
_ONE_WIDTH = """\
Those that take ids take rows of {width}
# tokens."""

_MONITORING = """\
# tensorflow_model_server --rest_api_port=8501 --monitoring_config_file=monitoring.config
prometheus_config {
  enable: true
  path: "/monitoring/prometheus/metrics"  # below http://HOST:8501
}
"""


SERVER_FILES = ("models.config", "batching.config", "monitoring.config")


def server_files(shapes: ServingShapes) -> dict[str, str]:
    """The texts of `SERVER_FILES`, by name."""
    sizes = _ANY_SIZE if shapes.batch_size is None else _ONE_SIZE.format(size=shapes.batch_size)
    ids = _ANY_WIDTH if shapes.width is None else _ONE_WIDTH.format(width=shapes.width)
    return {
        "models.config": _MODELS.format(name=MODEL_NAME),
        "batching.config": _BATCHING.format(largest=shapes.batch_size or _LARGEST_BATCH, sizes=sizes, ids=ids),
        "monitoring.config": _MONITORING,
    }
