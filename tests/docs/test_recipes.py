"""docs/recipes.md: its commands run as printed, with tiny networks on a tiny text."""

import json

import pytest

import electra_tf
from electra_tf.cli.convert_checkpoint import main as convert
from electra_tf.config.loader import config_to_yaml
from tests.byte_level import byte_level
from tests.docs.commands import run_page
from tests.toy import EQUAL_SIZES, MODERN

SIZES = {"vocab_size": 60, "max_position_embeddings": 16}
BYTES = {"vocab_size": 288, "embedding_size": 16}  # 273 tokens and padding


@pytest.mark.slow
def test_the_commands_of_the_page_train_each_run_to_its_end(tmp_path, tiny_config, tiny_pretrained):
    (tmp_path / "corpus").mkdir()
    document = "w5 w{} w8 w9 the cat on w8 w9\nthe w7 cat w8 w9 w8 on w9 w8"
    text = "\n\n".join(document.format(6 + number) for number in range(30))
    (tmp_path / "corpus/a.txt").write_text(text)
    (tmp_path / "corpus/tokenizer.json").write_bytes(byte_level())
    convert([f"--from={tiny_pretrained}", "--to=hugging_face", f"--output_dir={tmp_path}/DIR"])
    for data, vocabulary in {"data512": "DIR/discriminator/vocab.txt", "data1024": "corpus/tokenizer.json"}.items():
        options = {"max_seq_length": 10, "held_out_fraction": 0.2}
        electra_tf.build_dataset(f"text:{tmp_path}/corpus/a.txt", tmp_path / vocabulary, tmp_path / data, **options)
    train = {"train": {"num_steps": 2}}
    configs = {
        "small": tiny_config(**train, encoder=SIZES),
        "base": tiny_config(**train, encoder={"max_position_embeddings": 20}),
        "modern_base": tiny_config(**train, encoder=MODERN | BYTES, objective={"generator": EQUAL_SIZES}),
        "masked_lm": tiny_config(**train, encoder=MODERN | BYTES, objective={"name": "bert_mlm"}),
    }
    for name, config in configs.items():
        (tmp_path / f"{name}.yaml").write_text(config_to_yaml(config))
    electra_tf.pretrain(tmp_path / "masked_lm.yaml", tmp_path / "data1024", tmp_path / "BERT")
    convert([f"--from={tmp_path}/BERT", "--to=hugging_face", f"--output_dir={tmp_path}/FOLDER"])
    small = {f"--config={name} ": f"--config={name}.yaml " for name in ("small", "base", "modern_base")} | {
        "--vocab_size=30522": "--vocab_size=60",
        "--max_seq_length=128 --num_processes=8": "--max_seq_length=10 --held_out_fraction=0.2",
        "train.num_steps=20000": "train.num_steps=2",
        "num_layers: 7": "num_layers: 1",
        "--flops_budget=1e15": "--flops_budget=1e6",
        "replaced_token_loss_weight=20,50 --seeds 0 1": "replaced_token_loss_weight=20 --seeds 0",
    }
    printed = run_page("recipes", tmp_path, small)
    ends = {path.parent.name: path.read_text().splitlines() for path in tmp_path.glob("[A-Z]*/metrics.jsonl")}
    steps = {name: json.loads(lines[-1])["step"] for name, lines in ends.items()}
    assert steps == dict.fromkeys(("BERT", "RUN", "CONTINUED", "MODERN"), 2)
    assert (tmp_path / "OUT/generator/config.json").is_file()
    assert len(list((tmp_path / "SEARCH").glob("*/metrics.jsonl"))) == 2, printed
