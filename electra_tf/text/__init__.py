"""Text to ids and back: vocabularies, and the kinds of tokenization as TensorFlow ops."""
