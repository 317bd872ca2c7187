// SPDX-License-Identifier: Apache-2.0
#pragma once

// The backend whose ranks are processes of one Linux host that share memory.

#include <zero/backends/shm/communicator.hpp>
