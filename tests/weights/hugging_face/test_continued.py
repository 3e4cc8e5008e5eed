"""The commands of "Continue a published ModernBERT" (docs/recipes.md), from a folder that transformers made."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import electra_tf
from electra_tf.cli import convert_checkpoint, run_pretraining
from electra_tf.weights.source import load_trained
from tests.byte_level import byte_level
from tests.peers import needs_peers
from tests.weights.conftest import assert_same_weights
from tests.weights.hugging_face.peer_cases import pretrained_outputs
from tests.weights.hugging_face.test_peer import answer_of

pytestmark = [pytest.mark.slow, needs_peers]
SIZES = {
    "vocab_size": 288,  # 273 tokens and padding
    "hidden_size": 24,
    "intermediate_size": 10,
    "num_hidden_layers": 5,
    "num_attention_heads": 3,
    "local_attention": 6,
}
# What config.json has of transformers 4, entries that the classes do not read included. The local layers of
# mmBERT rotate as the global ones.
OLDER = {
    **{"architectures": ["ModernBertForMaskedLM"], "model_type": "modernbert", "max_position_embeddings": 7999},
    **{"global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 160000.0},
    **{"norm_eps": 1e-5, "layer_norm_eps": 1e-5, "position_embedding_type": "sans_pos", "classifier_pooling": "mean"},
    **{"decoder_bias": True, "sparse_prediction": False, "torch_dtype": "float32", "tie_word_embeddings": True},
    **dict.fromkeys(("attention_bias", "mlp_bias", "norm_bias", "classifier_bias", "causal_mask"), False),
    **dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id", "eos_token_id", "sep_token_id"), 1),
}
SETTINGS = (
    *("vocab_size=288", "embedding_size=24", "hidden_size=24", "intermediate_size=10", "num_layers=5", "num_heads=3"),
    "local_attention=6",
)


def make(folder: Path, is_older: bool, scratch: Path) -> None:
    """Writes a ModernBertForMaskedLM, of transformers 5 in parts and bfloat16."""
    scratch.mkdir()
    made = {"folder": str(folder), "class": "ModernBertForMaskedLM", "config": SIZES | (OLDER if is_older else {})}
    if not is_older:
        made |= {"dtype": "bfloat16", "saving": {"max_shard_size": "10KB"}}
        made["config"] |= dict.fromkeys(("pad_token_id", "bos_token_id", "cls_token_id"), 1)
        made["config"] |= dict.fromkeys(("eos_token_id", "sep_token_id"), 1)
    inputs = {"input_ids": [[1, 2]], "attention_mask": [[1, 1]]}
    answer_of({"texts": [], "folders": {}, "inputs": inputs, "made": {"source": made}}, scratch)
    (folder / "tokenizer.json").write_bytes(byte_level())
    if is_older:
        (folder / "config.json").write_text(json.dumps(SIZES | OLDER))


@pytest.mark.parametrize("is_older", [True, False], ids=["transformers 4", "transformers 5"])
def test_from_a_folder_and_text_to_folders_that_transformers_scores_with(is_older, tmp_path, capsys):
    folder, run, out = tmp_path / "source", tmp_path / "run", tmp_path / "out"
    make(folder, is_older, tmp_path / "making")
    assert (len(list(folder.glob("*.safetensors"))) > 1) is not is_older
    (tmp_path / "a.txt").write_text("\n\n".join("the cat on the cat\nthe " + "cat " * number for number in range(40)))
    options = {"max_seq_length": 16, "min_document_characters": 0}
    electra_tf.build_dataset(f"text:{tmp_path}/a.txt", folder / "tokenizer.json", tmp_path / "data", **options)

    settings = [f"encoder.{each}" for each in SETTINGS] + ["objective.generator={size_fraction: 1.0, num_layers: 2}"]
    settings += ["train.num_steps=50", "train.batch_size=4", "data.max_seq_length=16", "optimizer.warmup_steps=5"]
    if is_older:
        settings += ["encoder.local_rope_theta=160000", "encoder.max_position_embeddings=7999"]
    flags = [f"--data_dir={tmp_path}/data", f"--model_dir={run}", f"--init_from={folder}", "--config=modern_base"]
    assert run_pretraining.main([*flags, *(flag for each in settings for flag in ("--set", each))]) == 0
    report = json.loads((run / "warm_start.json").read_text())["report"]
    assert "the generator: the first 2 of the source's 5 layers" in report
    source, begun = load_trained(folder).finished(), load_trained(run / "checkpoints/step-0").finished()
    assert_same_weights(begun.part("electra/"), source.part("electra/"))
    assert_same_weights(begun.part("generator_predictions/"), source.part("generator_predictions/"))
    first = {name.replace("electra/", "generator/"): each for name, each in source.truncated(2).weights.items()}
    own = {name: each for name, each in first.items() if "/embeddings/" not in name}
    assert_same_weights(begun.part("generator/"), own)

    assert convert_checkpoint.main([f"--from={run}", "--to=hugging_face", f"--output_dir={out}"]) == 0
    folders = {name: str(out / name) for name in ("generator", "discriminator")}
    configs = {name: json.loads((out / name / "config.json").read_text()) for name in folders}
    assert configs["generator"]["layer_types"] == configs["discriminator"]["layer_types"][:2]
    arrays, answer = answer_of({"texts": [["the cat on the [MASK]"], ["the", "cat"]], "folders": folders}, tmp_path)
    classes = {"generator": "ModernBertForMaskedLM", "discriminator": "ModernBertForTokenClassification"}
    outputs = pretrained_outputs(load_trained(run).build_task())
    for name in folders:
        assert answer[name] == {"class": classes[name], "problems": {}, "encoder_lacks": []}
        mask = arrays[f"{name}|attention_mask"]
        batch = {"input_ids": arrays[f"{name}|input_ids"], "input_mask": mask, "segment_ids": np.zeros_like(mask)}
        batch = {key: tf.constant(values, tf.int32) for key, values in batch.items()}
        # Rows of the word table without a token are never predicted here.
        ours, theirs = (each[..., :273] for each in (outputs[name](batch)["logits"], arrays[f"{name}|logits"]))
        largest = np.abs(ours - theirs)[mask.astype(bool)].max()
        assert largest <= 1e-5 * max(1.0, np.abs(theirs).max()), name
