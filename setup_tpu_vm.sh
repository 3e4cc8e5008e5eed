#!/usr/bin/env bash
# On a TPU VM: makes .venv with TensorFlow for TPUs, then checks that TensorFlow sees the cores.
#
#   ./setup_tpu_vm.sh
#   source .venv/bin/activate
#   electra-tf pretrain --config=small --data_dir=DATA --model_dir=RUN --strategy=tpu
#
# PYTHON=/path/to/python chooses the interpreter, 3.11 to 3.13. Without it, a suitable .venv keeps its own, and a new one
# uses the newest on the PATH. A second call installs TensorFlow for TPUs again, which repairs it after another
# `pip install` has brought the plain one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
unset PYTHONHOME PYTHONPATH

readonly TENSORFLOW="tensorflow-tpu~=2.20.0"
# Its own bound, libtpu~=0.0.14, admits 0.0.32 and later, with which `import tensorflow` aborts the process.
readonly LIBTPU="libtpu==0.0.30"

fail() {
  echo "error: $*" >&2
  exit 2
}

suits() { # PYTHON: true if libtpu exists for it
  "$1" -I -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null
}

case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' setup_tpu_vm.sh && exit ;;
  *) fail "unknown argument $1; $0 takes none" ;;
esac

shopt -s nullglob
chips=(/dev/accel[0-9]* /dev/vfio/[0-9]*) # up to v4; v5e and later
((${#chips[@]})) || fail "no TPU chip in /dev (accel*, vfio/*): run this on a TPU VM; elsewhere ./setup.sh is enough"

python=${PYTHON:-}
if [ -n "$python" ]; then
  suits "$python" || fail "PYTHON=$python is not a Python 3.11 to 3.13, for which alone libtpu exists"
elif ! suits .venv/bin/python; then
  for python in python3.13 python3.12 python3.11 ""; do
    if suits "$python"; then break; fi
  done
  [ -n "$python" ] || fail "no Python 3.11 to 3.13 on the PATH, for which alone libtpu exists; PYTHON=/path/to/python $0"
fi

PYTHON=$python ./setup.sh
suits .venv/bin/python || fail ".venv has another Python than 3.11 to 3.13; remove .venv and run $0 again"
echo "Installing $TENSORFLOW and $LIBTPU ..."
# Last and without dependencies: tensorflow-tpu replaces files of the plain TensorFlow (docs/notes/tpu.md).
.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
  "$TENSORFLOW" "$LIBTPU" </dev/null || fail "pip could not install them; see above"
.venv/bin/python -c '
import sys
from electra_tf.config.errors import UserError
from electra_tf.train.distribution import build_strategy
try:
    print("TPU cores:", build_strategy("tpu").num_replicas_in_sync)
except UserError as error:
    sys.exit(f"error: {error}")' || exit 2
