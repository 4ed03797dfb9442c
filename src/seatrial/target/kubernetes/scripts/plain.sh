#!/bin/sh
# Runs the steps of a job in an image that has no Python, with what a POSIX shell and busybox or coreutils have.
# It leaves the same things in the box as the agent does: records.jsonl, log.txt, end.json; and the termination message.
# Below these functions come the settings and the steps of one job.
place=${SEATRIAL_PLACE:-/seatrial}
termination=${SEATRIAL_TERMINATION:-/dev/termination-log}
box=$place/box
out=$box/out
log_blocks=131072 # of 512 bytes: the log keeps its first 64 MiB
output_bytes=4096 # of a step's output, in its record
by_signal='ended from outside (SIGTERM): its pod is being deleted or evicted, or its node shuts down'

over='' message='' asked='' hit='' first_code=0 left=0 told='' spared='' full=''

# ---- small things

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

# Sets oom: how often the kernel killed something of this container for its memory.
count_oom() {
    oom=0
    for file in /sys/fs/cgroup/memory.events /sys/fs/cgroup/memory/memory.oom_control; do
        [ -r "$file" ] || continue
        while read -r key value; do
            if [ "$key" = oom_kill ]; then oom=$value; fi
        done <"$file"
        break
    done
}

# ---- processes

# Sets state and parent of process $1; state is empty when there is none.
look_at() {
    state='' parent=''
    while read -r key value rest; do
        case $key in
            State:) state=$value ;;
            PPid:) parent=$value && break ;;
        esac
    done <"/proc/$1/status"
} 2>/dev/null

# Sets found: all that live below this shell, without those in `spared` and what is below them.
find_below() {
    table=''
    for folder in /proc/[0-9]*; do
        look_at "${folder#/proc/}"
        if [ -n "$parent" ]; then table="$table${folder#/proc/} $parent $state
"; fi
    done
    family=" $$ " found='' grown=1
    while [ -n "$grown" ]; do
        grown=''
        while read -r pid parent state; do
            case "$family$spared " in *" $pid "*) continue ;; esac
            case $family in *" $parent "*) ;; *) continue ;; esac
            family="$family$pid " grown=1
            case $state in [ZX]) ;; *) found="$found $pid" ;; esac
        done <<END_OF_TABLE
$table
END_OF_TABLE
    done
}

# Politely, then not: everything below this shell that is not spared.
end_below() {
    find_below
    [ -n "$found" ] || return
    kill -TERM $found 2>/dev/null
    kill -CONT $found 2>/dev/null
    uptime
    until=$((second + grace_s))
    while [ -n "$found" ]; do
        uptime
        if [ "$second" -ge "$until" ]; then kill -KILL $found 2>/dev/null; fi
        nap
        find_below
    done
}

# Beside the steps, as long as they run: tells that it lives, and wakes the shell when it has to do something.
guard() {
    quiet=''
    : >"$box/quiet"
    while look_at $$ && [ -n "$state" ] && [ "$state" != Z ]; do
        uptime
        printf '%s\n' "$up" >"$out/alive"
        if [ "$out/log.txt" -nt "$box/quiet" ] || [ -z "$quiet" ]; then
            : >"$box/quiet"
            quiet=$second
        fi
        why=''
        read -r number deadline <"$box/deadline"
        if [ -e "$out/cancel" ]; then
            why=cancel
        elif [ -n "$run_s" ] && [ "$second" -ge $((begun + run_s)) ]; then
            why=run
        elif [ -n "$stall_s" ] && [ $((second - quiet)) -ge "$stall_s" ]; then
            why=stall
        elif [ "${deadline:--}" != - ] && [ "$second" -ge "$deadline" ]; then
            why="step $number"
        fi
        if [ -n "$why" ]; then # again and again: a signal that comes just before the shell waits wakes nobody
            printf '%s\n' "$why" >"$box/why"
            kill -USR1 $$
        fi
        sleep 0.5 || sleep 1
    done
} 2>/dev/null

# After a signal: sets over and message when the job is to end, outcome when the step is.
consider() {
    hit=''
    why='' number=''
    [ -e "$box/why" ] && read -r why number <"$box/why"
    if [ -n "$asked" ]; then
        over=cancelled message=$by_signal
    elif [ "$why" = cancel ] || [ -e "$out/cancel" ]; then
        over=cancelled message=cancelled
    elif [ "$why" = run ]; then
        over=timeout message="not done after $run_s s"
    elif [ "$why" = stall ]; then
        over=stall message="said nothing for $stall_s s"
    elif [ "$why" = step ] && [ "$number" = "$1" ]; then
        outcome=timeout
    fi
    outcome=${over:-$outcome}
}

