"""Times PyTorch's joint step of ELECTRA on the batches of an exported step, for a table beside `stablehlo_step run`.

    python -m benchmarks.stablehlo_step run STEP --output=rows.jsonl
    python -m benchmarks.gpu_peers STEP --output=rows.jsonl

Uses the step of `benchmarks.train_step.pytorch` with SDPA attention. float32 products are in TF32, as ours on a GPU,
and bfloat16 uses autocast. Needs PyTorch, transformers and NumPy, nothing else of this project's environment.
"""

import argparse
import gc
import sys

from benchmarks.stablehlo_step.exported import StepFiles, add_timing_flags, report, timed_rounds

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
        measure(files, mode, arguments)
    return 0


def measure(files: StepFiles, mode: str, arguments: argparse.Namespace) -> None:
    """Times and reports one way to run the step, in the precision of the exported one."""
    import torch
    import transformers

    from benchmarks.train_step.pytorch import PyTorchStep

    on_gpu = arguments.device == "cuda"
    torch.set_float32_matmul_precision("high")  # TF32
    names = [each["name"] for each in files.manifest["batch"]]
    step = PyTorchStep(
        [dict(zip(names, batch, strict=True)) for batch in files.batches()],
        **files.manifest["networks"],
        precision=files.manifest["precision"],
        compiled=mode if mode != "eager" else False,
        device=arguments.device,
    )
    first_loss = step.run()["loss"]  # compiles, so at least one step is not timed
    for _ in range(arguments.warmup - 1):
        step.begin()
    report(
        files.manifest,
        timed_rounds(step.begin, torch.cuda.synchronize if on_gpu else lambda: None, arguments),
        arguments,
        torch.cuda.get_device_name() if on_gpu else "cpu",
        contender=f"pytorch {mode}",
        versions={"torch": torch.__version__, "transformers": transformers.__version__},
        peak_bytes=torch.cuda.max_memory_allocated() if on_gpu else None,
        first_loss=first_loss,
        last_loss=step.run()["loss"],
    )
    del step
    gc.collect()
    if on_gpu:  # else the next mode's peak would include this one's memory
        torch._dynamo.reset()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


if __name__ == "__main__":
    sys.exit(main())
