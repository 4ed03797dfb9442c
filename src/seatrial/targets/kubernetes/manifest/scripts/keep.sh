#!/bin/sh
# The keeper, a container next to the trial: waits until the trial has ended, and then for SEATRIAL_KEEP_S seconds, so
# that the files can be fetched. Exits at once on SIGTERM.
place=${SEATRIAL_PLACE:-/seatrial}
keep_s=${SEATRIAL_KEEP_S:-600}
keep_s=${keep_s%%.*}
out=$place/volume/out
start_s=3600 # limit for the trial to start
still_s=30   # the trial was killed if `alive` does not change for this long

trap 'exit 0' TERM INT
python=$(/bin/sh "$place/agent/start.sh" find) &&
    exec "$python" -I -S "$place/agent/agent.pyz" keep "$keep_s"

# Without Python there are no locks: the trial changes the file `alive` every few seconds instead.
uptime() {
    read -r up rest </proc/uptime
    up=${up%.*}
}

uptime
begun=$up changed=$up ended='' seen=''
while :; do
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
        exit 0
    fi
    if [ ! -e "$out/started" ] && [ $((up - begun)) -ge $start_s ]; then
        exit 0
    fi
    sleep 1 &
    wait $! # signals are handled during `wait`, not while another program runs
done
