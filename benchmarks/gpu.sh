#!/usr/bin/env bash
# Every figure that asks for a GPU, by one command on a machine with one:
#
#   bash benchmarks/gpu.sh
#
# Versions and six operators in every way to run come first; then the figures, the most important
# first; at the end all operators in every way to run. Each case is measured within ten minutes, has
# a limit of its own, adds its figure to a history (*.jsonl) as soon as it has one, and leaves its
# output (*.log). The next case runs whatever became of it. A second run goes on with the cases that
# are not in gpu.done. The exit status is 1 if one failed, 2 if nothing could begin, and 75 if LIMIT
# came first: the same command goes on.
#
#   OUT      folder of the results         (benchmarks/results)
#   WORK     folder of datasets and runs   (runs/gpu)
#   PYTHON   with PyTorch                  (python3)
#   WHEELS   folder of wheels to install beside it where packages are missing, without a network
#   PARTS    which, of: versions steps generate runs smoke written streams tables   (all), or single
#            cases, such as runs/burgers-gt-8192
#   ONLY     operators of the case smoke   (all)
#   LIMIT    seconds of this command; a case that would not end in time goes on in the next   (none)
#   ARCHIVE=1  OUT gets one file, gpu.tar.gz: results, gpu.done, and runs that are not finished
#   FROM     such a file, to go on from
#   AGAIN=1  measures again what gpu.done names
#   TORCHINDUCTOR_COMPILE_THREADS   processes that compile   (one a core)
#   DEVICE, QUICK=1   small sizes on the processor: DEVICE=cpu QUICK=1 checks this script
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
device=${DEVICE:-cuda}
quick=${QUICK:-}
all="versions steps generate runs smoke written streams tables"
parts=${PARTS:-$all}
longest=600  # seconds of a case
ending=20    # seconds that are left for the end
largest=15   # MiB of an archive
first="galerkin-transformer galerkin-transformer-2d fno ono transolver scot"

refuse() {
    echo "gpu.sh: $1" >&2
    exit 2
}

if [ -n "$quick" ]; then
    cases="versions smoke/first written/burgers-512 generate/burgers generate/burgers-job
        generate/pipe runs/burgers-quick streams/burgers-gt-512 runs/burgers-quick-stream
        tables/quick smoke"
else
    cases="versions smoke/first steps/burgers-8192 steps/burgers-512 steps/darcy-141-43
        generate/burgers generate/darcy generate/pipe generate/burgers-job generate/darcy-job
        runs/burgers-gt-8192 runs/burgers-gt-512-float32 runs/burgers-gt-512-tf32
        runs/darcy-gt-141-43 smoke steps/burgers-2048 steps/darcy-85-29
        written/burgers-8192 written/burgers-512 written/darcy-141-43 written/burgers-2048
        written/darcy-85-29 written/growth generate/growth
        streams/burgers-gt-512 streams/burgers-gt-2048 streams/darcy-gt-85-29
        runs/burgers-gt-8192-stream runs/burgers-gt-512-stream tables/burgers tables/slides"
fi
for what in $parts; do
    case " $all $(echo $cases) " in
    *" $what "*) ;;
    *) refuse "unknown part $what: $all" ;;
    esac
