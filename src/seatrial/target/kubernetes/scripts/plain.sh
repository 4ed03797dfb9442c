#!/bin/sh
# Runs the steps of a job in an image that has no Python, one after the other, with what a POSIX shell and busybox or
# coreutils have. It leaves what the agent leaves: records.jsonl, log.txt, end.json and the termination message.
# Below these functions come the limits and the steps of one job. What still runs at the end goes with the container.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
volume=$place/volume
out=$volume/out
output_bytes=4096 # of a step's output, in its record
over='' message='' asked='' full='' first_code=0 ends=''

# Sets up (seconds since boot, with a fraction) and second.
clock() {
    read -r up rest </proc/uptime
    second=${up%.*}
}

record() {
    printf '%s\n' "$1" >>"$out/records.jsonl" || full=1
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
# code. Past its time it is asked to end, and killed after its grace.
run() {
    limit=${1:+$((second + $1))} outcome=exited sign=TERM
    (
        trap - TERM INT
        cd "$volume/work" || exit 126
        exec $(command -v setsid) /bin/sh -c "$2" sh "$3"
    ) </dev/null >>"$out/log.txt" 2>&1 &
    child=$!
    while kill -0 "$child" 2>/dev/null; do
        sleep 0.1 2>/dev/null || sleep 1
        consider
        [ $outcome != exited ] || [ -z "$limit" ] || [ "$second" -lt "$limit" ] || outcome=timeout
        [ $outcome != exited ] || [ -z "$over" ] || outcome=$over
        if [ $outcome != exited ] && { [ $sign = TERM ] || [ "$second" -ge "$until" ]; }; then
            [ $sign = KILL ] || until=$((second + grace_s))
            { kill -$sign -- "-$child" || kill -$sign "$child"; } 2>/dev/null
            sign=KILL
        fi
    done
    wait "$child" 2>/dev/null
    code=$?
    [ $outcome = exited ] || code=null
}

# step INDEX HEADING KIND SECONDS TEXT: TEXT is the command, or of kind refused the result of one that needs more than a
# shell.
step() {
    consider
    [ -z "$over" ] || return
    heading=$(wc -c <"$out/log.txt")
    [ -z "$(tail -c 1 "$out/log.txt")" ] || echo >>"$out/log.txt"
    printf '%s\n' "--- $2" >>"$out/log.txt"
    before=$(wc -c <"$out/log.txt")
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    outcome=refused code=null result='{}'
    case $3 in
        refused) result=$5 ;;
        command) run "$4" 'command -v "$1"' "$5" ;;
        *) run "$4" "$5" '' ;;
    esac
    after=$(wc -c <"$out/log.txt")
    tail -c +$((heading + 1)) "$out/log.txt"
    text=$(tail -c +$((before + 1)) "$out/log.txt" | tail -c $output_bytes | json_text)
    omitted=$((after - before - output_bytes))
    [ $omitted -ge 0 ] || omitted=0
    case $3$code in
        command0) result="{\"path\":\"${text%??}\",\"version\":null}" ;;
        command*) result='{"path":null,"version":null}' ;;
    esac
    clock
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"$outcome\",\"code\":$code,\"output\":\"$text\",\"output_omitted_bytes\":$omitted,\"result\":$result}"
    ends="$ends,[\"$outcome\",$code]"
    if [ $first_code = 0 ] && [ "$code" != null ]; then first_code=$code; fi
} 2>/dev/null

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

# finish [OUTCOME MESSAGE]: safe in JSON.
finish() {
    over=${1:-${over:-exited}} message=${2:-$message}
    clock
    record "{\"event\":\"end\",\"at_s\":$up,\"outcome\":\"$over\",\"message\":\"$message\",\"left\":0,\"log_bytes\":$(wc -c <"$out/log.txt"),\"log_omitted_bytes\":0}"
    [ -z "$full" ] || leave infra 'what the job did could not be written down: the disk is full'
    leave "$over" "$message"
} 2>/dev/null

# leave OUTCOME MESSAGE: end.json, the termination message and the exit code.
leave() {
    code=null exit=1
    case $1 in
        exited) exit=$first_code code=$first_code ;;
        timeout) exit=124 ;;
        cancelled) exit=143 ;;
    esac
    clock
    facts="\"outcome\":\"$1\",\"message\":\"$2\",\"left\":0,\"code\":$code,\"wall_s\":$(date +%s || echo 0)"
    printf '%s' "{\"version\":1,$facts,\"at_s\":$up}" >"$out/end.json.new" && mv "$out/end.json.new" "$out/end.json"
    if [ ${#ends} -gt 2500 ]; then ends=''; else ends=",\"steps\":[${ends#,}]"; fi
    [ -e "$termination" ] && printf '%s' "{\"seatrial\":1,$facts$ends}" >"$termination"
    exit "$exit"
} 2>/dev/null

# try_python PATH: an interpreter that the job names may be where start.sh finds none.
try_python() {
    "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1 &&
        exec "$1" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
}
