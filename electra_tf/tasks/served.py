"""The functions of a SavedModel: a trained model on raw text or token ids."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import tensorflow as tf

from electra_tf.config.errors import UserError
from electra_tf.data.batch import TEXT_TENSORS
from electra_tf.models.encoder import Encoder
from electra_tf.models.inference import prepare_for_inference
from electra_tf.tasks.base import Task
from electra_tf.text.packing import Rows, cut, cut_texts, max_bytes, pack
from electra_tf.text.tokenizer import Tokenizer

# The largest number of windows in one forward pass, which bounds the memory that a long text needs.
_ROWS_AT_ONCE = 32

ServedOutputs = dict[str, tf.Tensor]
Served = tuple[Callable[..., ServedOutputs], list[tf.TensorSpec]]


@dataclass(frozen=True)
class ServingShapes:
    """The shapes of the served functions' inputs."""

    # The most tokens in a row, special ones included; longer texts are truncated, or cut into windows.
    max_seq_length: int
    batch_size: int | None = None  # the number of texts in every call; None: any number
    pad_to_max_length: bool = False  # whether all rows have `max_seq_length` tokens, or as many as the call's longest

    @property
    def width(self) -> int | None:
        """The number of tokens in every row; None if each call has its own."""
        return self.max_seq_length if self.pad_to_max_length else None


