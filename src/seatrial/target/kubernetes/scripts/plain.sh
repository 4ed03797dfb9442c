#!/bin/sh
# Runs the steps of a job in an image that has no Python, one after the other, with what a POSIX shell and busybox or
# coreutils have. It leaves what the agent leaves: records.jsonl, log.txt, end.json and the termination message.
# Below these functions come the limits and the steps of one job. What still runs at the end goes with the container.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
volume=$place/volume
out=$volume/out
log_blocks=131072 # of 512 bytes: the log keeps its first 64 MiB
output_bytes=4096 # of a step's output, in its record
over='' message='' asked='' full='' first_code=0 ends='' bytes=0

# Sets up (seconds since boot, with a fraction) and second.
clock() {
    read -r up rest </proc/uptime
    second=${up%.*}
}

nap() {
    sleep 0.1 2>/dev/null || sleep 1
}

record() {
    printf '%s\n' "$1" >>"$out/records.jsonl" || full=1
} 2>/dev/null

# A line of our own: in the log, and where it is read live.
say() {
    if [ -n "$(tail -c 1 "$out/log.txt")" ]; then printf '\n'; fi | tee -a "$out/log.txt"
    printf '%s\n' "--- $1" | tee -a "$out/log.txt"
} 2>/dev/null

# Text from the standard input as what is between the quotes of a JSON string. What JSON may not hold becomes `?`.
json_text() {
    tab=$(printf '\t')
    LC_ALL=C tr -c '\11\12\40-\176' '?' |
        sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e "s/$tab/\\\\t/g" -e 's/$/\\n/' | tr -d '\n'
} 2>/dev/null

# Sets over and message when the job is to end, and shows the keeper that it goes on.
consider() {
    clock
    printf '%s\n' "$up" >"$out/alive"
    if [ -n "$asked" ]; then
        over=cancelled message='ended from outside (SIGTERM): its pod is being deleted or evicted, or its node shuts down'
    elif [ -e "$out/cancel" ]; then
        over=cancelled message=cancelled
    elif [ -n "$run_s" ] && [ "$second" -ge $((begun + run_s)) ]; then
        over=timeout message="not done after $run_s s"
    fi
} 2>/dev/null

# run SECONDS COMMAND ARGUMENT: in a process group of its own, until it has ended or its time is over. Sets outcome and
# code. What it leaves running may go on writing to the log.
run() {
    limit=${1:+$((second + $1))}
    rm -f "$volume/pipe"
    mkfifo "$volume/pipe"
    (
        trap '' 13 25 # the reader is gone, or the log is as large as it may be: the other one goes on
        ulimit -f $log_blocks
        exec tee -a "$out/log.txt" <"$volume/pipe" 2>/dev/null
    ) &
    tee=$!
    (
        exec </dev/null >"$volume/pipe" 2>&1
        trap - TERM INT
        cd "$volume/work" || exit 126
        command -v setsid >/dev/null 2>&1 && exec setsid /bin/sh -c "$2" sh "$3"
        exec /bin/sh -c "$2" sh "$3"
    ) &
    child=$! outcome=exited
    while kill -0 "$child" 2>/dev/null && [ $outcome = exited ]; do
        nap
        consider
        [ -z "$limit" ] || [ "$second" -lt "$limit" ] || outcome=timeout
        [ -z "$over" ] || outcome=$over
    done
    [ $outcome = exited ] || end_group
    wait "$child" 2>/dev/null
    code=$?
    [ $outcome = exited ] || code=null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$tee" 2>/dev/null || break
        nap
    done
}

# Politely, then not.
end_group() {
    kill -TERM -- "-$child" || kill -TERM "$child"
    clock
    until=$((second + grace_s))
    while { kill -0 -- "-$child" || kill -0 "$child"; } && [ "$second" -lt "$until" ]; do
        nap
        clock
    done
    kill -KILL -- "-$child" || kill -KILL "$child"
} 2>/dev/null

