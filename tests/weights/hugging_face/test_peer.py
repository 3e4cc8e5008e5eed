"""transformers reads our Hugging Face folders and computes our ids and logits.

    python -m venv PEERS && PEERS/bin/pip install -r benchmarks/requirements-peers.txt
    ELECTRA_TF_PEERS_PYTHON=PEERS/bin/python python -m pytest -s tests/weights/hugging_face/test_peer.py

Writes folders of models with random weights (ELECTRA_TF_PEER_SIZES=tiny,small; tiny by default), which transformers
loads in its own environment. Compares on sentences from sample/: ids, which must be equal, and outputs for every real
token. Prints a table.

Outputs are compared with transformers' own in float64. Both programs compute the same formulas in float32 and only sum
in other orders, so their roundings are of one size. Hence our largest distance from float64, relative to the largest
output of the network, may be at most twice transformers' largest one among all networks.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from electra_tf.weights.hugging_face.writer import hugging_face_networks, write_hugging_face
from tests.peers import PEERS_PYTHON, needs_peers
from tests.toy import VOCABULARY
from tests.weights.hugging_face.peer_cases import Case, batch_of, built_cases, outputs_of_folder, stepped_logits

pytestmark = pytest.mark.slow
PROJECT = Path(__file__).resolve().parents[3]
SIZES = os.environ.get("ELECTRA_TF_PEER_SIZES", "tiny").split(",")
NUM_WORDS = 24  # of a sentence
NOT_COMPARED = -500.0  # our logits of a start or end outside the context are 1000 lower than theirs
OUR_NAMES = {"input_ids": "input_ids", "attention_mask": "input_mask", "token_type_ids": "segment_ids"}


def sentences() -> list[list[str]]:
    """Real sentences, alone and in pairs; one has [MASK] in place of a word."""
    lines = (PROJECT / "sample" / "wikipedia" / "wiki_00").read_text(encoding="utf-8").splitlines()
    texts = [" ".join(line.split()[:NUM_WORDS]) for line in lines if len(line.split()) >= NUM_WORDS][:8]
    words = texts[7].split()
    masked = " ".join([*words[:9], "[MASK]", *words[10:]])
    return [[texts[0]], [texts[1], texts[2]], [texts[3][:40]], [texts[4], texts[5][:60]], [texts[6]], [masked]]


class Written(NamedTuple):
    """A network in a folder for Hugging Face.

    Attributes:
        batch: the sentences as our tokenizer gives them.        outputs: ours, by transformers' names.
    """

    name: str
    folder: Path
    batch: dict[str, np.ndarray]
    outputs: dict[str, np.ndarray]


def write(case: Case, directory: Path) -> list[Written]:
    """Writes the networks of a case, and computes our outputs."""
    model = case.model
    write_hugging_face(model, str(directory))
    networks = hugging_face_networks(model.of_authors()[0])
    batch = batch_of(sentences(), model.tokenizer)
    arrays, written = {name: values.numpy() for name, values in batch.items()}, []
    for network in networks:
        folder = directory / network.name if len(networks) > 1 else directory
        outputs = case.outputs[network.name](batch)
        written.append(Written(f"{case.name}, {network.name}", folder, arrays, outputs))
    return written


def ask_peer(written: list[Written], directory: Path) -> tuple[dict[str, np.ndarray], dict]:
    """The answer of transformers about written folders: arrays, and a report."""
    return answer_of({"texts": sentences(), "folders": {each.name: str(each.folder) for each in written}}, directory)


def answer_of(request: dict, directory: Path) -> tuple[dict[str, np.ndarray], dict]:
    """The answer of peer.py: arrays, and a report."""
    request_file, answer_file = directory / "request.json", directory / "answer.npz"
    request_file.write_text(json.dumps(request), encoding="utf-8")
    command = [PEERS_PYTHON, str(Path(__file__).with_name("peer.py")), str(request_file), str(answer_file)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    assert done.returncode == 0, done.stderr[-2000:]
    with np.load(answer_file) as arrays:
        return dict(arrays), json.loads(done.stdout.strip().splitlines()[-1])


def relative_errors(written: Written, arrays: dict[str, np.ndarray]) -> tuple[float, float]:
    """The largest errors of our outputs and of transformers', relative to the largest output.

    Measured against transformers' float64 outputs, for real tokens, and for starts and ends within the context.
    """
    mask, errors = written.batch["input_mask"].astype(bool), []
    for key, ours in written.outputs.items():
        theirs, exact = arrays[f"{written.name}|{key}"], arrays[f"{written.name}|{key}|exact"]
        compared = ours > NOT_COMPARED
        if ours.shape[:2] == mask.shape:
            compared &= mask.reshape(mask.shape + (1,) * (ours.ndim - 2))
        largest = np.abs(exact[compared]).max()
        errors.append([np.abs(each - exact)[compared].max() / largest for each in (ours, theirs)])
    return tuple(np.max(errors, axis=0))


def faults_of(written: Written, arrays: dict[str, np.ndarray], report: dict, limit: float) -> list[str]:
    """Compares one network with transformers' answer, and prints a line. Returns: the differences above limits."""
    name = written.name
    names = set(OUR_NAMES) - ({"token_type_ids"} if report["class"].startswith("ModernBert") else set())
    theirs = {key for key in OUR_NAMES if f"{name}|{key}" in arrays}
    faults = sorted(names ^ theirs)  # inputs that the folder's tokenizer lacks, or should not have
    faults += [key for key in theirs if not np.array_equal(arrays[f"{name}|{key}"], written.batch[OUR_NAMES[key]])]
    faults += map(str, report["problems"])
    ours, theirs = relative_errors(written, arrays)
    print(f"{name:<54} {report['class']:<33} {ours:7.1e} {theirs:7.1e}")
    return [f"{name}: {fault}" for fault in [*faults, *([f"error {ours}"] if ours > limit else [])]]


