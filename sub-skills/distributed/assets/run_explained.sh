#!/bin/bash
# Run a launcher, keep its output, and if it fails say why:
#
#   bash run_explained.sh torchrun --nproc_per_node=4 train.py
#
# The output is shown as ever and kept in LOG (job-DATE-PID.log); ends with the status of the launcher. EXPLAIN and
# PYTHON name explain_log.py and the interpreter if they are elsewhere.
set -u
[ $# -ge 1 ] || { echo "usage: run_explained.sh COMMAND…" >&2; exit 2; }
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
explain=${EXPLAIN:-}
for place in "$here/explain_log.py" "$here/../scripts/explain_log.py"; do
    [ -z "$explain" ] && [ -f "$place" ] && explain=$place
done
log=${LOG:-job-$(date +%Y%m%d-%H%M%S)-$$.log}
"$@" 2>&1 | tee -i "$log"
status=${PIPESTATUS[0]}
if [ "$status" -ne 0 ]; then
    echo "run_explained.sh: ended with $status; the output is in $log" >&2
    if [ -n "$explain" ]; then
        "${PYTHON:-python3}" "$explain" --html "${log%.log}.html" -- "$log" >&2
    else
        echo "run_explained.sh: explain_log.py is not beside this file; set EXPLAIN" >&2
    fi
fi
exit "$status"