# ---- the steps

# run_step INDEX SECONDS HEADING KIND COMMAND; SECONDS is - for no limit of its own.
run_step() {
    outcome='' && consider "$1"
    [ -z "$over" ] || return
    say "$3"
    uptime
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    if [ "$2" = - ]; then deadline=-; else deadline=$((second + $2)); fi
    before=$(wc -c <"$out/log.txt")
    count_oom
    oom_before=$oom
    still=$spared
    find_below
    spared="$spared$found" # what an earlier step left running on purpose
    start_step "$4" "$5"
    printf '%s %s\n' "$1" "$deadline" >"$box/deadline"
    while :; do
        wait "$child"
        code=$?
        if [ -z "$hit" ]; then
            outcome=exited
            break
        fi
        consider "$1"
        [ -z "$outcome" ] || break
    done
    if [ "$outcome" != exited ]; then
        if [ -n "$over" ]; then spared="$still $tee"; fi
        end_below
        code=null
    fi
    spared="$still $tee"
    printf '%s\n' '- -' >"$box/deadline"
    end_step "$1" "$4"
}

# Sets child and tee. Whatever a step leaves running may go on writing to the log.
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
        trap - TERM INT USR1
        mkdir -p "$box/work"
        cd "$box/work" || exit 126
        if [ "$1" = command ]; then
            set -- 'path=$(command -v "$1") || exit 1; echo "$path"; "$path" --version 2>&1 </dev/null | head -n 1' "$2"
        else
            set -- "$2" ''
        fi
        if command -v setsid >/dev/null 2>&1; then
            exec setsid /bin/sh -c "$1" sh "$2"
        fi
        exec /bin/sh -c "$1" sh "$2"
    ) &
    child=$!
    spared="$spared $tee"
}

# end_step INDEX KIND: what became of it, as outcome and code say.
end_step() {
    tries=0
    while look_at "$tee" && [ -n "$state" ] && [ "$state" != Z ] && [ $tries -lt 10 ]; do
        tries=$((tries + 1))
        nap
    done
    after=$(wc -c <"$out/log.txt")
    text=$(tail -c +$((before + 1)) "$out/log.txt" | tail -c $output_bytes | json_text)
    omitted=$((after - before - output_bytes))
    [ $omitted -ge 0 ] || omitted=0
    count_oom
    if [ "$outcome" = exited ] && [ "$code" != 0 ] && [ "$oom" != "$oom_before" ]; then outcome=memory; fi
    case $2 in
        command) command_result ;;
        train) result='{"lines":0,"long_lines":0,"steps":0,"must":{},"never":{},"values":{},"stopped":null,"dropped":[]}' ;;
        *) result='{}' ;;
    esac
    uptime
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"$outcome\",\"code\":$code,\"signal\":null,\"output\":\"$text\",\"output_omitted_bytes\":$omitted,\"oom_kills\":$((oom - oom_before)),\"result\":$result}"
    told="$told,[\"$outcome\",$code]"
    if [ $first_code = 0 ] && [ "$code" != null ]; then first_code=$code; fi
    if [ -n "$full" ] && [ -z "$over" ]; then over=infra message='what the job does cannot be told: the disk is full'; fi
}

# Path and version of a command, from its two lines.
command_result() {
    path='' version=''
    if [ "$code" = 0 ]; then
        path=$(tail -c +$((before + 1)) "$out/log.txt" | sed -n 1p | json_text)
        version=$(tail -c +$((before + 1)) "$out/log.txt" | sed -n 2p | json_text)
    fi
    result='{"path":null,"version":null}'
    if [ -n "$path" ]; then
        result="{\"path\":\"${path%??}\",\"version\":null}"
        if [ -n "$version" ]; then result="{\"path\":\"${path%??}\",\"version\":\"${version%??}\"}"; fi
    fi
}

# refuse_step INDEX HEADING RESULT: one that needs more than a shell.
refuse_step() {
    outcome='' && consider "$1"
    [ -z "$over" ] || return
    say "$2"
    uptime
    record "{\"event\":\"step\",\"step\":$1,\"at_s\":$up}"
    record "{\"event\":\"done\",\"step\":$1,\"at_s\":$up,\"outcome\":\"refused\",\"code\":null,\"result\":$3}"
    told="$told,[\"refused\",null]"
}

