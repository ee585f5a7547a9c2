#!/usr/bin/env bash
# Every figure that asks for a GPU, by one command on a machine with one:
#
#   bash benchmarks/gpu.sh
#
# Histories (*.jsonl), tables and the output of each part (*.log) go to OUT. Each part has a limit
# of its own and runs whatever became of those before it; the exit status is 1 if one failed.
#
#   OUT      folder of the results         (benchmarks/results)
#   WORK     folder of datasets and runs   (runs/gpu)
#   PYTHON   with PyTorch                  (python3)
#   WHEELS   folder of wheels to install beside it first, without a network
#   PARTS    which, of: training generation runs streams tables   (all)
#   DEVICE, QUICK=1   small sizes on the processor: DEVICE=cpu QUICK=1 checks this script
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
device=${DEVICE:-cuda}
quick=${QUICK:-}
parts=${PARTS:-training generation runs streams tables}

refuse() {
    echo "gpu.sh: $1" >&2
    exit 2
}

for what in $parts; do
    case $what in
    training | generation | runs | streams | tables) ;;
    *) refuse "unknown part $what: training, generation, runs, streams, tables" ;;
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

failed=()
part() { # part LIMIT NAME WORDS...: one command of pdegen, with its output in NAME.log
    local limit=$1 name=$2 start=$SECONDS
    shift 2
    echo "$name: pdegen $*"
    if timeout "$limit" "$python" -c "$pdegen" "$@" >"$out/$name.log" 2>&1; then
        echo "$name: $((SECONDS - start)) s"
    else
        failed+=("$name")
        echo "$name: failed or took more than $limit s; the end of $out/$name.log:" >&2
        tail -n 3 "$out/$name.log" >&2
        return 1
    fi
}

trained() { # trained LIMIT NAME EXPERIMENT WORDS...: trained and evaluated, scores in runs.jsonl
    local limit=$1 name=$2
    shift 2
    part "$limit" "$name" run "$@" --device "$device" --out "$work/$name" --overwrite &&
        "$python" -c '
import json, sys
from pathlib import Path

from pipelines.bench.history import append

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

table() { # table LIMIT NAME WORDS...: a benchmark, with its table
    local limit=$1 name=$2
    shift 2
    part "$limit" "$name" benchmark "$@" --device "$device" --out "$work/$name" --overwrite &&
        cp "$work/$name/table.csv" "$out/$name.csv" && cp "$work/$name/table.md" "$out/$name.md"
}

for what in $parts; do
    case $what in
    training) # steps, memory, growth
        part 1500 train bench train --device "$device" ${quick:+--quick} --out "$out"
        ;;
    generation) # 2048 samples of Burgers and of Darcy, solved on the device, and written
        part 1200 generate bench generate --device "$device" ${quick:+--quick} --out "$out"
        part 300 stream bench stream --device "$device" ${quick:+--quick} --out "$out"
        ;;
    runs) # the published experiment
        if [ -n "$quick" ]; then
            trained 300 burgers-gt burgers-quick --set epochs=2
        else
            trained 900 burgers-gt-8192 burgers-gt-8192
        fi
        ;;
    streams) # the same steps on samples without end, and longer on a coarse grid
        if [ -n "$quick" ]; then
            trained 300 burgers-gt-stream burgers-quick --stream burgers-quick --set epochs=2
        else
            trained 900 burgers-gt-8192-stream burgers-gt-8192 --stream burgers-r10
            trained 900 burgers-gt-512-stream burgers-gt-512 --stream burgers-r10 --set epochs=500
        fi
        ;;
    tables) # published tables, at the published epochs
        if [ -n "$quick" ]; then
            table 300 burgers-table2a burgers-table2a --quick --only GT \
                --set training.epochs=1
        else
            table 7200 burgers-table2a burgers-table2a --on burgers-512 --on burgers-2048
            table 7200 slides-table slides-table
        fi
        ;;
    esac
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "gpu.sh: failed: ${failed[*]}" >&2
    exit 1
fi
echo "gpu.sh: results in $out"
