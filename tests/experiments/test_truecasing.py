"""The truecasing probe: its tags, the sentences and documents that it uses, and the inputs that it refuses."""

import json
from pathlib import Path
from random import Random

import pytest
import tensorflow as tf

from data_prep.build import build
from data_prep.settings import BuildSettings
from electra_tf.data.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Manifest
from electra_tf.data.records import parse_examples
from electra_tf.tasks.finetune.kinds.conll import read_tagged
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.vocabulary import BERT_TEXT
from experiments import truecasing
from experiments.truecasing import HeldOutDocument, Word, chosen, is_usable, tags_of, words_of

NUM_DOCUMENTS = 40
FIRST_NAME_ID = 5  # after the special tokens


@pytest.fixture(scope="module")
def tokenizer():
    return BasicTokenizer(BERT_TEXT)


def document(i: int) -> str:
    """Three sentences and a heading, all with the name N<i>."""
    return (
        f"Memoirs of N{i} and N{i}\nIn town we met N{i} again.\nThen N{i} went home with N{i}.\nWe call her N{i} here."
    )


WORDS = [
    "memoirs",
    "of",
    "and",
    "in",
    "town",
    "we",
    "met",
    "again",
    ".",
    "then",
    "went",
    "home",
    "with",
    "call",
    "her",
    "here",
]


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Two files, which both have documents 0 to 24; the vocabulary has all their words."""
    directory = tmp_path_factory.mktemp("source")
    texts = [document(i) for i in range(NUM_DOCUMENTS)]
    (directory / "a.txt").write_text("\n\n".join(texts[:25]))
    (directory / "b.txt").write_text("\n\n".join([*texts[25:], *texts[:25]]))
    names = [f"n{i}" for i in range(NUM_DOCUMENTS)]
    (directory / "vocab").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *names, *WORDS]) + "\n")
    return directory


def built(source: Path, output_dir: Path, **changes) -> str:
    """The directory of a data set in which about a quarter of the documents are held out."""
    settings = {"max_seq_length": 16, "held_out_fraction": 0.25, "inputs": (f"text:{source}/*.txt",), **changes}
    build(BuildSettings(vocab_file=f"{source}/vocab", output_dir=str(output_dir), **settings))
    return str(output_dir)


@pytest.fixture(scope="module")
def data_dir(source, tmp_path_factory) -> str:
    return built(source, tmp_path_factory.mktemp("built") / "data")


def write_probe(data_dir: str, output_dir: Path, *inputs: str) -> int:
    flags = [f"--data_dir={data_dir}", f"--output_dir={output_dir}", *(f"--input={text}" for text in inputs)]
    return truecasing.main(flags)


@pytest.fixture(scope="module")
def probe(source, data_dir, tmp_path_factory) -> Path:
    directory = tmp_path_factory.mktemp("probe") / "truecasing"
    assert write_probe(data_dir, directory, f"text:{source}/*.txt") == 0
    return directory


def names_in_shards(data_dir: str, split: str) -> set[str]:
    """The names in a split of the data set, read from its records."""
    files = [f"{data_dir}/{shard.file}" for shard in Manifest.load(data_dir).splits[split].shards]
    records = tf.constant(list(tf.data.TFRecordDataset(files).as_numpy_iterator()))
    ids = set(parse_examples(records, 16)["input_ids"].numpy().flatten().tolist())
    return {f"n{token - FIRST_NAME_ID}" for token in ids if 0 <= token - FIRST_NAME_ID < NUM_DOCUMENTS}


def names_in_probe(directory: Path, split: str) -> list[set[str]]:
    """The names in each sentence of a split of the probe."""
    sentences = read_tagged(directory / f"{split}.jsonl").inputs[0]
    return [{word for word in words if word[0] == "n" and word[1:].isdigit()} for words in sentences]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("Then Mr. Darcy went to Évian.", "then MR . DARCY went to EVIAN ."),
        ("I think I saw O'Neil's iPhone", "i think I saw O ' NEIL ' s iphone"),
        ("“‘(Elizabeth met Jane", "“ ‘ ( elizabeth met JANE"),
        ("1914 Berlin was calm", "1914 BERLIN was calm"),
        ('he said: "Come in', 'he said : " COME in'),
    ],
)
def test_words_with_a_capital_are_tagged_except_the_first_of_a_sentence(tokenizer, line, expected):
    (words,) = words_of([line], tokenizer)
    assert [word.text for word in words] == expected.lower().split()
    assert tags_of(words) == ["B-CAPITAL" if word != word.lower() else "O" for word in expected.split()]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("We went to Bath .", True),
        ("We went to Bath", False),  # 4 words
        ("we " * 41, False),
        ("The roads Bath and Kent and York and Ely", False),  # without the first word, 4 of 8 have a capital
        ("The roads of Bath and Kent and York and Ely", True),  # 4 of 9
    ],
)
def test_sentences_of_unusual_length_and_headings_are_left_out(tokenizer, line, expected):
    assert is_usable(words_of([line], tokenizer)[0]) is expected


def test_the_probe_has_exactly_the_held_out_documents(data_dir, probe):
    in_probe = set().union(*names_in_probe(probe, "train"), *names_in_probe(probe, "dev"))
    assert in_probe == names_in_shards(data_dir, HELD_OUT_SPLIT)
    assert len(in_probe) > 5 and not in_probe & names_in_shards(data_dir, TRAIN_SPLIT)


def test_a_fifth_of_the_documents_are_dev_and_no_sentence_is_repeated(probe):
    train, dev = names_in_probe(probe, "train"), names_in_probe(probe, "dev")
    num_train, num_dev = len(set().union(*train)), len(set().union(*dev))
    assert not set().union(*train) & set().union(*dev)
    assert 0 < num_dev == -(-(num_train + num_dev) // 5)
    # Every sentence except the heading, although many documents are in both files.
    assert (len(train), len(dev)) == (3 * num_train, 3 * num_dev)


def test_the_note_counts_documents_sentences_words_and_capitals(probe):
    note = json.loads((probe / "truecasing.json").read_text())
    num_documents = note["dev"].pop("num_documents")["text"]
    assert note["dev"] == {
        "num_sentences_read": 4 * num_documents,
        "num_sentences_usable": 3 * num_documents,
        "num_sentences": 3 * num_documents,
        "num_words": 20 * num_documents,  # three sentences of 7, 7 and 6 words
        "capital_fraction": 0.2,  # 1, 2 and 1 words of them
    }
    assert (note["seed"], note["held_out_fraction"]) == (0, 0.25)


def test_a_probe_of_other_globs_and_of_data_with_duplicates_has_the_same_bytes(source, data_dir, probe, tmp_path):
    assert write_probe(data_dir, tmp_path / "again", f"text:{source}/b.txt", f"text:{source}/a.txt") == 0
    assert {path.name: path.read_bytes() for path in probe.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()
    }
    data_dir = built(source, tmp_path / "data", drop_duplicates=False)
    assert write_probe(data_dir, tmp_path / "new", f"text:{source}/*.txt") == 0
    assert (tmp_path / "new" / "train.jsonl").read_bytes() == (probe / "train.jsonl").read_bytes()


def test_the_sentences_of_a_document_and_of_a_split_are_limited(monkeypatch):
    def documents() -> list[HeldOutDocument]:
        sentence = [Word("met", False)] * 6
        return [
            HeldOutDocument("book", Random(i), [[*sentence, Word(f"n{i}", True)]] * n) for i, n in ((1, 900), (2, 70))
        ]

    assert len(chosen(documents(), 1_000)) == 400 + 70
    fifty = chosen(documents(), 50)
    assert len(fifty) == 50 and {words[-1].text for words in fifty} == {"n1", "n2"}
    assert chosen(documents()[::-1], 50) == fifty


def edited_files_of_equal_size(source: Path, data_dir: str, directory: Path) -> tuple[str, str]:
    for name in ("a.txt", "b.txt"):
        (directory / name).write_text((source / name).read_text().replace("\n\nMemoirs", "\nOMemoirs", 1))
    return data_dir, f"text:{directory}/*.txt"


def data_with_capitals(source: Path, data_dir: str, directory: Path) -> tuple[str, str]:
    manifest = Manifest.load(data_dir).model_copy(update={"lower_case": False})
    (directory / "manifest.json").write_text(manifest.to_json())
    return str(directory), f"text:{source}/*.txt"


@pytest.mark.parametrize(
    ("arrange", "expected"),
    [
        (edited_files_of_equal_size, f"{2 * 25 + 15 - 2} documents"),
        (data_with_capitals, "--lower_case"),
    ],
)
def test_inputs_that_would_give_another_probe_are_refused(capsys, source, data_dir, tmp_path, arrange, expected):
    data, inputs = arrange(source, data_dir, tmp_path)
    assert write_probe(data, tmp_path / "new", inputs) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert expected in error
    assert not (tmp_path / "new").exists()
