#!/usr/bin/env bash
# Sets up the environment if needed and runs the tests, with the style check and mypy beside them.
#
#   ./test.sh                        the default tests: some minutes on two cores
#   ./test.sh --all                  also the slow ones: kills, workers, Beam, whole runs, compiled steps, benchmarks
#   ./test.sh tests/text -k accents  arguments for pytest, which may override -m and -n; without the checks
#
# TEST_VENV=folder names an environment that is used as it is, without the checks.
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$project/test.sh" && exit ;; esac
[ -n "${TEST_VENV:-}" ] || "$project/setup.sh" --dev
cd "$project"
unset PYTHONHOME PYTHONPATH

tiers=("not slow")
if [ "${1:-}" = --all ]; then
  tiers+=("slow")
  shift
fi
# TensorFlow keeps every program that XLA has compiled, and these files compile hundreds: with all slow tests in one
# pytest, two workers used 20 GB. So, unless tests are named, they have a pytest of their own.
compiling=(tests/test_every_objective.py tests/test_configurations.py tests/serving/test_every_signature.py)

# Each worker imports TensorFlow (about 1 GB), so the number of workers is limited, and the threads of each one too.
export TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
export TF_FORCE_GPU_ALLOW_GROWTH=true

trap 'exit 130' INT
checks=()
check() { # COMMAND...: runs beside the tests; what it prints is shown after them
  "$@" >"$printed/${#checks[@]}" 2>&1 </dev/null &
  checks+=($!)
}

if (($# == 0)) && [ -z "${TEST_VENV:-}" ]; then
  printed=$(mktemp -d)
  # Programs in the background get no interrupt.
  trap 'kill "${checks[@]}" 2>/dev/null || true; rm -rf "$printed"' EXIT
  check .venv/bin/python -m ruff check --output-format=concise .
  check .venv/bin/python -m ruff format --check --output-format=concise .
  check .venv/bin/python -m mypy --no-error-summary
fi

status=5
run() { # TIER ARGUMENT...: one worker runs all tests of a file, so that their fixtures are built once
  local code=0
  "${TEST_VENV:-.venv}/bin/python" -m pytest -m "$1" --numprocesses=auto --maxprocesses=4 --dist=loadfile "${@:2}" \
    </dev/null || code=$?
  if ((code == 2)); then exit 2; fi # interrupted, or a file could not be collected
  # 5: no requested test is of this tier.
  if ((code != 5 && (status == 5 || status == 0))); then status=$code; fi
}

for tier in "${tiers[@]}"; do
  if [ "$tier" = slow ] && (($# == 0)); then
    run slow "${compiling[@]}"
    run slow "${compiling[@]/#/--ignore=}"
  else
    run "$tier" "$@"
  fi
done
for number in "${!checks[@]}"; do
  code=0
  wait "${checks[number]}" || code=$?
  cat "$printed/$number"
  if ((code && !status)); then status=$code; fi
done
exit "$status"
