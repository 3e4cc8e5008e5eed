import hashlib
import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import MANIFEST_FILE, Counts, InputFile, Manifest, Shard, Split, check_matches
from electra_tf.text.vocabulary import Vocabulary

NUMBERS = tuple(Counts.model_fields)


VOCABULARY = Vocabulary(tokens=tuple("abcdefghijk"), sha256="aa")


def manifest(**changes) -> Manifest:
    shard = Shard(file="train-00000-of-00001.tfrecord", num_examples=2, num_bytes=70, sha256="ff")
    fields = {
        "schema_version": 3,
        "max_seq_length": 16,
        "vocab_size": 11,
        "vocab_sha256": "aa",
        "strip_accents": False,
        "seed": 3,
        "held_out_fraction": 0.25,
        "language": "de",
        "keep_disambiguation_pages": True,
        "inputs": (InputFile(format="text", compression="gzip", name="a/b.txt", num_bytes=90),),
        "counts": Counts(**{**dict.fromkeys(NUMBERS, 7), "num_documents_skipped": {"redirects": 3}}),
        "splits": {"train": Split(num_documents=1, num_examples=2, num_tokens=24, shards=(shard,))},
        "token_counts": (0, 0, 2, 2, 0, 9, 3, 0, 1, 6, 1),
    }
    return Manifest(**{**fields, **changes})


def edited(**changes) -> str:
    """A manifest with other fields and the checksum that they have."""
    fields = {**manifest().model_dump(mode="json"), **changes}
    sha256 = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return json.dumps({**fields, "sha256": sha256})


def test_a_written_manifest_loads_as_it_was(tmp_path):
    (tmp_path / MANIFEST_FILE).write_text(manifest().to_json())
    assert Manifest.load(tmp_path) == manifest()


def test_a_missing_manifest_is_a_user_error_that_names_the_file(tmp_path):
    with pytest.raises(UserError, match="manifest.json does not exist"):
        Manifest.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not JSON"),
        ("[]", "schema_version None"),
        (edited(schema_version=99), "schema_version 99"),
        (edited(vocab_size="many"), "broken at vocab_size"),
        (edited(extra=1), "broken at extra"),
        (edited(token_counts=[1, 2]), "broken at token_counts: .* 2 entries, expected 11"),
        (edited(token_counts=None), "broken at token_counts: .* 0 entries, expected 11"),
        (
            manifest().to_json().replace('"num_examples": 2', '"num_examples": 3'),
            "was edited or damaged: its own sha256",
        ),
        (manifest().to_json().replace('"sha256": "', '"sha256": "0'), "was edited or damaged"),
    ],
)
def test_a_broken_manifest_is_a_user_error_that_says_where(tmp_path, text, complaint):
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(UserError, match=complaint):
        Manifest.load(tmp_path)


def test_a_manifest_of_the_version_before_token_counts_loads_and_is_written_as_it_was(tmp_path):
    fields = manifest().model_dump(mode="json") | {"schema_version": 2}
    del fields["token_counts"]
    sha256 = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    (tmp_path / MANIFEST_FILE).write_text(json.dumps({**fields, "sha256": sha256}, indent=1) + "\n")
    loaded = Manifest.load(tmp_path)
    assert loaded.token_counts is None and loaded == manifest(schema_version=2, token_counts=None)
    assert json.loads(loaded.to_json()) == json.loads((tmp_path / MANIFEST_FILE).read_text())


def test_the_token_counts_stand_on_one_line():
    assert ' "token_counts": [0, 0, 2, 2, 0, 9, 3, 0, 1, 6, 1],\n' in manifest().to_json()


def test_a_file_name_with_numbers_in_brackets_stays_as_it_is(tmp_path):
    odd = manifest(inputs=(InputFile(format="text", compression="", name="a[\n1,  2].txt", num_bytes=9),))
    (tmp_path / MANIFEST_FILE).write_text(odd.to_json())
    assert Manifest.load(tmp_path) == odd


@pytest.mark.parametrize(
    ("changes", "max_seq_length", "complaint"),
    [
        ({"vocab_size": 12, "token_counts": (1,) * 12}, 16, "vocab_size 12, the run has 11"),
        ({"vocab_sha256": "bb"}, 16, "vocab_sha256 bb, the run has aa"),
        ({}, 32, "max_seq_length 16, the run has 32"),
    ],
)
def test_a_mismatch_is_a_user_error_that_names_both_values(changes, max_seq_length, complaint):
    check_matches(manifest(), vocabulary=VOCABULARY, max_seq_length=16)
    with pytest.raises(UserError, match=complaint):
        check_matches(manifest(**changes), vocabulary=VOCABULARY, max_seq_length=max_seq_length)
