#!/usr/bin/env bash
# Everything that only a machine with GPUs can decide, in one run of some minutes:
#
#     PYTHON=python3 OUT=folder bash tests/gpu/run.sh
#
# The smoke over nccl in one process and in one per GPU, plain and under torchrun, with timings; assets/train.py on one
# GPU and on all, whose results must agree. Reports go to $OUT (default gpu-report/). Ends with the smoke's 3 where there
# is no CUDA device, with 0 if all passed, else with 1.
set -uo pipefail
cd "$(dirname "$0")/../.."
python=${PYTHON:-python3} out=${OUT:-gpu-report} room=sub-skills/distributed failed=0
smoke=$room/scripts/distributed_smoke.py
mkdir -p "$out"

"$python" "$smoke" --env >"$out/env.txt" 2>&1
"$python" "$smoke" nccl --nproc 1 --format json --output "$out/nccl-1.json" >/dev/null || { code=$?; [ $code = 3 ] && exit 3; failed=1; }
gpus=$("$python" -c 'import torch; print(torch.cuda.device_count())')
nvidia-smi >"$out/nvidia-smi.txt" 2>&1

step() { # step NAME COMMAND…: run it, keep what it prints, say how it went
    local name=$1
    shift
    if timeout 300 "$@" >"$out/$name.txt" 2>&1; then echo "passed  $name"; else echo "FAILED  $name ($?): $out/$name.txt"; failed=1; fi
}

torchrun=("$python" -m torch.distributed.run --standalone "--nproc_per_node=$gpus")
step torchrun-nccl "${torchrun[@]}" "$smoke" nccl --payload 256M --iterations 50 --format json --output "$out/torchrun-nccl.json"
[ "$gpus" -gt 1 ] && step nccl-all "$python" "$smoke" nccl --nproc "$gpus" --payload 256M --format json --output "$out/nccl-all.json"
[ "$gpus" -gt 1 ] && step spawned "$python" "$smoke" nccl --nproc "$gpus" --start-method spawn
step gloo-beside-cuda "$python" "$smoke" gloo
step more-ranks-than-gpus bash -c '"$@"; [ $? != 0 ]' - "$python" -m torch.distributed.run --standalone \
    "--nproc_per_node=$((gpus + 1))" "$smoke" nccl --timeout 60
for ranks in 1 "$gpus"; do
    step "train-$ranks" "$python" -m torch.distributed.run --standalone "--nproc_per_node=$ranks" $room/assets/train.py \
        --data "$out/data" --output "$out/train-$ranks" --epochs 3 --batch-size $((24 * gpus))
done
step same-result "$python" - "$out/train-1.txt" "$out/train-$gpus.txt" <<'PY'
import re
import sys

results = [re.search(r"final loss=(\S+) accuracy=(\S+)", open(name).read()).groups() for name in sys.argv[1:]]
print(results)
sys.exit(max(abs(float(a) - float(b)) for a, b in zip(*results)) > 1e-3)
PY
exit $failed
