"""transformers' side of test_peer.py, for the Python of an environment with benchmarks/requirements-peers.txt.

    python tests/weights/hugging_face/peer.py REQUEST.json ANSWER.npz

The request has `texts`, each a list of one text or two, and `folders`, paths by name. The answer holds the ids of each
folder's tokenizer, and the outputs of the class in its config.json, in float32 and, under `NAME|OUTPUT|exact`, in
float64. Prints one line of JSON: for each folder its class, and missing and unexpected tensors.

A request may also have `made`, by name the `folder` to write, the `class` and the `config` of a model with random
weights, perhaps options of its `saving`, and `inputs`, ids and masks as lists. The answer then holds the outputs of
these models for the inputs, and with `labels` under `NAME|stepped` the logits after one step of gradient descent on
their mean loss, at rate 1.
"""

import json
import os
import sys

os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
import torch
import transformers

_OUTPUTS = ("logits", "start_logits", "end_logits", "last_hidden_state", "prediction_logits")
_LOADING = ("missing_keys", "unexpected_keys", "mismatched_keys", "error_msgs")


def main(request_file: str, answer_file: str) -> None:
    with open(request_file, encoding="utf-8") as stream:
        request = json.load(stream)
    arrays, report = {}, {}
    for name, made in request.get("made", {}).items():
        labels, model = made.pop("labels", None), _made(**made)
        inputs = _choices(made["class"], {key: torch.tensor(each) for key, each in request["inputs"].items()})
        outputs = model(**inputs)
        arrays |= {f"{name}|{key}": outputs[key].numpy() for key in _OUTPUTS if key in outputs}
        if labels is not None:
            model.requires_grad_(True)(**inputs, labels=torch.tensor(labels)).loss.backward()
            torch.optim.SGD(model.parameters(), lr=1.0).step()
            arrays[f"{name}|stepped"] = model(**inputs).logits.detach().numpy()
    for name, folder in request["folders"].items():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        architecture = transformers.AutoConfig.from_pretrained(folder).architectures[0]
        model, loading = getattr(transformers, architecture).from_pretrained(folder, output_loading_info=True)
        inputs = _inputs(tokenizer, request["texts"])
        arrays |= {f"{name}|{key}": value.numpy() for key, value in inputs.items()}
        inputs = _choices(architecture, inputs)
        with torch.inference_mode():
            outputs = model.eval()(**inputs)
        arrays |= {f"{name}|{key}": outputs[key].numpy() for key in _OUTPUTS if key in outputs}
        problems = {key: sorted(map(str, loading[key])) for key in _LOADING if loading.get(key)}
        report[name] = {"class": architecture, "problems": problems}
        with torch.inference_mode():
            outputs = model.double()(**inputs)
        arrays |= {f"{name}|{key}|exact": outputs[key].numpy() for key in _OUTPUTS if key in outputs}
    np.savez(answer_file, **arrays)
    print(json.dumps(report))


def _choices(architecture: str, inputs: dict) -> dict:
    """The inputs of a class. Of multiple choice, two rows after each other are choices."""
    if not architecture.endswith("ForMultipleChoice"):
        return inputs
    return {key: value.unflatten(0, (-1, 2)) for key, value in inputs.items()}


def _made(folder: str, config: dict, saving: dict | None = None, **architecture) -> torch.nn.Module:
    """Writes a model with random weights of the size of trained ones."""
    torch.manual_seed(len(folder))
    kind = getattr(transformers, architecture["class"])
    model = kind(kind.config_class(**config)).eval()
    for name, weight in model.requires_grad_(False).named_parameters():
        is_norm = "norm" in name.lower() and name.endswith("weight")
        deviation = 0.1 if weight.ndim == 1 else weight.shape[1] ** -0.5
        weight.copy_(is_norm + deviation * torch.randn(weight.shape))
    model.save_pretrained(folder, **(saving or {}))
    return model


def _inputs(tokenizer, texts: list[list[str]]) -> dict:
    """Rows of one text and of two in one batch, padded to the longest."""
    rows = [tokenizer(*row) for row in texts]
    return dict(tokenizer.pad(rows, padding=True, return_tensors="pt"))


if __name__ == "__main__":
    main(*sys.argv[1:])
