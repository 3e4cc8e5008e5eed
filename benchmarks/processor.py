"""The processor, and AVX-512 for PyTorch on any maker's.

MKL, which computes PyTorch's float32 products, uses AVX-512 on Intel's processors only. On others with AVX-512 the
benchmarks also measure PyTorch with `mkl_with_avx512`, in rows of their own, and check limits against the faster row.
"""

import atexit
import functools
import os
import platform
import re
import subprocess
import tempfile
from pathlib import Path

from electra_tf.config.errors import UserError

_MKL_TAKES_IT_FOR_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def read_processor() -> dict[str, str]:
    """Linux's description of the first core, by its names; empty on other systems."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").partition("\n\n")[0] if path.exists() else ""
    return dict(re.findall(r"^(.+?)\s*: (.+)$", lines, re.MULTILINE))


def print_processor() -> dict:
    """Prints the processor's name and the number of its cores that this process may use, and returns them.

    The name has the family and model, because a virtual machine may tell no more than the maker.
    """
    found, cores = read_processor(), len(os.sched_getaffinity(0))
    name = platform.processor() or platform.machine()
    if "model name" in found:
        name = f"{found['model name']} (family {found.get('cpu family')}, model {found.get('model')})"
    print(f"Processor: {name}, {cores} cores", flush=True)
    return {"name": name, "cores": cores}


def mkl_avoids_avx512(processor: dict[str, str]) -> bool:
    """Whether a processor has AVX-512 instructions that MKL does not use, because it is not Intel's."""
    return processor.get("vendor_id") != "GenuineIntel" and "avx512f" in processor.get("flags", "").split()


@functools.cache
def mkl_with_avx512() -> dict[str, str]:
    """The environment variable with which MKL takes every processor for one of Intel's. Its library ends with Python.

    Raises: UserError: if the C compiler is missing or fails.
    """
    directory = tempfile.TemporaryDirectory()
    atexit.register(directory.cleanup)
    library = f"{directory.name}/mkl_with_avx512.so"
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
    try:
        subprocess.run(command, input=_MKL_TAKES_IT_FOR_INTEL, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise UserError(f"cc: {error}; MKL with AVX-512 needs a C compiler") from None
    return {"LD_PRELOAD": f"{library} {os.environ.get('LD_PRELOAD', '')}".strip()}
