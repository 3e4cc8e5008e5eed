"""Asks an exported model over REST, from TensorFlow Serving or from serve_locally.py beside this file.

    python examples/serving/rest_client.py "Some text." "Another one."
    python examples/serving/rest_client.py --signature=answer --input question="Who?" --input context="It was Ann."

A model without signatures for texts takes ids, which the package `tokenizers` makes with the model's tokenizer.json:

    python examples/serving/rest_client.py --signature=embed_ids --tokenizer=RUN/tokenizer.json "Some text."

Otherwise it needs only Python. With the package `requests` the call is
requests.post(url, json=body, timeout=10).json().
"""

import argparse
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence


def read_flags(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*", help="a row of the input `text`")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=TEXT", help="a row of another input")
    parser.add_argument("--tokenizer", metavar="FILE", help="tokenizer.json for the ids of texts or of pairs")
    parser.add_argument("--server", default="http://127.0.0.1:8501", help="REST address (default: %(default)s)")
    parser.add_argument("--model_name", default="electra", help="name at the server (default: %(default)s)")
    parser.add_argument("--signature", default="embed", help="signature to call (default: %(default)s)")
    parser.add_argument(
        "--timeout", type=float, default=10.0, help="seconds to wait for the answer (default: %(default)s)"
    )
    flags = parser.parse_args(argv)
    flags.inputs = {"text": flags.text} if flags.text else {}
    for item in flags.input:
        name, equals, text = item.partition("=")
        if not equals:
            parser.error(f"--input={item}: expected NAME=TEXT")
        flags.inputs.setdefault(name, []).append(text)
    if not flags.inputs:
        parser.error("give a text, or --input NAME=TEXT for a signature with other inputs")
    if len(set(map(len, flags.inputs.values()))) > 1:
        found = ", ".join(f"{name} has {len(rows)}" for name, rows in flags.inputs.items())
        parser.error(f"each input needs the same number of rows: {found}")
    return flags


def ids_of(tokenizer_file: str, inputs: Mapping[str, Sequence[str]]) -> dict[str, list[list[int]]]:
    """The inputs of a signature `..._ids` for texts, or for pairs if there are two inputs, padded to the longest."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(tokenizer_file)
    tokenizer.enable_padding()  # with any id: the mask leaves padding out
    rows = tokenizer.encode_batch([row if row[1:] else row[0] for row in zip(*inputs.values(), strict=True)])
    return {
        "input_ids": [row.ids for row in rows],
        "input_mask": [row.attention_mask for row in rows],
        "segment_ids": [row.type_ids for row in rows],
    }


def predict(server: str, model_name: str, signature: str, inputs: Mapping[str, Sequence], timeout: float) -> list:
    """The outputs of a signature for each row: an object by name, or the bare value where there is one output.

    Args:
        inputs: the rows of each input, all of the same number.
        timeout: seconds.
    Raises: urllib.error.HTTPError: the server refuses, with the body {"error": ".."}; urllib.error.URLError: no answer.
    """
    rows = [dict(zip(inputs, row, strict=True)) for row in zip(*inputs.values(), strict=True)]
    body = json.dumps({"signature_name": signature, "instances": rows}).encode()
    url = f"{server}/v1/models/{model_name}:predict"
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=timeout) as response:
        return json.load(response)["predictions"]


def main(argv: list[str] | None = None) -> int:
    flags = read_flags(argv)
    inputs = ids_of(flags.tokenizer, flags.inputs) if flags.tokenizer else flags.inputs
    try:
        rows = predict(flags.server, flags.model_name, flags.signature, inputs, flags.timeout)
    except urllib.error.HTTPError as error:
        print(f"error: {flags.server}: {error.code}: {_reason(error)}", file=sys.stderr)
        return 1
    except (OSError, ValueError) as error:  # nobody answers, too late, or no JSON
        print(f"error: {flags.server}: {error}", file=sys.stderr)
        return 1
    for row in rows:
        print(json.dumps(_shortened(row), ensure_ascii=False))
    return 0


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return json.load(error)["error"]
    except (ValueError, KeyError, TypeError):
        return error.reason


def _shortened(value, most: int = 8):
    """The value with long lists cut, so that it fits on a line."""
    if isinstance(value, dict):
        return {name: _shortened(inner, most) for name, inner in value.items()}
    if isinstance(value, list) and value:
        shown = [_shortened(inner, most) for inner in value[:most]]
        return shown + [f"... {len(value) - most} more"] if len(value) > most else shown
    return round(value, 6) if isinstance(value, float) else value


if __name__ == "__main__":
    sys.exit(main())
