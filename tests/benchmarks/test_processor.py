"""The benchmarks' processor: its name, its AVX-512 rows, and rates of products."""

import os
import shutil
import subprocess
import sys

import pytest

from benchmarks import processor, product_rates
from electra_tf.config.errors import UserError

AMD = """processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 17
model name\t: AMD EPYC
flags\t\t: fpu avx2 avx512f avx512dq
"""
INTEL = AMD.replace("AuthenticAMD", "GenuineIntel")
ARM = "processor\t: 0\nCPU implementer\t: 0x41\nFeatures\t: fp asimd\n"


def test_a_processor_is_named_with_its_family_and_model():
    assert processor.processor_name(AMD) == "AMD EPYC (family 25, model 17)"
    assert processor.processor_name(ARM) == processor.processor_name("")


@pytest.mark.parametrize(
    ("info", "expected"),
    [(AMD, True), (AMD.replace(" avx512f", ""), False), (INTEL, False), (ARM, False), ("", False)],
)
def test_mkl_avoids_avx512_on_processors_that_have_it_and_are_not_intels(info, expected):
    assert processor.mkl_avoids_avx512(info) is expected


def test_products_are_unequal_if_the_faster_pytorch_differs_by_more_than_10_percent():
    names = (product_rates.TENSORFLOW, product_rates.PYTORCH, product_rates.PYTORCH_AVX512)

    def sentence(*medians: float) -> str | None:
        return product_rates.inequality({name: [1.0, each, 900.0] for name, each in zip(names, medians, strict=False)})

    assert sentence(440.0, 200.0, 400.0) is None
    assert "TensorFlow computes them 1.20 times as fast as PyTorch, MKL with AVX-512" in sentence(480.0, 200.0, 400.0)
    assert "PyTorch computes them 1.50 times as fast as TensorFlow" in sentence(200.0, 300.0, 250.0)


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_process_is_started_with_the_function_that_mkl_asks_for(monkeypatch):
    monkeypatch.setenv("LD_PRELOAD", "")
    asks = "import ctypes; print(ctypes.CDLL(None).mkl_serv_intel_cpu_true())"
    with processor.mkl_with_avx512() as environment:
        done = subprocess.run([sys.executable, "-c", asks], env={**os.environ, **environment}, capture_output=True)
    assert done.stdout == b"1\n"
    assert not os.path.exists(environment["LD_PRELOAD"])


def test_avx512_without_a_c_compiler_is_reported_like_a_contender_that_does_not_start(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UserError, match="^cc: "), processor.mkl_with_avx512():
        pass
