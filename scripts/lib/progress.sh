# shellcheck shell=bash
# Long commands: output into a file, one line of progress every ten seconds.

# tell_progress LABEL LOG: prints until it is ended. The sleep lets go of the script's output, so
# that a pipe behind the script closes as soon as the script ends.
tell_progress() {
  local begin=$SECONDS
  while sleep 10 >/dev/null 2>&1; do
    printf '%s: %d s  %s\n' "$1" $((SECONDS - begin)) "$(tail -c 200 "$2" | tail -n 1 | cut -c1-70)"
  done
}

# with_progress LABEL LOG COMMAND...: the command's status.
with_progress() {
  local label=$1 log=$2 teller status=0
  shift 2
  tell_progress "$label" "$log" >&2 &
  teller=$!
  "$@" >"$log" 2>&1 </dev/null || status=$?
  kill "$teller" 2>/dev/null || true
  wait "$teller" 2>/dev/null || true
  return "$status"
}
