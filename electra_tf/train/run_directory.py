"""A run's directory on any filesystem that TensorFlow reads: its files, and whether a call may continue the run.

config.yaml               the settings that the user gave, itself a configuration
resolved.yaml             all settings, also those that followed from data and encoder; the first runs of 0.3 lack it
data.json                 a hash of the data of each input stage, the settings that chose its held-out text, and shares
vocab.txt, spm.model      the model's vocabulary, one of these or tokenizer.json
tokenizer_settings.json   the normalisation of its text
code.json                 versions of this project and of TensorFlow; hashes of the user's own objective
warm_start.json           the sources of the initial weights
metrics.jsonl             one JSON object a line: step, split (train or held_out) and its metrics
alarms.jsonl              one JSON object a line: step and message of an alarm that the run learns nothing
tensorboard/              events of the metrics
checkpoints/              the last few checkpoints: weights, optimizer state and the sums for the next report
milestones/               checkpoints at the fractions of training that the paper evaluates; never removed
best/                     the checkpoint of the best evaluation so far, where `evaluation.best_metric` is set
.lock                     the process that trains
"""

import contextlib
import functools
import hashlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import tensorflow as tf
from pydantic import ValidationError

from electra_tf.config.errors import UserError
from electra_tf.config.loader import config_to_yaml, read_values
from electra_tf.config.schema import RunConfig
from electra_tf.config.settings import is_free
from electra_tf.config.validation import settings_of
from electra_tf.files import (
    DamagedFile,
    exists,
    is_directory,
    is_remote,
    local_path,
    locked_file,
    names_in,
    read_bytes,
    read_json,
    read_rewritten,
    store_errors,
    write_atomically,
)
from electra_tf.tasks.base import Stage
from electra_tf.text.vocabulary import (
    VOCABULARY_FILES,
    StoredTokenizer,
    TextSettings,
    find_vocabulary_file,
    kind_of_vocabulary,
)

# The metrics that depend on the machine and its load. Two runs of one configuration agree in all others.
RATES = ("examples_per_second", "tokens_per_second", "model_flops_utilization", "peak_flops")

# The settings that the variables of a checkpoint depend on.
_OF_MODEL = re.compile(r"(encoder|objective|task)\.|optimizer\.name$")

logger = logging.getLogger(__name__)


