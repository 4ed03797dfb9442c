#!/bin/sh
# Runs the commands of a job one after the other in an image without Python, and writes their exit codes and the end of
# their output where the agent would: records.jsonl, log.txt, the termination message.
# Seatrial and the cluster enforce the limit of the whole job. Processes left at the end are killed with the container.
# The steps of one job follow below these lines.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
volume=$place/volume
out=$volume/out
output_bytes=65536 # kept of a step's output in its record
asked='' child='' first_code=0 ends=''
exec 2>/dev/null

# Sets up (seconds since boot, with a fraction) and now (in hundredths).
clock() {
    read -r up rest </proc/uptime
    now=${up%.*}${up#*.}
}

record() {
    printf '%s\n' "$1" >>"$out/records.jsonl"
}

# Turns stdin into the content of a JSON string. Characters that JSON does not allow become `?`.
json_text() {
    LC_ALL=C tr -c '\12\40-\176' '?' | sed -e 's/\\/\\\\/g' -e 's/"/\\"/g' -e 's/$/\\n/' | tr -d '\n'
}

# Signals the step's process group, or its shell if the image has no setsid.
send() {
    kill "-$1" -- "-$child" || kill "-$1" "$child"
}

# run SECONDS COMMAND ARGUMENT: sets outcome and code.
run() {
    begun=$now outcome=exited
    (cd "$volume/work" && exec $(command -v setsid) /bin/sh -c "$2" sh "$3") </dev/null >>"$out/log.txt" 2>&1 &
    child=$!
    [ -z "$asked" ] || send TERM
    [ -z "$1" ] || { sleep "$1" && send TERM && sleep "$grace_s" && send KILL; } &
    timer=$!
    wait "$child"
    code=$?
    [ -z "$asked" ] || wait "$child" # the signal ended the first wait
    kill "$timer"
    child=''
    clock
    [ -z "$1" ] || [ $((now - begun)) -lt $((100 * $1)) ] || outcome=timeout code=null
    [ -z "$asked" ] || outcome=cancelled code=null
}

# step INDEX HEADING KIND SECONDS TEXT: TEXT is the command; for kind refused, the reason in JSON.
step() {
    [ -z "$asked" ] || finish
    clock
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    heading=$(wc -c <"$out/log.txt")
    printf '%s\n' "--- $2" >>"$out/log.txt"
    before=$(wc -c <"$out/log.txt")
    outcome=refused code=null result='{}'
    case $3 in
        refused) result=$5 ;;
        which) run "$4" 'command -v "$1"' "$5" ;;
        *) run "$4" "$5" '' ;;
    esac
    [ -z "$(tail -c 1 "$out/log.txt")" ] || echo >>"$out/log.txt"
    tail -c +$((heading + 1)) "$out/log.txt"
    text=$(tail -c +$((before + 1)) "$out/log.txt" | tail -c $output_bytes | json_text)
    omitted=$(($(wc -c <"$out/log.txt") - before - output_bytes))
    case $3$code in
        which0) result="{\"path\":\"${text%??}\",\"version\":null}" ;;
        which*) result='{"path":null,"version":null}' ;;
    esac
    facts="\"outcome\":\"$outcome\",\"code\":$code,\"output\":\"$text\",\"output_omitted_bytes\":$((omitted > 0 ? omitted : 0))"
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,$facts,\"result\":$result}"
    ends="$ends,[\"$outcome\",$code]"
    if [ $first_code = 0 ] && [ "$code" != null ]; then first_code=$code; fi
}

# finish [OUTCOME MESSAGE]: both safe in JSON.
finish() {
    [ -z "$asked" ] || set -- cancelled 'asked to stop'
    code=$first_code exit=$first_code
    [ -z "$1" ] || code=null exit=1
    clock
    facts="\"outcome\":\"${1:-exited}\",\"message\":\"$2\",\"left\":0"
    record "{\"event\":\"end\",\"at_s\":$up,$facts,\"log_bytes\":$(wc -c <"$out/log.txt"),\"log_omitted_bytes\":0}"
    : >"$out/end.json"
    if [ ${#ends} -gt 2500 ]; then ends=''; else ends=",\"steps\":[${ends#,}]"; fi
    [ -e "$termination" ] && printf '%s' "{\"seatrial\":1,$facts,\"code\":$code,\"wall_s\":$(date +%s || echo 0)$ends}" >"$termination"
    kill -KILL "$watcher" # just after the fork it may still have our trap for TERM
    exit "$exit"
}

mkdir -p "$out/files" "$volume/work" "$volume/home" "$volume/tmp" && (set -C && : >"$out/started") ||
    finish lost 'the container was started before, or its volume is not writable; nothing was run'
clock
: >>"$out/log.txt"
record "{\"event\":\"begin\",\"version\":1,\"wall_s\":$(date +%s || echo 0),\"at_s\":$up,\"host\":\"$(hostname)\",\"pid\":$$,\"hardware\":{}}"
trap 'asked=1; send TERM' TERM INT
# Shows the keeper that the trial is alive, and watches for the request to stop.
(until [ -e "$out/cancel" ]; do cat /proc/uptime >"$out/alive"; sleep 1; done; kill $$) &
watcher=$!
