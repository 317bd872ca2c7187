// SPDX-License-Identifier: Apache-2.0
#pragma once

// The backend whose ranks are threads of one process; it needs nothing but the standard library.

#include <zero/backends/threads/communicator.hpp>
#include <zero/backends/threads/run_threads.hpp>
