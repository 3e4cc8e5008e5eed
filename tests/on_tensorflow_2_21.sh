#!/usr/bin/env bash
# Runs the tests with TensorFlow 2.21, in an environment of its own; the project's is on 2.20.
#
#   tests/on_tensorflow_2_21.sh               makes .venv-2.21 if needed, runs the default tests
#   tests/on_tensorflow_2_21.sh --all         the slow ones too; all arguments are those of test.sh
#
# PYTHON=/path/to/python names the interpreter. tf-models-official has no release for 2.21: that for 2.20 is installed
# without its requirements, and those that are used are added. Nothing is pinned: the newest releases that the
# requirement files admit.
set -euo pipefail
script=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/$(basename "${BASH_SOURCE[0]}")
case "${1:-}" in -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$script" && exit ;; esac
cd "$(dirname "$script")/.."
unset PYTHONHOME PYTHONPATH
export PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

venv=.venv-2.21
installed=$venv/requirements.txt
extras=$("${PYTHON:-python3}" -c '
import tomllib
extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]
print("\n".join(line for of_extra in extras.values() for line in of_extra if not line.startswith("electra-tf[")))')
wanted=$(sed -E 's/~=2\.20\.0/~=2.21.0/; s/^tf-models-official.*/tf_keras\npandas/' requirements.txt - <<<"$extras")
if [ ! -f "$installed" ] || [ "$(cat "$installed")" != "$wanted" ]; then
  "${PYTHON:-python3}" -m venv --clear "$venv"
  echo "Installing TensorFlow 2.21 and the requirements into $venv: some minutes ..."
  "$venv/bin/python" -m pip install --quiet --requirement <(echo "$wanted") </dev/null
  "$venv/bin/python" -m pip install --quiet --no-deps "$(grep ^tf-models-official requirements.txt)" </dev/null
  echo "$wanted" >"$installed"
fi

TEST_VENV=$venv exec ./test.sh "$@"