@needs_peers
@pytest.mark.parametrize("size", SIZES)
def test_transformers_computes_our_ids_and_logits_for_every_class(size, tmp_path):
    written = [each for number, case in enumerate(built_cases(size)) for each in write(case, tmp_path / f"{number}")]
    arrays, report = ask_peer(written, tmp_path)
    limit = 2 * max(relative_errors(each, arrays)[1] for each in written)
    versions = report["versions"]
    print(f"\ntransformers {versions['transformers']}, torch {versions['torch']}; largest errors: ours, transformers'")
    assert [fault for each in written for fault in faults_of(each, arrays, report[each.name], limit)] == []


# Every setting away from its default; positions and kinds of layers in the forms of transformers 5 and 4.
THEIRS = {
    "vocab_size": 47,
    "hidden_size": 24,
    "intermediate_size": 10,
    "num_hidden_layers": 4,
    "num_attention_heads": 3,
    "max_position_embeddings": 40,
    "norm_eps": 1e-3,
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "classifier_bias": True,
    "local_attention": 6,
    "layer_types": ["full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 700.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 20.0},
    },
    "global_attn_every_n_layers": 2,
    "global_rope_theta": 700.0,
    "local_rope_theta": 20.0,
    "attention_dropout": 0.2,
    "mlp_dropout": 0.3,
    "embedding_dropout": 0.3,
    "classifier_dropout": 0.4,
    "initializer_range": 0.5,
    "pad_token_id": 0,
    "cls_token_id": 2,
    "bos_token_id": 2,
    "sep_token_id": 3,
    "eos_token_id": 3,
    "id2label": {0: "O", 1: "B-X", 2: "I-X"},
    "label2id": {"O": 0, "B-X": 1, "I-X": 2},
}
PLAIN = dict.fromkeys(("norm_bias", "attention_bias", "mlp_bias", "classifier_bias"), False)
MADE = {
    "encoder": ("ModernBertModel", {}),
    "masked_lm": ("ModernBertForMaskedLM", {}),
    "masked_lm, plain": ("ModernBertForMaskedLM", PLAIN | {"decoder_bias": False}),
    "classification": ("ModernBertForSequenceClassification", {}),
    "tagging": ("ModernBertForTokenClassification", {}),
    "tagging, plain": ("ModernBertForTokenClassification", PLAIN),
    "question_answering": ("ModernBertForQuestionAnswering", {"id2label": {0: "a", 1: "b"}, "label2id": {}}),
}
THEIR_BERT = {
    **{name: THEIRS[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "num_attention_heads")},
    **{name: THEIRS[name] for name in ("max_position_embeddings", "classifier_dropout", "id2label", "label2id")},
    **{"num_hidden_layers": 3, "layer_norm_eps": 1e-3, "type_vocab_size": 3, "initializer_range": 0.5},
}
MADE_BERT = {
    "encoder": ("BertModel", {}),
    "masked_lm": ("BertForMaskedLM", {}),
    "pre_training": ("BertForPreTraining", {}),
    "classification": ("BertForSequenceClassification", {}),
    "regression": ("BertForSequenceClassification", {"id2label": {0: "a"}, "label2id": {}}),
    "tagging": ("BertForTokenClassification", {}),
    "question_answering": ("BertForQuestionAnswering", {"id2label": {0: "a", 1: "b"}, "label2id": {}}),
    "multiple_choice": ("BertForMultipleChoice", {}),
}
CLASSES = [2, 0, 1, 1]  # of the rows


