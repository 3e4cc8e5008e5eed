"""The benchmarks' processor: where MKL avoids AVX-512, and how it is made to use it."""

import os
import shutil
import subprocess
import sys

import pytest

from benchmarks import processor

AMD = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f avx512dq
"""


@pytest.mark.parametrize(
    ("info", "expected"),
    [(AMD, True), (AMD.replace(" avx512f", ""), False), (AMD.replace("AuthenticAMD", "GenuineIntel"), False)],
)
def test_mkl_avoids_avx512_on_processors_that_have_it_and_are_not_intels(info, expected):
    assert processor.mkl_avoids_avx512(info) is expected


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_is_started_with_the_function_that_mkl_asks_for(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    asks = "import ctypes; print(ctypes.CDLL(None).mkl_serv_intel_cpu_true())"
    with processor.mkl_with_avx512() as environment:
        done = subprocess.run([sys.executable, "-c", asks], env={**os.environ, **environment}, capture_output=True)
    assert done.stdout == b"1\n"
    assert not os.path.exists(environment["LD_PRELOAD"])
