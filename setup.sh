#!/usr/bin/env bash
# Makes .venv with the command `electra-tf` and the pinned requirements. If it is complete, this takes less than a
# second.
#
#   ./setup.sh          what the commands and quickstart.sh need
#   ./setup.sh --dev    also what the tests and the style check need (test.sh calls this)
#
# PYTHON=/path/to/python chooses the interpreter. Without it, an existing .venv keeps its own, and a new one uses the
# newest supported Python on the PATH. The script installs again if requirements.txt, constraints.txt, the project's
# table in pyproject.toml or the Python version has changed, and from scratch after an interruption.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Use only the packages of the environment.
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

readonly VENV=.venv
readonly SUPPORTED="3.11 to 3.13"

fail() {
  echo "error: $*" >&2
  exit 2
}

# Prints "X.Y" if "$1" runs, is supported, and can make virtual environments; fails otherwise.
usable_version() {
  "$1" -I -c '
import sys
supported = (3, 11) <= sys.version_info[:2] <= (3, 13)
if supported:
    import ensurepip, venv  # Debian keeps these in a package of their own
    print("%d.%d" % sys.version_info[:2])
sys.exit(0 if supported else 1)' 2>/dev/null
}

choose_python() {
  local candidate own
  if [ -n "${PYTHON:-}" ]; then
    usable_version "$PYTHON" >/dev/null ||
      fail "PYTHON=$PYTHON is not a Python $SUPPORTED with the venv module; name one, or unset PYTHON to search the PATH"
    echo "$PYTHON"
    return
  fi
  own=$("$VENV/bin/python" -I -S -c 'import sys; print(sys._base_executable)' 2>/dev/null || true)
  for candidate in "$own" python3.13 python3.12 python3.11 python3 python; do
    if usable_version "$candidate" >/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python $SUPPORTED with the venv module on the PATH (python3 is: $(python3 --version 2>&1 || true));" \
    "on Debian: apt-get install python3 python3-venv; elsewhere: PYTHON=/path/to/python $0"
}

# A hash of the environment's Python version and of what names the requirements; empty without an environment.
fingerprint() {
  "$VENV/bin/python" -I -S -c '
import hashlib, pathlib, sys, tomllib
digest = hashlib.sha256(b"%d.%d" % sys.version_info[:2])
for name in ("requirements.txt", "constraints.txt"):
    digest.update(pathlib.Path(name).read_bytes())
digest.update(repr(tomllib.loads(pathlib.Path("pyproject.toml").read_text()).get("project")).encode())
print(digest.hexdigest())' 2>/dev/null || true
}

is_installed() { # STAMP: true if STAMP was written for the present requirements
  [ -f "$1" ] && [ "$(cat "$1")" = "$(fingerprint)" ]
}

has_other_python() { # true if PYTHON has another version than the environment
  [ -n "${PYTHON:-}" ] && [ "$(usable_version "$PYTHON")" != "$(usable_version "$VENV/bin/python")" ]
}

extra=serving # for examples/serving
stamp=$VENV/installed-requirements
case "${1:-}" in
  "") ;;
  --dev)
    extra=dev
    stamp=$VENV/installed-requirements-dev
    ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' setup.sh && exit ;;
  *) fail "unknown argument $1; usage: $0 [--dev]" ;;
esac

# A second set-up waits for the first.
if command -v flock >/dev/null; then
  exec 9>.venv.lock
  flock 9
fi

if has_other_python; then rm -rf "$VENV"; fi
if is_installed "$stamp"; then exit 0; fi

if ! is_installed "$VENV/installed-requirements"; then
  if [ -L "$VENV" ]; then fail "$VENV links to an environment with other requirements; remove the link"; fi
  # pip takes an interrupted install for a complete one, so without a stamp everything is installed again.
  python=$(choose_python)
  echo "Making $VENV with $("$python" --version) ..."
  "$python" -m venv --clear "$VENV"
fi
rm -f "$VENV"/installed-requirements*

echo "Installing electra-tf[$extra]: some 600 MB to download, 2 to 5 minutes ..."
quiet=()
[ -t 1 ] || quiet=(--quiet)
started=$SECONDS
"$VENV/bin/python" -m pip install ${quiet[@]+"${quiet[@]}"} --constraint constraints.txt --editable ".[$extra]" \
  </dev/null ||
  fail "pip could not install the requirements; see above; fix the cause and run $0 again"
fingerprint | tee "$stamp" >"$VENV/installed-requirements"
echo "Installed in $((SECONDS - started)) s."
