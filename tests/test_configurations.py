"""Every configuration file that ships, found by itself: built at a reduced size and taken through a run's life."""

import json
import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
import yaml

from electra_tf.config.errors import UserError
from electra_tf.data.corpus import PretrainingData, open_data
from electra_tf.data.masking import mask_batch
from electra_tf.flops.budget import RunCost
from electra_tf.ops.random import RandomStream
from electra_tf.runs.checkpoint import Checkpoints, seed_everything
from electra_tf.runs.directory import RunDirectory
from electra_tf.tasks.pretrain import OBJECTIVES, build_objective
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config
from electra_tf.tasks.pretrain.objective import Objective
from electra_tf.tasks.pretrain.reduction import ReducedSizes, reduce_config
from electra_tf.train.phases import phase_after, phases_of
from electra_tf.train.stages import stages_of
from electra_tf.train.step import compile_task, evaluation_step

CONFIGS = Path(__file__).resolve().parents[1] / "configs" / "pretrain"
FILES = sorted(CONFIGS.glob("**/*.yaml"))
ABLATIONS = sorted((CONFIGS / "ablations").glob("*.yaml"))
SIZES = ReducedSizes(vocab_size=47, hidden_size=128, max_seq_length=10, batch_size=4, num_steps=2)
# The first replica gets more tokens than the second, and more masked ones.
LENGTHS = (10, 8, 5, 7)
RATE = 1e-3


def name_of(path: Path) -> str:
    return str(path.relative_to(CONFIGS).with_suffix(""))


def reduced(path: Path) -> PretrainingConfig:
    """A file's run at the size of a test. What no step of it can show is made the same for all files."""
    config = reduce_config(load_config(path), SIZES)
    rate = config.optimizer.model_copy(update={"learning_rate": RATE})
    bookkeeping = {"seed": 0, "log_every_steps": 1, "save_every_steps": 1, "alarm_after_steps": 0}
    train = config.train.model_copy(update=bookkeeping)
    return config.model_copy(update={"optimizer": rate, "train": train})


def kinds(values: object) -> object:
    """Of settings, the words and yes-or-nos: they choose what is computed, numbers only how large or how much."""
    if isinstance(values, dict):
        return {name: kinds(value) for name, value in values.items()}
    return values if isinstance(values, str | bool) else type(values).__name__ == "NoneType"


def groups() -> Iterator:
    """The files, those together that are one run at a reduced size; a file that does not load is by itself.

    With each group: whether it is the first one of its kinds. Of two that differ in numbers, or in the masks that the
    input comes with, a second need not show that replicas compute the same.
    """
    found: dict[object, list[Path]] = {}
    for path in FILES:
        try:
            key = reduced(path).model_dump_json()
        except UserError:
            key = path
        found.setdefault(key, []).append(path)
    seen: set[str] = set()
    for key, paths in found.items():
        values = json.loads(key) if isinstance(key, str) else {}
        values.pop("masking", None)
        kind = json.dumps([kinds(values), len(values.get("stages", ()))])
        yield pytest.param(paths[0], kind not in seen, id="+".join(map(name_of, paths)))
        seen.add(kind)


class Trial:
    """A configuration's objective on one or two replicas, stepped one batch at a time as a run does."""

    def __init__(self, config: PretrainingConfig, data: PretrainingData, strategy, run_on_replicas):
        self.config, self.strategy = config, strategy
        self._data, self._run = data, run_on_replicas
        self._functions: dict[Objective, tf.types.experimental.GenericFunction] = {}
        seed_everything(5)
        with strategy.scope():
            self.objective = compile_task(build_objective(config))
        self.objective.adopt_data(data)

    def step(self) -> dict[str, float]:
        """One update, of the phase and on the input of the stage whose turn it is. Returns the step's metrics."""
        done = int(self.objective.optimizer.iterations.numpy())
        phase = phase_after(phases_of(self.objective), done)
        if done == phase.first_step:
            phase.objective.begin()
        stage = next(stage for stage in stages_of(self.config) if done < stage.last_step)
        batch = masked_rows(stage.config, self._data, done)
        function = self._functions.setdefault(phase.objective, tf.function(phase.objective.train_step))
        return {name: float(value) for name, value in self._run(self.strategy, function, batch).items()}

    def evaluate(self) -> dict[str, float]:
        """The metrics of one held-out batch, by the phase that the last step belonged to."""
        last = phases_of(self.objective)[-1].objective
        batch = masked_rows(stages_of(self.config)[-1].config, self._data, seed=9)
        terms = evaluation_step(last, batch, tf.constant(0, tf.int64))
        return {name: term.value() for name, term in terms.items()}

    def state(self) -> list[np.ndarray]:
        """Weights, moments, and the number of the step."""
        return [variable.numpy() for variable in self._variables()]

    def weights(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.objective.trainable_variables]

    def wipe(self) -> None:
        for variable in self._variables():
            variable.assign(tf.zeros_like(variable))

    def _variables(self) -> list[tf.Variable]:
        slots = self.objective.optimizer.variables
        return [*self.objective.variables, *(slots() if callable(slots) else slots)]


