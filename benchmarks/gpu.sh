#!/usr/bin/env bash
# Every figure that asks for a GPU, by one command on a machine with one:
#
#   bash benchmarks/gpu.sh
#
# The first case tries every operator in every way to run, in a minute or a few; then come the figures,
# the most important first. Each case is measured within ten minutes, has a limit of its own, adds its
# figure to a history (*.jsonl) as soon as it has one, and leaves its output (*.log). The next case
# runs whatever became of it. A second run goes on with the cases that are not in OUT/gpu.done; the
# exit status is 1 if one failed.
#
#   OUT      folder of the results         (benchmarks/results)
#   WORK     folder of datasets and runs   (runs/gpu)
#   PYTHON   with PyTorch                  (python3)
#   WHEELS   folder of wheels to install beside it first, without a network
#   PARTS    which, of: smoke steps runs generate written streams tables   (all)
#   AGAIN=1  measures again what OUT/gpu.done names
#   DEVICE, QUICK=1   small sizes on the processor: DEVICE=cpu QUICK=1 checks this script
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
device=${DEVICE:-cuda}
quick=${QUICK:-}
all="smoke steps runs generate written streams tables"
parts=${PARTS:-$all}
limit=600 # seconds of a case

refuse() {
    echo "gpu.sh: $1" >&2
    exit 2
}

for what in $parts; do
    case " $all " in
    *" $what "*) ;;
    *) refuse "unknown part $what: $all" ;;
    esac
