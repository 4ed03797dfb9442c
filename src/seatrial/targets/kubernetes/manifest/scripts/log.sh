# Prints a job's log from byte $1 of all its parts on. $2: `once`, or `follow` until the trial has ended.
# $3 and $4: the size of the first part and of the later ones. $5: exit code if that part was deleted and later ones exist.
at=$1
until cd /seatrial/volume/out 2>/dev/null; do
    if test $2 = once; then exit 0; fi
    sleep 0.2 2>/dev/null || sleep 1
done
while :; do
    ended=; test -e end.json && ended=1
    if test $at -lt $3; then part=log.txt skip=$at; else
        part=log.txt.$(( (at - $3) / $4 + 1 )) skip=$(( (at - $3) % $4 ))
    fi
    if test -e $part; then
        size=$(wc -c < $part) || size=0
        if test $size -gt $skip; then
            tail -c +$((skip + 1)) $part | head -c $((size - skip)) || exit 1
            at=$((at + size - skip))
            continue
        fi
    elif test $at -ge $3; then
        for later in log.txt.*; do
            if test -e $later && test ${later#log.txt.} -gt ${part#log.txt.}; then exit $5; fi
        done
    fi
    if test -n "$ended" || test $2 = once; then exit 0; fi
    sleep 0.2 2>/dev/null || sleep 1
done
