"""The initial values and the size of the models of the paper, against those of the authors' own code."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest

from electra_tf.config.networks import EncoderConfig
from electra_tf.models.bert_block import TransformerLayer
from electra_tf.tasks.pretrain import build_objective
from electra_tf.tasks.pretrain.config import load_config
from electra_tf.weights.names import named_variables

CONFIGS = Path(__file__).resolve().parents[2] / "configs" / "pretrain"
# Of a normal of standard deviation 0.02 cut at two of them; one draw of the authors' code had 0.0175 to 0.0177.
TRUNCATED_STD = 0.02 * 0.8796256610342398
GLOROT_KERNELS = ("embeddings_project/kernel", "discriminator_predictions/dense_1/kernel")


@pytest.fixture(scope="module")
def small():
    keras.utils.set_random_seed(11)
    return build_objective(load_config(CONFIGS / "small.yaml"))


@pytest.fixture(scope="module")
def initial_values(small) -> dict[str, np.ndarray]:
    return {name: variable.numpy() for name, variable in named_variables(small).items()}


def num_parameters(*layers: keras.layers.Layer) -> int:
    return sum(math.prod(variable.shape) for layer in layers for variable in layer.trainable_variables)


@pytest.mark.parametrize(
    ("name", "encoder", "discriminator", "parameters"),
    [
        ("small", 13_483_008, 13_549_057, 14_196_219),
        pytest.param("base", 108_891_648, 109_483_009, 119_386_427, marks=pytest.mark.slow),
        pytest.param("large", 334_092_288, 335_142_913, 354_655_291, marks=pytest.mark.slow),
    ],
)
def test_models_have_the_authors_number_of_parameters(small, name, encoder, discriminator, parameters):
    objective = small if name == "small" else build_objective(load_config(CONFIGS / f"{name}.yaml"))
    assert num_parameters(objective) == parameters
    assert num_parameters(objective.encoder) == encoder
    assert num_parameters(*objective.detection_layers) == discriminator


def test_tables_and_kernels_are_normals_cut_at_two_deviations(initial_values):
    kernels = {
        name: values
        for name, values in initial_values.items()
        if name.endswith(("kernel", "_embeddings")) and not name.endswith(GLOROT_KERNELS)
    }
    assert len(kernels) == 3 + 2 * 12 * 6 + 2
    for name, values in kernels.items():
        n = values.size
        assert np.abs(values).max() <= 0.04 * (1 + 1e-6), name
        assert abs(values.mean()) < 5 * TRUNCATED_STD / math.sqrt(n), name
        assert abs(values.std() - TRUNCATED_STD) < 5 * TRUNCATED_STD / math.sqrt(2 * n), name


def test_projections_and_the_last_layer_are_glorot_uniform(initial_values):
    kernels = {name: values for name, values in initial_values.items() if name.endswith(GLOROT_KERNELS)}
    assert len(kernels) == 3
    for name, values in kernels.items():
        limit = math.sqrt(6 / sum(values.shape))
        assert np.abs(values).max() <= limit, name
        assert abs(values.std() - limit / math.sqrt(3)) < 5 * limit / math.sqrt(3) / math.sqrt(2 * values.size), name


def test_biases_begin_at_zero_and_layer_norms_as_the_identity(initial_values):
    zeros = [values for name, values in initial_values.items() if name.endswith(("bias", "beta"))]
    ones = [values for name, values in initial_values.items() if name.endswith("gamma")]
    assert len(zeros) == 1 + 2 + 2 * 12 * 8 + 3 + 2 and not any(values.any() for values in zeros)
    assert len(ones) == 2 + 2 * 12 * 2 and all((values == 1).all() for values in ones)


def test_no_two_variables_start_with_the_same_values(initial_values):
    starts = [values.ravel()[:64].tobytes() for name, values in initial_values.items() if values.std() > 0]
    assert len(starts) == len(set(starts))


def test_the_seed_fixes_the_initial_values(tiny_config):
    def build(seed: int) -> list[np.ndarray]:
        keras.utils.set_random_seed(seed)
        return [variable.numpy() for variable in build_objective(tiny_config()).trainable_variables]

    first, again, other = build(1), build(1), build(2)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert all(np.array_equal(a, b) == (a.std() == 0) for a, b in zip(first, other, strict=True))


def test_initial_values_of_a_layer_for_a_fixed_seed():
    sizes = {"vocab_size": 47, "embedding_size": 12, "hidden_size": 16, "num_heads": 2, "intermediate_size": 24}
    layer = TransformerLayer(EncoderConfig(num_layers=1, **sizes), index=0)
    keras.utils.set_random_seed(5)
    layer.build([None, None, 16])
    kernels = layer.attention.query.kernel, layer.intermediate.kernel, layer.feed_forward_output.projection.kernel
    actual = [float(kernel[0, 0]) for kernel in kernels]
    assert actual == pytest.approx([-0.0032042363, -0.0150106875, -0.012557207], rel=1e-6)


def test_width_scaled_standard_deviations():
    """H sigma^2 is 768 x 0.02^2 at every width."""
    sizes = {"vocab_size": 47, "embedding_size": 8, "num_layers": 1, "num_heads": 2, "intermediate_size": 16}
    for hidden_size, stddev in ((768, 0.02), (192, 0.04), (48, 0.08)):
        encoder = EncoderConfig(hidden_size=hidden_size, initializer_range="width_scaled", **sizes)
        assert encoder.initializer_stddev == pytest.approx(stddev)
    assert EncoderConfig(hidden_size=48, initializer_range=0.3, **sizes).initializer_stddev == 0.3
