"""XLA's own cost analysis of programs, for `benchmarks.xla_count`.

    JAX_PYTHON benchmarks/xla_count_analysis.py PROGRAM...

Runs in an environment of benchmarks/requirements-tpu-compile.txt and imports nothing of the project. Each PROGRAM is a
file of HLO text; one line of JSON for each, in their order.
"""

import json
import os
import sys

os.environ["JAX_PLATFORMS"] = "cpu"


def main() -> int:
    import jax
    from jaxlib import _hlo, _jax

    client = jax.devices()[0].client
    for name in sys.argv[1:]:
        with open(name, encoding="utf-8") as file:
            module = _hlo.hlo_module_from_text(file.read())
        counts = _jax.hlo_module_cost_analysis(client, module)
        print(json.dumps({kind: counts.get(kind, 0.0) for kind in ("flops", "transcendentals")}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
