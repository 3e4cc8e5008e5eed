#!/usr/bin/env bash
# Sets up the environment if needed, then runs the whole pipeline on the bundled sample: text -> TFRecords -> a small
# ELECTRA -> a SavedModel -> detection of a replaced word.
#
# Each finished run has its own directory: runs/quickstart, runs/quickstart-2, ... An interrupted run is continued.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
case "${1:-}" in
  "") ;;
  -h | --help) sed -n '2,/^[^#]/s/^# \{0,1\}//p' quickstart.sh && exit ;;
  *) echo "error: unknown argument $1; $0 takes none" >&2 && exit 2 ;;
esac
./setup.sh
unset PYTHONHOME PYTHONPATH
# Hides TensorFlow's messages about missing GPUs and warnings about old Python versions.
export TF_CPP_MIN_LOG_LEVEL=${TF_CPP_MIN_LOG_LEVEL:-3}
export PYTHONWARNINGS=${PYTHONWARNINGS:-ignore:You are using a:FutureWarning}

readonly ELECTRA_TF=.venv/bin/electra-tf
readonly CONFIG=tiny
readonly NUM_PARTS=4

# The last run's directory if that run is unfinished, else the next free one.
choose_run() {
  local run=runs/quickstart number=1
  while [ -e "$run/finished" ]; do
    number=$((number + 1))
    run=runs/quickstart-$number
  done
  echo "$run"
}

as_typed() { # COMMAND...: prints the command as it is typed, with quoted patterns
  local word line=
  for word in "${@/#.venv\/bin\//}"; do
    case "$word" in *[*\ ]*) word="'$word'" ;; esac
    line+=" $word"
  done
  echo "${line# }"
}

timings=()
part_number=0
part() { # TITLE COMMAND...: runs one part of the pipeline under a heading and times it
  local title=$1 started=$SECONDS
  shift
  part_number=$((part_number + 1))
  printf '\n== %d/%d %s\n   %s\n' "$part_number" "$NUM_PARTS" "$title" "$(as_typed "$@")"
  "$@" </dev/null
  timings+=("$(printf '%5d s  %s' $((SECONDS - started)) "$title")")
}

skip_part() { # TITLE REASON
  part_number=$((part_number + 1))
  printf '\n== %d/%d %s: skipped, %s\n' "$part_number" "$NUM_PARTS" "$1" "$2"
}

run=$(choose_run)
mkdir -p "$run"
if [ -e "$run/data" ]; then echo "Continuing the unfinished run in $run (delete it to start afresh)."; fi

if [ -e "$run/data/manifest.json" ]; then
  skip_part "Build TFRecords from the sample" "$run/data is complete"
else
  part "Build TFRecords from the sample" \
    "$ELECTRA_TF" build-data '--input=wikiextractor:sample/wikipedia/*' \
    '--input=book:sample/novel/*.txt' --vocab_file=sample/vocab.txt --output_dir="$run/data" \
    --max_seq_length=128 --num_processes=2 --seed=1 --held_out_fraction=0.05 --overwrite
fi
part "Pre-train a small ELECTRA, then evaluate it on held-out text" \
  "$ELECTRA_TF" pretrain --config="$CONFIG" --data_dir="$run/data" --model_dir="$run/model" \
  --strategy=one_device
part "Export a SavedModel" \
  "$ELECTRA_TF" export --model_dir="$run/model" --output_dir="$run/saved_model" --overwrite
part "Load it in a new process and detect the replaced word" \
  .venv/bin/python examples/detect_replaced_tokens.py "$run/saved_model/1"
touch "$run/finished"

printf '\n== Done in %d s\n' "$SECONDS"
printf '   %s\n' "${timings[@]}"
cat <<END

   $run/data          TFRecord shards, manifest.json, vocabulary
   $run/model         config.yaml, metrics.jsonl, TensorBoard events, checkpoints
   $run/saved_model   the SavedModel, in TensorFlow Serving's layout

Next commands:
   source .venv/bin/activate
   python examples/detect_replaced_tokens.py $run/saved_model/1 --text "A sentence of your own."
   tensorboard --logdir $run/model
   electra-tf build-data --help        # your own text
   electra-tf pretrain --help                  # --config=small is the paper's ELECTRA-Small
END
