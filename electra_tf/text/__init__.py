"""Text to ids and back: vocabulary, BERT's tokenization as TensorFlow ops, TFRecord schema, data set manifest."""
