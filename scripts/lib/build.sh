# shellcheck shell=bash
# Configuring and building a preset.

# build_preset PRESET TARGETS OPTION...: TARGETS is a list in one word, or all.
build_preset() {
  local preset=$1 targets=$2
  shift 2
  mkdir -p "build/$preset"
  with_progress "configuring $preset" "build/$preset/configure.log" \
    cmake --preset "$preset" "$@" || return
  # shellcheck disable=SC2086  # a list on purpose
  with_progress "building $preset" "build/$preset/build.log" \
    cmake --build "build/$preset" --parallel "$(nproc)" --target $targets
}
