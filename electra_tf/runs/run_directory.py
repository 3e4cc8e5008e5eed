"""A run's directory: what lies where, and what may be written over.

config.yaml               the resolved configuration, itself a configuration
data.json                 which data set each stage reads
vocab.txt                 the vocabulary the model was trained with
tokenizer_settings.json   how its text was normalised
warm_start.json           where the initial weights came from, if not from chance
metrics.jsonl             one JSON object a line: step, split (train or held_out) and its metrics
alarms.jsonl              one JSON object a line: step and message, of a training that learns nothing
tensorboard/              events of the metrics
checkpoints/              the last few, model and optimizer
milestones/               those at the shares of the training that the paper evaluates, kept for ever
.lock                     held by the process that trains, and names it
"""

import contextlib
import errno
import json
import os
from collections.abc import Sequence
from pathlib import Path

from electra_tf.config.errors import UserError
from electra_tf.config.files import is_remote
from electra_tf.config.loader import config_to_yaml
from electra_tf.runs.checkpoint_files import CheckpointFolder
from electra_tf.runs.directory_lock import LOCK_FILE
from electra_tf.runs.reported_lines import lines_until, reports_of
from electra_tf.tasks.pretrain.config import PretrainingConfig, load_config

# What depends on the machine and its load: the one part of metrics.jsonl that two runs of one configuration differ in.
RATES = ("examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops")

# What may change between two calls that continue one run: it has no influence on the weights, or, where a step or a
# record is broken, says how to go on.
_MAY_CHANGE = {
    "train": (
        "log_every_steps",
        "save_every_steps",
        "keep_checkpoints",
        "milestone_fractions",
        "asynchronous_checkpoints",
        "alarm_after_steps",
        "peak_flops",
        "on_nonfinite",
        "max_nonfinite_steps",
    ),
    "evaluation": ("every_steps", "max_batches", "batch_size", "as_masked_lm"),
    "data": ("vocab_file", "on_damaged_record"),
}


