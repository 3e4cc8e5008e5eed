import pytest

from data_prep.build import build
from electra_tf.config.errors import UserError
from electra_tf.files import matches
from tests.stores import store_on_loopback

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("scheme", ["s3", "gs"])
def test_a_bucket_that_does_not_exist_is_named_before_the_text_is_read(scheme, tmp_path, build_settings, monkeypatch):
    (tmp_path / "text").write_text("w1 w2")  # one document, which would be refused after reading
    with store_on_loopback(scheme, monkeypatch) as bucket:
        with pytest.raises(UserError, match="bucket-mistyped"):
            build(build_settings([f"text:{tmp_path}/text"], f"{bucket}-mistyped/out", work_dir=str(tmp_path)))
        with pytest.raises(UserError, match="bucket-mistyped"):
            build(build_settings([f"text:{bucket}-mistyped/*"], tmp_path / "out"))


def test_a_changed_file_of_the_hub_has_another_version(hub):
    versions = []
    for content in (b"1", b"2"):
        hub.files["datasets/me/texts"] = {"a.txt": content}
        versions += [status.modified for status in matches("hf://datasets/me/texts/*")]
    assert len(set(versions)) == 2
