# Sourced by scripts that build or test: runs a command quietly, and shows how far it is.
#
# run_with_progress LABEL LOG COMMAND...   runs the command with its output in LOG, returns its exit status; to be called
#   where errexit is off, so that it holds within the command
#   After ten seconds a bar with counts appears on a terminal, read from what Ninja or CTest has written to LOG;
#   elsewhere a line every minute. Both go to standard error.

progress_counts() {  # LOG: prints "DONE TOTAL WORD", empty where nothing has counted yet
    grep --only-matching --extended-regexp '^\[[0-9]+/[0-9]+\]|^ *[0-9]+/[0-9]+ Test' "$1" 2> /dev/null | tail -n 1 |
        sed --regexp-extended 's|^\[([0-9]+)/([0-9]+)\].*|\1 \2 built|; s|^ *([0-9]+)/([0-9]+) Test|\1 \2 tested|' || true
}

show_progress() {  # LABEL LOG PID
    local begin=$SECONDS seconds done total word bar shown=
    while sleep 1 && kill -0 "$3" 2> /dev/null; do
        seconds=$((SECONDS - begin))
        if [[ -t 2 ]]; then
            ((seconds >= 10)) || continue
        else
            ((seconds % 60 == 0)) || continue
        fi
        read -r done total word < <(progress_counts "$2") || { done=0 total=0 word="..."; }
        printf -v bar '%*s' $((total > 0 ? 30 * done / total : 0)) ''
        if [[ -t 2 ]]; then
            shown=yes
            printf '\r\033[K%s [%-30s] %d of %d %s, %d:%02d' "$1" "${bar// /#}" "$done" "$total" "$word" \
                $((seconds / 60)) $((seconds % 60)) >&2
        else
            printf '%s: %d of %d %s after %d minutes\n' "$1" "$done" "$total" "$word" $((seconds / 60)) >&2
        fi
    done
    [[ -z $shown ]] || printf '\r\033[K' >&2
}

run_with_progress() {  # LABEL LOG COMMAND...
    local label=$1 log=$2 pid
    shift 2
    (set -e; "$@") > "$log" 2>&1 < /dev/null &
    pid=$!
    show_progress "$label" "$log" "$pid"
    wait "$pid"
}
