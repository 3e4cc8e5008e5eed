"""The build on Apache Beam: the same data set, byte for byte, on one machine or on a cluster.

The runner and its options are Beam's own. It needs `pip install "electra-tf[beam]"`.
"""

import contextlib
import logging
import re
import tempfile
import time
from typing import TYPE_CHECKING

from data_prep import output, processes
from data_prep.assembly import BuildInputs, build_once, log_summary
from data_prep.settings import BuildSettings
from electra_tf.config.errors import UserError
from electra_tf.files import is_remote
from electra_tf.text.manifest import Manifest

if TYPE_CHECKING:
    from apache_beam import Pipeline
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineRunner

_logger = logging.getLogger(__name__)

_LOCAL_RUNNERS = ("directrunner", "direct", "fnapirunner")  # names of the runner on this machine
# Loggers that repeat what workers log, and exceptions that are also raised.
_REPEATED = ("apache_beam.runners.portability.local_job_service", "apache_beam.runners.common")


def run(settings: BuildSettings, beam_arguments: list[str]) -> Manifest:
    """Builds the data set by a Beam pipeline and returns its manifest, which is the last file written.

    After a failure that is not about the input, the same call starts again (with `overwrite` if the output is a URL).

    Args:
        settings: `num_processes` must be 1: the number of processes is an option of the runner. `work_dir` is not
            needed: the runner keeps intermediate data.
        beam_arguments: Beam's options, including `--runner=NAME`, as on a command line.
    Raises: UserError: see `pipeline.build`. Also: Beam is not installed or has no such option, or the runner's machines
        cannot reach an input or the output.
    """
    options = _options(beam_arguments)
    if settings.num_processes != 1:
        raise UserError(
            f"--num_processes={settings.num_processes} has no effect with --runner; use an option of the runner, e.g."
            " --direct_running_mode=multi_processing --direct_num_workers=2"
        )
    inputs = BuildInputs.find(settings)
    settings = inputs.with_text_settings(settings)
    _check_reachable(settings, inputs, options)
    pipeline = _pipeline(options)
    with contextlib.ExitStack() as stack:
        if is_remote(settings.output_dir) and not settings.work_dir:
            # For the lock and the configuration of the build.
            directory = stack.enter_context(tempfile.TemporaryDirectory())
            settings = settings.model_copy(update={"work_dir": directory})
        return build_once(settings, inputs, lambda settings, inputs: _build(settings, inputs, pipeline))


def _build(settings: BuildSettings, inputs: BuildInputs, pipeline: "Pipeline") -> Manifest:
    from data_prep.beam_transforms import BuildDataset

    begin = time.monotonic()
    _logger.info(
        "reading %d files, %.1f MB, by Beam's %s",
        len(inputs.files),
        inputs.num_bytes / 1e6,
        type(pipeline.runner).__name__,
    )
    pipeline | "BuildDataset" >> BuildDataset(settings, inputs)
    try:
        pipeline.run().wait_until_finish()
    except BaseException as error:
        if not (message := _user_message(error)):
            raise
        with contextlib.suppress(OSError):  # the first error is the one to report
            output.remove_build(settings)
        raise UserError(message) from None
    manifest = output.read_manifest(settings.output_dir)
    log_summary(manifest, time.monotonic() - begin, manifest.counts.num_tokens_read)
    output.remove_build_dir(settings)
    return manifest


def _options(beam_arguments: list[str]) -> "PipelineOptions":
    """Parses Beam's options. Raises: UserError: Beam is not installed or has no such option."""
    logging.disable(logging.WARNING)  # about every part of Google Cloud that is not installed
    try:
        import apache_beam  # noqa: F401
        from apache_beam.options.pipeline_options import PipelineOptions
    except ImportError as error:
        raise UserError(f'--runner needs Apache Beam ({error}); pip install "electra-tf[beam]"') from None
    finally:
        logging.disable(logging.NOTSET)
    options = PipelineOptions(beam_arguments)
    # Beam itself only warns about unknown options.
    parsers = []
    options.get_all_options(add_extra_args_fn=parsers.append)
    _, unknown = parsers[0].parse_known_args(beam_arguments)
    if unknown:
        raise UserError(
            f"unknown arguments {' '.join(unknown)}: expected flags of this program or of Apache Beam; see --help and"
            " the runner's documentation"
        )
    return options


def _check_reachable(settings: BuildSettings, inputs: BuildInputs, options: "PipelineOptions") -> None:
    """Raises: UserError: the runner is Dataflow, and an input or the output is a local path."""
    paths = (settings.output_dir, *(file.path for file in inputs.files))
    if "dataflow" in _runner_name(options).lower() and (local := [path for path in paths if not is_remote(path)]):
        raise UserError(f"{local[0]} is not on the workers of --runner={_runner_name(options)}; give a gs:// URL")


def _runner_name(options: "PipelineOptions") -> str:
    from apache_beam.options.pipeline_options import StandardOptions

    return options.view_as(StandardOptions).runner or "DirectRunner"


def _pipeline(options: "PipelineOptions") -> "Pipeline":
    """Makes an empty pipeline. Raises: UserError: the runner does not exist or lacks an option or a package."""
    import apache_beam

    name = _runner_name(options)
    runner = _local_runner(options) if name.lower() in _LOCAL_RUNNERS else name
    try:
        return apache_beam.Pipeline(runner=runner, options=options)
    except (ValueError, ImportError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"--runner={name} cannot be used: {reason}; fix this or use another runner") from None


def _local_runner(options: "PipelineOptions") -> "PipelineRunner":
    """Beam's portable runner in Python. DirectRunner would first try to download one in Go."""
    from apache_beam.options.pipeline_options import WorkerOptions
    from apache_beam.portability.api import beam_provision_api_pb2
    from apache_beam.runners.portability.fn_api_runner.fn_runner import ExtendedProvisionInfo, FnApiRunner
    from apache_beam.runners.portability.portable_runner import JobServiceHandle

    # Worker processes share this process's stderr, and Beam also raises the errors that it logs.
    worker_options = options.view_as(WorkerOptions)
    if worker_options.default_sdk_harness_log_level is None:
        worker_options.default_sdk_harness_log_level = "WARNING"
        worker_options.sdk_harness_log_level_overrides = {"data_prep": "INFO", "apache_beam": "CRITICAL"}
    logging.getLogger("apache_beam").setLevel(logging.WARNING)
    for name in _REPEATED:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    processes.make_importable()
    encoded = JobServiceHandle.encode_pipeline_options(options.get_all_options())
    provision_info = beam_provision_api_pb2.ProvisionInfo(pipeline_options=encoded)
    return FnApiRunner(provision_info=ExtendedProvisionInfo(provision_info))


def _user_message(error: BaseException) -> str | None:
    """Finds the message of a worker's UserError, also inside another exception of Beam; None for other errors."""
    messages = [str(error)] if isinstance(error, UserError) else re.findall(r"\b(?:User|Read)Error: (.*)", str(error))
    return re.sub(r" \[while running '.*'\]$", "", messages[-1]) if messages else None
