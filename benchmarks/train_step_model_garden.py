"""The peer in Model Garden: its ElectraPretrainTask as it stands, on `ElectraPretrainer`.

Loss, step, clipping and AdamW are its own; of its metrics only the means of losses are kept, not the accuracies over
the vocabulary. Its network has an approximate GELU and a sentence head without a loss.
"""

import tensorflow as tf
from official.nlp import optimization
from official.nlp.configs import electra, encoders
from official.nlp.data import pretrain_dataloader
from official.nlp.tasks.electra_task import ElectraPretrainConfig, ElectraPretrainTask

from benchmarks.train_step_batches import BatchShape, synthetic_batch

_NAMES = {"masked_input_ids": "input_word_ids", "segment_ids": "input_type_ids"}
_REPORTED = {"total_loss": "loss", "lm_example_loss": "masked_lm", "discriminator_loss": "replaced_token"}


class ModelGardenStep:
    """One joint update of Model Garden's ELECTRA.

    Args:
        discriminator, generator: sizes by the names of `electra_tf.config.schema.EncoderConfig`.
    """

    def __init__(self, shape: BatchShape, discriminator: dict, generator: dict, num_batches: int = 4):
        config = ElectraPretrainConfig(
            model=electra.ElectraPretrainerConfig(
                num_masked_tokens=shape.num_slots,
                sequence_length=shape.max_seq_length,
                generator_encoder=_encoder(generator),
                discriminator_encoder=_encoder(discriminator),
                cls_heads=[],
            ),
            train_data=pretrain_dataloader.BertPretrainDataConfig(use_next_sentence_label=False),
        )
        task = ElectraPretrainTask(config)
        model = task.build_model()
        self._metrics = [metric for metric in task.build_metrics() if metric.name in _REPORTED]
        optimizer = optimization.create_optimizer(5e-4, num_train_steps=1_000_000, num_warmup_steps=10_000)
        self._batches = [_inputs(synthetic_batch(shape, seed)) for seed in range(num_batches)]
        self._num_steps_run = 0
        self._step = tf.function(lambda batch: task.train_step(batch, model, optimizer, self._metrics))

    def run(self) -> dict[str, float]:
        """One step on the next batch."""
        batch = self._batches[self._num_steps_run % len(self._batches)]
        self._num_steps_run += 1
        for metric in self._metrics:
            metric.reset_state()
        self._step(batch)
        return {_REPORTED[metric.name]: float(metric.result()) for metric in self._metrics}


def _encoder(sizes: dict) -> encoders.EncoderConfig:
    bert = encoders.BertEncoderConfig(
        vocab_size=sizes["vocab_size"],
        embedding_size=sizes["embedding_size"],
        hidden_size=sizes["hidden_size"],
        num_layers=sizes["num_layers"],
        num_attention_heads=sizes["num_heads"],
        intermediate_size=sizes["intermediate_size"],
        max_position_embeddings=sizes["max_position_embeddings"],
        type_vocab_size=sizes["type_vocab_size"],
        dropout_rate=sizes["hidden_dropout"],
        attention_dropout_rate=sizes["attention_dropout"],
        initializer_range=sizes["initializer_range"],
    )
    return encoders.EncoderConfig(type="bert", bert=bert)


def _inputs(batch: dict) -> dict[str, tf.Tensor]:
    return {_NAMES.get(name, name): tf.constant(values) for name, values in batch.items() if name != "input_ids"}
