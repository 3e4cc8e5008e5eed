"""The tokenizer's files: transformers gives our ids, cased and uncased, and knows the special tokens."""

import json
from pathlib import Path

import pytest

from electra_tf.convert.tokenizer_files import tokenizer_files
from electra_tf.text.tokenizer import BertTokenizer
from electra_tf.text.vocabulary import Vocabulary

FIXTURE = Path(__file__).parents[1] / "fixtures" / "tokenization.jsonl"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "paris", "cafe", "café", "Café", "a", "##a", "Paris", "!"]
MODES = [(True, True), (True, False), (False, False), (False, True)]  # lower_case, strip_accents


@pytest.fixture(scope="module")
def transformers():
    return pytest.importorskip("transformers")


@pytest.fixture
def both(tmp_path, transformers):
    """`both(vocabulary, lower_case, strip_accents)`: transformers' tokenizer of a folder, and ours."""

    def load(tokens: list[str], lower_case: bool, strip_accents: bool):
        content = "".join(f"{token}\n" for token in tokens).encode()
        vocabulary = Vocabulary.from_bytes(content, "a test")
        files = tokenizer_files(vocabulary, content, lower_case, strip_accents, max_length=13)
        files["config.json"] = b'{"model_type": "electra"}'
        for name, value in files.items():
            (tmp_path / name).write_bytes(value)
        ours = BertTokenizer(vocabulary, lower_case, strip_accents)
        return transformers.AutoTokenizer.from_pretrained(tmp_path), ours

    return load


@pytest.mark.parametrize(("lower_case", "strip_accents"), MODES)
def test_transformers_lowers_and_strips_as_the_training_did(both, lower_case, strip_accents):
    theirs, ours = both(TOKENS, lower_case, strip_accents)
    texts = ["Café Paris!", "paris", "a" * 150, "a" * 200, "a" * 201, "Paris\u00a0cafe\u0301"]
    ids = ours.tokenize(texts).to_list()
    assert theirs(texts, add_special_tokens=False)["input_ids"] == ids
    assert ids[2] == [9] + [10] * 149  # BertTokenizer of transformers would give [UNK]


def test_texts_and_pairs_have_special_tokens_and_segments(both):
    theirs, _ = both(TOKENS, True, True)
    rows = theirs(["paris [MASK]", "cafe"], ["a", "a a"], padding=True)
    assert dict(rows) == {
        "input_ids": [[2, 5, 4, 3, 9, 3], [2, 6, 3, 9, 9, 3]],
        "token_type_ids": [[0, 0, 0, 0, 1, 1], [0, 0, 0, 1, 1, 1]],
        "attention_mask": [[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]],
    }
    assert (theirs.model_max_length, theirs.pad_token_id, theirs.mask_token_id) == (13, 0, 4)
    assert theirs.decode([5, 9, 10]) == "paris aa"


def test_the_settings_are_written_for_readers_that_look_at_nothing_else(both, tmp_path):
    both(TOKENS, False, True)
    settings = json.loads((tmp_path / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert (settings["do_lower_case"], settings["strip_accents"]) == (False, False)
    assert json.loads((tmp_path / "special_tokens_map.json").read_text(encoding="utf-8"))["mask_token"] == "[MASK]"


@pytest.mark.parametrize(("strip_accents", "expected"), [(True, "tokens"), (False, "tokens_keep_accents")])
def test_only_hard_lines_have_other_tokens_than_the_authors_code_gives(both, strip_accents, expected):
    lines = [json.loads(line) for line in FIXTURE.read_text(encoding="utf-8").splitlines()]
    special = TOKENS[:5]
    tokens = special + sorted({token for line in lines for token in line[expected]} - set(special))
    theirs, _ = both(tokens, True, strip_accents)
    differing = {line["kind"] for line in lines if theirs.tokenize(line["text"]) != line[expected]}
    assert differing == {"greek", "newer_unicode", "special_codepoints", "special_tokens_literal"}
