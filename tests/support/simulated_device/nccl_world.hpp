// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "support/simulated_device/arithmetic.hpp"
#include "support/simulated_device/machine.hpp"

// Communicators and collectives of the simulated NCCL; only its own source includes this.

namespace zero::test::simulated {

enum class kind { all_gather, all_reduce, broadcast, reduce_scatter };

/// What a rank asked for; all but the buffers and the scale has to agree.
struct request {
  kind what;
  const std::byte* in;
  std::byte* out;
  std::size_t count;
  ncclDataType_t type;
  bool is_scaled = false;
  double scale = 1;
  int root = 0;

  bool agrees_with(const request& other) const {
    return what == other.what && count == other.count && type == other.type && root == other.root;
  }
};

struct collective {
  std::vector<std::optional<request>> requests;
  std::vector<std::vector<std::byte>> results;
  int arrived = 0;
  int computed = 0;
  bool is_broken = false;  // ranks called different ones: nobody ever gets a result
};

struct world;

struct scale_operator {
  ncclDataType_t type;
  double scale;
  bool is_alive = true;
};

}  // namespace zero::test::simulated

/// The type that nccl.h declares.
struct ncclComm {
  std::shared_ptr<zero::test::simulated::world> members;
  int rank = 0;
  int device = 0;
  bool is_blocking = true;
  bool is_gone = false;  // destroyed or aborted: handles live on, so that their use is found
  int busy_polls = 0;    // how often ncclCommGetAsyncError still says ncclInProgress
  ncclResult_t async = ncclSuccess;
  std::uint64_t next_sequence = 0;
  std::uint64_t splits = 0;
  std::vector<zero::test::simulated::scale_operator> operators;
  std::string last_error;
  // A split in progress.
  ncclComm** split_target = nullptr;
};

namespace zero::test::simulated {

struct split_arrival {
  ncclComm* comm = nullptr;
  int color = 0;
  int key = 0;
};

struct world {
  explicit world(int size) : comms(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(comms.size()); }
  bool is_complete() const {
    return std::none_of(comms.begin(), comms.end(), [](const ncclComm* c) { return c == nullptr; });
  }

  std::vector<ncclComm*> comms;
  std::map<std::uint64_t, std::shared_ptr<collective>> collectives;
  std::map<std::uint64_t, std::vector<split_arrival>> splits;
};

/// Anything may lie in an output while its collective runs, but for a part that is input, too.
inline void spoil_output(const request& r, int rank, int size) {
  if (r.what == kind::all_reduce || r.in == r.out) return;
  const std::size_t bytes = r.count * element_bytes(r.type);
  const bool is_gather = r.what == kind::all_gather;
  for (int part = 0; part < (is_gather ? size : 1); ++part) {
    std::byte* const out = r.out + static_cast<std::size_t>(part) * bytes;
    const std::byte* const own_input =
        r.what == kind::reduce_scatter ? r.in + static_cast<std::size_t>(rank) * bytes : r.in;
    if (out != own_input && bytes != 0) std::memset(out, 0x7B, bytes);
  }
}

inline std::size_t output_count(const request& r, int size) {
  return r.what == kind::all_gather ? r.count * static_cast<std::size_t>(size) : r.count;
}

/// The result of one rank, from the inputs as they are now.
inline std::vector<std::byte> compute(machine& m, const collective& c, int rank) {
  const request& own = *c.requests[static_cast<std::size_t>(rank)];
  const std::size_t bytes = own.count * element_bytes(own.type);
  std::vector<std::byte> result(output_count(own, static_cast<int>(c.requests.size())) *
                                element_bytes(own.type));
  if (bytes == 0) return result;
  if (own.what == kind::broadcast) {
    std::memcpy(result.data(), c.requests[static_cast<std::size_t>(own.root)]->in, bytes);
    return result;
  }
  const std::size_t offset =
      own.what == kind::reduce_scatter ? static_cast<std::size_t>(rank) * bytes : 0;
  std::vector<term> terms;
  for (std::size_t peer = 0; peer < c.requests.size(); ++peer) {
    const request& other = *c.requests[peer];
    if (own.what == kind::all_gather) {
      std::memcpy(result.data() + peer * bytes, other.in, bytes);
    } else {
      terms.push_back({other.in + offset, other.is_scaled, other.scale});
    }
  }
  if (!terms.empty()) {
    const auto first =
        m.options().nccl_sums_as_tree ? tree_order : static_cast<int>(m.random(terms.size()));
    sum(own.type, terms, first, result.data(), own.count);
  }
  return result;
}

}  // namespace zero::test::simulated
