// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL, on the simulated machine.
//
// A collective is three nodes in the stream of each rank. Arrival: from here on the output may hold
// anything. Computation: after all ranks arrived, each at a moment of its own, it reads the inputs
// of all. Completion: after all ranks computed, it writes the output.

#include <nccl.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "support/simulated_device/arithmetic.hpp"
#include "support/simulated_device/graph.hpp"
#include "support/simulated_device/machine.hpp"
#include "support/simulated_device/nccl_world.hpp"

using zero::test::simulated::machine;
using zero::test::simulated::node;
using zero::test::simulated::stream;

namespace zero::test::simulated {
namespace {

struct library {
  std::vector<std::unique_ptr<ncclComm>> comms;
  std::map<std::string, std::shared_ptr<world>> worlds;
  std::uint64_t ids = 0;
};

library& nccl() {
  static library the_library;
  return the_library;
}

thread_local int group_depth = 0;
thread_local std::string last_error_without_communicator;

ncclResult_t refuse(ncclComm* comm, ncclResult_t code, const std::string& text) {
  (comm != nullptr ? comm->last_error : last_error_without_communicator) = text;
  return code;
}

/// Counts the call and answers with a planned fault.
std::optional<ncclResult_t> fault(machine& m, const char* function, ncclComm* comm) {
  if (!m.is_on() || m.options().devices == 0) {
    return refuse(comm, ncclUnhandledCudaError, "CUDA driver version is insufficient");
  }
  const int code = m.count_call(function);
  if (code == 0) return std::nullopt;
  const auto result = static_cast<ncclResult_t>(code);
  if (comm != nullptr && result != ncclInvalidArgument) comm->async = result;
  return refuse(comm, result, std::string("injected fault in ") + function);
}

ncclComm* add_comm(std::shared_ptr<world> members, int rank, int device, bool is_blocking) {
  auto& all = nccl().comms;
  all.push_back(std::make_unique<ncclComm>());
  ncclComm* const comm = all.back().get();
  comm->rank = rank;
  comm->device = device;
  comm->is_blocking = is_blocking;
  comm->busy_polls = is_blocking ? 0 : 1;
  members->comms[static_cast<std::size_t>(rank)] = comm;
  comm->members = std::move(members);
  return comm;
}

bool is_known(const ncclComm* comm) {
  const auto& all = nccl().comms;
  return std::any_of(all.begin(), all.end(), [&](const auto& c) { return c.get() == comm; });
}

/// A call on a communicator that is gone or has not finished its last one.
std::optional<ncclResult_t> misuse(machine& m, const char* function, ncclComm* comm) {
  if (!is_known(comm) || comm->is_gone) {
    m.find(std::string(function) + ": the communicator was destroyed or aborted before");
    return ncclInvalidArgument;
  }
  if (comm->busy_polls > 0 || !comm->members->is_complete() || comm->split_target != nullptr) {
    m.find(std::string(function) + ": the communicator's last call is still in progress");
    return refuse(comm, ncclInvalidUsage, "the last call is still in progress");
  }
  return std::nullopt;
}

/// A non-blocking call may be unfinished when it returns.
ncclResult_t finish_call(machine& m, ncclComm* comm) {
  if (comm->is_blocking || m.random(2) == 0) return ncclSuccess;
  comm->busy_polls = 1 + static_cast<int>(m.random(2));
  return ncclInProgress;
}

/// The nodes of one collective of this rank, which has its turn now.
std::vector<node> nodes_of(machine& m, ncclComm* comm, const request& r) {
  const auto w = comm->members;
  const int rank = comm->rank;
  const int size = w->size();
  const std::uint64_t sequence = comm->next_sequence++;
  auto& shared = w->collectives[sequence];
  if (!shared) {
    shared = std::make_shared<collective>();
    shared->requests.resize(static_cast<std::size_t>(size));
    shared->results.resize(static_cast<std::size_t>(size));
  }
  const auto c = shared;
  for (const auto& other : c->requests) {
    if (!other || other->agrees_with(r) || c->is_broken) continue;
    c->is_broken = true;
    m.find("rank " + std::to_string(rank) + " calls another collective #" +
           std::to_string(sequence) + " than a peer: they hang, or damage memory");
  }
  c->requests[static_cast<std::size_t>(rank)] = r;
  const auto own = static_cast<std::size_t>(rank);
  const bool is_absent = m.absent.count({rank, sequence}) != 0;
  const auto error = m.async_errors.find({rank, sequence});
  if (error != m.async_errors.end()) {
    comm->async = static_cast<ncclResult_t>(error->second);
    comm->last_error = "injected asynchronous error";
  }
  const std::string name = "NCCL #" + std::to_string(sequence) + " of rank " + std::to_string(rank);
  std::vector<node> nodes;
  nodes.push_back({.name = name + " (arrival)",
                   .is_ready = [is_absent] { return !is_absent; },
                   .run =
                       [c, r, rank, size] {
                         spoil_output(r, rank, size);
                         ++c->arrived;
                       },
                   .owner = comm});
  nodes.push_back({.name = name + " (waits for peers)",
                   .is_ready = [c, size] { return c->arrived == size && !c->is_broken; },
                   .run =
                       [c, rank, own, &m] {
                         c->results[own] = compute(m, *c, rank);
                         ++c->computed;
                       },
                   .owner = comm});
  nodes.push_back({.name = name + " (completion)",
                   .is_ready = [c, size] { return c->computed == size; },
                   .run =
                       [c, own, out = r.out] {
                         const auto& result = c->results[own];
                         if (!result.empty()) std::memcpy(out, result.data(), result.size());
                       },
                   .owner = comm});
  return nodes;
}

/// A captured collective takes its turn whenever its graph is launched.
void enqueue(machine& m, stream& s, ncclComm* comm, const request& r) {
  if (s.part_of) {
    return add_to_capture(s, [&m, comm, r] {
      if (comm->is_gone) m.find("cudaGraphLaunch: the communicator of a collective is gone");
      return comm->is_gone ? std::vector<node>() : nodes_of(m, comm, r);
    });
  }
  for (node& n : nodes_of(m, comm, r)) m.enqueue(s, std::move(n));
}

ncclResult_t start(const char* function, ncclComm* comm, cudaStream_t on, request r,
                   ncclRedOp_t op = ncclSum) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (const auto result = misuse(m, function, comm)) return *result;
  if (const auto result = fault(m, function, comm)) return *result;
  stream* const s = m.find_stream(on);
  if (s == nullptr || s->device != comm->device) {
    return refuse(comm, ncclInvalidArgument, "the stream belongs to another device, or is none");
  }
  if (r.count != 0 && (r.in == nullptr || r.out == nullptr)) {
    return refuse(comm, ncclInvalidArgument, "a buffer is null");
  }
  if (op >= ncclNumOps) {
    const auto index = static_cast<std::size_t>(op) - ncclNumOps;
    if (index >= comm->operators.size() || !comm->operators[index].is_alive ||
        comm->operators[index].type != r.type) {
      m.find(std::string(function) + ": an operator that was made for another type, or destroyed");
      return refuse(comm, ncclInvalidArgument, "wrong reduction operator");
    }
    r.is_scaled = true;
    r.scale = comm->operators[index].scale;
  } else if (op != ncclSum) {
    return refuse(comm, ncclInvalidArgument, "the simulated device knows sums only");
  }
  enqueue(m, *s, comm, r);
  return finish_call(m, comm);
}

/// Each rank says its color on the host; the last one makes the parts.
void complete_split(std::vector<split_arrival>& arrivals) {
  std::map<int, std::vector<split_arrival>> parts;
  for (const split_arrival& a : arrivals) {
    if (a.color != NCCL_SPLIT_NOCOLOR) parts[a.color].push_back(a);
  }
  for (auto& [color, part] : parts) {
    std::stable_sort(part.begin(), part.end(),
                     [](const auto& a, const auto& b) { return a.key < b.key; });
    const auto w = std::make_shared<world>(static_cast<int>(part.size()));
    for (std::size_t i = 0; i < part.size(); ++i) {
      ncclComm* const parent = part[i].comm;
      *parent->split_target = add_comm(w, static_cast<int>(i), parent->device, parent->is_blocking);
    }
  }
  for (const split_arrival& a : arrivals) a.comm->split_target = nullptr;
}

void retire(machine& m, ncclComm* comm) {
  m.drop_nodes_of(comm);
  // A kernel that was killed sends nothing more: its peers can only be killed as well.
  for (auto& [sequence, c] : comm->members->collectives) {
    const bool takes_part = c->requests[static_cast<std::size_t>(comm->rank)].has_value();
    if (takes_part && c->computed < comm->members->size()) c->is_broken = true;
  }
  comm->is_gone = true;
  m.note_change();
}

}  // namespace