class ServedModel(tf.Module):
    """The functions of a SavedModel: `embed`, and in a subclass those of its task.

    A subclass extends `served`. Each function is an attribute too: `model.embed(text)`. Texts are read up to
    `max_bytes` of `max_seq_length`. If the tokenizer does not run in graphs, only the functions of ids are served. A
    WordPiece vocabulary drops invalid bytes of UTF-8; with SentencePiece they are unknown characters, with byte-level
    BPE U+FFFD.

    Args: task: it cannot be trained further, because its encoder is changed for inference.
    Raises: UserError: the model does not allow the shapes.
    """

    default = "embed"  # the function for requests that name no signature
    has_windows = False  # whether it cuts a long text into windows

    def __init__(self, task: Task, tokenizer: Tokenizer, shapes: ServingShapes):
        super().__init__(name="electra")
        prepare_for_inference(task.encoder)
        longest = task.config.encoder.max_position_embeddings
        if not self.least_length <= shapes.max_seq_length <= longest:
            raise UserError(
                f"max_seq_length={shapes.max_seq_length}: the task needs at least {self.least_length}, and the model "
                f"has {longest} positions"
            )
        # A function hides the task from TensorFlow, which would otherwise save the Keras layers' own calls and the
        # generator's weights too.
        self.get_task: Callable[[], Task] = lambda: task
        self.tokenizer = tokenizer
        self.shapes = shapes
        # All served functions share this graph. A lambda hides it from TensorFlow, because it is not a signature.
        texts = [tf.TensorSpec([None], tf.string)]
        tokenize = tf.function(tokenizer.tokenize, input_signature=texts, autograph=False)
        self._get_tokenize: Callable[[], Callable[[tf.Tensor], tf.RaggedTensor]] = lambda: tokenize
        functions = self.served()
        if not tokenizer.runs_in_graphs:
            functions = {
                name: (function, inputs)
                for name, (function, inputs) in functions.items()
                if all(spec.dtype != tf.string for spec in inputs)
            }
        self.names = tuple(functions)
        for name, (function, inputs) in functions.items():
            # Traced here: saving would trace a function a second time and write both.
            setattr(self, name, tf.function(function, input_signature=inputs, autograph=False).get_concrete_function())
        used = {id(variable): variable for name in functions for variable in getattr(self, name).variables}
        self._weights = list(used.values())

    @property
    def least_length(self) -> int:
        """The smallest `max_seq_length`, here for [CLS], a token and [SEP]."""
        return 3

    def served(self) -> dict[str, Served]:
        """The served functions by name, each with its inputs."""
        return {"embed": self.for_texts(self._vectors, has_tokens=True), "embed_ids": self.for_ids(self._vectors)}

    def signatures(self) -> dict[str, tf.types.experimental.ConcreteFunction]:
        """The served functions by name; the default function also under TF Serving's name for it."""
        served = {name: getattr(self, name) for name in self.names}
        default = self.default if self.default in served else f"{self.default}_ids"
        return {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: served[default], **served}

    def texts(self, *names: str) -> list[tf.TensorSpec]:
        """The specs of inputs that are texts, [N] string each."""
        return [tf.TensorSpec([self.shapes.batch_size], tf.string, name=name) for name in names]

    def ids(self) -> list[tf.TensorSpec]:
        """The specs of inputs that are token ids, [N, T] int32 each, for callers with their own tokenizer.

        `input_mask` is 1 for a token, 0 for padding.
        """
        shape = [self.shapes.batch_size, self.shapes.width]
        return [tf.TensorSpec(shape, tf.int32, name=name) for name in TEXT_TENSORS]

    def for_texts(self, compute: Callable[[Rows], ServedOutputs], has_tokens: bool = False) -> Served:
        """A function for `text`, [N] string, UTF-8.

        Returns: the outputs of `compute`, and:
            truncated: [N] bool, whether the text was cut.
            tokens: [N, T] string; "" in padding.        num_tokens: [N] int32, with [CLS] and [SEP]; if `has_tokens`.
        """

        def outputs_for_texts(text: tf.Tensor) -> ServedOutputs:
            rows, truncated = self.rows(text)
            outputs = {**compute(rows), "truncated": truncated}
            if has_tokens:
                outputs["tokens"] = tf.where(rows.input_mask > 0, self.tokenizer.tokens_of(rows.input_ids), "")
                outputs["num_tokens"] = rows.num_tokens
            return outputs

        return outputs_for_texts, self.texts("text")

    def for_ids(self, compute: Callable[[Rows], ServedOutputs]) -> Served:
        """A function for the inputs of `ids`: the outputs of `compute`."""

        def outputs_for_ids(input_ids: tf.Tensor, input_mask: tf.Tensor, segment_ids: tf.Tensor) -> ServedOutputs:
            return compute(self.checked_rows(input_ids, input_mask, segment_ids))

        return outputs_for_ids, self.ids()

    def tokenize(self, text: tf.Tensor, is_windowed: bool = False) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """The tokens of [N] texts up to `max_bytes`: [N, (tokens)] int32, and whether the text was cut: [N] bool."""
        longest = max_bytes(self.shapes.max_seq_length, is_windowed)
        text, is_cut = cut_texts(text, longest)
        tokens = self._get_tokenize()(text)
        return cut(tokens, longest), is_cut | (tokens.row_lengths() > longest)

    def pairs(self, first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
        """Concatenates the first texts of [N] pairs and the second texts: [2 N] string."""
        message = "expected the same number of texts in both inputs"
        with tf.control_dependencies([tf.debugging.assert_equal(tf.size(first), tf.size(second), message)]):
            return tf.concat([first, second], axis=0)

    def rows(self, text: tf.Tensor) -> tuple[Rows, tf.Tensor]:
        """A row [CLS] text [SEP] for each of [N] texts, and whether the text was cut: [N] bool."""
        (tokens, is_cut), room = self.tokenize(text), self.shapes.max_seq_length - 2
        return self.pack([cut(tokens, room)]), is_cut | (tokens.row_lengths() > room)

    def pack(self, parts: Sequence[tf.RaggedTensor], least_width: int = 2) -> Rows:
        """Joins parts to rows, see `electra_tf.text.packing.pack`. The parts must fit into `max_seq_length`."""
        return pack(parts, self.tokenizer.vocabulary, self.shapes.width, least_width)

    def checked_rows(self, *tensors: tf.Tensor) -> Rows:
        """The inputs of a call as rows, after a check of their shapes and ranges."""
        sizes, rows = self.get_task().config.encoder, Rows(*tensors)
        longest, shape = sizes.max_position_embeddings, tf.shape(rows.input_ids)
        message = f"input_ids has rows of more than {longest} tokens, the model's number of positions"
        checks = [tf.debugging.assert_less_equal(shape[-1], longest, message)]
        num_segments = max(2, sizes.type_vocab_size)  # with one row in the table, segments are ignored
        for name, below in (("input_ids", sizes.vocab_size), ("input_mask", 2), ("segment_ids", num_segments)):
            values = getattr(rows, name)
            checks += [
                tf.debugging.assert_equal(tf.shape(values), shape, f"{name} has another shape than input_ids"),
                tf.debugging.assert_non_negative(values, f"{name} has a number below 0"),
                tf.debugging.assert_less(values, below, f"{name} has a number that is not below {below}"),
            ]
        with tf.control_dependencies(checks):
            return Rows(*map(tf.identity, tensors))

    def _vectors(self, rows: Rows) -> ServedOutputs:
        """Vectors for rows of T tokens.

        Returns:
            pooled_output: [N, H] float32, the vector of [CLS].
            sequence_output: [N, T, H] float32, the vector of each token; 0 in padding.
        """
        encoder: Encoder = self.get_task().encoder
        output = encoder(**rows._asdict())
        real = tf.cast(rows.input_mask, tf.float32)[:, :, tf.newaxis]
        return {
            "pooled_output": tf.cast(output.pooled_output, tf.float32),
            "sequence_output": tf.cast(output.sequence_output, tf.float32) * real,
        }


def in_blocks(
    function: Callable[[Rows], ServedOutputs], rows: Rows, shapes: Mapping[str, tuple[Sequence[int | None], tf.DType]]
) -> ServedOutputs:
    """Computes `function(rows)` for a few rows at a time, to save memory.

    Args:
        function: returns tensors with one output for each row.
        shapes: the shape of each output, without the axis of rows, and its type.
    """
    num_rows = tf.shape(rows.input_ids)[0]
    num_blocks = -(-num_rows // _ROWS_AT_ONCE)
    arrays = {
        name: tf.TensorArray(dtype, num_blocks, infer_shape=False, element_shape=[None, *shape])
        for name, (shape, dtype) in shapes.items()
    }

    def body(block: tf.Tensor, arrays: dict[str, tf.TensorArray]) -> tuple[tf.Tensor, dict[str, tf.TensorArray]]:
        begin = block * _ROWS_AT_ONCE
        outputs = function(Rows(*(values[begin : begin + _ROWS_AT_ONCE] for values in rows)))
        return block + 1, {name: array.write(block, outputs[name]) for name, array in arrays.items()}

    _, arrays = tf.while_loop(lambda block, _: block < num_blocks, body, (0, arrays), parallel_iterations=1)
    return {name: array.concat() for name, array in arrays.items()}
