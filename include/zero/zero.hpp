// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The whole library as far as it needs only the standard library: the engine with all stages,
/// precisions and optimizers, and ranks as threads of one process. Other backends have headers of
/// their own (`zero/backends/`).

#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>
#include <zero/communicator.hpp>
#include <zero/engine.hpp>
#include <zero/error.hpp>
#include <zero/estimate.hpp>
#include <zero/fingerprint.hpp>
#include <zero/layout.hpp>
#include <zero/ledger.hpp>
#include <zero/memory.hpp>
#include <zero/optimizer.hpp>
#include <zero/partition.hpp>
#include <zero/plan.hpp>
#include <zero/precision.hpp>
#include <zero/range.hpp>
#include <zero/stage.hpp>
#include <zero/version.hpp>
