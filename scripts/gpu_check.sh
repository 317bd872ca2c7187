#!/usr/bin/env bash
# Builds and runs everything that needs a GPU; scripts/gpu_check.sh --help says how.
set -euo pipefail
folder=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
if ! command -v python3 >/dev/null; then
  echo "missing: python3, which this script is written in" >&2
  exit 4
fi
exec python3 -B "$folder/lib/gpu_check.py" "$@"