# step INDEX HEADING KIND SECONDS TEXT: TEXT is the command, or of kind refused the result of one that needs more than a
# shell.
step() {
    consider
    [ -z "$over" ] || return
    say "$2"
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    before=$(wc -c <"$out/log.txt")
    outcome=refused code=null result='{}'
    case $3 in
        refused) result=$5 ;;
        command) run "$4" 'command -v "$1"' "$5" ;;
        *) run "$4" "$5" '' ;;
    esac
    text=$(tail -c +$((before + 1)) "$out/log.txt" | tail -c $output_bytes | json_text)
    omitted=$(($(wc -c <"$out/log.txt") - before - output_bytes))
    [ $omitted -ge 0 ] || omitted=0
    case $3$code in
        command0) result="{\"path\":\"${text%??}\",\"version\":null}" ;;
        command*) result='{"path":null,"version":null}' ;;
    esac
    clock
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"$outcome\",\"code\":$code,\"output\":\"$text\",\"output_omitted_bytes\":$omitted,\"result\":$result}"
    ends="$ends,[\"$outcome\",$code]"
    if [ $first_code = 0 ] && [ "$code" != null ]; then first_code=$code; fi
}

begin() {
    mkdir -p "$out/files" "$volume/work" "$volume/home" "$volume/tmp" || leave infra 'the folder of the pod cannot be written'
    (set -C && : >"$out/started") 2>/dev/null ||
        leave lost 'the container was started a second time, and what its first start did is not known: it was not run again'
    export HOME="${HOME:-$volume/home}" TMPDIR="${TMPDIR:-$volume/tmp}" SEATRIAL_FILES="${SEATRIAL_FILES:-$out/files}"
    trap 'asked=1' TERM INT
    : >>"$out/log.txt"
    clock
    begun=$second
    read -r host </proc/sys/kernel/hostname
    record "{\"event\":\"begin\",\"version\":1,\"wall_s\":$(date +%s || echo 0),\"at_s\":$up,\"host\":\"$host\",\"pid\":$$,\"hardware\":{}}"
}

unpack() {
    cat "$place"/inputs/part-* | gzip -dc | tar -xof - -C "$volume/work" ||
        finish infra 'the inputs of the job cannot be unpacked: that needs tar and gzip in the image'
}

# refuse TEXT: the whole job. TEXT is safe in JSON.
refuse() {
    say "$1"
    finish refused "$1"
}

# finish [OUTCOME MESSAGE]
finish() {
    over=${1:-${over:-exited}} message=${2:-$message}
    bytes=$(($(wc -c <"$out/log.txt")))
    [ $bytes -lt $((log_blocks * 512)) ] || message="${message:+$message; }the log ends early: it may have $bytes bytes"
    clock
    record "{\"event\":\"end\",\"at_s\":$up,\"outcome\":\"$over\",\"message\":\"$message\",\"left\":0,\"log_bytes\":$bytes,\"log_omitted_bytes\":0}"
    [ -z "$full" ] || leave infra 'what the job did could not be written down: the disk is full'
    leave "$over" "$message"
} 2>/dev/null

# leave OUTCOME MESSAGE: end.json, the termination message and the exit code.
leave() {
    code=null
    case $1 in
        exited) exit=$first_code code=$first_code ;;
        timeout) exit=124 ;;
        cancelled) exit=143 ;;
        *) exit=1 ;;
    esac
    clock
    facts="\"outcome\":\"$1\",\"message\":\"$2\",\"left\":0,\"code\":$code,\"wall_s\":$(date +%s || echo 0)"
    printf '%s' "{\"version\":1,$facts,\"at_s\":$up,\"log_bytes\":$bytes,\"log_omitted_bytes\":0}" >"$out/end.json.new" &&
        mv "$out/end.json.new" "$out/end.json"
    if [ ${#ends} -gt 2500 ]; then ends=''; else ends=",\"steps\":[${ends#,}]"; fi
    [ -e "$termination" ] && printf '%s' "{\"seatrial\":1,$facts$ends}" >"$termination"
    exit "$exit"
} 2>/dev/null

# try_python PATH: an interpreter that the job names may be where start.sh finds none.
try_python() {
    if "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1; then
        exec "$1" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
    fi
}
