import subprocess

import fsspec
import pytest
from huggingface_hub import HfFileSystem

from data_prep.build import build
from data_prep.manifest import verify
from electra_tf.config.errors import UserError
from electra_tf.files import matches
from tests.hub import hub_on_loopback
from tests.stores import store_on_loopback

pytestmark = pytest.mark.slow


@pytest.fixture(params=["s3", "gs"])
def bucket(request, monkeypatch):
    """The URL of a bucket, in Amazon's and in Google's store."""
    with store_on_loopback(request.param, monkeypatch) as url:
        yield url


def test_a_build_from_a_store_to_a_store_has_the_bytes_of_a_local_one(
    bucket, tmp_path, build_settings, build_command, one_word_documents, packers, contents
):
    documents = one_word_documents(23)
    (tmp_path / "in").mkdir()
    for i, packer in enumerate(("plain", "gzip", "bzip2")):
        (tmp_path / f"in/{i}").write_bytes(packers[packer]("\n\n".join(documents[i::3]).encode()))
    settings = build_settings([f"text:{tmp_path}/in/*"], tmp_path / "out")
    build(settings)
    store = fsspec.filesystem(bucket.partition(":")[0])
    store.put(f"{tmp_path}/in/", f"{bucket}/in/", recursive=True)
    store.put_file(settings.vocab_file, f"{bucket}/vocab.txt")
    changes = {"vocab_file": f"{bucket}/vocab.txt", "work_dir": str(tmp_path), "num_processes": 2}
    remote = build_settings([f"text:{bucket}/in/*"], f"{bucket}/out", **changes)
    subprocess.run(build_command(remote), check=True)  # its workers get the address of the store
    assert contents(f"{bucket}/out") == contents(tmp_path / "out")
    verify(f"{bucket}/out")


def test_a_bucket_that_does_not_exist_is_named_before_the_text_is_read(bucket, tmp_path, build_settings):
    (tmp_path / "text").write_text("w1 w2")  # one document, which would be refused after reading
    with pytest.raises(UserError, match="bucket-mistyped"):
        build(build_settings([f"text:{tmp_path}/text"], f"{bucket}-mistyped/out", work_dir=str(tmp_path)))
    with pytest.raises(UserError, match="bucket-mistyped"):
        build(build_settings([f"text:{bucket}-mistyped/*"], tmp_path / "out"))


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """The Hugging Face Hub."""
    with hub_on_loopback(monkeypatch, tmp_path / "cache") as server:
        HfFileSystem.clear_instance_cache()
        yield server
    HfFileSystem.clear_instance_cache()


def test_a_data_set_of_the_hub_gives_the_shards_of_its_files(
    hub, tmp_path, build_settings, content_of, one_word_documents, contents
):
    (tmp_path / "repository/data").mkdir(parents=True)
    documents = [[text] for text in one_word_documents(19)]
    for i in range(2):
        (tmp_path / f"repository/data/{i}.parquet").write_bytes(content_of("parquet", documents[i::2]))
    hub.add("datasets/me/texts", tmp_path / "repository")
    build(build_settings(["parquet:hf://datasets/me/texts/data/*.parquet"], tmp_path / "remote"))
    build(build_settings([f"parquet:{tmp_path}/repository/data/*.parquet"], tmp_path / "local"))
    assert contents(tmp_path / "remote") == contents(tmp_path / "local")


def test_a_changed_file_of_the_hub_has_another_version(hub):
    versions = []
    for content in (b"1", b"2"):
        hub.files["datasets/me/texts"] = {"a.txt": content}
        versions += [status.modified for status in matches("hf://datasets/me/texts/*")]
    assert len(set(versions)) == 2
