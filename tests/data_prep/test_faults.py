"""Faulty records and files are left out, counted and named; a build goes on, and continues after a repair."""

import contextlib
import gzip
import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from data_prep import build as build_module
from data_prep import directory
from data_prep.build import build
from data_prep.counts import ReadCounts, require_few_faults
from data_prep.settings import VocabularySettings
from data_prep.vocabulary import build_vocabulary
from electra_tf.config.errors import UserError

NUM_DOCUMENTS = 40
# What is broken, in the documents 3, 17, 29 and 31.
SKIPPED = {
    "articles without </doc>": 1,
    "files that are not UTF-8": 1,
    "lines without a string in text_field=text": 1,
    "malformed pages": 1,
}
RECORDS = {3, 17, 31}
FAULTY = {*RECORDS, 29}


def page(name: str, text: str) -> str:
    return f"<page><title>{name}</title><ns>0</ns><revision><text>{text}</text></revision></page>"


def write_source(directory: Path, documents: list[str], faulty=frozenset(), lacking=frozenset()) -> None:
    """Writes four files of ten documents each; document i is broken if it is in `faulty`, and none if in `lacking`."""
    directory.mkdir(exist_ok=True)
    kept = [number for number in range(NUM_DOCUMENTS) if number not in lacking]
    pages = [page(f"w{i}", documents[i] + " & " * (i in faulty)) for i in kept if i < 10]
    lines = [json.dumps({"body" if i in faulty else "text": documents[i]}) for i in kept if 10 <= i < 20]
    text = b"\n\n".join(b"\xe9" * (i in faulty) + documents[i].encode() for i in kept if 20 <= i < 30)
    articles = [f'<doc id="{i}">\n{documents[i]}\n{"</doc>" * (i not in faulty)}\n' for i in kept if 30 <= i < 40]
    (directory / "a.xml").write_text(f"<mediawiki>{''.join(pages)}</mediawiki>")
    (directory / "b.jsonl").write_text("\n".join(lines))
    (directory / "c.txt").write_bytes(text)
    (directory / "d.wiki").write_text("".join(articles))


@pytest.fixture
def documents(one_word_documents):
    return one_word_documents(NUM_DOCUMENTS)


@pytest.fixture
def settings_of(build_settings, tmp_path):
    """`settings_of(source, output)`: these directories below `tmp_path`."""

    def make(source: str, output_name: str, **changes):
        formats = {"wikipedia": "xml", "jsonl": "jsonl", "text": "txt", "wikiextractor": "wiki"}
        inputs = [f"{name}:{tmp_path}/{source}/*.{suffix}" for name, suffix in formats.items()]
        return build_settings(inputs, tmp_path / output_name, **{"max_skipped": 0.5, **changes})

    return make


@pytest.mark.parametrize("num_processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_rest_is_the_data_set_without_what_is_faulty(documents, settings_of, tmp_path, num_processes, contents):
    write_source(tmp_path / "broken", documents, FAULTY)
    write_source(tmp_path / "clean", documents, lacking=FAULTY)
    manifest = build(settings_of("broken", "data", num_processes=num_processes))
    clean = build(settings_of("clean", "expected"))
    built, expected = contents(tmp_path / "data"), contents(tmp_path / "expected")
    assert {**built, "manifest.json": b""} == {**expected, "manifest.json": b""}
    assert manifest.splits == clean.splits and manifest.token_counts == clean.token_counts
    assert manifest.counts.num_documents_skipped == SKIPPED
    assert manifest.first_faulty["malformed pages"][0].startswith("a.xml at offset 596: not well-formed")
    assert manifest.first_faulty["files that are not UTF-8"][0].startswith("c.txt is not UTF-8: byte 0xe9 at offset")
    assert list(manifest.first_faulty) == sorted(SKIPPED)


@pytest.mark.slow
def test_beam_leaves_out_the_same(documents, settings_of, tmp_path, monkeypatch, contents):
    pytest.importorskip("apache_beam")
    from data_prep import beam

    write_source(tmp_path / "broken", documents, FAULTY)
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 300)
    beam.run(settings_of("broken", "beam"), ["--runner=DirectRunner"])
    build(settings_of("broken", "local"))
    assert contents(tmp_path / "beam") == contents(tmp_path / "local")


