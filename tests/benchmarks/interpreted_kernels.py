"""Runs a kernel of `benchmarks.gpu_attention.kernels` on a CPU: NAME RATE QUERIES,KEYS INPUTS.npz OUTPUTS.npz."""

import sys

import numpy as np

from benchmarks.gpu_attention.kernels import KERNELS, Blocks

name, rate, blocks, inputs, outputs = sys.argv[1:]
arrays = list(np.load(inputs).values())
kernel = KERNELS[name](arrays[0].shape, Blocks.of_text(f"{blocks},4,2"), float(rate), np.float32, interpret=True)
results = kernel(*arrays)
np.savez(outputs, *(results if isinstance(results, list | tuple) else [results]))
