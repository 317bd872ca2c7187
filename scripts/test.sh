#!/usr/bin/env bash
# Builds and runs the tests: A g++, B address and undefined-behaviour sanitizers, C thread sanitizer
# (tests with several ranks). --full adds full counts, optimisation of all tests to A, the slow
# tests to B, and D, a debug build.
# Other options are ctest's. The last line is the sum over the parts.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR source=lib/progress.sh
source scripts/lib/progress.sh
# shellcheck source-path=SCRIPTDIR source=lib/packages.sh
source scripts/lib/packages.sh
# shellcheck source-path=SCRIPTDIR source=lib/build.sh
source scripts/lib/build.sh

full=0
ctest_options=()
for option in "$@"; do
  if [[ $option == --full ]]; then full=1; else ctest_options+=("$option"); fi
done

# clang 14's sanitizers do not start where the kernel randomises addresses widely.
launcher=(setarch "$(uname -m)" --addr-no-randomize)
"${launcher[@]}" true 2>/dev/null || launcher=()

passed=0
failed=0
summary=()

# run_part LETTER PRESET OPTION...: builds the preset, runs its tests, adds to the sums. A part that
# does not build counts as one failure and does not stop the others.
run_part() {
  local letter=$1 preset=$2 begin=$SECONDS status=0 built log counts part_failed part_passed part_total
  shift 2
  echo "== $letter: $preset"
  if ! build_preset "$preset" all "$@"; then
    failed=$((failed + 1))
    summary+=("$letter $preset: does not build ($((SECONDS - begin)) s)")
    return
  fi
  built=$((SECONDS - begin))

  log="build/$preset/ctest.log"
  "${launcher[@]}" ctest --test-dir "build/$preset" --parallel "$(nproc)" --output-on-failure \
    --no-tests=ignore "${ctest_options[@]}" 2>&1 | tee "$log" || status=1
  counts=$(sed -nE 's/.*tests passed, ([0-9]+) tests? failed out of ([0-9]+).*/\1 \2/p' "$log")
  # Without a summary: no test was chosen, or ctest itself failed, which is a failure.
  read -r part_failed part_total <<<"${counts:-$status $status}"
  part_passed=$((part_total - part_failed))
  failed=$((failed + part_failed))
  passed=$((passed + part_passed))
  summary+=("$letter $preset: build $built s, tests $((SECONDS - begin - built)) s,\
 $part_passed passed, $part_failed failed")
}

need_packages demo tests
if ((full)); then
  export ZERO_FULL=1
  sanitized=(-DZERO_TEST_WITHOUT=)
  optimised=(-DZERO_TEST_UNOPTIMISED=)
else
  sanitized=(-DZERO_TEST_WITHOUT=slow)
  optimised=()
fi
run_part A release -DZERO_BUILD_TESTS=ON -DZERO_BUILD_BENCH=ON "${optimised[@]}"
run_part B asan "${sanitized[@]}"
run_part C tsan "${sanitized[@]}"
if ((full)); then
  run_part D debug
fi

printf '%s\n' "== seconds per part" "${summary[@]}" "total: $SECONDS s"
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
