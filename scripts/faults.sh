#!/usr/bin/env bash
# Runs each test that is named after a row of the fault list (fault_15 ...) and prints row, result
# and test. Takes the release build that ./scripts/test.sh made.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

build=build/release
if [[ ! -d $build/bin ]]; then
  echo "missing: $build/bin; run ./scripts/test.sh first" >&2
  exit 4
fi
table=$(mktemp)
trap 'rm -f "$table"' EXIT

# run_row NAME COMMAND...
run_row() {
  local row result=passed
  row=$(sed -E 's/.*fault_(R?[0-9]+).*/\1/' <<<"$1")
  timeout 300 "${@:2}" >/dev/null 2>&1 </dev/null || result=FAILED
  printf '%-4s %-7s %s\n' "$row" "$result" "$1" >>"$table"
}

# Test cases of the Catch programs; listing them exits with their number.
for program in "$build"/bin/test_*; do
  while IFS= read -r name; do
    # shellcheck disable=SC2001  # Catch reads some characters of a name as its own
    run_row "$name" "$program" "$(sed 's/[],[\\]/\\&/g' <<<"$name")" -w NoTests
  done < <("$program" --list-test-names-only "fault_*" || true)
done
# Rows whose test is a file: a program that must not compile, or a script.
while IFS= read -r name; do
  run_row "$name" ctest --test-dir "$build" -R "^${name//+/\\+}\$" --no-tests=error
done < <(ctest --test-dir "$build" -N -R 'fault_R?[0-9]' | sed -nE 's/^ *Test +#[0-9]+: //p')

sort -V "$table"
passed=$(grep -c ' passed ' "$table" || true)
failed=$(grep -c ' FAILED ' "$table" || true)
echo "$passed passed, $failed failed"
((failed == 0 && passed > 0))