done
python=$(command -v "${PYTHON:-python3}") || refuse "there is no ${PYTHON:-python3}: set PYTHON"
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
work=${WORK:-$root/runs/gpu}
export OMP_WAIT_POLICY=PASSIVE PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
if [ -n "${WHEELS:-}" ]; then
    mkdir -p "$work/packages" || exit 2
    export PYTHONPATH="$PYTHONPATH:$(cd "$work/packages" && pwd)"
    "$python" -m pip install --quiet --no-index --no-deps --upgrade --target "$work/packages" \
        "$WHEELS"/*.whl || exit 2
fi
pdegen='from pipelines.cli import main; main()'
"$python" -c "import sys; sys.argv[1:] = ['recipes']; $pdegen" >/dev/null 2>&1 ||
    refuse "$python lacks what pdegen needs: set PYTHON or WHEELS"
if [ "$device" = cuda ]; then
    "$python" -c 'import torch; exit(not torch.cuda.is_available())' ||
        refuse "PyTorch finds no GPU here: DEVICE=cpu QUICK=1 checks the script alone"
fi
mkdir -p "$work" "${OUT:=$root/benchmarks/results}" || exit 2
out=$(cd "$OUT" && pwd)
work=$(cd "$work" && pwd)
cd "$work" || exit 2 # datasets are kept in ./data

quickly=${quick:+--quick}
done=$out/gpu.done
[ -z "${AGAIN:-}" ] || rm -f "$done"
failed=()

run_of() { # run_of NAME EXPERIMENT WORDS...: trained and evaluated, scores in runs.jsonl
    local name=$1 resume=--overwrite
    shift
    if [ -f "$work/$name/state.pt" ]; then resume=--resume; fi
    "$python" -c "$pdegen" run "$@" --device "$device" --out "$work/$name" $resume &&
        "$python" -c '
import json, sys
from pathlib import Path

from pipelines.measure.history import append

out, name, device, folder = sys.argv[1:]
scores = json.loads(Path(folder, "scores.json").read_text())
epochs = [json.loads(line) for line in Path(folder, "history.jsonl").read_text().splitlines()]
results = [
    {key: one[key] for key in ("checkpoint", "epoch", "resolution", "mean", "median", "worst")}
    for one in scores["results"]
]
run = {"training seconds": scores["training_seconds"], "epochs": len(epochs), "results": results}
append(Path(out), "runs", {name: run}, device=device)
' "$out" "$name" "$device" "$work/$name"
}

table_of() { # table_of NAME WORDS...: a benchmark, whose finished rows a second run keeps
    local name=$1 resume=--overwrite
    shift
    if [ -d "$work/$name" ]; then resume=--resume; fi
    "$python" -c "$pdegen" benchmark "$@" --device "$device" --out "$work/$name" $resume &&
        cp "$work/$name/table.csv" "$out/$name.csv" && cp "$work/$name/table.md" "$out/$name.md"
}

measured() { # measured CASE: by what it is measured
    case $1 in
    smoke) "$python" -m benchmarks.smoke --device "$device" --out "$out" ;;
    runs/burgers-quick) run_of burgers-gt burgers-quick --set epochs=2 ;;
    runs/burgers-quick-stream)
        run_of burgers-gt-stream burgers-quick --stream burgers-quick --set epochs=2
        ;;
    runs/burgers-gt-8192) run_of burgers-gt-8192 burgers-gt-8192 ;;
    # the same steps on samples without end, and longer on a coarse grid
    runs/burgers-gt-8192-stream)
        run_of burgers-gt-8192-stream burgers-gt-8192 --stream burgers-r10
        ;;
    runs/burgers-gt-512-stream)
        run_of burgers-gt-512-stream burgers-gt-512 --stream burgers-r10 --set epochs=500
        ;;
    tables/quick)
        table_of burgers-table2a burgers-table2a --quick --only GT --set training.epochs=1
        ;;
    tables/burgers) table_of burgers-table2a burgers-table2a --on burgers-512 --on burgers-2048 ;;
    tables/slides) table_of slides-table slides-table ;;
    *) "$python" -m benchmarks.gpu "$1" --device "$device" --out "$out" $quickly ;;
    esac
}
export -f measured run_of table_of
export python pdegen device out work quickly

try() { # try CASE: within the limit, unless it is done
    local name=$1 log start=$SECONDS status
    log=$out/${name//\//-}.log
    if [ -f "$done" ] && grep -qx "$name" "$done"; then return; fi
    timeout -k 30 "$limit" bash -c 'measured "$1"' measured "$name" >"$log" 2>&1
    status=$?
    if [ "$name" = smoke ]; then cat "$log"; fi
    if [ $status = 0 ]; then
        echo "$name" >>"$done"
        echo "$name: $((SECONDS - start)) s"
        return
    fi
    if [ $status = 137 ]; then status=124; fi # it did not end when it was asked to
    if [ $status = 124 ]; then echo "$name: not done in $limit s" >&2; fi
    [ "$name" = smoke ] || {
        echo "gpu.sh: $name failed; the end of $log:" >&2
        tail -n 3 "$log" >&2
    }
    return $status
}

if [ -n "$quick" ]; then
    cases="smoke written/burgers-512 runs/burgers-quick generate/burgers generate/burgers-job
        generate/pipe streams/burgers-gt-512 runs/burgers-quick-stream tables/quick"
else
    cases="smoke steps/burgers-8192 steps/burgers-512 steps/darcy-141-43 runs/burgers-gt-8192
        generate/burgers generate/darcy generate/pipe generate/burgers-job generate/darcy-job
        steps/burgers-2048 steps/darcy-85-29
        written/burgers-8192 written/burgers-512 written/darcy-141-43 written/burgers-2048
        written/darcy-85-29 written/growth generate/growth
        streams/burgers-gt-512 streams/burgers-gt-2048 streams/darcy-gt-85-29
        runs/burgers-gt-8192-stream runs/burgers-gt-512-stream tables/burgers tables/slides"
fi
for name in $cases; do
    case " $parts " in
    *" ${name%%/*} "*) ;;
    *) continue ;;
    esac
    for _ in $(seq 20); do # runs and tables go on where their time ended
        try "$name"
        status=$?
        case $status$name in
        124runs/* | 124tables/*) ;;
        *) break ;;
        esac
    done
    [ $status = 0 ] || failed+=("$name")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "gpu.sh: failed: ${failed[*]}" >&2
    exit 1
fi
echo "gpu.sh: results in $out"
