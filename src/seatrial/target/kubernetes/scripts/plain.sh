#!/bin/sh
# Runs the steps of a job in an image that has no Python, one after the other, with what a POSIX shell and busybox or
# coreutils have. It leaves what the agent leaves: records.jsonl, log.txt, end.json and the termination message.
# Below these functions come the limits and the steps of one job. What still runs at the end goes with the container.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
box=$place/box
out=$box/out
log_blocks=131072 # of 512 bytes: the log keeps its first 64 MiB
output_bytes=4096 # of a step's output, in its record
over='' message='' asked='' full='' first_code=0 ends='' bytes=0

# Sets up (seconds since boot, with a fraction) and second.
uptime() {
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

# Sets over and message when the job is to end.
consider() {
    uptime
    printf '%s\n' "$up" >"$out/alive" # for the keeper
    if [ -n "$asked" ]; then
        over=cancelled message='ended from outside (SIGTERM): its pod is being deleted or evicted, or its node shuts down'
    elif [ -e "$out/cancel" ]; then
        over=cancelled message=cancelled
    elif [ -n "$run_s" ] && [ "$second" -ge $((begun + run_s)) ]; then
        over=timeout message="not done after $run_s s"
    fi
} 2>/dev/null

# Sets child, which leads a group of its own, and tee. What a step leaves running may go on writing to the log.
start_step() {
    rm -f "$box/pipe"
    mkfifo "$box/pipe"
    (
        trap '' 13 25 # nobody reads the output any more; the log is as large as it may be: the other one goes on
        ulimit -f $log_blocks
        exec tee -a "$out/log.txt" <"$box/pipe" 2>/dev/null
    ) &
    tee=$!
    (
        exec </dev/null >"$box/pipe" 2>&1
        trap - TERM INT
        cd "$box/work" || exit 126
        command -v setsid >/dev/null 2>&1 && exec setsid /bin/sh -c "$1" sh "$2"
        exec /bin/sh -c "$1" sh "$2"
    ) &
    child=$!
}

# Politely, then not: all of the step's group.
end_child() {
    kill -TERM -- "-$child" || kill -TERM "$child"
    uptime
    until=$((second + grace_s))
    while { kill -0 -- "-$child" || kill -0 "$child"; } && [ "$second" -lt "$until" ]; do
        nap
        uptime
    done
    kill -KILL -- "-$child" || kill -KILL "$child"
} 2>/dev/null

# run_step INDEX SECONDS HEADING KIND COMMAND; SECONDS is - for no limit of its own.
run_step() {
    consider
    [ -z "$over" ] || return
    say "$3"
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    if [ "$2" = - ]; then deadline=''; else deadline=$((second + $2)); fi
    before=$(wc -c <"$out/log.txt")
    if [ "$4" = command ]; then start_step 'command -v "$1"' "$5"; else start_step "$5" ''; fi
    outcome=exited
    while kill -0 "$child" 2>/dev/null; do
        consider
        if [ -n "$over" ]; then
            outcome=$over
        elif [ -n "$deadline" ] && [ "$second" -ge "$deadline" ]; then
            outcome=timeout
        fi
        if [ $outcome != exited ]; then
            end_child
            break
        fi
        nap
    done
    wait "$child" 2>/dev/null
    code=$?
    [ $outcome = exited ] || code=null
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        kill -0 "$tee" 2>/dev/null || break
        nap
    done
    end_step "$1" "$4"
}

# end_step INDEX KIND: what became of it, as outcome and code say.
end_step() {
    omitted=$(($(wc -c <"$out/log.txt") - before - output_bytes))
    [ $omitted -ge 0 ] || omitted=0
    text=$(tail -c +$((before + 1)) "$out/log.txt" | tail -c $output_bytes | json_text)
    result='{}'
    if [ "$2" = command ]; then
        result='{"path":null,"version":null}'
        if [ "$code" = 0 ]; then result="{\"path\":\"${text%??}\",\"version\":null}"; fi
    fi
    uptime
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"$outcome\",\"code\":$code,\"signal\":null,\"output\":\"$text\",\"output_omitted_bytes\":$omitted,\"oom_kills\":0,\"result\":$result}"
    ends="$ends,[\"$outcome\",$code]"
    if [ $first_code = 0 ] && [ "$code" != null ]; then first_code=$code; fi
}

# refuse_step INDEX HEADING RESULT: one that needs more than a shell.
refuse_step() {
    consider
    [ -z "$over" ] || return
    say "$2"
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"refused\",\"code\":null,\"result\":$3}"
    ends="$ends,[\"refused\",null]"
}

begin() {
    if ! mkdir -p "$out/files" "$box/work" "$box/home" "$box/tmp"; then
        over=infra message='the box of the pod cannot be written'
        leave
    fi
    if ! (set -C && : >"$out/started") 2>/dev/null; then
        over=lost message='the container was started a second time, and what its first start did is not known: it was not run again'
        leave
    fi
    export HOME="${HOME:-$box/home}" TMPDIR="${TMPDIR:-$box/tmp}" SEATRIAL_FILES="${SEATRIAL_FILES:-$out/files}"
    trap 'asked=1' TERM INT
    : >>"$out/log.txt"
    uptime
    begun=$second
    read -r host </proc/sys/kernel/hostname
    record "{\"event\":\"begin\",\"version\":1,\"wall_s\":$(date +%s || echo 0),\"at_s\":$up,\"host\":\"$host\",\"pid\":$$,\"hardware\":{}}"
}

unpack() {
    if ! cat "$place"/inputs/part-* | gzip -dc | tar -xof - -C "$box/work"; then
        over=infra message='the inputs of the job cannot be unpacked: that needs tar and gzip in the image'
        finish
    fi
}

# refuse TEXT: the whole job. TEXT is safe in JSON.
refuse() {
    say "$1"
    over=refused message=$1
    finish
}

finish() {
    bytes=$(wc -c <"$out/log.txt" 2>/dev/null || echo 0)
    if [ "$bytes" -ge $((log_blocks * 512)) ]; then message="${message:+$message; }the log ends early: it may have $bytes bytes"; fi
    uptime
    record "{\"event\":\"end\",\"at_s\":$up,\"outcome\":\"${over:-exited}\",\"message\":\"$message\",\"left\":0,\"log_bytes\":$((bytes)),\"log_omitted_bytes\":0}"
    if [ -n "$full" ]; then over=infra message='what the job did could not be written down: the disk is full'; fi
    leave
}

# end.json, the termination message and the exit code.
leave() {
    outcome=${over:-exited} code=null
    case $outcome in
        exited) exit=$first_code code=$first_code ;;
        timeout) exit=124 ;;
        cancelled) exit=143 ;;
        *) exit=1 ;;
    esac
    uptime
    facts="\"outcome\":\"$outcome\",\"message\":\"$message\",\"left\":0,\"code\":$code,\"wall_s\":$(date +%s || echo 0)"
    printf '%s' "{\"version\":1,$facts,\"at_s\":$up,\"log_bytes\":$((bytes)),\"log_omitted_bytes\":0}" >"$out/end.json.new" &&
        mv "$out/end.json.new" "$out/end.json"
    if [ ${#ends} -gt 2500 ]; then ends=''; else ends=",\"steps\":[${ends#,}]"; fi
    [ -e "$termination" ] && printf '%s' "{\"seatrial\":1,$facts$ends}" >"$termination"
    exit "$exit"
} 2>/dev/null

# try_python PATH: an interpreter that the job names may be where nobody looks for one.
try_python() {
    if "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1; then
        exec "$1" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
    fi
}