class RunDirectory:
    """The paths of one run below `model_dir`, a directory or a URL such as `gs://bucket/run`.

    Args:
        flag: the flag that names the directory, for messages.
    """

    def __init__(self, model_dir: str | os.PathLike[str], flag: str = "model_dir"):
        self.path, self.flag = local_path(model_dir), flag
        inside = functools.partial(os.path.join, self.path)
        self.config_file = inside("config.yaml")
        self.resolved_file = inside("resolved.yaml")
        self.tokenizer_file = inside("tokenizer_settings.json")
        self.data_file = inside("data.json")
        self.code_file = inside("code.json")
        self.warm_start_file = inside("warm_start.json")
        self.metrics_file = inside("metrics.jsonl")
        self.alarms_file = inside("alarms.jsonl")
        self.tensorboard = inside("tensorboard")
        self.checkpoints = inside("checkpoints")
        self.milestones = inside("milestones")
        self.best = inside("best")
        self.lock_file = inside(".lock")

    def require_usable(self) -> None:
        """Raises: UserError: if the path cannot be that of a run, or is a directory that has files but no run."""
        if found := sorted(set(self.path) & set("*?[")):
            raise UserError(
                f"{self.flag}={self.path} has {''.join(found)!r} in it, which TensorFlow takes for a pattern when it "
                "reads a checkpoint; give another name"
            )
        others = set(names_in(self.path)) - {".lock", ".config.yaml.tmp", "resolved.yaml", ".resolved.yaml.tmp"}
        if others and not exists(self.config_file):
            raise UserError(f"{self.flag}={self.path} is not empty and holds no run; give a new directory")

    def create(self) -> None:
        """Makes the directory if needed. Raises: UserError: as `require_usable`, or if that fails."""
        self.require_usable()
        with store_errors(f"{self.flag}={self.path}", "cannot be written"):
            tf.io.gfile.makedirs(self.path)  # TensorFlow writes the checkpoints: it must know the store

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Holds the directory, which must exist, for this process, by the operating system's lock.

        A remote store has no locks: there nothing keeps a second process from training in the same directory.

        Raises: UserError: if another process holds the directory; the message names it and its machine.
        """
        if is_remote(self.path):
            yield
            return
        with contextlib.ExitStack() as stack:
            try:
                descriptor = stack.enter_context(locked_file(self.lock_file))
            except BlockingIOError:
                holder = "another process"
                with contextlib.suppress(ValueError, KeyError):  # it is being written
                    owner = json.loads(read_bytes(self.lock_file) or b"")
                    holder = f"process {owner['process']} on {owner['host']} since {owner['since']}"
                raise UserError(
                    f"{self.flag}={self.path} is in use by {holder}; wait, or give another directory"
                ) from None
            since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
            owner = json.dumps({"process": os.getpid(), "host": socket.gethostname(), "since": since})
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, owner.encode(), 0)
            yield

    @property
    def settings_file(self) -> str:
        """The file with all settings; in the first runs of 0.3 config.yaml has them."""
        return self.resolved_file if exists(self.resolved_file) else self.config_file

    def write_config(self, config: RunConfig, given: dict[str, Any] | None = None) -> None:
        """Writes all settings of a startable run, and those that the user gave; None: those `config` is made of."""
        write_atomically(self.resolved_file, config_to_yaml(config).encode())
        given = config.model_dump(mode="json", exclude_unset=True) if given is None else given
        write_atomically(self.config_file, config_to_yaml(given).encode())

    def require_startable(self, config: RunConfig, checkpoint: int | None) -> None:
        """Args: checkpoint: the step of the run's newest checkpoint; None if it has none.

        Raises: UserError: if the directory's run has other settings, is of another kind, or has lost its checkpoints.
        """
        stored = self._read_config()
        if stored and ("task" in stored) != ("task" in type(config).model_fields):
            kind = "fine-tuning" if "task" in stored else "pre-training"
            raise UserError(f"{self.flag}={self.path} holds a run of {kind}; give a new directory")
        if checkpoint is None:
            reported = max((report["step"] for report in self.reports("train")), default=0)
            unsaved = _flatten(stored or config.model_dump(mode="json")).get("train.save_every_steps", 0)
            if reported > (unsaved if isinstance(unsaved, int) else 0):  # more than a run without a checkpoint can have
                raise UserError(
                    f"{self.metrics_file} reports {reported} steps, but {self.checkpoints} holds no checkpoint; copy "
                    f"one there, for example from {self.milestones}, or give a new {self.flag}"
                )
        kept = (name for place in (self.milestones, self.best) for name in names_in(place) if name.endswith(".index"))
        if checkpoint is not None or any(kept):
            self.require_same_run(config, checkpoint, stored)

    def write_tokenizer(self, tokenizer: StoredTokenizer) -> None:
        """Writes the vocabulary and the normalisation; in a started run, for which `require_same_tokenizer` holds."""
        settings = {**tokenizer.settings._asdict(), "vocab_sha256": hashlib.sha256(tokenizer.content).hexdigest()}
        name = kind_of_vocabulary(tokenizer.content).file_name
        write_atomically(os.path.join(self.path, name), tokenizer.content)
        write_atomically(self.tokenizer_file, json.dumps(settings).encode())

    def read_tokenizer(self) -> StoredTokenizer:
        """The tokenizer of the run's text.

        Raises: UserError: if the run has read no data yet, or its vocabulary changed or is lost.
        """
        vocab_file, content = find_vocabulary_file(self.path)
        settings = read_json(self.tokenizer_file)
        if not settings or content is None or settings.get("vocab_sha256") != hashlib.sha256(content).hexdigest():
            names = vocab_file if content else f"{self.path}: {' or '.join(VOCABULARY_FILES)}"
            raise UserError(
                f"{names if settings else self.tokenizer_file} is missing, edited or damaged; copy that of the "
                "run's data set there, or train first"
            )
        return StoredTokenizer(content, TextSettings.from_mapping(settings))

    def write_data(self, stages: Sequence[Stage]) -> None:
        """Writes the facts of each stage's data; in a started run, for which `require_same_data` holds."""
        shares = [{each.source_name: each.share for each in stage.sources if each.source_name} for stage in stages]
        facts: dict[str, list[Any]] = {"hold_out": [stage.hold_out for stage in stages], "shares": shares}
        known = {name: of_stages for name, of_stages in facts.items() if any(of_stages)}
        write_atomically(self.data_file, json.dumps({"data": [stage.data_hash for stage in stages], **known}).encode())

    @property
    def hold_outs(self) -> list[tuple[str, dict[str, Any] | None]]:
        """For `electra_tf.data.manifest.seen_held_out_text`: each stage's data; empty if none is known."""
        return [(self.path, hold_out) for hold_out in read_rewritten(self.data_file).get("hold_out", ())]

    def require_same_data(self, data_hashes: list[str]) -> None:
        """Raises: UserError: if the run was started with another data set."""
        if read_rewritten(self.data_file).get("data", data_hashes) != data_hashes:
            raise UserError(
                f"the run in {self.path} was started with another data set, or a mixture with other weights "
                f"({self.data_file} has its hash); give that data, or a new {self.flag}"
            )

    def require_same_tokenizer(self, tokenizer: StoredTokenizer) -> None:
        """Raises: UserError: if the run was started with another vocabulary or normalisation, or its file changed."""
        vocab_file, content = find_vocabulary_file(self.path)
        settings = read_rewritten(self.tokenizer_file)
        whole = tokenizer.content
        is_known = not settings or settings.get("vocab_sha256") == hashlib.sha256(whole).hexdigest()
        if is_known and content not in (None, whole) and whole.startswith(content.rstrip(b"\0")):
            logger.warning("%s is damaged: it is empty or cut off; a call that trains writes it anew", vocab_file)
            content = None
        elif settings and content is not None:
            self.read_tokenizer()
        for file, is_same in (
            (vocab_file, content in (None, whole)),
            (self.tokenizer_file, not settings or TextSettings.from_mapping(settings) == tokenizer.settings),
        ):
            if not is_same:
                raise UserError(
                    f"{file} differs from that of the data set: the run was started with another tokenizer; give the "
                    f"run's data set, or a new {self.flag}"
                )

    def reports(self, split: str | None = None) -> list[dict[str, Any]]:
        """The reports in metrics.jsonl, in order. Args: split: train or held_out; None: all.

        A last line that a kill has cut off is left out.

        Raises: DamagedFile: if another line is not JSON.
        """
        lines = (read_bytes(self.metrics_file) or b"").splitlines()
        reports = []
        for number, line in enumerate(lines, start=1):
            try:
                reports.append(json.loads(line))
            except ValueError as error:
                if number < len(lines):
                    raise DamagedFile(f"{self.metrics_file} is damaged in line {number}: {error}") from None
        return [report for report in reports if split is None or report["split"] == split]

    def evaluation_at(self, step: int, reports: list[dict[str, Any]] | None = None) -> dict[str, float]:
        """The held-out metrics that were reported for a step, NaN where one had no value; empty if there are none.

        Args: reports: all of the run; None: they are read.
        """
        reports = self.reports() if reports is None else reports
        of_step = [report for report in reports if (report["split"], report["step"]) == ("held_out", step)]
        metrics = {name: value for name, value in (of_step or [{}])[-1].items() if name not in ("step", "split")}
        return {name: float("nan") if value is None else value for name, value in metrics.items()}

    @property
    def start_step(self) -> int:
        """The number of steps that another run had trained before this one went on from it; 0 without one."""
        return read_rewritten(self.warm_start_file).get("step", 0)

    @functools.cached_property
    def is_finetuned(self) -> bool:
        """True for a run of fine-tuning (one seed), False for pre-training or where there is no run."""
        return exists(self.config_file) and "task" in read_values(self.settings_file)[0]

    def require_same_run(
        self, config: RunConfig, checkpoint: int | None = None, stored: dict[str, Any] | None = None
    ) -> None:
        """Raises: UserError: if a setting that affects the weights differs from the run's, naming both values.

        Args:
            checkpoint: the step of the newest checkpoint. If given, `train.num_steps` may differ as long as all updates
                up to it are the same.
            stored: the run's settings; None: they are read.
        """
        stored = self._read_config() if stored is None else stored
        if not stored:  # it was damaged
            return
        stored_values, values, stable = _comparable(stored, config)
        before, now = (lasting_settings(type(config), each) for each in (stored_values, values))
        if stable and checkpoint is not None and checkpoint <= min(stable, config.stable_steps):
            before["train.num_steps"] = now["train.num_steps"]
        if (key := _first_difference(before, now)) is None:
            return
        can_go_on = checkpoint is not None and not config.varies_with_num_steps and "task" not in stored
        advice = f"continue it with its own flags and settings ({self.config_file}), or give a new {self.flag}"
        if key == "train.num_steps" and now[key] > before[key] and can_go_on:
            milestone = os.path.join(self.milestones, f"step-{stable}")
            is_before_decay = exists(f"{milestone}.index")
            advice = (
                "the learning rate of its next steps depends on it; to train longer, begin a new run with "
                f"init_from={milestone if is_before_decay else self.path} with_optimizer"
                + ("" if is_before_decay else "; its learning rate rises again at the start")
            )
        raise UserError(f"the run in {self.path} has {key} {before.get(key)}, this call has {now.get(key)}; {advice}")

    def require_same_model(self, config: RunConfig, place: str) -> int:
        """Returns: the run's number of leading steps that do not depend on `train.num_steps`; 0: all do.

        Args: place: the flag that gives the run, for the message.
        Raises: UserError: if the run has other networks, another objective or optimizer, naming both values.
        """
        stored_values, values, stable = _comparable(self._read_config(), config)
        before, now = (
            {key: value for key, value in _flatten(each).items() if _OF_MODEL.match(key)}
            for each in (stored_values, values)
        )
        if (key := _first_difference(before, now)) is not None:
            raise UserError(
                f"{place} has {key} {before.get(key)}, this run has {now.get(key)}; its optimizer fits only the same "
                "model: set it, or leave with_optimizer out"
            )
        return stable

    def _read_config(self) -> dict[str, Any]:
        """All settings; empty where there is no run. Raises: UserError: their file is not readable as YAML."""

        def read(path: str | os.PathLike[str]) -> dict[str, Any]:
            if (content := read_bytes(path)) is not None and not content.endswith(b"\n"):
                raise DamagedFile(f"{path} is damaged: it is empty or cut off")
            return {} if content is None else read_values(path)[0]

        given = read_rewritten(self.config_file, read)  # also to name a damaged one
        return read_rewritten(self.resolved_file, read) if exists(self.resolved_file) else given


