"""Text to ids and back: vocabulary, BERT's tokenization as TensorFlow ops, the TFRecord schema, the data set's manifest."""
