"""Times PyTorch's step of the same sizes on the same batches: the peer of `benchmarks.train_step`.

Imports NumPy, the standard library and the peers' packages alone.
"""

import argparse

import torch

from benchmarks.stablehlo_step.exported import StepFiles, report, timed_rounds
from benchmarks.train_step.pytorch import PyTorchStep


def main(arguments: argparse.Namespace) -> int:
    files = StepFiles(arguments.step)
    manifest, on_gpu = files.manifest, torch.cuda.is_available()
    if not manifest["networks"]:
        raise ValueError(f"{arguments.step} is a step of {manifest['objective']}; the peer only has electra")
    names = [each["name"] for each in manifest["batch"]]
    step = PyTorchStep(
        [dict(zip(names, batch, strict=True)) for batch in files.batches()],
        **manifest["networks"],
        precision=manifest["precision"],
        compiled=arguments.compiled,
        device="cuda" if on_gpu else "cpu",
    )
    losses = []

    def begin() -> None:
        losses.append(step.begin()["loss"])

    seconds = timed_rounds(begin, torch.cuda.synchronize if on_gpu else lambda: None, arguments)
    report(
        manifest,
        seconds,
        arguments,
        torch.cuda.get_device_name() if on_gpu else "cpu",
        versions={"torch": torch.__version__},
        compiled=arguments.compiled,
        peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
        first_loss=losses[0].item(),
        last_loss=losses[-1].item(),
    )
    return 0
