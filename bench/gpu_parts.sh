#!/usr/bin/env bash
# All that needs a real GPU, in short parts, each with its own time limit; what a part prints is kept in a file of its own.
#
#     bash bench/gpu_parts.sh FOLDER [PART ...]
#
# Without parts, all run in this order, in about 25 minutes on one H200. A part that fails does not keep the others from running.
# PYTHON names the interpreter (default: python3), which needs PyTorch. The exit status is the number of parts that failed.
set -u
cd "$(dirname "$0")/.."
out=${1:?where the results go}
shift
mkdir -p "$out"
export OUT=$out PYTHONUNBUFFERED=1 PYTHONPATH=$PWD/src${PYTHONPATH:+:$PYTHONPATH}
python=${PYTHON:-python3}
failed=0

part() { # NAME SECONDS COMMAND...
    local name=$1 seconds=$2
    shift 2
    [ -z "$wanted" ] || [[ " $wanted " == *" $name "* ]] || return 0
    echo "== $name (at most $seconds s)"
    timeout "$seconds" "$@" >"$out/$name.txt" 2>&1
    local code=$?
    tail -n 12 "$out/$name.txt"
    echo "== $name ended with $code"
    [ "$code" = 0 ] || failed=$((failed + 1))
}

health() {
    for check in gpu xid dcgm matmul bandwidth all-reduce; do
        timeout 60 "$python" -m rota.health.checks "$check"
        echo "$check: exit $?"
    done
}
export -f health
export python

wanted=$*
part health 200 bash -c health
part swap 240 "$python" bench/gpu.py swap
part resident 120 "$python" bench/gpu.py resident
part waits 150 "$python" bench/gpu.py waits
part turns 240 "$python" bench/gpu.py turns
part journal 150 "$python" bench/gpu.py journal
part killed 150 "$python" bench/gpu.py identical+killed+mps-killed
part overhead 110 "$python" bench/gpu.py overhead
part limits 150 "$python" bench/gpu.py limit mps
part rates 120 "$python" bench/gpu.py rates
part large 240 "$python" bench/gpu.py large
part bound 330 "$python" bench/gpu.py bound unbound
part pairs 240 "$python" bench/gpu.py pairs
part shares 120 "$python" bench/gpu.py mps-shares
part tests 400 "$python" -m pytest tests/gpu tests/drivers/local/test_gpus.py tests/drivers/local/test_suspension.py tests/drivers/local/test_residency.py \
    tests/drivers/local/test_disk_images.py tests/e2e/test_gpu_suspension.py -q -rs -p no:cacheprovider
part truth 540 "$python" bench/truth.py --gpu
exit "$failed"
