"""Compiles the training step for TPUs without a TPU, and prints the cost of a step on them.

    python -m benchmarks.tpu_compile --jax_python=/tmp/tpu-compile/bin/python --output=tpu.json

Each case has two stages: this environment lowers the step to StableHLO (`benchmarks.stablehlo_step`), and an
environment of benchmarks/requirements-tpu-compile.txt compiles it with the TPU's own compiler. Prints FLOPs and bytes
accessed for each example, the memory of one core, and the time of the FLOPs at the chip's published peak. These are
properties of compiled programs, not measurements on a TPU. --keep keeps the exported steps and the optimised programs
(step.hlo.gz). A compilation takes minutes and 10 GB, so run one at a time. Exits 1 if the compiler rejects a step.
"""

import datetime
import itertools
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.harness import PROJECT, last_line
from electra_tf.cli.flags import add_set_flag, flag_parser
from electra_tf.cli.process import run_command
from electra_tf.config.errors import UserError
from electra_tf.flops.devices import published_tpu_peak

_DEVICE_STAGE = Path(__file__).with_name("device.py")
# Entries of a result from the step's manifest.
_DESCRIPTION = (
    "objective",
    "precision",
    "replicas",
    "examples_per_replica",
    "max_seq_length",
    "accumulation",
    "trainable_parameters",
)

# The chips of libtpu's compiler, by its names.
_CHIPS = ("v4", "v5e", "v5p", "v6e")


def main(argv: list[str] | None = None) -> int:
    parser = flag_parser(__doc__)
    parser.add_argument("--jax_python", required=True, metavar="FILE", help="Python of the environment with jax[tpu]")
    sizes = [f"configs/pretrain/{size}.yaml" for size in ("small", "base")]
    parser.add_argument("--config", nargs="+", default=sizes, metavar="FILE", help="YAML files of runs")
    parser.add_argument("--precision", nargs="+", default=["bfloat16", "float32"], metavar="NAME")
    parser.add_argument(
        "--topology", nargs="+", default=["v5e:2x2"], metavar="NAME", help="such as v5e:2x2, v4:2x2x1 or v6e:2x2"
    )
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 4], metavar="N", help="cores that share a batch")
    parser.add_argument("--batch_size", type=int, default=128, metavar="N", help="global batch, examples")
    add_set_flag(parser)
    parser.add_argument("--memory_gb", type=int, default=16, metavar="N", help="limit of the compiler's address space")
    parser.add_argument("--keep", metavar="DIR", help="directory that keeps the programs")
    parser.add_argument("--output", metavar="FILE", help="JSON file for the results")
    arguments = parser.parse_args(argv)
    results: list[dict] = []
    status = run_command(lambda: results.extend(_measure(arguments)))
    return status or int(any("error" in result for result in results))


def _measure(arguments) -> list[dict]:
    subprocess.run([arguments.jax_python, "-c", "import jax, libtpu"], check=True)  # fails before minutes of work
    results = []
    with tempfile.TemporaryDirectory(prefix="tpu_compile_") as scratch:
        directory = Path(arguments.keep or scratch)
        directory.mkdir(parents=True, exist_ok=True)
        cases = itertools.product(arguments.config, arguments.precision, arguments.replicas, arguments.topology)
        for config, precision, replicas, topology in cases:
            name = f"{Path(config).stem}-{precision}-{replicas}-{topology.replace(':', '-')}"
            step = directory / name
            described = _export(step, config, precision, replicas, arguments)
            compiled = _compile(step, topology, replicas, arguments)
            results.append({"case": name, "topology": topology, **described, **compiled})
            print("\n".join(_lines(results[-1])), flush=True)
            if arguments.output:
                write_results(Path(arguments.output), results)
    return results


def _export(step: Path, config: str, precision: str, replicas: int, arguments) -> dict:
    """Runs the first stage in its own process, so that its memory is free when the compiler starts."""
    settings = [f"train.batch_size={arguments.batch_size}", f"train.precision={precision}", *arguments.overrides]
    command = [sys.executable, "-m", "benchmarks.stablehlo_step", "export", str(step.resolve()), f"--config={config}"]
    command += [f"--replicas={replicas}", *(f"--set={setting}" for setting in settings)]
    finished = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True)
    if finished.returncode:
        raise UserError(f"{config} was not exported: {last_line(finished.stderr)}")
    manifest = json.loads((step / "manifest.json").read_text(encoding="utf-8"))
    return {name: manifest[name] for name in _DESCRIPTION}


def _compile(step: Path, topology: str, replicas: int, arguments) -> dict:
    """Runs the second stage. Returns: its report, or the error of a compiler that failed."""
    command = [arguments.jax_python, str(_DEVICE_STAGE), str(step), topology, f"--replicas={replicas}"]
    finished = subprocess.run([*command, f"--memory_gb={arguments.memory_gb}"], capture_output=True, text=True)
    if finished.returncode:
        return {"error": f"the compiler ended with {finished.returncode}: {last_line(finished.stderr)}"}
    return json.loads(finished.stdout.splitlines()[-1])


def arithmetic_seconds(topology: str, cores_per_chip: int, flops: float) -> float:
    """The time of `flops` on one core at the chip's peak, which is a lower limit of the step's time."""
    return flops / (published_tpu_peak(topology.split(":")[0]) / cores_per_chip)


def _lines(result: dict) -> list[str]:
    if "error" in result:
        return [f"{result['case']}: rejected: {' '.join(result['error'].split())[:400]}"]
    examples, code = result["examples_per_replica"], result["hbm_parts"]["generated_code"]
    flops, accessed = result["flops"], result["bytes_accessed"]
    milliseconds = 1e3 * arithmetic_seconds(result["topology"], result["cores_per_chip"], flops)
    return [
        f"{result['case']}: {examples} examples a core, {result['device']}",
        f"  an example: {flops / examples / 1e9:.2f} GFLOP, {accessed / examples / 1e6:.1f} MB accessed",
        f"  a step: {accessed / 1e9:.1f} GB accessed, {result['all_reduces']} all-reduces, {milliseconds:.1f} ms of "
        "arithmetic at the chip's peak",
        f"  memory: {result['hbm_peak_bytes'] / 1e9:.2f} GB at most, and {code / 1e6:.0f} MB of code",
        f"  compiled in {result['compile_cpu_s']:.0f} CPU s",
    ]


def write_results(path: Path, results: list[dict]) -> None:
    """Writes the results so far, with the date, the compiler's versions and the chips' peaks."""
    compiler = (PROJECT / "benchmarks" / "requirements-tpu-compile.txt").read_text(encoding="utf-8").splitlines()[-2:]
    peaks = {chip: published_tpu_peak(chip) for chip in _CHIPS}
    content = {"date": str(datetime.date.today()), "compiler": compiler, "peak_flops": peaks, "results": results}
    path.write_text(f"{json.dumps(content, indent=1)}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
