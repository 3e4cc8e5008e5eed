"""TFRecords to batches on their way to the device: reading order, masking, batching."""
