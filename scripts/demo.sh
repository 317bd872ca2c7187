#!/usr/bin/env bash
# Trains a small GPT under every ZeRO stage and prints the comparison. Installs and builds what is
# missing first. Options are those of compare_stages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source-path=SCRIPTDIR source=lib/progress.sh
source scripts/lib/progress.sh
# shellcheck source-path=SCRIPTDIR source=lib/packages.sh
source scripts/lib/packages.sh
# shellcheck source-path=SCRIPTDIR source=lib/build.sh
source scripts/lib/build.sh

need_packages demo
build_preset release "compare_stages train_gpt" -DZERO_BUILD_TESTS=OFF -DZERO_BUILD_BENCH=OFF
exec build/release/bin/compare_stages "$@"
