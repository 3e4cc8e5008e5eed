"""The Python interface: data sets, pre-training, fine-tuning, and trained models on texts.

    import electra_tf

    electra_tf.build_vocab("text:corpus/*.txt", "vocab.txt", vocab_size=8000)
    electra_tf.build_dataset("text:corpus/*.txt", "vocab.txt", "data")
    model = electra_tf.pretrain("small", "data", "runs/small").model()
    vectors = model.encode(["One text.", "Another."])  # [2, H]
    result = electra_tf.finetune("classification", train, validation, init_from="runs/small", output_dir="ft/topics")
    rows = result.model().predict(["A text about football."])

Paths, settings and columns mean what they mean to the commands, which share the code. `train` and `validation` are
tables of pandas or pyarrow, lists of rows (dictionaries), or dictionaries of columns.
"""