done
case ${LIMIT:-0} in
*[!0-9]*) refuse "LIMIT is a number of seconds, not $LIMIT" ;;
esac
if [ -n "${FROM:-}" ] && [ ! -f "$FROM" ]; then refuse "there is no $FROM"; fi
python=$(command -v "${PYTHON:-python3}") || refuse "there is no ${PYTHON:-python3}: set PYTHON"
python=$(cd "$(dirname "$python")" && pwd)/$(basename "$python")
work=${WORK:-$root/runs/gpu}
export OMP_WAIT_POLICY=PASSIVE PYTHONPATH="$root:$work/packages${PYTHONPATH:+:$PYTHONPATH}"
export TORCHINDUCTOR_COMPILE_THREADS=${TORCHINDUCTOR_COMPILE_THREADS:-$(nproc)}
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$work/compiled}
missing=$("$python" "$root/benchmarks/needs.py")
if [ -n "$missing" ] && [ -n "${WHEELS:-}" ]; then
    mkdir -p "$work/packages" || exit 2
    "$python" -m pip install --quiet --no-index --no-deps --upgrade --target "$work/packages" \
        "$WHEELS"/*.whl || exit 2
    missing=$("$python" "$root/benchmarks/needs.py")
fi
if [ -n "$missing" ]; then
    echo "gpu.sh: $python lacks what a run and its report need. Set PYTHON, or bring a folder WHEELS" \
        "that has: pip download --no-deps -d WHEELS -r this list" >&2
    echo "$missing" >&2
    exit 2
fi
if [ "$device" = cuda ]; then
    "$python" -c 'import torch; exit(not torch.cuda.is_available())' ||
        refuse "PyTorch finds no GPU here: DEVICE=cpu QUICK=1 checks the script alone"
fi
mkdir -p "$work" "${OUT:=$root/benchmarks/results}" || exit 2
work=$(cd "$work" && pwd)
archive=
out=$(cd "$OUT" && pwd)
if [ -n "${ARCHIVE:-}" ]; then
    archive=$out/gpu.tar.gz
    out=$work/results
    mkdir -p "$out" || exit 2
fi
if [ -n "${FROM:-}" ]; then
    tar -xzf "$FROM" -C "$work" || exit 2
    if [ -z "$archive" ]; then cp -r "$work/results/." "$out" || exit 2; fi
fi
cd "$work" || exit 2 # datasets are kept in ./data

pdegen='from pipelines.cli import main; main()'
quickly=${quick:+--quick}
done=$out/gpu.done
[ -z "${AGAIN:-}" ] || rm -f "$done"
failed=()
late=()

pack() { # results, and what goes on where it is unpacked, as one file
    [ -n "$archive" ] || return
    local begun=() folder what
    for folder in */; do
        if [ -f "$folder/state.pt" ] && ! grep -qsx "runs/${folder%/}" "$done"; then
            begun+=("${folder%/}")
        fi
    done
    for what in "results ${begun[*]-}" results; do
        # shellcheck disable=SC2086 # names of folders, which have no spaces
        tar -czf "$archive.part" $what
        [ "$(stat -c %s "$archive.part")" -le $((largest * 1048576)) ] && break
        echo "gpu.sh: runs that are not finished are more than $largest MiB: left here" >&2
    done
    mv "$archive.part" "$archive"
}

run_of() { # run_of NAME EXPERIMENT WORDS...: trained and evaluated, scores in runs.jsonl
    local name=$1 resume=--overwrite
    shift
    if [ -f "$work/$name/state.pt" ]; then resume=--resume; fi
    "$python" -c "$pdegen" run "$@" --device "$device" --out "$work/$name" $resume &&
        "$python" -c '
import json, sys
from pathlib import Path

from benchmarks.history import append

out, name, device, folder = sys.argv[1:]
scores = json.loads(Path(folder, "scores.json").read_text())
epochs = [json.loads(line) for line in Path(folder, "history.jsonl").read_text().splitlines()]
results = [
    {key: one[key] for key in ("checkpoint", "epoch", "resolution", "mean", "median", "worst")}
    for one in scores["results"]
]
run = {"training seconds": scores["training_seconds"], "epochs": len(epochs), "results": results}
append(Path(out), "runs", {name: run}, device=device)
print(json.dumps({name: run}))
' "$out" "$name" "$device" "$work/$name"
}

table_of() { # table_of NAME WORDS...: a benchmark, whose finished rows a second run keeps
    local name=$1 resume=--overwrite
    shift
    if [ -d "$work/$name" ]; then resume=--resume; fi
    "$python" -c "$pdegen" benchmark "$@" --device "$device" --out "$work/$name" $resume &&
        cp "$work/$name/table.csv" "$out/$name.csv" && cp "$work/$name/table.md" "$out/$name.md"
}

