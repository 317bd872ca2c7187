// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <zero/backends/nccl/library.hpp>
#include <zero/backends/nccl/notices.hpp>
#include <zero/backends/nccl/options.hpp>
#include <zero/backends/nccl/session.hpp>
#include <zero/cuda/device.hpp>
#include <zero/detail/cuda_operations.hpp>
#include <zero/detail/first_failure.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero::detail {

/// Meets the other ranks in the store and connects NCCL between them.
///
/// Whatever fails here on one rank is published, so that the others do not wait until the deadline.
class nccl_connector {
 public:
  /// Throws: usage_error, rendezvous_error.
  nccl_connector(any_store store, int rank, int size, const nccl_options& options)
      : options_(effective_nccl_options(options)),
        rank_(checked(rank, size)),
        size_(size),
        notices_(store, next_nccl_prefix(store, rank), rank, size) {}

  /// Throws: nccl_error, cuda_error, rendezvous_error, communicator_error.
  std::shared_ptr<nccl_session> connect() {
    try {
      const int version = require_nccl();
      const int device = usable_device();
      notices_.announce_arrival();
      const ncclComm_t comm = connect_with(meet());
      try {
        return std::make_shared<nccl_session>(comm, notices_, rank_, size_, device, version,
                                              options_);
      } catch (...) {
        ncclCommAbort(comm);
        throw;
      }
    } catch (const aborted_error&) {
      throw;  // it came from a peer, which has published it
    } catch (const communicator_error& e) {
      notices_.publish_failure({{failure_kind::aborted, rank_, e.reason()}});
      throw;
    } catch (const std::exception& e) {
      notices_.publish_failure({{failure_kind::aborted, rank_, e.what()}});
      throw;
    }
  }

 private:
  using clock = cuda_operation::clock;

  static int checked(int rank, int size) {
    if (size < 1 || rank < 0 || rank >= size) {
      throw usage_error("zero::nccl_communicator: rank " + std::to_string(rank) +
                        " does not exist in a world of " + std::to_string(size));
    }
    return rank;
  }

  static int usable_device() {
    const cuda_devices devices = cuda_device_count();
    if (devices.count == 0) {
      throw nccl_error("zero::nccl_communicator: " + devices.reason, ncclUnhandledCudaError);
    }
    return current_cuda_device();
  }

  ncclUniqueId meet() {
    ncclUniqueId id;
    if (rank_ == 0) {
      const ncclResult_t result = ncclGetUniqueId(&id);
      if (result != ncclSuccess) fail(describe_nccl("ncclGetUniqueId", result, nullptr), -1);
      notices_.publish_id({id.internal, sizeof id.internal});
      return id;
    }
    const std::string bytes = wait_for_id();
    if (bytes.size() != sizeof id.internal) {
      fail("the id in " + notices_.store().place() + " has " + std::to_string(bytes.size()) +
               " bytes, not " + std::to_string(sizeof id.internal),
           0);
    }
    std::memcpy(id.internal, bytes.data(), bytes.size());
    return id;
  }

  /// In slices, so that a failure of rank 0 is seen.
  std::string wait_for_id() {
    for (;;) {
      const auto slice = deadline_in(std::chrono::milliseconds(100));
      try {
        return notices_.id(slice < deadline_ ? slice : deadline_);
      } catch (const rendezvous_timeout_error&) {
        look_for_failure();
        if (clock::now() >= deadline_) time_out();
      }
    }
  }

  ncclComm_t connect_with(const ncclUniqueId& id) {
    ncclComm_t comm = nullptr;
    ncclConfig_t config = nccl_session::nccl_config(options_);
    ncclResult_t result = ncclCommInitRankConfig(&comm, size_, id, rank_, &config);
    auto next_look = clock::now() + std::chrono::milliseconds(50);
    try {
      const bool is_in_time = poll_until(deadline_, [&] {
        if (result != ncclInProgress) return true;
        const ncclResult_t asked = ncclCommGetAsyncError(comm, &result);
        if (asked != ncclSuccess) result = asked;
        if (result == ncclInProgress && clock::now() >= next_look) {
          look_for_failure();
          next_look = clock::now() + std::chrono::milliseconds(50);
        }
        return result != ncclInProgress;
      });
      if (!is_in_time) time_out();
      if (result != ncclSuccess) {
        fail(describe_nccl("ncclCommInitRankConfig", result, comm), -1);
      }
      return comm;
    } catch (...) {
      if (comm != nullptr) ncclCommAbort(comm);
      throw;
    }
  }

  void look_for_failure() {
    const auto peer = notices_.published_failure();
    if (peer) throw aborted_error(peer->cause.reason, where(peer->cause.peer));
  }

  [[noreturn]] void time_out() {
    const auto [missing, first] = notices_.missing_ranks();
    const std::string who = missing.empty()
                                ? "all ranks came, but NCCL did not connect them in time"
                                : "rank(s) " + missing + " did not come";
    throw timeout_error(who + " (met in " + notices_.store().place() + ")", where(first));
  }

  [[noreturn]] void fail(const std::string& reason, int peer) const {
    throw communicator_error(reason, where(peer));
  }

  communicator_failure where(int peer) const {
    return {.backend = "nccl",
            .rank = rank_,
            .peer = peer,
            .operation = "connect",
            .sequence = 0,
            .elapsed_seconds = std::chrono::duration<double>(clock::now() - start_).count()};
  }

  nccl_options options_;
  int rank_;
  int size_;
  nccl_notices notices_;
  clock::time_point start_ = clock::now();
  clock::time_point deadline_ = start_ + options_.setup_timeout;
};

/// The part of the ranks that gave the same color, in rank order.
inline std::shared_ptr<nccl_session> split_nccl(const std::shared_ptr<nccl_session>& whole,
                                                int color) {
  cuda_operation operation;
  const ncclComm_t comm = whole->split(color, operation);
  std::shared_ptr<nccl_session> part;
  try {
    int rank = 0;
    int size = 0;
    for (const ncclResult_t result : {ncclCommUserRank(comm, &rank), ncclCommCount(comm, &size)}) {
      if (result == ncclSuccess) continue;
      throw communicator_error(describe_nccl("ncclCommCount", result, comm),
                               operation.where("nccl", whole->rank()));
    }
    nccl_notices notices(whole->notices().store(),
                         whole->notices().prefix() + "/part/" + std::to_string(operation.sequence) +
                             '/' + std::to_string(color),
                         rank, size);
    const cuda_device_guard guard(whole->device());
    part = std::make_shared<nccl_session>(comm, std::move(notices), rank, size, whole->device(),
                                          whole->version(), whole->options(), whole);
  } catch (...) {
    ncclCommAbort(comm);
    throw;
  }
  whole->adopt(part);
  return part;
}

}  // namespace zero::detail
