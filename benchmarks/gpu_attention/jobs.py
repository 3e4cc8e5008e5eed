"""Prints the jobs of `benchmarks.gpu_attention.block` for ELECTRA-Base: its attention, or XLA's flags.

    python -m benchmarks.gpu_attention.jobs attention FOLDER > JOBS.json

FOLDER has for each size such as 64x512, examples x tokens, sizes_64x512.json for PyTorch, and the kernels
flash_64x512.json, _wide.json and _no_dropout.json; `--prepare` prints the commands that make them. They need no GPU.
"""

import argparse
import json
from pathlib import Path

_SIZES = ("64x512", "256x128")
_NO_DROPOUT = ("encoder.attention_dropout=0",)
_HEADS = (12, 4)  # of discriminator and generator
# Fewer, larger programs: the kernels for keys and for queries have 8 warps.
_WIDE = "--forward=128,128,8,2 --keys=64,128,8,2 --queries=128,64,8,2"
_FLAGS = {
    "cublas_alone": "--xla_gpu_enable_triton_gemm=false",
    "cublaslt": "--xla_gpu_enable_cublaslt=true",
    "no_autotuning": "--xla_gpu_autotune_level=0",
    "exhaustive_tiling": "--xla_gpu_exhaustive_tiling_search=true",
    "no_command_buffers": "--xla_gpu_enable_command_buffer=",
    "small_command_buffers": "--xla_gpu_graph_min_graph_size=1",
    "latency_hiding": "--xla_gpu_enable_latency_hiding_scheduler=true",
    "parallel_compilation": "--xla_gpu_enable_llvm_module_compilation_parallelism=true",
}


def _overrides(size: str, *others: str) -> str:
    examples, tokens = size.split("x")
    settings = (f"train.batch_size={examples}", f"data.max_seq_length={tokens}", "train.precision=bfloat16", *others)
    return " ".join(f"--set {each}" for each in settings)


def _ours(name: str, size: str, options: str = "", *settings: str, flags: str = "") -> dict:
    command = f"exec python3 -m benchmarks.gpu_attention --config=base --wait {options} {_overrides(size, *settings)}"
    # The environment may have flags of XLA that TensorFlow needs on this machine.
    return {"name": f"{size}_{name}", "command": f'XLA_FLAGS="$XLA_FLAGS {flags}" {command}'}


def _pytorch(name: str, size: str, folder: Path, options: str = "") -> dict:
    command = f"exec python3 -m benchmarks.gpu_attention.pytorch {folder}/sizes_{size}.json --wait {options}"
    # Not with the libraries that TensorFlow needs.
    return {"name": f"{size}_{name}", "command": command, "environment": {"PYTHONPATH": "", "LD_LIBRARY_PATH": ""}}


def attention(folder: Path) -> list[list[dict]]:
    """A wave a size: the candidates with dropout, those without, PyTorch; then eager PyTorch, and ours once more."""
    waves = [
        [
            _ours("standing", size),
            _ours("flash", size, f"--attention=flash --kernels={folder}/flash_{size}.json"),
            _ours("flash_wide", size, f"--attention=flash --kernels={folder}/flash_{size}_wide.json"),
            _ours("standing_no_dropout", size, "", *_NO_DROPOUT),
            _ours(
                "flash_no_dropout",
                size,
                f"--attention=flash --kernels={folder}/flash_{size}_no_dropout.json",
                *_NO_DROPOUT,
            ),
            _ours("cudnn_no_dropout", size, "--attention=cudnn", *_NO_DROPOUT),
            _pytorch("pytorch_compiled", size, folder, "--compiled"),
        ]
        for size in _SIZES
    ]
    again = [job for size in _SIZES for job in (_pytorch("pytorch", size, folder), _ours("standing_again", size))]
    return [*waves, again]


def flags(folder: Path) -> list[list[dict]]:
    """XLA's flags one by one, with the standing attention: six programs a wave."""
    jobs = [_ours("standing", _SIZES[0]), *(_ours(name, _SIZES[0], flags=flag) for name, flag in _FLAGS.items())]
    jobs += [_ours(name, _SIZES[1], flags=flag) for name, flag in [("standing", ""), *_FLAGS.items()]]
    return [jobs[first : first + 6] for first in range(0, len(jobs), 6)]


def preparation(folder: Path) -> list[str]:
    """The commands that make the files of `attention`."""
    lines = []
    for size in _SIZES:
        examples, tokens = size.split("x")
        shapes = " ".join(f"{examples},{heads},{tokens},64" for heads in _HEADS)
        kernels = f"$JAX_PYTHON -m benchmarks.gpu_attention.kernels {folder}/flash_{size}"
        lines += [
            f"python -m benchmarks.gpu_attention --config=base --sizes {_overrides(size)} > {folder}/sizes_{size}.json",
            f"{kernels}.json --shapes {shapes}",
            f"{kernels}_wide.json --shapes {shapes} {_WIDE}",
            f"{kernels}_no_dropout.json --shapes {shapes} --rate=0",
        ]
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", choices=("attention", "flags"))
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("--prepare", action="store_true", help="print commands that make the files of FOLDER instead")
    parsed = parser.parse_args(arguments)
    if parsed.prepare:
        print("\n".join(preparation(parsed.folder)))
    else:
        print(json.dumps({"attention": attention, "flags": flags}[parsed.jobs](parsed.folder), indent=1))


if __name__ == "__main__":
    main()
