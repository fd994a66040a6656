#!/bin/bash
# In an sbatch script, after the training: if it failed, say why, into explain-JOBID.txt and .html beside the log.
#
#   srun --label python train.py > "train-$SLURM_JOB_ID.log" 2>&1
#   bash slurm_epilogue.sh $? "train-$SLURM_JOB_ID.log"
#
# Arguments: the status of the training, then its log files. Ends with that status, so the job counts as what it was.
# A job that meets its time limit gets here with `#SBATCH --signal=B:TERM@120` and the same line in a trap.
# EXPLAIN and PYTHON name the program and the interpreter if they are elsewhere.
set -u
[ $# -ge 2 ] || { echo "usage: slurm_epilogue.sh STATUS LOG…" >&2; exit 2; }
status=$1
shift
[ "$status" -eq 0 ] && exit 0
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
explain=${EXPLAIN:-}
for place in "$here/explain_log.py" "$here/../scripts/explain_log.py"; do
    [ -z "$explain" ] && [ -f "$place" ] && explain=$place
done
answer=$(dirname -- "$1")/explain-${SLURM_JOB_ID:-$$}
if [ -n "$explain" ]; then
    "${PYTHON:-python3}" "$explain" --html "$answer.html" -- "$@" > "$answer.txt" 2>&1
    cat "$answer.txt" >&2
else
    echo "slurm_epilogue.sh: explain_log.py is not beside this file; set EXPLAIN" >&2
fi
exit "$status"
