import json
from pathlib import Path
from random import Random

import pytest

from data_prep.build import build
from data_prep.settings import BuildSettings
from electra_tf.data.manifest import HELD_OUT_SPLIT, TRAIN_SPLIT, Manifest
from electra_tf.tasks.finetune.kinds.conll import read_tagged
from electra_tf.text.normalization import BasicTokenizer
from electra_tf.text.vocabulary import BERT_TEXT
from experiments import truecasing
from experiments.truecasing import HeldOutDocument, Word, chosen, is_usable, tags_of, words_of
from tests.data_prep.reading import records

NAMES = [f"n{i}" for i in range(40)]
FIRST_NAME_ID = 5  # after the special tokens
WORDS = "memoirs of and in town we met again . then went home with call her here"


@pytest.fixture(scope="module")
def source(tmp_path_factory) -> Path:
    """Two files of documents with a heading and three sentences, all with the name N<i>; both files have 0 to 24."""
    directory = tmp_path_factory.mktemp("source")
    texts = [
        f"Memoirs of {n} and {n}\nIn town we met {n} again.\nThen {n} went home with {n}.\nWe call her {n} here."
        for n in map(str.upper, NAMES)
    ]
    (directory / "a.txt").write_text("\n\n".join(texts[:25]))
    (directory / "b.txt").write_text("\n\n".join([*texts[25:], *texts[:25]]))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *NAMES, WORDS.replace(" ", "\n")]
    (directory / "vocab").write_text("\n".join(tokens) + "\n")
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
    ids = {token for row, _ in records(data_dir, split) for token in row}
    return {name for i, name in enumerate(NAMES, start=FIRST_NAME_ID) if i in ids}


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
def test_words_with_a_capital_are_tagged_except_the_first_of_a_sentence(line, expected):
    (words,) = words_of([line], BasicTokenizer(BERT_TEXT))
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
def test_sentences_of_unusual_length_and_headings_are_left_out(line, expected):
    assert is_usable(words_of([line], BasicTokenizer(BERT_TEXT))[0]) is expected


def test_the_probe_has_exactly_the_held_out_documents_a_fifth_of_them_as_dev(data_dir, probe):
    sentences = {split: read_tagged(probe / f"{split}.jsonl").inputs[0] for split in ("train", "dev")}
    names = {split: set(NAMES).intersection(*[sum(of, [])]) for split, of in sentences.items()}
    assert names["train"] | names["dev"] == names_in_shards(data_dir, HELD_OUT_SPLIT)
    assert not (names["train"] | names["dev"]) & names_in_shards(data_dir, TRAIN_SPLIT)
    assert not names["train"] & names["dev"] and 0 < len(names["dev"]) == -(-len(names["train"] | names["dev"]) // 5)
    # Every sentence except the heading, although many documents are in both files.
    assert {split: len(of) for split, of in sentences.items()} == {split: 3 * len(of) for split, of in names.items()}
    note, num_documents = json.loads((probe / "truecasing.json").read_text()), len(names["dev"])
    assert (note["seed"], note["held_out_fraction"]) == (0, 0.25)
    assert note["dev"] == {"num_documents": num_documents, "num_sentences": 3 * num_documents}


def test_a_probe_of_other_globs_and_of_data_with_duplicates_has_the_same_bytes(source, data_dir, probe, tmp_path):
    assert write_probe(data_dir, tmp_path / "again", f"text:{source}/b.txt", f"text:{source}/a.txt") == 0
    assert {path.name: path.read_bytes() for path in probe.iterdir()} == {
        path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()
    }
    data_dir = built(source, tmp_path / "data", drop_duplicates=False)
    assert write_probe(data_dir, tmp_path / "new", f"text:{source}/*.txt") == 0
    assert (tmp_path / "new" / "train.jsonl").read_bytes() == (probe / "train.jsonl").read_bytes()


def test_the_sentences_of_a_document_and_of_a_split_are_limited():
    def documents() -> list[HeldOutDocument]:
        sentence = [Word("met", False)] * 6
        return [HeldOutDocument(Random(i), [[*sentence, Word(f"n{i}", True)]] * n) for i, n in ((1, 900), (2, 70))]

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
    [(edited_files_of_equal_size, f"{2 * 25 + 15 - 2} documents"), (data_with_capitals, "--lower_case")],
)
def test_inputs_that_would_give_another_probe_are_refused(capsys, source, data_dir, tmp_path, arrange, expected):
    data, inputs = arrange(source, data_dir, tmp_path)
    assert write_probe(data, tmp_path / "new", inputs) == 2
    (error,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error:")]
    assert expected in error
    assert not (tmp_path / "new").exists()
