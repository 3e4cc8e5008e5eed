"""electra-tf score-minimal-pairs: its output, its files and its errors."""

import json

import pytest

from electra_tf.cli import convert_checkpoint, score_minimal_pairs
from tests.markdown import cells


@pytest.fixture
def pairs(tmp_path) -> str:
    rows = [("w5 w6 w7", "w7 w6 w5", "u"), ("w8 w9", "w9", "v"), ("w11", "w11", "v")]
    lines = [json.dumps({"sentence_good": good, "sentence_bad": bad, "UID": uid}) for good, bad, uid in rows]
    (tmp_path / "pairs.jsonl").write_text("\n".join(lines))
    return str(tmp_path / "pairs.jsonl")


def test_the_table_the_accuracies_and_the_scores_are_those_of_the_model(tiny_pretrained, pairs, tmp_path, capsys):
    files = {flag: tmp_path / f"{flag}.json" for flag in ("output", "pair_scores")}
    flags = [f"--from={tiny_pretrained}", "--pairs", pairs, *(f"--{flag}={file}" for flag, file in files.items())]
    assert score_minimal_pairs.main(flags) == 0
    results = json.loads(files["output"].read_text())
    assert results["model"] == f"step 3 of {tiny_pretrained}" and "logits" in results["score"]
    assert (results["all"]["pairs"], results["all"]["ties"]) == (3, 1)
    lines = [json.loads(line) for line in files["pair_scores"].read_text().splitlines()]
    right = [each["score_good"] > each["score_bad"] for each in lines]
    assert results["UID"]["v"]["accuracy"] == (0.5 + right[1]) / 2
    row = ["UID", "v", "2", f"{results['UID']['v']['accuracy']:.3f}"]
    assert row in [each[:4] for each in cells(capsys.readouterr().out)]
    assert score_minimal_pairs.main(flags) == 2
    assert f"--output={files['output']} exists" in capsys.readouterr().err


@pytest.mark.slow
def test_hugging_face_folders_give_the_scores_of_their_run(tiny_pretrained, pairs, tmp_path, capsys):
    def scores(source, *flags: str) -> list[tuple[float, float]]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        command = [f"--from={source}", "--pairs", pairs, f"--pair_scores={file}", *flags]
        assert score_minimal_pairs.main(command) == 0, capsys.readouterr().err
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        return [(each["score_good"], each["score_bad"]) for each in lines]

    assert (
        convert_checkpoint.main([f"--from={tiny_pretrained}", "--to=hugging_face", f"--output_dir={tmp_path}/hf"]) == 0
    )
    by_discriminator, by_generator = scores(tiny_pretrained), scores(tiny_pretrained, "--generator")
    assert by_discriminator != by_generator
    assert by_discriminator == scores(tmp_path / "hf/discriminator") == scores(tmp_path / "hf")
    assert by_generator == scores(tmp_path / "hf/generator") == scores(tmp_path / "hf", "--generator")
