import hashlib
import json
from collections.abc import Callable

import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, InputFile, Manifest, seen_held_out_text


@pytest.fixture(scope="module")
def manifest(write_data, tmp_path_factory) -> Callable[..., Manifest]:
    """`manifest(seed=3)`: that of the tiny data set, with some fields changed."""
    written = Manifest.load(write_data(tmp_path_factory.mktemp("data") / "set"))
    return lambda **changes: written.model_copy(update=changes)


def test_a_manifest_loads_as_it_was_written(manifest, tmp_path):
    file = InputFile(format="text", compression="gzip", name="a[\n1,  2].txt", num_bytes=90)
    written = manifest(inputs=(file,), strip_accents=False, seed=3, templates_dropped={"lang": 7})
    (tmp_path / MANIFEST_FILE).write_text(written.to_json())
    assert Manifest.load(tmp_path) == written


def test_a_manifest_without_a_version_of_unicode_has_berts(manifest, tmp_path):
    assert manifest(unicode=18).text_settings.unicode == 18
    fields = manifest(unicode=18).model_dump(mode="json")
    del fields["unicode"]
    sha256 = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    (tmp_path / MANIFEST_FILE).write_text(json.dumps({**fields, "sha256": sha256}))
    assert Manifest.load(tmp_path).text_settings.unicode == 11


@pytest.mark.parametrize("file", ["../train.tfrecord", "/train.tfrecord", "..", "."])
def test_a_manifest_cannot_name_a_shard_outside_of_its_folder(manifest, tmp_path, file):
    fields = manifest().model_dump(mode="json")
    fields["splits"]["train"]["shards"][0]["file"] = file
    sha256 = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    (tmp_path / MANIFEST_FILE).write_text(json.dumps({**fields, "sha256": sha256}))
    with pytest.raises(
        UserError, match=rf"manifest.json: splits.train.shards.0.file is '{file}'; .* pattern .*; build"
    ):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "complaint"),
    [
        ("}", "", "manifest.json is damaged"),
        ("{", "[" * 100_000, "manifest.json is damaged"),
        ('"schema_version": 4', '"schema_version": 3', "another schema_version than 4: 3"),
        ('"num_shards": 0', '"num_shards": 2', "manifest.json .* sha256"),
    ],
)
def test_a_wrong_manifest_is_a_user_error(manifest, tmp_path, old, new, complaint):
    (tmp_path / MANIFEST_FILE).write_text(manifest().to_json().replace(old, new))
    with pytest.raises(UserError, match=complaint):
        Manifest.load(tmp_path)


@pytest.fixture(scope="module")
def hold_out(manifest) -> Callable[..., dict]:
    """`hold_out(seed=4)`: the settings of a data set that decide which documents are held out."""

    def build(formats=("sentences", "wikipedia"), **changes) -> dict:
        inputs = tuple(InputFile(format=each, compression="", name=each, num_bytes=9) for each in formats)
        return manifest(inputs=inputs, **{"seed": 3, "held_out_fraction": 0.25, **changes}).hold_out

    return build


# The build of a second data set differs from that of the first, which has `seed` 3 and `held_out_fraction` 0.25.
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"seed": 4}, "seed 3 and 4"),
        ({"held_out_fraction": 0.5}, "held_out_fraction 0.25 and 0.5"),
        ({"unicode_normalization": "none"}, "unicode_normalization NFC and none"),
        ({"drop_control_characters": False}, "drop_control_characters True and False"),
        ({"fix_mojibake": True}, "fix_mojibake False and True"),
        ({"lines_per_document": 50}, "lines_per_document 1000 and 50"),
        ({"wikipedia_names": "de:\n  templates:\n"}, "wikipedia_names  and de: templates:"),
        # Documents that the second one holds out are held out of the first one too.
        ({"held_out_fraction": 0.125}, None),
        # These act on formats that the second data set does not have.
        ({"formats": ["text", "wikipedia"], "lines_per_document": 50}, None),
        ({"formats": ["sentences"], "wikipedia_names": "de:\n"}, None),
        # Nothing is held out.
        ({"seed": 4, "held_out_fraction": 0.0}, None),
        # These change which documents there are, or their examples, but not which documents are held out.
        ({"max_seq_length": 32, "num_shards": 2, "examples": "authors", "sentences": "split"}, None),
        ({"min_document_characters": 0, "drop_duplicates": False, "keep_disambiguation_pages": False}, None),
        ({"lower_case": False, "strip_accents": True, "text_field": "body"}, None),
    ],
)
def test_data_sets_that_hold_out_different_documents_are_named(hold_out, changes, named):
    first, second = hold_out(), hold_out(**changes)
    seen = seen_held_out_text([("one", first), ("two", None), ("three", second)])
    assert (
        seen is None
        if named is None
        else f"of three may be training text of one, as the data was built with {named};" in seen
    )


def test_a_setting_that_an_earlier_version_did_not_record_is_taken_to_be_equal(hold_out):
    assert seen_held_out_text([("one", {"seed": 3}), ("two", hold_out())]) is None
