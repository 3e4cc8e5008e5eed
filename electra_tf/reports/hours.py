"""The duration and price of a run on any device with a published peak."""

from electra_tf.config.errors import UserError
from electra_tf.flops.budget import RunCost
from electra_tf.flops.devices import DEVICES, published_peak
from electra_tf.reports.tables import markdown_table
from electra_tf.tasks.pretrain.config import PretrainingConfig
from electra_tf.tasks.pretrain.input import plan_stages

# Typical utilisations. NVIDIA publishes 955 and 171 sequences/s for ELECTRA-Base at 128 and 512 on one A100
# (DeepLearningExamples, TensorFlow2/LanguageModeling/ELECTRA): 24 % and 19 % of its peak.
ASSUMED_UTILIZATIONS = (0.2, 0.4)
_ASSUMED = (
    "the utilisations are assumed, not measured; a run reports its own as model_flops_utilization: give that to "
    "--utilization"
)


def hours_text(
    config: PretrainingConfig,
    device: str,
    device_count: int = 1,
    utilization: float | None = None,
    price_per_hour: float | None = None,
) -> str:
    """Describes the hours of a whole run: its matrix products / (peak of all devices * utilisation).

    Reading data, evaluations, checkpoints and all-reduces are not included.

    Args:
        device: a name in `DEVICES`.
        utilization: fraction of the peak, in (0, 1]; None: the assumed ones.
        price_per_hour: of one device, in any currency.
    Raises: UserError: a number is out of range, or the devices do not divide a batch.
    """
    if utilization is not None and not 0.0 < utilization <= 1.0:
        raise UserError(f"--utilization is {utilization:g}; expected a fraction of the peak, above 0 and at most 1")
    if price_per_hour is not None and not price_per_hour > 0.0:
        raise UserError(f"--price_per_hour is {price_per_hour:g}; expected a positive number")
    for stage in plan_stages(config):
        stage.require_divisible(device_count * DEVICES[device][0])
    precision, num_steps = config.train.precision, config.train.num_steps
    products = RunCost(config).spent(num_steps).hardware.products
    peak = device_count * published_peak(device, precision)
    rows = []
    for fraction in ASSUMED_UTILIZATIONS if utilization is None else (utilization,):
        hours = products / (fraction * peak * 3600)
        cost = [f"{hours * device_count * price_per_hour:,.0f}"] if price_per_hour else []
        rows.append([f"{fraction:.3g}", _shown(hours), _shown(hours / 24), *cost])
    text = (
        f"the run: {num_steps:,} steps, {products:.4g} FLOPs in matrix products; "
        f"{device_count} x {device}, {precision}: {peak:.4g} FLOP/s published\n"
        + markdown_table(["utilisation", "hours", "days", *(["cost"] if price_per_hour else [])], rows)
    )
    if utilization is None:
        text += f"{_ASSUMED}\n"
    faster = published_peak(device, "bfloat16") / published_peak(device, precision)
    if faster > 1.0:
        text += f"bfloat16 has {faster:.2g} times the peak here: --set train.precision=bfloat16\n"
    return text


def _shown(number: float) -> str:
    return f"{number:.3g}" if number < 100 else f"{number:,.0f}"
