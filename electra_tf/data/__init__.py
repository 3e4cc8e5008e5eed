"""A data set's files (TFRecords and their manifest), and batches from them: reading order, masking, batching."""
