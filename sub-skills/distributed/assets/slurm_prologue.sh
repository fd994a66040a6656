#!/bin/bash
# In an sbatch script, before the training: is every node of this allocation all right? One smoke over all tasks.
#
#   bash slurm_prologue.sh [OPTION OF distributed_smoke.py …] || exit 1        e.g. bash slurm_prologue.sh nccl || exit 1
#
# Prints the report when a check fails, and ends with the status of the smoke. SMOKE and PYTHON name the program and
# the interpreter if they are elsewhere; srun takes its number of tasks from the job.
set -u
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
smoke=${SMOKE:-}
for place in "$here/distributed_smoke.py" "$here/../scripts/distributed_smoke.py"; do
    [ -z "$smoke" ] && [ -f "$place" ] && smoke=$place
done
[ -n "$smoke" ] || { echo "slurm_prologue.sh: distributed_smoke.py is not beside this file; set SMOKE" >&2; exit 2; }
[ -n "${SLURM_JOB_ID:-}" ] || { echo "slurm_prologue.sh: runs inside a SLURM job" >&2; exit 2; }
report=$(srun --quiet --kill-on-bad-exit=0 "${PYTHON:-python3}" "$smoke" "$@" 2>&1)
status=$?
[ "$status" -eq 0 ] || printf '%s\nslurm_prologue.sh: the smoke failed on this allocation (%s)\n' "$report" "${SLURM_JOB_NODELIST:-}" >&2
exit "$status"
