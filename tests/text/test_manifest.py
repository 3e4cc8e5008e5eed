import dataclasses
import json

import pytest

from electra_tf.config.errors import UserError
from electra_tf.text.manifest import MANIFEST_FILE, Counts, InputFile, Manifest, Shard, Split, check_matches


@dataclasses.dataclass(frozen=True)
class VocabularyOfSize:
    size: int = 11
    sha256: str = "aa"


def manifest(**changes) -> Manifest:
    shard = Shard(file="train-00000-of-00001.tfrecord", num_examples=2, num_bytes=70, sha256="ff")
    fields = {
        "schema_version": 1,
        "max_seq_length": 16,
        "vocab_size": 11,
        "vocab_sha256": "aa",
        "lower_case": True,
        "strip_accents": False,
        "seed": 3,
        "held_out_fraction": 0.25,
        "inputs": (InputFile(format="text", name="a/b.txt", num_bytes=90),),
        "counts": Counts(num_documents=1, num_tokens_read=23, num_tokens_kept=19, num_unknown_tokens=4),
        "splits": {"train": Split(num_documents=1, num_examples=2, num_tokens=24, shards=(shard,))},
    }
    return Manifest(**{**fields, **changes})


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
        (json.dumps({**json.loads(manifest().to_json()), "schema_version": 99}), "schema_version 99"),
        (json.dumps({**json.loads(manifest().to_json()), "vocab_size": "many"}), "broken at vocab_size"),
        (json.dumps({**json.loads(manifest().to_json()), "extra": 1}), "broken at extra"),
    ],
    ids=["cut off", "not an object", "later version", "wrong type", "unknown field"],
)
def test_a_broken_manifest_is_a_user_error_that_says_where(tmp_path, text, complaint):
    (tmp_path / MANIFEST_FILE).write_text(text)
    with pytest.raises(UserError, match=complaint):
        Manifest.load(tmp_path)


def test_a_matching_run_is_accepted():
    check_matches(manifest(), vocabulary=VocabularyOfSize(), max_seq_length=16)


@pytest.mark.parametrize(
    ("changes", "size", "sha256", "max_seq_length", "complaint"),
    [
        ({}, 12, "aa", 16, "vocab_size 11, the run has 12"),
        ({}, 11, "bb", 16, "vocab_sha256 aa, the run has bb"),
        ({}, 11, "aa", 32, "max_seq_length 16, the run has 32"),
        ({"schema_version": 2}, 11, "aa", 16, "schema_version 2, the run has 1"),
    ],
)
def test_a_mismatch_is_a_user_error_that_names_both_values(changes, size, sha256, max_seq_length, complaint):
    with pytest.raises(UserError, match=complaint):
        check_matches(manifest(**changes), vocabulary=VocabularyOfSize(size, sha256), max_seq_length=max_seq_length)