@needs_peers
@pytest.mark.parametrize(("made", "config"), [(MADE, THEIRS), (MADE_BERT, THEIR_BERT)], ids=["ModernBert", "Bert"])
def test_we_compute_the_outputs_of_models_that_transformers_made(tmp_path, made, config):
    is_bert, ids = made is MADE_BERT, np.random.default_rng(3).integers(5, 47, [4, 21])
    lengths = np.array([21, 17, 9, 14])[:, np.newaxis]
    mask = (np.arange(21) < lengths).astype(np.int32)
    ids = np.where(mask, ids, 0)
    segments = np.random.default_rng(4).integers(0, 2, ids.shape)  # in ModernBERT they have no effect
    request = {"texts": [], "folders": {}, "inputs": {"input_ids": ids.tolist(), "attention_mask": mask.tolist()}}
    if is_bert:
        request["inputs"]["token_type_ids"] = segments.tolist()
    request["made"] = {
        name: {"folder": str(tmp_path / name), "class": architecture, "config": config | changes}
        for name, (architecture, changes) in made.items()
    }
    request["made"]["classification"]["labels"] = CLASSES
    arrays, report = answer_of(request, tmp_path)
    print(f"\ntransformers {report['versions']['transformers']}: largest differences, of outputs up to")
    batch = {"input_ids": ids, "input_mask": mask, "segment_ids": segments}
    for name in made:
        (tmp_path / name / "vocab.txt").write_bytes(VOCABULARY)
        outputs = outputs_of_folder(str(tmp_path / name), batch)
        if name == "classification":
            outputs["stepped"] = stepped_logits(str(tmp_path / name), batch, CLASSES)
            assert np.abs(arrays[f"{name}|stepped"] - arrays[f"{name}|logits"]).max() > 1  # a step that is seen
        for key, values in outputs.items():
            theirs = arrays[f"{name}|{'prediction_logits' if name == 'pre_training' else key}"]
            compared = mask.astype(bool) if theirs.shape[:2] == mask.shape else np.ones(len(theirs), bool)
            compared = compared.reshape(compared.shape + (1,) * (theirs.ndim - compared.ndim)) & (values > NOT_COMPARED)
            largest, difference = np.abs(theirs).max(), np.abs(values - theirs)[compared].max()
            print(f"{name:<24} {key:<20} {difference:7.1e} {largest:.1f}")
            assert difference <= (1e-4 if key == "stepped" else 1e-5) * max(1.0, largest), name
