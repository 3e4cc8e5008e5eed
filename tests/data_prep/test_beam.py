import gzip
import json

import fsspec
import pytest

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.files import names_in

pytestmark = pytest.mark.slow

NUM_DOCUMENTS = 37
IN_PROCESS = ["--runner=DirectRunner"]
# As FlinkRunner and SparkRunner, which start a job service, but with Beam's job service in Python.
JOB_SERVICE = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=LOOPBACK"]
TWO_PROCESSES = [*IN_PROCESS, "--direct_running_mode=multi_processing", "--direct_num_workers=2"]


@pytest.fixture(scope="module")
def beam():
    """Imported for the slow tests alone."""
    from data_prep import beam

    return beam


@pytest.fixture(scope="module")
def source(tmp_path_factory, one_word_documents):
    """Plain and compressed text, WikiExtractor's articles, a book and JSON. One document occurs three times.

    One JSON document is unreadable.
    """
    directory = tmp_path_factory.mktemp("source")
    documents = one_word_documents(NUM_DOCUMENTS + 1)
    (directory / "a.txt").write_text("\n\n".join([*documents[:13], documents[3]]))
    (directory / "b.txt").write_bytes(gzip.compress("\n\n".join([*documents[13:22], documents[3]]).encode(), mtime=0))
    (directory / "wiki_00").write_text("".join(f'<doc id="1">\n{text}\n</doc>\n' for text in documents[22:36]))
    (directory / "novel.txt").write_text(documents[36].replace("\n", "\n\n"))
    lines = [json.dumps({"text": documents[37]}), f'{{"text": "w0", "number": {5000 * "9"}}}']
    (directory / "c.jsonl").write_text("\n".join(lines))
    return directory


@pytest.fixture(scope="module")
def make_settings(build_settings, source):
    inputs = [f"text:{source}/?.txt", f"wikiextractor:{source}/wiki_*", f"book:{source}/novel.txt"]
    inputs.append(f"jsonl:{source}/c.jsonl")
    return lambda output_dir, **changes: build_settings(changes.pop("inputs", inputs), output_dir, **changes)


@pytest.fixture(scope="module")
def expected(make_settings, tmp_path_factory, contents):
    """The files of the local builder."""
    settings = make_settings(tmp_path_factory.mktemp("expected") / "data")
    build(settings)
    return contents(settings.output_dir)


# Two processes; and steps that are repeated.
@pytest.mark.parametrize("arguments", [IN_PROCESS, TWO_PROCESSES, [*IN_PROCESS, "--direct_runner_bundle_repeat=2"]])
def test_beam_and_the_local_builder_write_the_same_bytes(
    beam, make_settings, expected, tmp_path, contents, monkeypatch, arguments
):
    monkeypatch.chdir(tmp_path)  # this package cannot be imported from here without help
    manifest = beam.run(make_settings(tmp_path / "data"), arguments)
    assert contents(str(tmp_path / "data")) == expected
    assert manifest.counts.num_documents == NUM_DOCUMENTS + 1 and manifest.counts.num_documents_duplicate == 2
    assert manifest.counts.num_documents_skipped == {"unreadable": 1}


def test_of_equal_texts_in_two_formats_the_same_one_is_kept(beam, make_settings, tmp_path, contents):
    texts = ["\n".join(" ".join([f"W{i} w{j + 1} w{i}."] * 5) for j in range(5)) for i in range(9)]
    (tmp_path / "a.txt").write_text("\n\n".join(texts))
    (tmp_path / "b.jsonl").write_text("\n".join(json.dumps({"text": text}) for text in texts[3:]))
    changes = {"inputs": [f"text:{tmp_path}/a.txt", f"jsonl:{tmp_path}/b.jsonl"], "sentences": "auto"}
    manifest = beam.run(make_settings(tmp_path / "beam", **changes), IN_PROCESS)
    build(make_settings(tmp_path / "local", **changes))
    assert contents(str(tmp_path / "beam")) == contents(str(tmp_path / "local"))
    assert (manifest.counts.num_documents, manifest.counts.num_documents_duplicate) == (9, 6)


def test_shards_without_an_example_are_also_written(beam, make_settings, tmp_path, contents):
    settings = make_settings(tmp_path / "beam", num_shards=500)
    manifest = beam.run(settings, IN_PROCESS)
    assert 0 in [shard.num_examples for shard in manifest.splits["train"].shards]
    build(settings.model_copy(update={"output_dir": str(tmp_path / "local")}))
    assert contents(settings.output_dir) == contents(str(tmp_path / "local"))


def test_inputs_and_outputs_may_be_urls(beam, make_settings, source, expected, contents):
    fsspec.filesystem("memory").put(str(source), "/remote", recursive=True)
    inputs = ["text:memory://remote/?.txt", "wikiextractor:memory://remote/wiki_*", "book:memory://remote/novel.txt"]
    inputs.append("jsonl:memory://remote/c.jsonl")
    try:
        beam.run(make_settings("memory://built", inputs=inputs), IN_PROCESS)
        assert contents("memory://built") == expected
    finally:
        fsspec.filesystem("memory").store.clear()


def test_the_same_command_starts_a_failed_beam_build_again(
    beam, make_settings, expected, tmp_path, monkeypatch, contents
):
    settings = make_settings(tmp_path / "data")
    with monkeypatch.context() as patch:
        patch.setattr(beam, "write_manifest", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            beam.run(settings, IN_PROCESS)
    beam.run(settings, IN_PROCESS)
    assert contents(settings.output_dir) == expected


@pytest.mark.parametrize("arguments", [IN_PROCESS, JOB_SERVICE])
def test_damaged_input_gives_the_message_of_the_local_builder_and_no_output(beam, make_settings, tmp_path, arguments):
    (tmp_path / "bad.txt").write_bytes(b"w1 w2 \xff")
    settings = make_settings(tmp_path / "data", inputs=[f"text:{tmp_path}/bad.txt"])
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
        ({}, ["--runner=PortableRunner", "--job_endpoint=localhost:1", "--job_server_timeout=1"], "PortableRunner"),
    ],
)
def test_an_argument_that_beam_cannot_use_is_named(beam, make_settings, tmp_path, changes, arguments, name):
    with pytest.raises(UserError, match=name):
        beam.run(make_settings(tmp_path / "data", **changes), arguments)
