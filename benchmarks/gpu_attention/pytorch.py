"""Times the step of PyTorch on a GPU, with the sizes of ours.

    python -m benchmarks.gpu_attention.pytorch SIZES.json [--compiled]

SIZES.json is what `python -m benchmarks.gpu_attention --sizes` prints. Needs the packages of requirements-peers.txt.
"""

import argparse
import json
from pathlib import Path

import torch

from benchmarks.gpu_attention.timing import add_timing_flags, print_timing
from benchmarks.train_step.batches import NUM_BATCHES, BatchShape, synthetic_batch
from benchmarks.train_step.pytorch import PyTorchStep


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", type=Path, metavar="SIZES.json")
    parser.add_argument("--compiled", action="store_true", help="use torch.compile")
    add_timing_flags(parser)
    flags = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    sizes = json.loads(flags.sizes.read_text(encoding="utf-8"))
    batches = [synthetic_batch(BatchShape(**sizes["shape"]), seed) for seed in range(NUM_BATCHES)]
    step = PyTorchStep(batches, **sizes["networks"], precision="bfloat16", compiled=flags.compiled, device=device)
    peak = torch.cuda.max_memory_allocated if device == "cuda" else lambda: None
    print_timing(flags, step.run, peak, torch=torch.__version__)


if __name__ == "__main__":
    main()
