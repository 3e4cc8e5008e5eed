"""The whole way with a tokenizer.json: a ModernBERT folder, text, pre-training from it, fine-tuning, folders out."""

import dataclasses

import numpy as np
import pytest

import electra_tf
from electra_tf.cli.export_saved_model import main as export
from electra_tf.config.loader import config_to_yaml
from electra_tf.text.vocabulary import StoredTokenizer, TextSettings
from electra_tf.weights.hugging_face.writer import write_hugging_face
from tests.byte_level import byte_level
from tests.weights.conftest import FEWER_LAYERS, MODERN, stored  # noqa: F401

pytestmark = pytest.mark.slow


def test_from_a_folder_and_text_to_folders_with_the_same_tokenizer(stored, tiny_config, tmp_path, capsys):  # noqa: F811
    encoder = MODERN | {"vocab_size": 273, "max_position_embeddings": 24}
    source = stored(encoder=encoder, objective={"name": "bert_mlm"})
    tokenizer = StoredTokenizer(byte_level(), TextSettings(False, False, False))
    write_hugging_face(dataclasses.replace(source, stored_tokenizer=tokenizer), tmp_path / "modern")
    (tmp_path / "a.txt").write_text("\n\n".join("the cat on the cat\nthe " + "cat " * number for number in range(40)))
    vocab_file, options = tmp_path / "modern" / "tokenizer.json", {"max_seq_length": 16, "min_document_characters": 0}
    electra_tf.build_dataset(f"text:{tmp_path}/a.txt", vocab_file, tmp_path / "data", **options)

    changes = {"objective": {"generator": FEWER_LAYERS}, "data": {"max_seq_length": 16}, "train": {"num_steps": 2}}
    config = tiny_config(encoder=encoder, **changes)
    (tmp_path / "tiny.yaml").write_text(config_to_yaml(config))
    run = electra_tf.pretrain(
        tmp_path / "tiny.yaml", tmp_path / "data", tmp_path / "run", init_from=tmp_path / "modern"
    )
    assert run.history[-1]["step"] == 2
    model = run.model()
    assert model.tokens("the cat [MASK]")[:3] == ["[CLS]", "the", "Ġcat"]
    model.save(tmp_path / "out")
    assert (tmp_path / "out" / "discriminator" / "tokenizer.json").read_bytes() == byte_level()
    again = electra_tf.load(tmp_path / "out")
    np.testing.assert_allclose(again.encode(["the cat", "日"]), model.encode(["the cat", "日"]), atol=1e-6)
    assert [len(each) for each in again.fill_mask(["the [MASK]", "[MASK] on [MASK]"], top_k=2)] == [1, 2]

    examples = {"text": ["the cat", "on", "the", "on on"] * 4, "label": ["cat", "no", "cat", "no"] * 4}
    settings = {"data.max_seq_length": 12, "train.num_epochs": 1}
    finetuned = electra_tf.finetune(
        "classification", examples, examples, init_from=tmp_path / "run", output_dir=tmp_path / "ft", seeds=[0],
        settings=settings,
    )  # fmt: skip
    assert finetuned.model().predict(["the cat"])[0]["prediction"] in ("cat", "no")
    assert export([f"--model_dir={tmp_path}/ft/seed_0", f"--output_dir={tmp_path}/export"]) == 0
    printed = capsys.readouterr().out
    assert "signatures classify_ids, embed_ids, serving_default; they take ids" in printed
