#!/usr/bin/env bash
# Breaks the library on purpose, one line at a time, and requires that a test notices. Each
# tests/mutations/NAME.patch says in the lines above its diff what to build and which tests to run:
#   targets: test_unit
#   tests: unit\.partition
# Works in a clone of HEAD. Arguments are names of mutations; none means all.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

names=("$@")
if ((${#names[@]} == 0)) && compgen -G "tests/mutations/*.patch" >/dev/null; then
  mapfile -t names < <(basename --suffix=.patch -a tests/mutations/*.patch)
fi
if ((${#names[@]} == 0)); then
  echo "missing: tests/mutations/*.patch" >&2
  exit 4
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone --quiet . "$work/zero"
cd "$work/zero"
mkdir build
# Not optimised: compiling dominates, and a fault in the logic shows at every level.
cmake --preset release -DCMAKE_CXX_FLAGS=-O0 -DZERO_BUILD_BENCH=OFF -DZERO_BUILD_PROGRAMS=OFF \
  -DZERO_BUILD_EXAMPLES=OFF -DZERO_TEST_SOURCE_CHECKS=OFF -DZERO_TEST_ONLY=multi_rank \
  -DZERO_TEST_MATCH='integration/(stages_agree|fault_|hybrid)|conformance/threads' >build/configure.log

field() { sed -n "s/^$1: //p" "tests/mutations/$2.patch" | head -n 1; }
build_targets() {
  # shellcheck disable=SC2046  # a list on purpose
  cmake --build build/release --parallel "$(nproc)" --target $(field targets "$1") >build/build.log 2>&1
}
run_tests() {
  ctest --test-dir build/release --parallel "$(nproc)" --stop-on-failure --no-tests=error \
    -R "$(field tests "$1")" >build/ctest.log 2>&1
}

# Without a fault the tests must pass, or their failing with it would show nothing.
checked=
for name in "${names[@]}"; do
  needs="$(field targets "$name") / $(field tests "$name")"
  if [[ $checked == *"<$needs>"* ]]; then continue; fi
  checked+="<$needs>"
  if ! build_targets "$name" || ! run_tests "$name"; then
    echo "$name: its tests fail without it" >&2
    tail -n 30 build/build.log build/ctest.log >&2 || true
    exit 1
  fi
done
echo "without a mutation all tests pass (${SECONDS} s)"

# outcome NAME: one line on what the tests said to this mutation.
outcome() {
  if ! git apply "tests/mutations/$1.patch"; then
    echo "FAILED: the patch does not apply"
  elif ! build_targets "$1"; then
    if grep -q 'static assertion failed' build/build.log; then
      echo "noticed by a static assertion"
    else
      echo "FAILED: does not compile"
    fi
  elif run_tests "$1"; then
    echo "FAILED: no test noticed"
  else
    echo "noticed by $(sed -nE 's/^\t *[0-9]+ - ([^ ]+).*/\1/p' build/ctest.log | head -n 1)"
  fi
  git checkout --quiet -- include
}

passed=0
failed=0
for name in "${names[@]}"; do
  begin=$SECONDS
  result=$(outcome "$name")
  if [[ $result == noticed* ]]; then passed=$((passed + 1)); else failed=$((failed + 1)); fi
  printf '%-36s %4d s  %s\n' "$name" $((SECONDS - begin)) "$result"
done
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
