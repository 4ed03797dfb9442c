#!/bin/sh
# Runs the commands of a job in an image that has no Python: one after the other, with their exit codes and the end of
# what each printed, and leaves that as the agent would: records.jsonl, log.txt, end.json, the termination message.
# Below these functions come the limits and the steps of one job. What still runs at the end goes with the container.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
volume=$place/volume
out=$volume/out
output_bytes=4096 # of a step's output, in its record
over='' message='' asked='' first_code=0 ends=''

# Sets up (seconds since boot, with a fraction) and second.
clock() {
    read -r up rest </proc/uptime
    second=${up%.*}
}

record() {
    printf '%s\n' "$1" >>"$out/records.jsonl"
}

# Text from the standard input as what is between the quotes of a JSON string. What JSON may not hold becomes `?`.
json_text() {
    LC_ALL=C tr -c '\12\40-\176' '?' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/$/\\n/' | tr -d '\n'
}

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
}

# run SECONDS COMMAND ARGUMENT: in a process group of its own. Past its time it is asked to end, and killed after its
# grace. Sets outcome and code.
run() {
    limit=${1:+$((second + $1))} outcome=exited sign=TERM
    (
        trap - TERM INT
        cd "$volume/work" || exit 126
        exec $(command -v setsid) /bin/sh -c "$2" sh "$3"
    ) </dev/null >>"$out/log.txt" 2>&1 &
    child=$!
    while kill -0 "$child"; do
        sleep 0.1 || sleep 1
        consider
        [ $outcome != exited ] || [ -z "$limit" ] || [ "$second" -lt "$limit" ] || outcome=timeout
        [ $outcome != exited ] || [ -z "$over" ] || outcome=$over
        if [ $outcome != exited ] && { [ $sign = TERM ] || [ "$second" -ge "$until" ]; }; then
            [ $sign = KILL ] || until=$((second + grace_s))
            kill -$sign -- "-$child" || kill -$sign "$child"
            sign=KILL
        fi
    done
    wait "$child"
    code=$?
    [ $outcome = exited ] || code=null
}

# step INDEX HEADING KIND SECONDS TEXT: TEXT is the command, or of kind refused why it needs more than a shell, in JSON.
step() {
    consider
    [ -z "$over" ] || return
    heading=$(wc -c <"$out/log.txt")
    printf '%s\n' "--- $2" >>"$out/log.txt"
    before=$(wc -c <"$out/log.txt")
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    outcome=refused code=null result='{}'
    case $3 in
        refused) result=$5 ;;
        command) run "$4" 'command -v "$1"' "$5" ;;
        *) run "$4" "$5" '' ;;
    esac
    [ -z "$(tail -c 1 "$out/log.txt")" ] || echo >>"$out/log.txt"
    tail -c +$((heading + 1)) "$out/log.txt"
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
    clock
    begun=$second
    mkdir -p "$out/files" "$volume/work" "$volume/home" "$volume/tmp" || finish infra 'the folder of the pod cannot be written'
    (set -C && : >"$out/started") ||
        finish lost 'the container was started a second time, and what its first start did is not known: it was not run again'
    trap 'asked=1' TERM INT
    : >>"$out/log.txt"
    record "{\"event\":\"begin\",\"version\":1,\"wall_s\":$(date +%s || echo 0),\"at_s\":$up,\"host\":\"$(hostname)\",\"pid\":$$,\"hardware\":{}}"
}

# try_python PATH: an interpreter that the job names may be where start.sh finds none.
try_python() {
    "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1 &&
        exec "$1" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
}

# finish [OUTCOME MESSAGE]: safe in JSON.
finish() {
    over=${1:-${over:-exited}} message=${2:-$message} code=null exit=1
    case $over in
        exited) exit=$first_code code=$first_code ;;
        timeout) exit=124 ;;
        cancelled) exit=143 ;;
    esac
    clock
    facts="\"outcome\":\"$over\",\"message\":\"$message\",\"left\":0"
    record "{\"event\":\"end\",\"at_s\":$up,$facts,\"log_bytes\":$(wc -c <"$out/log.txt"),\"log_omitted_bytes\":0}"
    facts="$facts,\"code\":$code,\"wall_s\":$(date +%s || echo 0)"
    printf '%s' "{\"version\":1,$facts,\"at_s\":$up}" >"$out/end.json.new" && mv "$out/end.json.new" "$out/end.json"
    if [ ${#ends} -gt 2500 ]; then ends=''; else ends=",\"steps\":[${ends#,}]"; fi
    [ -e "$termination" ] && printf '%s' "{\"seatrial\":1,$facts$ends}" >"$termination"
    exit "$exit"
}
