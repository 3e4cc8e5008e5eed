"""Loads an exported SavedModel and prints each token's probability of having been replaced.

It needs tensorflow and tensorflow_text, but nothing of electra_tf, like any program that uses the model.
"""

import argparse
import os
import statistics
import sys
import warnings

# One word of a plain sentence was swapped: "forest" is in the place of "time".
DEFAULT_TEXT = "We had been there for a long forest, and then the professor came back to the camp."
BAR_WIDTH = 30
# A token stands out if its probability is this many times the median.
STANDS_OUT = 1.5


def read_flags(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("saved_model", help="a version directory that electra-tf export wrote, such as DIR/1")
    parser.add_argument("--text", default=DEFAULT_TEXT, help="the text whose tokens are scored (default: %(default)s)")
    return parser.parse_args(argv)


def detect(saved_model: str, text: str) -> list[tuple[str, float]]:
    """The tokens of `text`, each with its probability of having been replaced."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # TensorFlow's start-up notes would bury the answer
    # A client library warns of the Python's age at every start.
    warnings.filterwarnings("ignore", message="You are using a", category=FutureWarning)
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  (registers the tokenizer's ops, which the SavedModel uses)

    outputs = tf.saved_model.load(saved_model).signatures["detect"](text=tf.constant([text]))
    tokens = [token.decode("utf-8") for token in outputs["tokens"][0].numpy()]
    probabilities = outputs["replaced_probability"][0].numpy().tolist()
    # A batch of sentences is padded with empty tokens to the longest of them.
    return [(token, probability) for token, probability in zip(tokens, probabilities, strict=True) if token]


def as_bars(scored_tokens: list[tuple[str, float]]) -> str:
    """A line for each token with its probability and a bar. A pointer marks a token that stands out."""
    words = [(token, probability) for token, probability in scored_tokens if token not in ("[CLS]", "[SEP]")]
    if not words:
        return "  (no tokens)"
    highest = max(probability for _, probability in words)
    stands_out = highest >= STANDS_OUT * statistics.median(probability for _, probability in words)
    width = max(len(token) for token, _ in words)
    lines = []
    for token, probability in words:
        bar = "#" * round(BAR_WIDTH * probability)
        pointer = "  <- most likely replaced" if stands_out and probability == highest else ""
        lines.append(f"  {token:<{width}}  {probability:5.3f}  {bar}{pointer}")
    if not stands_out:
        lines.append("  No token stands out. The model needs more training or more data.")
    return "\n".join(lines)


def main(argv: list[str] | None = None) -> int:
    flags = read_flags(argv)
    if not os.path.isfile(os.path.join(flags.saved_model, "saved_model.pb")):
        print(
            f"error: {flags.saved_model} holds no saved_model.pb; give the version directory, such as EXPORT/1",
            file=sys.stderr,
        )
        return 2
    scored_tokens = detect(flags.saved_model, flags.text)
    print(f"Text: {flags.text}")
    if flags.text == DEFAULT_TEXT:
        print('The swapped word is "forest"; it was "time".')
    print("Each token and the probability that it was replaced:")
    print(as_bars(scored_tokens))
    return 0


if __name__ == "__main__":
    sys.exit(main())
