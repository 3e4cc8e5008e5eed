#!/usr/bin/env bash
# Sets up the environment if need be, checks the style and runs the fast tests.
#
#   ./test.sh                        the fast suite
#   ./test.sh -m slow                the slow one
#   ./test.sh tests/text -k accents  arguments go to pytest; a later -m or -n wins over the ones here
set -euo pipefail
project=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
"$project/setup.sh" --dev
cd "$project"
unset PYTHONHOME PYTHONPATH

# Each worker holds a TensorFlow of its own (about 1 GB), so their number is bounded, and so are the threads of each.
export TF_NUM_INTRAOP_THREADS=1 TF_NUM_INTEROP_THREADS=1
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-2}
export TF_FORCE_GPU_ALLOW_GROWTH=true

.venv/bin/python -m ruff check --output-format=concise .
# A file's tests stay on one worker, so that what they share is built once.
run_tests() {
    .venv/bin/python -m pytest -m "not slow" --numprocesses=auto --maxprocesses=4 --dist=loadfile "$@" </dev/null
}
if [ $# -gt 0 ]; then
    run_tests "$@"
    exit
fi
# A worker keeps every program that XLA has compiled in it, up to 10 GB of them over the whole suite, so each part has new
# workers. The tests of the second part share nothing, and are dealt out one by one.
steps=(tests/train/test_interrupted_runs.py tests/train/test_static_step.py tests/train/test_step.py tests/test_configurations.py)
models=(tests/models tests/objectives)
status=0
run_tests tests/train "${steps[@]/#/--ignore=}" || status=1
run_tests --dist=load "${steps[@]}" || status=1
run_tests "${models[@]}" || status=1
run_tests tests --ignore=tests/train "${models[@]/#/--ignore=}" "${steps[@]/#/--ignore=}" || status=1
exit $status
