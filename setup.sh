#!/usr/bin/env bash
# Makes .venv with the pinned requirements. If it is complete, this takes less than a second.
#
#   ./setup.sh          the requirements of the commands and quickstart.sh
#   ./setup.sh --dev    also the requirements of the tests and the style check (test.sh calls this)
#
# PYTHON=/path/to/python chooses the interpreter. Without it, an existing .venv keeps its own, and a new one uses the
# newest supported Python on the PATH. The script installs again if a requirement file, constraints.txt or the Python
# version has changed, and from scratch after an interruption.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# Use only the packages of the environment.
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

readonly VENV=.venv
readonly SUPPORTED="3.10 to 3.13"

fail() {
  echo "error: $*" >&2
  exit 2
}

# Prints "X.Y" if "$1" runs, is supported, and can make virtual environments; fails otherwise.
usable_version() {
  "$1" -I -c '
import sys
supported = (3, 10) <= sys.version_info[:2] <= (3, 13)
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
  # sys._base_executable of Python 3.10 is that of the environment.
  own=$("$VENV/bin/python" -I -S -c '
import sys
print("%s/bin/python%d.%d" % (sys.base_prefix, *sys.version_info[:2]))' 2>/dev/null || true)
  for candidate in "$own" python3.13 python3.12 python3.11 python3.10 python3 python; do
    if usable_version "$candidate" >/dev/null; then
      echo "$candidate"
      return
    fi
  done
  fail "no Python $SUPPORTED with the venv module on the PATH (python3 is: $(python3 --version 2>&1 || true));" \
    "on Debian: apt-get install python3 python3-venv; elsewhere: PYTHON=/path/to/python $0"
}

# A hash of the environment's Python version and of the requirement files; empty without an environment.
fingerprint() {
  "$VENV/bin/python" -I -S -c '
import hashlib, pathlib, sys
digest = hashlib.sha256(b"%d.%d" % sys.version_info[:2])
for name in sys.argv[1:]:
    digest.update(pathlib.Path(name).read_bytes())
print(digest.hexdigest())' constraints.txt "$@" 2>/dev/null || true
}

is_installed() { # STAMP FILE...: true if STAMP was written for the present content of these files
  local stamp=$1
  shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(fingerprint "$@")" ]
}

has_other_python() { # true if PYTHON has another version than the environment
  [ -n "${PYTHON:-}" ] && [ "$(usable_version "$PYTHON")" != "$(usable_version "$VENV/bin/python")" ]
}

base_files=(requirements.txt requirements-serving.txt) # what all commands and examples/serving import
requirement_files=("${base_files[@]}")
stamp=$VENV/installed-requirements
case "${1:-}" in
  "") ;;
  --dev)
    requirement_files+=(requirements-dev.txt)
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
if is_installed "$stamp" "${requirement_files[@]}"; then exit 0; fi

if ! is_installed "$VENV/installed-requirements" "${base_files[@]}"; then
  if [ -L "$VENV" ]; then fail "$VENV links to an environment with other requirements; remove the link"; fi
  # pip takes an interrupted install for a complete one, so without a stamp everything is installed again.
  python=$(choose_python)
  echo "Making $VENV with $("$python" --version) ..."
  "$python" -m venv --clear "$VENV"
fi
rm -f "$VENV"/installed-requirements*

echo "Installing ${requirement_files[*]}: some 600 MB to download, 2 to 5 minutes ..."
quiet=()
[ -t 1 ] || quiet=(--quiet)
started=$SECONDS
# --use-pep517: otherwise the pip of Python 3.10 cannot build the few source packages.
"$VENV/bin/python" -m pip install ${quiet[@]+"${quiet[@]}"} --use-pep517 --constraint constraints.txt \
  "${requirement_files[@]/#/--requirement=}" </dev/null ||
  fail "pip could not install the requirements; see above; fix the cause and run $0 again"
fingerprint "${base_files[@]}" >"$VENV/installed-requirements"
if [ "$stamp" != "$VENV/installed-requirements" ]; then fingerprint "${requirement_files[@]}" >"$stamp"; fi
echo "Installed in $((SECONDS - started)) s."
