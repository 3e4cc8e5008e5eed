"""The contenders of the speed benchmarks, and how fast ours must be beside each: one row a contender, one a limit.

A limit is the lowest figure of docs/notes/performance.md, less what turns differ by (5 to 10 %), so PASS means that
what is published still holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from benchmarks.processor import mkl_avoids_avx512, read_processor

OVER_BASELINE = 0.95


@dataclass(frozen=True)
class Contender:
    """A row of a comparison, measured in a process of its own.

    Attributes:
        kind: `ours` or `pytorch`, by the benchmark's worker.
        group: the rows of which the fastest is compared.
        settings: further options of the worker.        avx512: whether MKL is made to use AVX-512.
    """

    kind: str
    group: str
    settings: object = field(default_factory=dict)
    avx512: bool = False


@dataclass(frozen=True)
class Limit:
    """The least speed of the fastest row of `ours` over that of the fastest row of `other`; both are groups."""

    ours: str
    other: str
    floor: float


def with_avx512(contenders: Mapping[str, Contender], *names: str) -> dict[str, Contender]:
    """The contenders, and rows with AVX-512 of those that are named, where MKL avoids it."""
    named = names if mkl_avoids_avx512(read_processor()) else ()
    return {**contenders, **{f"{name}_avx512": replace(contenders[name], avx512=True) for name in named}}


def _steps(precision: str) -> dict[str, Contender]:
    rows = {}
    for compiled, ours, peer in ((False, "", ""), (True, "_xla", "_compile")):
        settings = [f"train.precision={precision}", f"train.xla={str(compiled).lower()}"]
        rows[f"ours_{precision}{ours}"] = Contender("ours", f"ours_{precision}", settings)
        arguments = {"precision": precision, "compiled": compiled}
        rows[f"pytorch_{precision}{peer}"] = Contender("pytorch", f"pytorch_{precision}{peer}", arguments)
    return rows


# MKL does not compute products in bfloat16, so these have no row with AVX-512.
TRAIN_STEP = with_avx512({**_steps("float32"), **_steps("bfloat16")}, "pytorch_float32", "pytorch_float32_compile")
TRAIN_STEP_LIMITS = (
    Limit("ours_float32", "pytorch_float32", 1.25),
    Limit("ours_float32", "pytorch_float32_compile", 1.3),
    Limit("ours_bfloat16", "pytorch_bfloat16", 1.8),
    Limit("ours_bfloat16", "pytorch_bfloat16_compile", 1.6),
)
START_OVER_PYTORCH = 1.8  # ceiling of our seconds to the first step over those of PyTorch's eager row

_FINETUNING = {
    "ours": Contender("ours", "ours"),
    "hugging_face": Contender("pytorch", "hugging_face", {"has_sorted_rows": False, "compiled": False}),
    "hugging_face_sorted": Contender("pytorch", "hugging_face_sorted", {"has_sorted_rows": True, "compiled": False}),
    "hugging_face_compile": Contender("pytorch", "hugging_face_compile", {"has_sorted_rows": False, "compiled": True}),
}
FINETUNING = with_avx512(_FINETUNING, "hugging_face", "hugging_face_sorted", "hugging_face_compile")
FINETUNING_LIMITS = {
    "training": (Limit("ours", "hugging_face", 1.6), Limit("ours", "hugging_face_compile", 1.7)),
    "evaluation": (
        Limit("ours", "hugging_face", 1.45),
        Limit("ours", "hugging_face_sorted", 1.0),
        Limit("ours", "hugging_face_compile", 1.3),
    ),
}

_ONE_THREAD = {"num_threads": 1}
_SERVING = {
    "ours": Contender("ours", "ours"),
    "ours_1_thread": Contender("ours", "ours", _ONE_THREAD),  # as in docs/serving.md
    "eager": Contender("pytorch", "eager", {"compiled": False}),
    "eager_1_thread": Contender("pytorch", "eager", {"compiled": False, **_ONE_THREAD}),
    "compile": Contender("pytorch", "compile", {"compiled": True}),
}
SERVING = with_avx512(_SERVING, "eager", "eager_1_thread", "compile")
# By the number of tokens of a text. A length that is not listed has the limits of the next shorter one, or of 8.
LATENCY_LIMITS = {
    8: (Limit("ours", "eager", 1.05), Limit("ours", "compile", 0.7)),
    32: (Limit("ours", "eager", 1.2), Limit("ours", "compile", 1.05)),
    128: (Limit("ours", "eager", 1.3), Limit("ours", "compile", 1.0)),
}
THROUGHPUT_LIMITS = (Limit("ours", "eager", 1.05), Limit("ours", "compile", 0.95))
