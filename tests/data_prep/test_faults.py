import contextlib
import gzip
import shutil
from collections import Counter

import pytest

from data_prep import build as build_module
from data_prep import directory
from data_prep.build import build
from data_prep.counts import ReadCounts, named_faults, require_few_faults
from electra_tf.config.errors import UserError
from electra_tf.data.manifest import MANIFEST_FILE, Manifest
from tests.data_prep.reading import contents
from tests.data_prep.stopping import build_until
from tests.data_prep.texts import FAULTY, write_source

RECORDS = FAULTY - {29}


def test_the_rest_is_the_data_set_without_what_is_faulty(data_dir, expected, source_settings, tmp_path):
    clean = build(source_settings(tmp_path / "data", write_source(tmp_path / "clean", lacking=FAULTY)))
    manifest = Manifest.load(data_dir)
    assert {**contents(tmp_path / "data"), MANIFEST_FILE: b""} == {**expected, MANIFEST_FILE: b""}
    assert manifest.splits == clean.splits and manifest.token_counts == clean.token_counts
    assert manifest.counts.num_documents_skipped == {
        "articles without </doc>": 1,
        "files that are not UTF-8": 1,
        "lines without a string in text_field=text": 1,
        "malformed pages": 1,
    }
    assert manifest.first_faulty["malformed pages"][0].startswith("a.xml at offset 596: not well-formed")
    assert manifest.first_faulty["files that are not UTF-8"][0].startswith("c.txt is not UTF-8: byte 0xe9 at offset")
    assert list(manifest.first_faulty) == list(manifest.counts.num_documents_skipped)


def test_a_fault_in_an_archive_is_named_by_the_names_of_both_and_without_advice():
    counts = ReadCounts(faulty_files={"/d/a.tar/1.txt": [0, "damaged files", "is cut; repair it", 7]})
    assert named_faults(counts, {"/d/a.tar": "a.tar"}) == {"damaged files": ("a.tar/1.txt is cut",)}


def test_too_much_that_is_faulty_is_an_error_that_keeps_the_work(source_settings, tmp_path, monkeypatch):
    settings = source_settings(tmp_path / "data", write_source(tmp_path / "broken", RECORDS))
    with pytest.raises(UserError, match="^3 of 45 documents cannot be read: .* 1 malformed .*max_skipped") as error:
        build(settings.model_copy(update={"max_skipped": 0}))
    assert "the same command continues" in str(error.value) and "\n" not in str(error.value)
    monkeypatch.setattr(build_module, "write_unit", lambda task: pytest.fail("a unit is done again"))
    assert sum(build(settings).counts.num_documents_skipped.values()) == 3


@pytest.mark.parametrize(
    ("num_read", "num_faulty", "file_bytes", "max_skipped", "exceeded"),
    [
        (40, 10, [], 0.001, ""),
        (40, 11, [], 0.001, "more than 10 records, the limit"),
        (40, 8, [1, 1, 1], 0.001, "more than 10 records, the limit"),
        (10_989, 11, [], 0.001, ""),
        (10_988, 11, [], 0.001, "more than 10 records, the limit"),
        (40, 0, [50], 0.001, ""),
        (40, 0, [30, 21], 0.001, "more than 5 % of the bytes, the limit"),
        (40, 0, [300, 100], 0.4, ""),
        (40, 0, [300, 101], 0.4, "more than 40 % of the bytes, the limit"),
        (40, 1, [], 0.0, "more than 0 records, the limit"),
        (40, 0, [1], 0.0, "more than 0 records and 0 % of the bytes, the limit"),
    ],
)
def test_few_faults_are_accepted(num_read, num_faulty, file_bytes, max_skipped, exceeded):
    skipped = {"malformed pages": num_faulty} if num_faulty else {}
    counts = ReadCounts(
        num_documents_read=num_read,
        num_documents_skipped=Counter({**skipped, "redirects": 99}),
        faulty_records=dict.fromkeys(skipped, (("f", 0, "text"),)),
        faulty_files={f"f{i}": (f"f{i}", "damaged files", "is damaged", size) for i, size in enumerate(file_bytes)},
    )
    with pytest.raises(UserError, match=exceeded) if exceeded else contextlib.nullcontext():
        require_few_faults(counts, max_skipped, num_bytes=1000)


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["write_unit", "write_shard_of_spills", "write_manifest", None])
def test_a_repaired_build_equals_a_clean_one_and_repeats_no_work_on_other_files(
    source_settings, tmp_path, monkeypatch, killed_at
):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 1)
    source = write_source(tmp_path / "source", FAULTY if killed_at else RECORDS)
    settings = source_settings(tmp_path / "data", source)
    if killed_at:
        build_until(settings, build_module, killed_at, 6 if killed_at == "write_unit" else 1, after=False)
    else:
        with pytest.raises(UserError):
            build(settings.model_copy(update={"max_skipped": 0}))
    before = list(settings.build_dir.glob("unit-*"))
    clean = write_source(tmp_path / "clean", frozenset())
    for name in ("b.jsonl", "c.txt"):  # the others stay as they are
        shutil.copy(clean / name, source / name)
        shutil.copystat(source / name, clean / name)
    units, write_unit = [], build_module.write_unit
    with monkeypatch.context() as patch:
        patch.setattr(build_module, "write_unit", lambda task: [units.append(task[0]), write_unit(task)][1])
        manifest = build(settings)
    repeated = [unit for unit in units if not unit[0].file.name.startswith(("b", "c"))]
    assert killed_at == "write_unit" or (before and not repeated)
    assert manifest.counts.num_documents_skipped == {"articles without </doc>": 1, "malformed pages": 1}
    for name in ("a.xml", "d.wiki"):
        shutil.copy(source / name, clean / name)
    build(source_settings(tmp_path / "expected", clean))
    assert contents(tmp_path / "data") == contents(tmp_path / "expected")


@pytest.mark.parametrize(
    ("name", "content", "changes", "complaint"),
    [
        ("b.jsonl", b'{"text": "a"}\n' * 99, {"text_field": "body"}, "text_field=body"),
        ("d.wiki", b"Once upon a time.\n" * 99, {}, "expected WikiExtractor"),
        ("c.txt", b"caf\xe9\n" * 99, {}, "c.txt is not UTF-8: byte 0xe9 at offset 3"),
    ],
)
def test_an_input_of_which_nothing_can_be_read_is_an_error_at_once(
    source_settings, tmp_path, monkeypatch, name, content, changes, complaint
):
    source = write_source(tmp_path / "source", frozenset())
    (source / name).write_bytes(content)
    monkeypatch.setattr(directory, "open_output", lambda *_: pytest.fail("the build begins"))
    with pytest.raises(UserError, match=complaint):
        build(source_settings(tmp_path / "data", source, max_skipped=0.001, **changes))


def test_only_the_beginning_of_a_big_compressed_file_is_read_for_the_sample(build_settings, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.inputs._SAMPLE_UNIT_BYTES", 10)
    monkeypatch.setattr("data_prep.inputs._MAX_TEXT_BYTES", 600_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 100_000)[:-9])
    with pytest.raises(UserError, match="text_field=body") as error:
        build(build_settings([f"jsonl:{tmp_path}/a.gz"], tmp_path / "data", text_field="body"))
    assert "damaged" not in str(error.value)