void reset_nccl() {
  nccl() = library();
}

std::uint64_t living_communicators() {
  const auto& all = nccl().comms;
  return static_cast<std::uint64_t>(
      std::count_if(all.begin(), all.end(), [](const auto& comm) { return !comm->is_gone; }));
}

}  // namespace zero::test::simulated

using namespace zero::test::simulated;

extern "C" {

const char* ncclGetErrorString(ncclResult_t result) {
  constexpr const char* texts[] = {"no error",
                                   "unhandled cuda error",
                                   "unhandled system error",
                                   "internal error",
                                   "invalid argument",
                                   "invalid usage",
                                   "remote process exited or there was a network error",
                                   "NCCL operation in progress"};
  return static_cast<std::size_t>(result) < std::size(texts) ? texts[result] : "unknown";
}

const char* ncclGetLastError(ncclComm_t comm) {
  return comm != nullptr ? comm->last_error.c_str() : last_error_without_communicator.c_str();
}

ncclResult_t ncclGetVersion(int* version) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (m.is_on()) {
    if (const int code = m.count_call("ncclGetVersion"); code != 0) {
      return refuse(nullptr, static_cast<ncclResult_t>(code), "injected fault");
    }
  }
  *version = m.options().nccl_version != 0 ? m.options().nccl_version : NCCL_VERSION_CODE;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (m.is_on()) {
    const int code = m.count_call("ncclGetUniqueId");
    if (code != 0) return refuse(nullptr, static_cast<ncclResult_t>(code), "injected fault");
  }
  std::memset(id->internal, 0, sizeof id->internal);
  // With zeros inside, as a real id has: it is no C string.
  const std::uint64_t number = ++nccl().ids;
  std::memcpy(id->internal + 8, &number, sizeof number);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int size, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  const int device = current_device();
  auto& m = machine::instance();
  auto lock = m.lock();
  *comm = nullptr;
  if (const auto result = fault(m, "ncclCommInitRankConfig", nullptr)) return *result;
  auto& w = nccl().worlds[std::string(id.internal, sizeof id.internal)];
  if (!w) w = std::make_shared<world>(size);
  if (rank < 0 || rank >= size || w->size() != size ||
      w->comms[static_cast<std::size_t>(rank)] != nullptr) {
    return refuse(nullptr, ncclInvalidArgument, "wrong rank or size");
  }
  for (const ncclComm* other : w->comms) {
    if (other != nullptr && other->device == device) {
      return refuse(nullptr, ncclInvalidUsage,
                    "Duplicate GPU detected : rank " + std::to_string(rank) + " and rank " +
                        std::to_string(other->rank) + " both on CUDA device " +
                        std::to_string(device));
    }
  }
  const bool is_blocking = config == nullptr || config->blocking != 0;
  *comm = add_comm(w, rank, device, is_blocking);
  m.note_change();
  if (!is_blocking) return ncclInProgress;
  return m.drive(
             lock, [w] { return w->is_complete(); }, "ncclCommInitRankConfig")
             ? ncclSuccess
             : ncclSystemError;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* state) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  // Asked after every call, so most of the time it is no progress of the device.
  if (m.random(4) == 0) m.take_some_steps();
  if (!is_known(comm) || comm->is_gone) {
    m.find("ncclCommGetAsyncError: the communicator was destroyed or aborted before");
    return ncclInvalidArgument;
  }
  if (const int code = m.count_call("ncclCommGetAsyncError"); code != 0) {
    return static_cast<ncclResult_t>(code);
  }
  *state = comm->async;
  if (comm->async != ncclSuccess) return ncclSuccess;
  if (!comm->members->is_complete() || comm->split_target != nullptr) {
    *state = ncclInProgress;
  } else if (comm->busy_polls > 0) {
    --comm->busy_polls;
    *state = ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t*) {
  auto& m = machine::instance();
  auto lock = m.lock();
  if (const auto result = misuse(m, "ncclCommSplit", comm)) return *result;
  if (const auto result = fault(m, "ncclCommSplit", comm)) return *result;
  *part = nullptr;
  comm->split_target = part;
  auto& arrivals = comm->members->splits[comm->splits++];
  arrivals.push_back({comm, color, key});
  if (static_cast<int>(arrivals.size()) == comm->members->size()) complete_split(arrivals);
  m.note_change();
  if (!comm->is_blocking) return ncclInProgress;
  return m.drive(
             lock, [comm] { return comm->split_target == nullptr; }, "ncclCommSplit")
             ? ncclSuccess
             : ncclSystemError;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (const auto result = misuse(m, "ncclCommFinalize", comm)) return *result;
  if (const auto result = fault(m, "ncclCommFinalize", comm)) return *result;
  return finish_call(m, comm);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
  auto& m = machine::instance();
  auto lock = m.lock();
  if (!is_known(comm) || comm->is_gone) {
    m.find("ncclCommDestroy: the communicator was destroyed or aborted before");
    return ncclInvalidArgument;
  }
  if (const auto result = fault(m, "ncclCommDestroy", comm)) return *result;
  if (comm->split_target != nullptr) m.find("ncclCommDestroy: a split is in progress");
  // It flushes what was enqueued; with a peer that does not come it would wait for ever.
  if (!m.drive(
          lock, [&] { return !m.has_nodes_of(comm); }, "ncclCommDestroy")) {
    return ncclInternalError;
  }
  retire(m, comm);
  return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (!is_known(comm) || comm->is_gone) {
    m.find("ncclCommAbort: the communicator was destroyed or aborted before");
    return ncclInvalidArgument;
  }
  for (const auto& other : nccl().comms) {
    if (group_depth == 0 && other.get() != comm && other->device == comm->device &&
        !other->is_gone && m.has_nodes_of(other.get())) {
      m.find("ncclCommAbort outside a group, while another communicator of the device has work");
    }
  }
  comm->split_target = nullptr;
  retire(m, comm);
  return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
  *count = comm->members->size();
  return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
  *rank = comm->rank;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++group_depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (group_depth == 0) return ncclInvalidUsage;
  --group_depth;
  return ncclSuccess;
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  if (const auto result = misuse(m, "ncclRedOpCreatePreMulSum", comm)) return *result;
  if (const auto result = fault(m, "ncclRedOpCreatePreMulSum", comm)) return *result;
  if (residence != ncclScalarHostImmediate || !is_summed(type)) return ncclInvalidArgument;
  // The scalar is read as one of that type, whatever the caller meant.
  comm->operators.push_back({type, value_at(type, static_cast<const std::byte*>(scalar))});
  *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(comm->operators.size()) - 1);
  return ncclSuccess;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  auto& m = machine::instance();
  const auto lock = m.lock();
  const auto index = static_cast<std::size_t>(op) - ncclNumOps;
  if (!is_known(comm) || index >= comm->operators.size()) return ncclInvalidArgument;
  comm->operators[index].is_alive = false;
  return ncclSuccess;
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t on) {
  return start("ncclReduceScatter", comm, on,
               {.what = kind::reduce_scatter,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .count = count,
                .type = type},
               op);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t on) {
  return start("ncclAllGather", comm, on,
               {.what = kind::all_gather,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .count = count,
                .type = type});
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t on) {
  return start("ncclAllReduce", comm, on,
               {.what = kind::all_reduce,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .count = count,
                .type = type},
               op);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                           ncclComm_t comm, cudaStream_t on) {
  return start("ncclBroadcast", comm, on,
               {.what = kind::broadcast,
                .in = static_cast<const std::byte*>(in),
                .out = static_cast<std::byte*>(out),
                .count = count,
                .type = type,
                .root = root});
}

}  // extern "C"
