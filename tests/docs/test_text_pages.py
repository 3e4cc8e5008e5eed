"""Pages that begin with text: their commands run as printed, on parts of the sample and with small numbers."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest

import electra_tf
from tests.byte_level import trained
from tests.docs.commands import PROJECT, code_cells, run_blocks, run_page
from tests.docs.conftest import on_free_ports, write_glue
from tests.hub import hub_on_loopback
from tests.segmenter import SEGMENTER

NUM_POSTS = 90
NOTEBOOK = PROJECT / "examples" / "german.ipynb"


@pytest.mark.slow
def test_the_readme_runs_from_text_to_a_prediction(corpus):
    write_glue(corpus / "GLUE", "Ein Hund bellt.", "Eine Katze schläft.")
    small = {
        "--output=vocab.txt": "--output=vocab.txt --vocab_size=4000",
        "--num_processes=8": "--num_processes=2",
        "--config=small": "--config=tiny --set train.num_steps=2 --set optimizer.warmup_steps=1",
        "--seeds 0 1 2 3 4": "--seeds 0 --set train.num_epochs=1 --set data.max_seq_length=16",
    }
    assert "'prediction': " in run_page("README", corpus, small)
    assert (corpus / "ft/glue/summary.json").is_file() and (corpus / "export/1/saved_model.pb").is_file()


@pytest.mark.slow
def test_the_code_of_the_python_page_runs_from_text_to_a_published_model(corpus, tiny_pretrained, monkeypatch):
    (corpus / "novels").rename(corpus / "corpus")
    small = {
        "vocab_size=30522": "vocab_size=4000",
        "num_processes=8": "num_processes=2",
        '("small", "data"': '("tiny", "data"',
        '200_000, "train.precision": "bfloat16"': "2",
        "seeds=[0, 1, 2]": 'seeds=[0, 2], settings={"train.num_steps": 2}',
        "10_000": "4",
        "steps_per_epoch=1000, epochs=10": "steps_per_epoch=2, epochs=2",
        "epochs=3": "epochs=1",
    }
    published = Path(electra_tf.load(tiny_pretrained).save(corpus / "published"))
    with hub_on_loopback(monkeypatch, corpus / "cache") as hub:
        hub.add("google/electra-small-discriminator", published / "discriminator")
        run_page("python", corpus, small)
    assert set(hub.files["me/topics"]) >= {"model.safetensors", "README.md", "tokenizer.json"}
    assert electra_tf.load(corpus / "topics").predict(["A match."])[0]["prediction"] in ("football", "music")
    assert (corpus / "served/1/saved_model.pb").is_file() and (corpus / "topics_served/1").is_dir()


@pytest.mark.slow
def test_the_commands_on_data_run(corpus):
    posts = [json.dumps({"text": f"Post {i}: the expedition has not come back, we hear."}) for i in range(NUM_POSTS)]
    (corpus / "posts").mkdir()
    (corpus / "posts/1.jsonl").write_text("\n".join(posts), encoding="utf-8")
    for path in (corpus / "novels").glob("chapter_[01][!1]*"):
        path.unlink()
    shutil.copy(PROJECT / "sample/vocab.txt", corpus)
    tiny = "--config=tiny --set train.num_steps=2 --set optimizer.warmup_steps=1 --set train.batch_size=3"
    lengths = {f"{name}max_seq_length=512": f"{name}max_seq_length=64" for name in ("--", "data.")}
    run_page("data", corpus, {"--num_processes=8": "--num_processes=1", "--config=small": tiny, **lengths})
    built, packed = (json.loads((corpus / name / "manifest.json").read_text()) for name in ("data", "packed"))
    assert {file["format"] for file in built["inputs"]} == {"book", "wikipedia"}
    assert packed["counts"]["num_documents"] == NUM_POSTS > 2 * packed["splits"]["train"]["num_examples"]
    assert list((corpus / "RUN/checkpoints").glob("*")) and (corpus / "shared/data/manifest.json").is_file()


@pytest.mark.slow
def test_the_commands_on_vocabularies_run(tmp_path):
    for folder in ("novels/train", "novels/held_out", "ja", "corpus", "ModernBERT-base"):
        (tmp_path / folder).mkdir(parents=True)
    for chapter, folder in (("1", "novels/train"), ("2", "novels/held_out"), ("2", "corpus")):
        shutil.copy(PROJECT / f"sample/novel/chapter_0{chapter}.txt", tmp_path / folder)
    lines = (PROJECT / "tests/fixtures/languages.txt").read_text(encoding="utf-8").splitlines()
    (tmp_path / "ja/1.txt").write_text("\n".join(lines[:6]), encoding="utf-8")
    (tmp_path / "ModernBERT-base/tokenizer.json").write_bytes(trained(lines, vocab_size=400))
    changes = {"30522": "700", "32000": "160", "24000": "168", "'mecab -Owakati -b 65536'": shlex.quote(SEGMENTER)}
    run_page("vocabulary", tmp_path, {**changes, "--num_processes=2": "--num_processes=1"})
    fit, of_pieces = (json.loads((tmp_path / f"{name}.json").read_text()) for name in ("vocab.txt", "spm.model"))
    assert (fit["vocab_size"], of_pieces["vocab_size"]) == (700, 160)
    assert fit["coverage_text"]["num_files"] == 1 and fit["coverage"]["unknown_fraction"] < 0.1
    assert (tmp_path / "data/tokenizer.json").read_bytes() == (tmp_path / "ModernBERT-base/tokenizer.json").read_bytes()


@pytest.mark.slow
def test_the_tutorial_runs_and_the_server_agrees_with_predict(tmp_path):
    for name in ("sample", "examples"):
        (tmp_path / name).symlink_to(PROJECT / name)
    small = on_free_ports() | {
        "train.num_steps=200": "train.num_steps=2",
        "--seeds 0 1": "--seeds 0 --set train.num_steps=2 --set data.max_seq_length=16",
    }
    del small["grpc_client.py --"]
    printed = run_page("tutorial", tmp_path, small)
    predicted = (tmp_path / "runs/tutorial/predicted.tsv").read_text(encoding="utf-8").splitlines()[-1].split("\t")
    assert re.findall(r'"label": "(\w+)"', printed) == [predicted[1]]


def test_the_notebook_is_of_format_4_5_without_outputs_and_links_to_pages():
    text = NOTEBOOK.read_text(encoding="utf-8")
    notebook = json.loads(text)
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids) and all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in ids)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    links = re.findall(r"electra_tf/(?:blob/)?main/([\w./]+)", text)
    assert links and [link for link in links if not (PROJECT / link).is_file()] == []


@pytest.mark.slow
def test_the_cells_of_the_notebook_run_without_a_clone(tmp_path):
    shutil.copytree(PROJECT / "sample/german", tmp_path / "sample/german")
    install, *cells = code_cells(NOTEBOOK)
    assert install == "!pip install git+https://github.com/electra-tf/electra_tf"
    code, rate = "\n".join(cells), '"optimizer.learning_rate": 1e-3'
    few_steps = {'"train.num_steps": 400': '"train.num_steps": 4', rate: f'{rate}, "train.num_steps": 2'}
    for long, short in few_steps.items():
        assert long in code
        code = code.replace(long, short)
    printed = run_blocks([("python", code)], tmp_path)
    assert len(re.findall(r"^[a-z].* \d+\.\d%$", printed, re.MULTILINE)) == 6  # the measured accuracies
    assert (tmp_path / "runs/german/sentence_transformers/modules.json").is_file()
