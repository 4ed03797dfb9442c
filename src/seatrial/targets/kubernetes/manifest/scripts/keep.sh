#!/bin/sh
# What the container beside a trial starts: it stays until the trial has ended, and then for SEATRIAL_KEEP_S seconds, so
# that its files can be fetched. `collected` in its volume, or SIGTERM, and it leaves at once.
place=${SEATRIAL_PLACE:-/seatrial}
keep_s=${SEATRIAL_KEEP_S:-600}
keep_s=${keep_s%%.*}
out=$place/volume/out
start_s=3600 # for a trial that does not start
still_s=30   # without a new sign from the trial: it was killed

# Ends the pod by its node, also what else is in it: see agent/pod/keep.py.
end_pod() {
    dd if=/dev/zero of="$place/end/full" bs=65536 count=64 2>/dev/null
    exit 0
}

trap 'exit 0' TERM INT
python=$(/bin/sh "$place/agent/start.sh" find) &&
    exec "$python" -I -S "$place/agent/agent.pyz" keep "$keep_s"

# Without a Python there are no locks: the trial writes something new into `alive` every few seconds.
uptime() {
    read -r up rest </proc/uptime
    up=${up%.*}
}

uptime
begun=$up changed=$up ended='' seen=''
while [ ! -e "$out/collected" ]; do
    uptime
    sign=$(cat "$out/alive" 2>/dev/null)
    if [ "$sign" != "$seen" ]; then
        seen=$sign changed=$up ended=''
    fi
    if [ -e "$out/end.json" ]; then
        ended=${ended:-$up}
    elif [ -n "$seen" ] && [ $((up - changed)) -ge $still_s ]; then
        ended=$changed
    fi
    if [ -n "$ended" ] && [ $((up - ended)) -ge "$keep_s" ]; then
        end_pod
    fi
    if [ ! -e "$out/started" ] && [ $((up - begun)) -ge $start_s ]; then
        end_pod
    fi
    sleep 1 &
    wait $! # a signal is heard while this waits, not while another program runs
done