class RunDirectory:
    """The paths of one run below `model_dir`.

    Raises: UserError: if that is a URL. Checkpoints are published by renaming and kept from a second run by a lock;
        stores of objects have neither.
    """

    def __init__(self, model_dir: str | os.PathLike):
        if is_remote(str(model_dir)):
            raise UserError(f"--model_dir={model_dir} is a URL; give a directory of this machine, or one mounted there")
        self.path = Path(model_dir)
        self.config_file = self.path / "config.yaml"
        self.vocab_file = self.path / "vocab.txt"
        self.tokenizer_file = self.path / "tokenizer_settings.json"
        self.data_file = self.path / "data.json"
        self.warm_start_file = self.path / "warm_start.json"
        self.metrics_file = self.path / "metrics.jsonl"
        self.alarms_file = self.path / "alarms.jsonl"
        self.tensorboard = self.path / "tensorboard"
        self.checkpoints = self.path / "checkpoints"
        self.milestones = self.path / "milestones"

    def latest_checkpoint(self) -> str | None:
        """The prefix of the newest checkpoint that was published, whole or not; None if there is none."""
        folder = CheckpointFolder(self.checkpoints)
        steps = folder.published_steps()
        return folder.prefix(steps[-1]) if steps else None

    def create(self) -> None:
        """Makes the directory, unless it is there and is, or can become, that of a run.

        Raises: UserError: if there is something else in its place, or in it.
        """
        if self.path.exists() and not self.path.is_dir():
            raise UserError(f"--model_dir={self.path} is a file; give a directory")
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            foreign = {path.name for path in self.path.iterdir()} - {LOCK_FILE, _temporary(self.config_file).name}
        except OSError as error:
            raise UserError(f"--model_dir={self.path} cannot be written: {error.strerror}; give another one") from None
        if foreign and not self.config_file.exists():
            raise UserError(f"--model_dir={self.path} is not empty and holds no run; give a new directory")

    def adopt_config(self, config: PretrainingConfig, chief: bool) -> None:
        """Writes the configuration, or checks that the run there is the same one.

        Args:
            chief: whether this process writes; the other workers of a cluster only check.
        Raises: UserError: if the directory holds a run of other settings, naming the first one, or one whose
            checkpoints are gone.
        """
        if self.latest_checkpoint() is not None:
            self.require_same_run(config)
        else:
            self._require_no_lost_checkpoint()
            if chief:
                CheckpointFolder(self.checkpoints).newest_whole()  # or why there is none, before anything is written
        if not chief:
            return
        write_atomically(self.config_file, config_to_yaml(config).encode())

    def adopt_tokenizer(self, vocabulary: bytes, lower_case: bool, strip_accents: bool) -> None:
        """Keeps the vocabulary, the content of its file, and the normalisation beside the model.

        Raises: UserError: if the run was started with another vocabulary or normalisation.
        """
        for file, content in self._tokenizer_files(vocabulary, lower_case, strip_accents).items():
            if self.latest_checkpoint() is not None:
                _require_content(file, content)
            write_atomically(file, content)

    def adopt_data(self, identities: Sequence[str]) -> None:
        """Notes which data set each stage of the run reads.

        Raises: UserError: if the run was started with another one: batch k would be another batch.
        """
        content = json.dumps({"data": list(identities)}).encode()
        if self.latest_checkpoint() is not None and self.data_file.exists() and self.data_file.read_bytes() != content:
            raise UserError(
                f"the run in {self.path} was started with another data set (see {self.data_file.name}); give that one "
                "as --data_dir, or begin a new run with --init_from and a new --model_dir"
            )
        write_atomically(self.data_file, content)

    def _require_no_lost_checkpoint(self) -> None:
        """A run that must have come to a checkpoint does not begin again unasked when there is none."""
        if not self.config_file.exists():
            return
        reported = max((report["step"] for report in reports_of(self.metrics_file, "train")), default=0)
        train = load_config(self.config_file).train
        # One that is written while the steps go on may still have been on its way to the disk.
        expected_from = train.save_every_steps * (2 if train.asynchronous_checkpoints else 1)
        if reported > expected_from:
            raise UserError(
                f"{self.metrics_file} reports {reported} steps, but {self.checkpoints} holds no checkpoint; copy one "
                f"there, for example from {self.milestones}, or, if none could be written, give a new --model_dir"
            )

    def require_same_tokenizer(self, vocabulary: bytes, lower_case: bool, strip_accents: bool) -> None:
        """Raises: UserError: if the run was started with another vocabulary or normalisation."""
        for file, content in self._tokenizer_files(vocabulary, lower_case, strip_accents).items():
            _require_content(file, content)

    def require_same_run(self, config: PretrainingConfig) -> None:
        """Raises: UserError: if a setting that touches the weights is not the run's, naming both values."""
        before, now = (_flatten(lasting_settings(c)) for c in (load_config(self.config_file), config))
        # The objective's name first: other settings differ because of it.
        for key in sorted(before | now, key=lambda key: (key != "objective.name", key)):
            if before.get(key) != now.get(key):
                raise UserError(
                    f"the run in {self.path} has {key} {before.get(key)}, this call has {now.get(key)}; continue it "
                    f"with its own settings (--config={self.config_file}) or give a new --model_dir"
                )

    def _tokenizer_files(self, vocabulary: bytes, lower_case: bool, strip_accents: bool) -> dict[Path, bytes]:
        settings = json.dumps({"lower_case": lower_case, "strip_accents": strip_accents}).encode()
        return {self.vocab_file: vocabulary, self.tokenizer_file: settings}


def _require_content(file: Path, content: bytes) -> None:
    if file.exists() and file.read_bytes() != content:
        raise UserError(
            f"{file} is not what the data set has: the run was started with another tokenizer; use its data, or a new "
            "--model_dir"
        )


def lasting_settings(config: PretrainingConfig) -> dict:
    """The settings, by group, that are the same in all calls of one run: those that touch the weights."""
    values = config.model_dump(mode="json")
    for group, names in _MAY_CHANGE.items():
        values[group] = {key: value for key, value in values[group].items() if key not in names}
    return values


def _flatten(values: dict, prefix: str = "") -> dict[str, object]:
    flat: dict[str, object] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        flat |= _flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def write_atomically(path: Path, content: bytes) -> None:
    """Writes a file so that at no moment a part of it is seen. Raises: UserError: if the disk does not take it."""
    temporary = _temporary(path)
    try:
        with open(temporary, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(f"{path} cannot be written: {error.strerror}; {_way_out(error, path)}") from None


def _way_out(error: OSError, path: Path) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "make room there or give another place"
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return f"{path.parent} is no directory: make it or give another place"
    return "give another place"


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def drop_lines_after(jsonl_file: Path, step: int) -> None:
    """Removes the lines of steps after `step`: a run continued from its checkpoint at `step` writes them again.

    Raises: UserError: if the file cannot be read or written.
    """
    before, kept = lines_until(jsonl_file, step)
    if kept != before:
        write_atomically(jsonl_file, kept)
