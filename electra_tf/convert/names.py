"""The names that the authors' code gives the variables, as its TensorFlow 1 checkpoints hold them."""

import tensorflow as tf
import tf_keras

from electra_tf.config.errors import UserError
from electra_tf.convert.stored_weights import list_briefly
from electra_tf.models.embeddings import DisentangledEmbeddings
from electra_tf.models.encoder import Encoder, TransformerLayer
from electra_tf.models.generators import TransformerGenerator
from electra_tf.models.heads import MaskedLmHead
from electra_tf.tasks.finetune.question_answering import QuestionAnsweringTask
from electra_tf.tasks.finetune.task import FinetuningTask
from electra_tf.tasks.pretrain.bert_mlm import BertMlm
from electra_tf.tasks.pretrain.electra import Electra
from electra_tf.tasks.pretrain.objective import Objective

NamedVariables = dict[str, tf.Variable]


def tf1_variables(objective: Objective) -> NamedVariables:
    """Every trainable variable of an objective under the name that the authors' code gives it.

    Their discriminator (and their masked-LM baseline) is the scope `electra`, the generator `generator`; embeddings
    that both use, or a whole encoder, stand under `electra`.

    Raises: UserError: if their code has no such objective, or no name for some of its variables.
    """
    if isinstance(objective, BertMlm):
        named = {**_encoder(objective.encoder, "electra"), **_masked_lm_head(objective.masked_lm.head)}
    elif isinstance(objective, Electra):
        named = {
            **_generator(objective),
            **_encoder(objective.discriminator, "electra"),
            **_dense(objective.replaced_token_head.transform, "discriminator_predictions/dense"),
            **_dense(objective.replaced_token_head.score, "discriminator_predictions/dense_1"),
        }
    else:
        raise UserError(
            f"the authors' code has no {objective.config.objective.name}; expected electra, electra_15 or bert_mlm"
        )
    known = {id(variable) for variable in named.values()}
    unnamed = [each.name.removesuffix(":0") for each in objective.trainable_variables if id(each) not in known]
    if unnamed:
        raise UserError(
            f"the authors' code has no {objective.config.objective.name}: it knows no variable {list_briefly(unnamed)}"
        )
    return named


def _generator(objective: Electra) -> NamedVariables:
    """The generator's part; nothing where it has no weights. Raises: UserError: the authors tie it in no such way."""
    if not isinstance(objective.generator, TransformerGenerator):
        return {}
    encoder, discriminator = objective.generator.encoder, objective.discriminator
    if isinstance(discriminator.embeddings, DisentangledEmbeddings):
        tying = objective.config.objective.tying
        raise UserError(f"the authors' code has no objective.tying {tying!r}; expected none, embeddings or all")
    named = _encoder(encoder, "generator") if encoder is not discriminator else {}
    if encoder.embeddings is discriminator.embeddings:
        named = {name: variable for name, variable in named.items() if not name.startswith("generator/embeddings/")}
    return {**named, **_masked_lm_head(objective.generator.head)}


def encoder_variables(encoder: Encoder) -> NamedVariables:
    """Every variable of a discriminator's encoder, or of one that was made from it, under the authors' names."""
    return _encoder(encoder, "electra")


def finetuned_variables(task: FinetuningTask, task_name: str) -> NamedVariables:
    """Every trainable variable of a fine-tuning task under the name that the authors' code gives it.

    Args:
        task_name: what their code calls the task, part of the names of the head's variables.
    """
    named = encoder_variables(task.encoder)
    for name, layer in _head_layers(task).items():
        named |= _dense(layer, f"task_specific/{task_name}/{name}")
    return named


def _head_layers(task: FinetuningTask) -> dict[str, tf_keras.layers.Dense]:
    if not isinstance(task, QuestionAnsweringTask):
        # `hidden` is of Hugging Face's head, which the authors' code does not have.
        layers = {"hidden": getattr(task, "hidden_layer", None), "dense": task.output_layer}
        return {name: layer for name, layer in layers.items() if layer is not None}
    layers = {"dense": task.start_layer, "qa_hidden": task.end_hidden_layer, "dense_1": task.end_layer}
    answerable = [task.answerable_hidden_layer, task.answerable_layer]  # numbered as they are created
    layers |= {f"dense_{number}": layer for number, layer in enumerate(filter(None, answerable), start=2)}
    return {name: layer for name, layer in layers.items() if layer is not None}


def _encoder(encoder: Encoder, scope: str) -> NamedVariables:
    tables = ("word_embeddings", "position_embeddings", "token_type_embeddings")
    named = {f"{scope}/embeddings/{table}": getattr(encoder.embeddings, table) for table in tables}
    named |= _layer_norm(encoder.embeddings.layer_norm, f"{scope}/embeddings")
    if encoder.embeddings_project is not None:
        named |= _dense(encoder.embeddings_project, f"{scope}/embeddings_project")
    for index, layer in enumerate(encoder.transformer_layers):
        named |= _transformer_layer(layer, f"{scope}/encoder/layer_{index}")
    return named


def _transformer_layer(layer: TransformerLayer, scope: str) -> NamedVariables:
    return {
        **_dense(layer.attention.query, f"{scope}/attention/self/query"),
        **_dense(layer.attention.key, f"{scope}/attention/self/key"),
        **_dense(layer.attention.value, f"{scope}/attention/self/value"),
        **_dense(layer.attention_output.projection, f"{scope}/attention/output/dense"),
        **_layer_norm(layer.attention_output.layer_norm, f"{scope}/attention/output"),
        **_dense(layer.intermediate, f"{scope}/intermediate/dense"),
        **_dense(layer.feed_forward_output.projection, f"{scope}/output/dense"),
        **_layer_norm(layer.feed_forward_output.layer_norm, f"{scope}/output"),
    }


def _masked_lm_head(head: MaskedLmHead) -> NamedVariables:
    scope = "generator_predictions"
    return {
        **_dense(head.transform, f"{scope}/dense"),
        **_layer_norm(head.layer_norm, scope),
        f"{scope}/output_bias": head.output_bias,
    }


def _dense(layer: tf_keras.layers.Dense, scope: str) -> NamedVariables:
    return {f"{scope}/kernel": layer.kernel, f"{scope}/bias": layer.bias}


def _layer_norm(layer: tf_keras.layers.LayerNormalization, scope: str) -> NamedVariables:
    return {f"{scope}/LayerNorm/gamma": layer.gamma, f"{scope}/LayerNorm/beta": layer.beta}
