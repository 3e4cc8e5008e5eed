"""Offline preparation of pre-training data: raw text in, shuffled TFRecord shards and a manifest out."""
