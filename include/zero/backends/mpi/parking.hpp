// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <zero/backends/mpi/call.hpp>
#include <zero/backends/mpi/channel.hpp>

namespace zero::detail {

/// Where channels stay after their communicators are gone, because peers may still send to them or
/// MPI may still use their memory: until all ranks have left, or until MPI_Finalize.
///
/// The lot hangs on MPI_COMM_SELF, whose attributes MPI_Finalize deletes before anything else. That
/// is the one place where a library can act at the end of MPI, whoever calls MPI_Finalize.
class mpi_parking {
 public:
  /// Takes a channel whose rank has said its last word.
  static void park(std::unique_ptr<mpi_channel> channel) noexcept {
    if (channel == nullptr) return;
    if (!mpi_is_running()) {
      // Nothing can be asked of MPI any more, and its memory must not go away under its feet.
      static_cast<void>(channel.release());
      return;
    }
    if (channel->try_close()) return;
    const std::lock_guard lock(mutex());
    try {
      lot& here = the_lot();
      here.channels.reserve(here.channels.size() + 1);
      here.channels.push_back(std::move(channel));
    } catch (...) {
      static_cast<void>(channel.release());
    }
  }

  /// Frees the communicators that all ranks have left by now.
  static void sweep() {
    const std::lock_guard lock(mutex());
    std::erase_if(the_lot().channels, [](auto& channel) { return channel->try_close(); });
  }

 private:
  struct lot {
    std::vector<std::unique_ptr<mpi_channel>> channels;
  };

  /// MPI is one per process, and so is what hangs on it.
  static std::mutex& mutex() noexcept {
    static std::mutex only;
    return only;
  }

  static lot& the_lot() {
    static int key = MPI_KEYVAL_INVALID;
    if (key == MPI_KEYVAL_INVALID) {
      mpi_try(
          MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, &mpi_parking::on_finalize, &key, nullptr),
          "MPI_Comm_create_keyval");
    }
    void* found = nullptr;
    int is_there = 0;
    mpi_try(MPI_Comm_get_attr(MPI_COMM_SELF, key, static_cast<void*>(&found), &is_there),
            "MPI_Comm_get_attr");
    if (is_there != 0) return *static_cast<lot*>(found);
    auto made = std::make_unique<lot>();
    mpi_try(MPI_Comm_set_attr(MPI_COMM_SELF, key, made.get()), "MPI_Comm_set_attr");
    return *made.release();
  }

  /// Called inside MPI_Finalize, while MPI still works.
  static int on_finalize(MPI_Comm, int, void* value, void*) noexcept {
    const std::unique_ptr<lot> here(static_cast<lot*>(value));
    const bool must_end_job = std::any_of(
        here->channels.begin(), here->channels.end(),
        [](const auto& channel) { return channel->is_unfinished() && channel->ends_job(); });
    // MPI_Finalize would wait for the operation for ever.
    if (must_end_job) MPI_Abort(MPI_COMM_WORLD, 1);
    for (auto& channel : here->channels) {
      channel->close_finally();
      if (channel->is_unfinished()) static_cast<void>(channel.release());
    }
    return MPI_SUCCESS;
  }
};

}  // namespace zero::detail
