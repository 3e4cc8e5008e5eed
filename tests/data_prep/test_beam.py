"""What Beam's build refuses, and its messages; for the bytes of the data set, see `test_same_bytes`."""

import pytest

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.files import names_in

pytestmark = pytest.mark.slow

IN_PROCESS = ["--runner=DirectRunner"]
# As FlinkRunner and SparkRunner, which start a job service, but with Beam's job service in Python.
JOB_SERVICE = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]


@pytest.mark.parametrize("arguments", [IN_PROCESS, JOB_SERVICE])
def test_damaged_input_gives_the_message_of_the_local_builder_and_no_output(build_settings, tmp_path, arguments):
    from data_prep import beam

    (tmp_path / "bad.txt").write_bytes(b"w1 w2 \xff")
    settings = build_settings([f"text:{tmp_path}/bad.txt"], tmp_path / "data")
    with pytest.raises(UserError) as local:
        build(settings)
    with pytest.raises(UserError) as raised:
        beam.run(settings, arguments)
    assert str(raised.value) == str(local.value)
    assert names_in(settings.output_dir) == []


@pytest.mark.parametrize(
    ("changes", "arguments", "name"),
    [
        ({}, [*IN_PROCESS, "--seeed=3"], "--seeed=3"),
        ({}, ["--runner=DataflowRunner"], "--runner=DataflowRunner"),
        ({"num_processes": 2}, IN_PROCESS, "--num_processes=2"),
        ({"near_duplicates": 0.8}, IN_PROCESS, "--near_duplicates=0.8"),
        ({"machine": "0/2", "work_dir": "work"}, IN_PROCESS, "--machine=0/2"),
        ({}, ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--job_server_timeout=1"], "PortableRunner"),
    ],
)
def test_an_argument_that_beam_cannot_use_is_named(source_settings, tmp_path, changes, arguments, name):
    from data_prep import beam

    with pytest.raises(UserError, match=name):
        beam.run(source_settings(tmp_path / "data", **changes), arguments)
