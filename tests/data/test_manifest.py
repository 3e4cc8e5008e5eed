import hashlib
import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.data.manifest import (
    MANIFEST_FILE,
    SCHEMA_VERSION,
    Counts,
    InputFile,
    Manifest,
    Shard,
    Split,
    check_matches,
    seen_held_out_text,
)
from electra_tf.text.vocabulary import WordPieceVocabulary

VOCABULARY = WordPieceVocabulary.from_tokens("abcdefghijk")


def manifest(**changes) -> Manifest:
    shard = Shard(file="train-00000-of-00001.tfrecord", num_examples=2, num_bytes=70, sha256="ff")
    fields = {
        "schema_version": SCHEMA_VERSION,
        "max_seq_length": 16,
        "vocab_size": 11,
        "vocab_sha256": VOCABULARY.sha256,
        "strip_accents": False,
        "seed": 3,
        "held_out_fraction": 0.25,
        "inputs": (InputFile(format="text", compression="gzip", name="a[\n1,  2].txt", num_bytes=90),),
        "counts": Counts(**{**dict.fromkeys(Counts.model_fields, 7), "num_documents_skipped": {"redirects": 3}}),
        "splits": {"train": Split(num_documents=1, num_examples=2, num_tokens=24, shards=(shard,))},
        "token_counts": (0, 0, 2, 2, 0, 9, 3, 0, 1, 6, 1),
    }
    return Manifest(**{**fields, **changes})


def with_checksum(fields: dict) -> str:
    sha256 = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return json.dumps({**fields, "sha256": sha256})


def test_a_manifest_loads_as_it_was_written(tmp_path):
    (tmp_path / MANIFEST_FILE).write_text(manifest().to_json())
    assert Manifest.load(tmp_path) == manifest()


def test_a_manifest_without_a_version_of_unicode_has_berts(tmp_path):
    assert manifest(unicode=18).text_settings.unicode == 18
    fields = manifest(unicode=18).model_dump(mode="json")
    del fields["unicode"]
    (tmp_path / MANIFEST_FILE).write_text(with_checksum(fields))
    assert Manifest.load(tmp_path).text_settings.unicode == 11


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "manifest.json is damaged"),
        (with_checksum(manifest().model_dump(mode="json") | {"schema_version": 3}), "another schema_version than 4: 3"),
        (manifest().to_json().replace('"num_examples": 2', '"num_examples": 3'), "manifest.json .* sha256"),
    ],
)
def test_a_wrong_manifest_is_a_user_error(tmp_path, text, complaint):
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(UserError, match=complaint):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("changes", "max_seq_length", "complaint"),
    [
        ({"vocab_size": 12, "token_counts": (1,) * 12}, 16, "vocab_size 12, the run has 11"),
        ({"vocab_sha256": "bb"}, 16, "vocab_sha256 bb, the run has 8147cdc1097c"),
        ({}, 32, "max_seq_length 16, the run has 32"),
    ],
)
def test_a_mismatch_is_a_user_error_that_names_both_values(changes, max_seq_length, complaint):
    check_matches(manifest(), vocabulary=VOCABULARY, max_seq_length=16)
    with pytest.raises(UserError, match=complaint):
        check_matches(manifest(**changes), vocabulary=VOCABULARY, max_seq_length=max_seq_length)


def hold_out(formats=("sentences", "wikipedia"), **changes) -> dict:
    inputs = tuple(InputFile(format=each, compression="", name=each, num_bytes=9) for each in formats)
    return manifest(inputs=inputs, **changes).hold_out


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
def test_data_sets_that_hold_out_different_documents_are_named(changes, named):
    first, second = hold_out(), hold_out(**changes)
    seen = seen_held_out_text([("one", first), ("two", None), ("three", second)])
    assert (
        seen is None
        if named is None
        else f"of three may be training text of one, as the data was built with {named};" in seen
    )


def test_a_setting_that_an_earlier_version_did_not_record_is_taken_to_be_equal():
    assert seen_held_out_text([("one", {"seed": 3}), ("two", hold_out())]) is None