def _comparable(stored: dict[str, Any], config: RunConfig) -> tuple[dict[str, Any], dict[str, Any], int]:
    """The settings of a run and of a configuration, and the run's number of stable steps; 0 if one is no longer valid.

    The run's have defaults for those that are newer than the run.
    """
    stable_steps = 0
    with contextlib.suppress(ValidationError):
        known = type(config).model_validate(stored)
        stored, stable_steps = known.model_dump(mode="json"), known.stable_steps
    return stored, config.model_dump(mode="json"), stable_steps


def lasting_settings(kind: type[RunConfig], values: Mapping[str, Any]) -> dict[str, Any]:
    """All settings of a run by their paths, without those that may differ between two calls of it: see `MayChange`."""
    free = tuple(f"{path}." for path, field in settings_of(kind).items() if is_free(field))
    return {path: value for path, value in _flatten(values).items() if not f"{path}.".startswith(free)}


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{prefix}{key}"
        flat |= _flatten(value, f"{path}.") if isinstance(value, dict) else {path: value}
    return flat


def _first_difference(before: dict[str, Any], now: dict[str, Any]) -> str | None:
    """The first setting with two values. The name of the objective or task comes first: others may follow from it."""
    keys = sorted(before | now, key=lambda key: (key not in ("objective.name", "name"), key))
    return next((key for key in keys if before.get(key) != now.get(key)), None)


def run_in(model_dir: str | os.PathLike[str]) -> RunDirectory:
    """The directory of a run that exists.

    Raises: UserError: if there is none; it names a seed where `electra-tf finetune` has written several.
    """
    run = RunDirectory(model_dir)
    if exists(run.config_file):
        return run
    seeds = [name for name in names_in(run.path) if name.startswith("seed_")] if is_directory(run.path) else []
    example = f", for example {os.path.join(run.path, seeds[0])}" if seeds else ""
    raise UserError(f"{run.path} holds no config.yaml; give the directory of a run{example}")