smoke() { # smoke [OPERATOR...]
    "$python" -m benchmarks.smoke --device "$device" --out "$out" --resume ${1:+--only "$@"}
}

measured() { # measured CASE: by what it is measured
    # shellcheck disable=SC2086 # names of operators
    case $1 in
    smoke/first) smoke $first ;;
    smoke) smoke ${ONLY:-} ;;
    runs/burgers-quick) run_of burgers-quick burgers-quick --set epochs=2 ;;
    runs/burgers-quick-stream)
        run_of burgers-quick-stream burgers-quick --stream burgers-quick --set epochs=2
        ;;
    runs/burgers-gt-8192) run_of burgers-gt-8192 burgers-gt-8192 ;;
    runs/burgers-gt-512-float32)
        run_of burgers-gt-512-float32 burgers-gt-512 --precision float32
        ;;
    runs/burgers-gt-512-tf32) run_of burgers-gt-512-tf32 burgers-gt-512 --precision tf32 ;;
    runs/darcy-gt-141-43) run_of darcy-gt-141-43 darcy-gt-141-43 --set epochs=5 ;;
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
export -f measured run_of table_of smoke
export python pdegen device out work quickly first ONLY="${ONLY:-}"

seconds() { # those that the next case has
    local left=$((${LIMIT:-0} - SECONDS - ending))
    if [ "${LIMIT:-0}" = 0 ] || [ $left -gt $longest ]; then left=$longest; fi
    echo $left
}

try() { # try CASE: within its seconds, unless it is done; its rows are printed as they come
    local name=$1 log start=$SECONDS status limit
    log=$out/${name//\//-}.log
    if [ -f "$done" ] && grep -qx "$name" "$done"; then return; fi
    limit=$(seconds)
    if [ "$limit" -lt 10 ]; then return 75; fi
    timeout -k 10 "$limit" bash -c 'measured "$1"' measured "$name" 2>&1 |
        tee "$log" | grep --line-buffered -E '^[{]|^[a-z0-9-]+(, [a-z0-9, ]+)?: '
    status=${PIPESTATUS[0]}
    if [ $status = 137 ]; then status=124; fi # it did not end when it was asked to
    if [ $status = 124 ] && [ "$limit" -lt $longest ]; then status=75; fi
    case $status in
    0)
        if [ "$name" != smoke ] || [ -z "$ONLY" ]; then echo "$name" >>"$done"; fi
        echo "$name: $((SECONDS - start)) s"
        ;;
    75) echo "$name: $((SECONDS - start)) s, to be gone on with" ;;
    124) echo "$name: not done in $limit s" >&2 ;;
    *)
        echo "gpu.sh: $name failed; the end of $log:" >&2
        tail -n 3 "$log" >&2
        ;;
    esac
    pack
    return $status
}

for name in $cases; do
    case " $parts " in
    *" ${name%%/*} "* | *" $name "*) ;;
    *) continue ;;
    esac
    for _ in $(seq 20); do # runs, tables and smoke go on where their time ended
        try "$name"
        status=$?
        case $status$name in
        124runs/* | 124tables/* | 124smoke*) ;;
        *) break ;;
        esac
    done
    case $status in
    0) ;;
    75) late+=("$name") ;;
    *) failed+=("$name") ;;
    esac
done
pack
[ -z "$archive" ] || out=$archive
if [ ${#failed[@]} -gt 0 ]; then echo "gpu.sh: failed: ${failed[*]}" >&2; fi
if [ ${#late[@]} -gt 0 ]; then
    echo "gpu.sh: $LIMIT s are over; results in $out; to go on with: ${late[*]}" >&2
    exit 75
fi
[ ${#failed[@]} = 0 ] || exit 1
echo "gpu.sh: results in $out"