def masked_rows(config: PretrainingConfig, data: PretrainingData, seed: int) -> dict[str, tf.Tensor]:
    """A masked batch, one `[CLS] ... [SEP] ... [SEP]` row of each of `LENGTHS`, cut to the configuration's length."""
    vocabulary, length = data.vocabulary, config.data.max_seq_length
    rows = {name: np.zeros([len(LENGTHS), length], np.int32) for name in ("input_ids", "input_mask", "segment_ids")}
    words = np.random.default_rng(seed)
    for row, size in enumerate(min(size, length) for size in LENGTHS):
        rows["input_ids"][row, :size] = words.integers(5, vocabulary.size, size)
        rows["input_ids"][row, [0, size // 2, size - 1]] = [vocabulary.cls_id, vocabulary.sep_id, vocabulary.sep_id]
        rows["input_mask"][row, :size] = 1
        rows["segment_ids"][row, size // 2 + 1 : size] = 1
    tensors = {name: tf.constant(values) for name, values in rows.items()}
    batch = mask_batch(tensors, config.masking, data.masking_vocabulary, RandomStream(seed, 0, 0))
    repeats = config.train.batch_size // len(LENGTHS)
    return {name: tf.repeat(values, repeats, axis=0) for name, values in batch.items()}


@pytest.fixture(scope="module")
def data(tmp_path_factory, tiny_config, write_data) -> PretrainingData:
    return open_data(write_data(tmp_path_factory.mktemp("data") / "set"), tiny_config())


def equal(first: list[np.ndarray], second: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))


def largest_difference(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    return max(float(np.abs(a - b).max()) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize(("path", "on_two_replicas"), groups())
def test_a_configuration_steps_and_goes_on_from_its_checkpoint_bit_for_bit_and_alike_on_two_replicas(
    path, on_two_replicas, data, two_replicas, run_on_replicas, tmp_path
):
    """One test, not five, as building and tracing are what takes the time."""
    config, directory = reduced(path), RunDirectory(tmp_path / "run")
    one = Trial(config, data, tf.distribute.OneDeviceStrategy("CPU:0"), run_on_replicas)
    start = one.weights()
    first = one.step()
    assert all(math.isfinite(value) for value in first.values())
    assert first["nonfinite"] == 0.0 and first["gradient_norm"] > 0.0
    # A first update is up to 3.2 times the rate, whatever the gradient.
    moved = one.weights()
    assert largest_difference(start, moved) > 0.1 * RATE
    middle = one.state()

    Checkpoints(one.objective, directory, chief=True, keep=1).save(1)
    second, end = one.step(), one.state()
    one.wipe()
    assert Checkpoints(one.objective, directory, chief=True, keep=1).restore_latest() == 1
    assert equal(middle, one.state())
    assert one.step() == second
    assert equal(end, one.state())

    losses = {name: value for name, value in one.evaluate().items() if name.endswith("_loss")}
    assert losses and all(math.isfinite(value) for value in losses.values())

    if on_two_replicas:
        two = Trial(config, data, two_replicas, run_on_replicas)
        assert largest_difference(start, two.weights()) == 0.0
        assert two.step() == pytest.approx(first, rel=1e-5, abs=1e-7)
        assert largest_difference(moved, two.weights()) < 1e-2 * RATE
        two.wipe()
        assert Checkpoints(two.objective, directory, chief=True, keep=1).restore_latest() == 1
        assert equal(middle, two.state())
        assert two.step() == pytest.approx(second, rel=1e-5, abs=1e-7)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_configuration_is_costed_at_its_full_size(path):
    config = load_config(path)
    cost = RunCost(config)
    whole, half = cost.spent(config.train.num_steps), cost.spent(config.train.num_steps // 2)
    assert 0 < half.paper < whole.paper and 0 < half.hardware.total < whole.hardware.total
    assert cost.steps_within(float(whole.paper) * 1.001, "paper") == config.train.num_steps
    assert whole.examples >= config.train.num_steps


def test_every_objective_has_a_configuration():
    assert set(OBJECTIVES) <= {load_config(path).objective.name for path in FILES}


def setting_lines(path: Path) -> list[str]:
    lines = (line.split("#")[0].rstrip() for line in path.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("base:")]


@pytest.mark.parametrize("path", ABLATIONS, ids=name_of)
def test_an_ablation_is_one_to_four_lines_over_its_base(path):
    assert "base" in yaml.safe_load(path.read_text(encoding="utf-8"))
    assert 1 <= len(setting_lines(path)) <= 4


@pytest.mark.parametrize("path", ABLATIONS, ids=name_of)
def test_an_ablation_is_another_run_than_its_base_and_than_every_other(path):
    base = yaml.safe_load(path.read_text(encoding="utf-8"))["base"]
    config = load_config(path)
    assert config != load_config(path.parent / base)
    assert [other.stem for other in FILES if load_config(other) == config] == [path.stem]


def test_the_readme_names_every_configuration():
    text = (CONFIGS.parent / "README.md").read_text(encoding="utf-8")
    assert [name_of(path) for path in FILES if f"`pretrain/{name_of(path)}.yaml`" not in text] == []


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_documentation_has_a_section_on_every_objective(objective):
    text = (CONFIGS.parents[1] / "docs" / "objectives.md").read_text(encoding="utf-8")
    assert f"\n## {objective}\n" in text
