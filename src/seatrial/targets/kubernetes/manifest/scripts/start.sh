#!/bin/sh
# Entry point of a trial's container: starts the agent with the job's interpreter or the image's Python (3.8 or later),
# or without one runs the steps in a plain shell. `start.sh find` prints that Python.
place=${SEATRIAL_PLACE:-/seatrial}
for name in "$(cat "$place/job/python" 2>/dev/null)" python3 python python3.13 python3.12 python3.11 python3.10 python3.9 python3.8 \
    /usr/local/bin/python3 /usr/bin/python3 /opt/conda/bin/python3 /opt/venv/bin/python3; do
    path=$(command -v "$name" 2>/dev/null) || continue
    "$path" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1 || continue
    if [ "$1" = find ]; then
        printf '%s\n' "$path"
        exit 0
    fi
    # -I -S: the job's Python variables are for its steps, not for the agent.
    exec "$path" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
done
[ "$1" = find ] && exit 1
exec /bin/sh "$place/job/plain.sh"
