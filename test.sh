#!/usr/bin/env bash
# Sets up the environment if needed, checks the style and runs the tests.
#
#   ./test.sh                        the default tests: some minutes on two cores
#   ./test.sh --all                  these and the slow ones: kills, workers, Beam, whole runs, compiled steps, benchmarks
#   ./test.sh tests/text -k accents  arguments go to pytest; a later -m or -n wins over the ones here
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$project/setup.sh" --dev
cd "$project"
unset PYTHONHOME PYTHONPATH

tiers=("not slow")
if [ "${1:-}" = --all ]; then
  tiers+=("slow")
  shift
fi

# Each worker holds a TensorFlow of its own (about 1 GB), so their number is bounded, and so are the threads of each.
export TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
export TF_FORCE_GPU_ALLOW_GROWTH=true

.venv/bin/python -m ruff check --output-format=concise .
# A file's tests run on one worker, so that shared fixtures are built once. The slow tests run in a second pytest:
# TensorFlow keeps every program that XLA has compiled, and in a single one two workers used 22 GB.
status=5
for tier in "${tiers[@]}"; do
  code=0
  .venv/bin/python -m pytest -m "$tier" --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@" </dev/null || code=$?
  if ((code == 2)); then exit 2; fi # interrupted
  # 5: this tier has none of the requested tests.
  if ((code != 5 && (status == 5 || status == 0))); then status=$code; fi
done
exit "$status"
