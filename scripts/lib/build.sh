# shellcheck shell=bash
# Configuring and building a preset.

# build_preset PRESET TARGETS OPTION...: TARGETS is a list in one word, or all.
build_preset() {
  local preset=$1 targets=$2
  shift 2
  mkdir -p "build/$preset"
  logged "configuring" "$preset" cmake --preset "$preset" "$@" || return
  # shellcheck disable=SC2086  # a list on purpose
  logged "building" "$preset" \
    cmake --build "build/$preset" --parallel "$(nproc)" --target $targets
}

# logged LABEL PRESET COMMAND...: with progress, and the end of the log when it fails.
logged() {
  local label=$1 log="build/$2/$1.log" status=0
  with_progress "$1 $2" "$log" "${@:3}" || status=$?
  if ((status)); then
    tail -n 60 "$log" >&2
    echo "$label $2 failed; all of it: $log" >&2
  fi
  return "$status"
}
