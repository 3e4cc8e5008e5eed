"""The processor, and AVX-512 for PyTorch on any maker's.

MKL, which computes PyTorch's float32 products, uses AVX-512 on Intel's processors only. On others with AVX-512 the
benchmarks also measure PyTorch with `mkl_with_avx512`, in rows of their own, and check limits against the faster row.
"""

import contextlib
import os
import platform
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from electra_tf.config.errors import UserError

_MKL_TAKES_IT_FOR_INTEL = "int mkl_serv_intel_cpu_true(void) { return 1; }\n"


def cpu_info() -> str:
    """Linux's description of the processor; empty on other systems."""
    path = Path("/proc/cpuinfo")
    return path.read_text(encoding="utf-8") if path.exists() else ""


def processor_name(info: str) -> str:
    """The name of a processor, with its family and model, because a virtual machine may tell no more than the maker.

    Args:
        info: of `cpu_info`.
    """
    fields = dict(re.findall(r"^(model name|cpu family|model)\s*: (.+)$", info, re.MULTILINE))
    if "model name" not in fields:
        return platform.processor() or platform.machine()
    return f"{fields['model name']} (family {fields.get('cpu family')}, model {fields.get('model')})"


def print_processor() -> dict:
    """Prints the processor's name and the number of its cores that this process may use, and returns them."""
    name, cores = processor_name(cpu_info()), len(os.sched_getaffinity(0))
    print(f"Processor: {name}, {cores} cores", flush=True)
    return {"name": name, "cores": cores}


def mkl_avoids_avx512(info: str) -> bool:
    """Whether a processor has AVX-512 instructions that MKL does not use, because it is not Intel's."""
    fields = dict(re.findall(r"^(vendor_id|flags)\s*: (.+)$", info, re.MULTILINE))
    return fields.get("vendor_id") != "GenuineIntel" and "avx512f" in fields.get("flags", "").split()


HAS_AVX512_ROWS = mkl_avoids_avx512(cpu_info())


@contextlib.contextmanager
def mkl_with_avx512() -> Iterator[dict[str, str]]:
    """The environment variable with which MKL takes every processor for one of Intel's.

    Raises: UserError: if the C compiler is missing or fails.
    """
    with tempfile.TemporaryDirectory() as directory:
        library = f"{directory}/mkl_with_avx512.so"
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-o", library, "-"]
        try:
            subprocess.run(command, input=_MKL_TAKES_IT_FOR_INTEL, text=True, capture_output=True, check=True)
        except OSError as error:
            raise UserError(f"cc: {error.strerror}; MKL with AVX-512 needs a C compiler") from None
        except subprocess.CalledProcessError as error:
            raise UserError(f"cc: {error.stderr.strip()}") from None
        yield {"LD_PRELOAD": f"{library} {os.environ.get('LD_PRELOAD', '')}".strip()}
