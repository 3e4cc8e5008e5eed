"""Trained models: one loader (`source.py`), one form in memory (`stored_model.py`), and an adapter for each format."""

# The names of the formats that `electra_tf.weights.write` writes; here, because flags need them before TensorFlow.
FOLDERS = ("hugging_face", "bert", "sentence_transformers")  # with a model card
FORMATS = (*FOLDERS, "tf1")