# ---- the whole

begin() {
    mkdir -p "$out/files" "$box/work" "$box/home" "$box/tmp" || broken 'the box of the pod cannot be written'
    if ! (set -C && : >"$out/started") 2>/dev/null; then
        again
    fi
    export HOME="${HOME:-$box/home}" TMPDIR="${TMPDIR:-$box/tmp}" SEATRIAL_FILES="${SEATRIAL_FILES:-$out/files}"
    export SEATRIAL_HOST=0 SEATRIAL_HOSTS=1
    trap 'hit=1' USR1
    trap 'hit=1 asked=1' TERM INT
    : >>"$out/log.txt"
    uptime
    begun=$second
    read -r host </proc/sys/kernel/hostname
    record "{\"event\":\"begin\",\"version\":1,\"wall_s\":$(date +%s || echo 0),\"at_s\":$up,\"host\":\"$host\",\"pid\":$$,\"hardware\":{}}"
    printf '%s\n' '- -' >"$box/deadline"
    guard &
    guarding=$!
    spared=" $guarding"
}

unpack() {
    if ! command -v tar >/dev/null 2>&1 || ! command -v gzip >/dev/null 2>&1; then
        refuse 'the image has neither a Python of 3.8 or later nor tar and gzip, and without them there are no inputs'
    fi
    if ! cat "$place"/inputs/part-* | gzip -dc | tar -xof - -C "$box/work"; then
        over=infra message='the inputs of the job cannot be unpacked'
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
    find_below
    if [ -n "$found" ]; then nap && find_below; fi
    for pid in $found; do
        left=$((left + 1))
    done
    end_below
    kill -KILL "$guarding"
    if [ -n "$full" ]; then over=infra message='what the job did could not be told: the disk is full'; fi
    outcome=${over:-exited} code=null
    if [ "$outcome" = exited ]; then code=$first_code; fi
    bytes=$(wc -c <"$out/log.txt" 2>/dev/null || echo 0)
    if [ "$bytes" -ge $((log_blocks * 512)) ]; then message="${message:+$message; }the log ends early: it may have $bytes bytes"; fi
    facts="\"outcome\":\"$outcome\",\"message\":\"$message\",\"left\":$left"
    sizes="\"log_bytes\":$((bytes)),\"log_omitted_bytes\":0"
    wall=$(date +%s 2>/dev/null || echo 0)
    uptime
    full=''
    record "{\"event\":\"end\",\"at_s\":$up,$facts,$sizes}"
    printf '%s' "{$facts,$sizes,\"version\":1,\"code\":$code,\"wall_s\":$wall,\"at_s\":$up}" >"$out/end.json.new" &&
        mv "$out/end.json.new" "$out/end.json"
    leave
} 2>/dev/null

# The termination message and the exit code; both are kept, for a container that is started again.
leave() {
    if [ ${#told} -gt 2500 ]; then told=''; else told=",\"steps\":[${told#,}]"; fi
    last="{\"seatrial\":1,$facts,\"code\":$code,\"wall_s\":${wall:-0}$told}"
    case $outcome in
        exited) exit=$code ;;
        timeout | stall) exit=124 ;;
        cancelled) exit=143 ;;
        *) exit=1 ;;
    esac
    printf '%s\n' "$exit" "$last" >"$box/left"
    [ -e "$termination" ] && printf '%s' "$last" >"$termination"
    exit "$exit"
} 2>/dev/null

broken() {
    outcome=infra code=null facts="\"outcome\":\"infra\",\"message\":\"$1\",\"left\":0"
    leave
}

# The container was started a second time: its steps are not.
again() {
    if [ -e "$box/left" ]; then
        { read -r exit && read -r last; } <"$box/left"
        [ -e "$termination" ] && printf '%s' "$last" >"$termination"
        exit "$exit"
    fi
    outcome=lost code=null left=0
    text='the container was started a second time, and what its first start did is not known: it was not run again'
    facts="\"outcome\":\"lost\",\"message\":\"$text\",\"left\":0"
    leave
}

# try_python PATH: an interpreter that the job names may be where nobody looks for one.
try_python() {
    if "$1" -I -S -c 'import sys; sys.exit(sys.version_info < (3, 8))' </dev/null >/dev/null 2>&1; then
        exec "$1" -I -S "$place/agent/agent.pyz" pod "$place/job/job.json"
    fi
}