def test_too_much_that_is_faulty_is_an_error_that_keeps_the_work(documents, settings_of, tmp_path, monkeypatch):
    write_source(tmp_path / "broken", documents, RECORDS)
    with pytest.raises(UserError, match="^3 of 40 documents cannot be read: .* 1 malformed .*max_skipped") as error:
        build(settings_of("broken", "data", max_skipped=0))
    assert "the same command continues" in str(error.value) and "\n" not in str(error.value)
    monkeypatch.setattr(build_module, "write_unit", lambda task: pytest.fail("a unit is done again"))
    assert sum(build(settings_of("broken", "data")).counts.num_documents_skipped.values()) == 3


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
    files = {f"f{i}": (f"f{i}", "damaged files", "is damaged", size) for i, size in enumerate(file_bytes)}
    skipped = {"malformed pages": num_faulty} if num_faulty else {}
    counts = ReadCounts(
        num_documents_read=num_read,
        num_documents_skipped=Counter({**skipped, "redirects": 99}),
        faulty_records=dict.fromkeys(skipped, (("f", 0, "text"),)),
        faulty_files=files,
    )
    with pytest.raises(UserError, match=exceeded) if exceeded else contextlib.nullcontext():
        require_few_faults(counts, max_skipped, num_bytes=1000)


class Killed(BaseException):
    """Stands for SIGKILL."""


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", ["write_unit", "write_shard_of_spills", "write_manifest", None])
def test_a_repaired_build_equals_a_clean_one_and_repeats_no_work_on_other_files(
    documents, settings_of, tmp_path, monkeypatch, killed_at, contents
):
    monkeypatch.setattr("data_prep.inputs._MIN_UNIT_BYTES", 1)
    write_source(tmp_path / "source", documents, FAULTY if killed_at else RECORDS)
    calls = []

    def record(name, function):
        def recorded(*arguments):
            calls.append(arguments)
            if name == killed_at and len(calls) > 5 * (name == "write_unit"):
                raise Killed
            return function(*arguments)

        return recorded

    settings = settings_of("source", "data", max_skipped=0.5 if killed_at else 0)
    with monkeypatch.context() as patch:
        if killed_at:
            patch.setattr(build_module, killed_at, record(killed_at, getattr(build_module, killed_at)))
        with pytest.raises(Killed if killed_at else UserError):
            build(settings)
    before = {path.name for path in settings.build_dir.glob("unit-*")}
    clean_files = tmp_path / "clean"
    write_source(clean_files, documents)
    for name in ("b.jsonl", "c.txt"):  # a.xml and d.wiki stay as they are
        shutil.copy(clean_files / name, tmp_path / "source" / name)
        shutil.copystat(tmp_path / "source" / name, clean_files / name)
    with monkeypatch.context() as patch:
        calls.clear()
        patch.setattr(build_module, "write_unit", record("", build_module.write_unit))
        manifest = build(settings.model_copy(update={"max_skipped": 0.5}))
    repeated = [unit for ((unit, _),) in calls if not unit[0].file.name.startswith(("b", "c"))]
    assert killed_at == "write_unit" or (before and not repeated)
    assert manifest.counts.num_documents_skipped == {"articles without </doc>": 1, "malformed pages": 1}
    for name in ("a.xml", "d.wiki"):
        shutil.copy(tmp_path / "source" / name, clean_files / name)
    build(settings_of("clean", "expected"))
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
    documents, settings_of, tmp_path, monkeypatch, name, content, changes, complaint
):
    write_source(tmp_path / "source", documents)
    (tmp_path / "source" / name).write_bytes(content)
    monkeypatch.setattr(directory, "open_output", lambda *_: pytest.fail("the build begins"))
    with pytest.raises(UserError, match=complaint):
        build(settings_of("source", "data", **{"max_skipped": 0.001, **changes}))


def test_only_the_beginning_of_a_big_compressed_file_is_read_for_the_sample(build_settings, tmp_path, monkeypatch):
    monkeypatch.setattr("data_prep.inputs._SAMPLE_UNIT_BYTES", 10)
    monkeypatch.setattr("data_prep.inputs._MAX_TEXT_BYTES", 600_000)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b'{"text": "a"}\n' * 100_000)[:-9])
    with pytest.raises(UserError, match="text_field=body") as error:
        build(build_settings([f"jsonl:{tmp_path}/a.gz"], tmp_path / "data", text_field="body"))
    assert "damaged" not in str(error.value)


@pytest.mark.slow
def test_a_vocabulary_has_no_words_after_a_fault(documents, settings_of, tmp_path):
    write_source(tmp_path / "broken", documents, FAULTY)
    write_source(tmp_path / "clean", documents, lacking=FAULTY)
    reports = []
    for source in ("broken", "clean"):
        inputs = settings_of(source, "").inputs
        settings = VocabularySettings(
            inputs=inputs, output=f"{tmp_path}/{source}.txt", vocab_size=40, max_skipped=0.5, num_processes=1
        )
        reports.append(build_vocabulary(settings)["training_text"])
    assert (tmp_path / "broken.txt").read_bytes() == (tmp_path / "clean.txt").read_bytes()
    assert reports[0]["num_words"] == reports[1]["num_words"]
