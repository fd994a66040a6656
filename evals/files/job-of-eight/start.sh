#!/bin/sh
# Starts the job in the background: eight ranks on this machine. What it prints goes to job.log, its pid to job.pid.
cd "$(dirname "$0")" || exit 1
if [ -e job.pid ]; then
    echo "started before, as $(cat job.pid)" >&2
    exit 1
fi
port=$("${PYTHON:-python}" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
date >> starts.log
MASTER_PORT=$port setsid nohup timeout 4h "${PYTHON:-python}" job.py < /dev/null > job.log 2>&1 &
echo $! > job.pid
