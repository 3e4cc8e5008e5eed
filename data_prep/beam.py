"""The build on Apache Beam: the same data set, byte for byte, on one machine or on a cluster.

The runner and its options are Beam's own. What is needed beside requirements.txt is `pip install .[beam]`.
"""

import contextlib
import dataclasses
import logging
import os
import re
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from data_prep import output, storage
from data_prep.inputs import SourceFile, find_files
from data_prep.pipeline import check_truncated, configuration
from data_prep.progress import log_summary
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.text.manifest import Manifest
from electra_tf.text.vocabulary import Vocabulary, read_vocabulary_file

if TYPE_CHECKING:
    from apache_beam import Pipeline
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineRunner

_logger = logging.getLogger(__name__)

_LOCAL_RUNNERS = ("directrunner", "direct", "fnapirunner")  # names of the runner of this machine
# Loggers that write what workers have written already, and exceptions that are raised as well.
_REPEATED = ("apache_beam.runners.portability.local_job_service", "apache_beam.runners.common")


def run(settings: BuildSettings, beam_arguments: list[str]) -> Manifest:
    """Builds the data set by a Beam pipeline and returns its manifest, which is also the last file written.

    Args:
        settings: `num_processes` is 1; how many there are is for the runner's own options to say. No `work_dir` is
            needed: what lies between input and output is the runner's.
        beam_arguments: Beam's options, `--runner=NAME` among them, as on a command line.
    Raises: UserError: as `pipeline.build`; also if Beam is not installed or does not know an option, or if the runner's
        machines cannot reach what is to be read or written. A build that failed for another reason than its input
        begins anew with the same call, if it wrote to a URL with `overwrite`.
    """
    options = _options(beam_arguments)
    if settings.num_processes != 1:
        raise UserError(
            f"--num_processes={settings.num_processes} is for builds without --runner; give the runner's own option,"
            " e.g. --direct_running_mode=multi_processing --direct_num_workers=2"
        )
    files = find_files(settings.inputs)
    _check_reachable(settings, files, options)
    vocab_content = read_vocabulary_file(settings.vocab_file)
    vocabulary = Vocabulary.from_bytes(vocab_content, settings.vocab_file)
    wanted = configuration(settings, files, vocabulary)
    if manifest := output.finished_manifest(settings, wanted):
        _logger.info("%s holds this data set already", settings.output_dir)
        check_truncated(manifest, settings)
        return manifest
    pipeline = _pipeline(options)
    sources = [settings.vocab_file, *(file.path for file in files)]
    with _work_dir(settings) as settings, output.opened(settings, wanted, sources):
        manifest = _build(settings, files, vocabulary, vocab_content, pipeline)
        output.remove_build_dir(settings)
    check_truncated(manifest, settings)
    return manifest


@contextlib.contextmanager
def _work_dir(settings: BuildSettings) -> Iterator[BuildSettings]:
    """The settings with a place for the lock and the notes of a build, which are local also if its output is not."""
    if settings.work_dir or not storage.is_remote(settings.output_dir):
        yield settings
        return
    with tempfile.TemporaryDirectory() as directory:
        yield dataclasses.replace(settings, work_dir=directory)


def _build(
    settings: BuildSettings,
    files: list[SourceFile],
    vocabulary: Vocabulary,
    vocab_content: bytes,
    pipeline: "Pipeline",
) -> Manifest:
    from data_prep.beam_transforms import BuildDataset

    begin = time.monotonic()
    _logger.info(
        "reading %d files, %.1f MB, by Beam's %s",
        len(files),
        sum(file.num_bytes for file in files) / 1e6,
        type(pipeline.runner).__name__,
    )
    pipeline | "BuildDataset" >> BuildDataset(settings, files, vocabulary, vocab_content)
    with _failures_explained(settings):
        pipeline.run().wait_until_finish()
    manifest = Manifest.load(settings.output_dir)
    log_summary(manifest, time.monotonic() - begin, manifest.counts.num_tokens_read)
    return manifest


def _options(beam_arguments: list[str]) -> "PipelineOptions":
    """Raises: UserError: Beam is not installed, or has no such option."""
    logging.disable(logging.WARNING)  # it complains of each part of Google Cloud that is not installed
    try:
        import apache_beam  # noqa: F401
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise UserError(f"--runner needs Apache Beam ({error}); install it with `pip install .[beam]`") from None
    finally:
        logging.disable(logging.NOTSET)
    options = PipelineOptions(beam_arguments)
    # Beam itself drops what it does not know, with a warning.
    parsers = []
    options.get_all_options(add_extra_args_fn=parsers.append)
    _, unknown = parsers[0].parse_known_args(beam_arguments)
    if unknown:
        raise UserError(
            f"unknown arguments {' '.join(unknown)}: neither this program nor Apache Beam has them; see --help, and the"
            " documentation of the runner"
        )
    return options


def _check_reachable(settings: BuildSettings, files: list[SourceFile], options: "PipelineOptions") -> None:
    if "dataflow" not in _runner_name(options).lower():
        return
    for path in (settings.output_dir, *(file.path for file in files)):
        if not storage.is_remote(path):
            raise UserError(
                f"{path} is on this machine, and the workers of --runner={_runner_name(options)} are others; copy it to"
                " gs:// and give its URL, or a gs:// URL to write to"
            )


def _runner_name(options: "PipelineOptions") -> str:
    from apache_beam.options.pipeline_options import StandardOptions

    return options.view_as(StandardOptions).runner or "DirectRunner"


def _pipeline(options: "PipelineOptions") -> "Pipeline":
    """An empty pipeline. Raises: UserError: there is no such runner, or it lacks an option or a package."""
    import apache_beam

    name = _runner_name(options)
    runner = _local_runner(options) if name.lower() in _LOCAL_RUNNERS else name
    try:
        return apache_beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--runner={name} cannot be used: {reason}; mend it, or give another runner") from None


def _local_runner(options: "PipelineOptions") -> "PipelineRunner":
    """The portable runner in Python, to which DirectRunner comes down in the end: it tries one in Go first, which it
    would have to fetch from the network."""
    from apache_beam.options.pipeline_options import WorkerOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    # Workers of their own processes write on this one's stderr, and are asked to say no more than we would. What Beam
    # calls an error comes back as an exception as well.
    worker_options = options.view_as(WorkerOptions)
    if worker_options.default_sdk_harness_log_level is None:
        worker_options.default_sdk_harness_log_level = "WARNING"
        worker_options.sdk_harness_log_level_overrides = {"data_prep": "INFO", "apache_beam": "CRITICAL"}
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    for name in _REPEATED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    # They import this package too, wherever the program is started.
    root = str(Path(__file__).resolve().parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if root not in paths:
        os.environ["PYTHONPATH"] = os.pathsep.join([root, *paths])
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision_info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(provision_info))


@contextlib.contextmanager
def _failures_explained(settings: BuildSettings) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        message = _user_message(error)
        if message is None:
            raise
        with contextlib.suppress(OSError):  # the first error is the one to report
            output.remove_build(settings)
        raise UserError(message) from None


def _user_message(error: BaseException) -> str | None:
    """What a worker told of a mistake: its exception itself, or the text of it in that of another; None if neither."""
    found = [str(error)] if isinstance(error, UserError) else re.findall(r"\bUserError: (.*)", str(error))
    return re.sub(r" \[while running '.*'\]$", "", found[-1]) if found else None
