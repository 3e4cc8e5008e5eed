"""Times PyTorch's joint step of ELECTRA on the batches of an exported step, for a table beside `stablehlo_step run`.

    python -m benchmarks.stablehlo_step run STEP --output=rows.jsonl
    python -m benchmarks.gpu_peers STEP --output=rows.jsonl

The step is that of `benchmarks.train_step.pytorch`: Hugging Face's classes with the generator's states gathered before
the product with the vocabulary, SDPA attention, AdamW fused. float32 products are in TF32, as ours are on a GPU;
bfloat16 is by autocast. Needs PyTorch, transformers and NumPy, nothing else of this project's environment.
"""

import argparse
import gc
import sys

from benchmarks.stablehlo_step.files import StepFiles
from benchmarks.stablehlo_step.measurement import (
    add_timing_flags,
    published_peak,
    report,
    result,
    timed_rounds,
)

MODES = ("eager", "default", "reduce-overhead", "max-autotune")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("step", metavar="STEP", help="directory that stablehlo_step export wrote")
    parser.add_argument(
        "--modes", nargs="+", choices=MODES, default=["eager", "default"], help="eager, or a mode of torch.compile"
    )
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    add_timing_flags(parser)
    arguments = parser.parse_args(argv)
    files = StepFiles(arguments.step)
    if files.manifest["networks"] is None:
        parser.error(f"{arguments.step} has the objective {files.manifest['objective']}; the peers have electra only")
    for mode in arguments.modes:
        report(_measure(files, mode, arguments), arguments.output)
    return 0


def _measure(files: StepFiles, mode: str, arguments: argparse.Namespace) -> dict:
    """Times one way to run the step in the precision of the exported one."""
    import torch
    import transformers

    from benchmarks.train_step.pytorch import PyTorchStep

    on_gpu = arguments.device == "cuda"
    torch.set_float32_matmul_precision("high")  # TF32
    precision = files.manifest["precision"]
    names = [each["name"] for each in files.manifest["batch"]]
    batches = [dict(zip(names, batch, strict=True)) for batch in files.batches()]
    how = {"precision": precision, "compiled": mode if mode != "eager" else False, "device": arguments.device}
    step = PyTorchStep(batches, **files.manifest["networks"], **how)
    first_loss = step.run()["loss"]  # compiles, so one step at least is not timed
    for _ in range(arguments.warmup - 1):
        step.begin()
    wait = torch.cuda.synchronize if on_gpu else lambda: None
    seconds = timed_rounds(step.begin, wait, arguments.rounds, arguments.steps)
    last_loss = step.run()["loss"]
    device = torch.cuda.get_device_name() if on_gpu else "cpu"
    row = result(
        files.manifest,
        seconds,
        arguments.peak_flops or published_peak(files.manifest, device),
        contender=f"pytorch {mode}",
        precision=precision,
        device=device,
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
        first_loss=first_loss,
        last_loss=last_loss,
    )
    # The next one's peak is its own.
    del step
    gc.collect()
    if on_gpu:
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return row


if __name__ == "__main__":
    sys.exit(main())
