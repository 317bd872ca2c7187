// SPDX-License-Identifier: Apache-2.0
#include <mpi.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <array>
#include <cstddef>
#include <limits>
#include <memory>
#include <span>
#include <stdexcept>
#include <type_traits>

#include <zero/backends/mpi.hpp>
#include <zero/kernels/fold.hpp>
#include <zero/numeric/bfloat16.hpp>

#include "communicator_contender.hpp"
#include "wire.hpp"
#include "worker.hpp"

namespace collectives_bench {
namespace {

using zero::detail::mpi_try;

/// MPI has no bfloat16, so its operation is the library's fold of two inputs.
void add_bfloat16(void* in, void* in_and_out, int* count, MPI_Datatype*) {
  auto* const to = static_cast<zero::bfloat16*>(in_and_out);
  const std::array<const zero::bfloat16*, 2> inputs{static_cast<const zero::bfloat16*>(in), to};
  zero::kernels::fold(zero::host_space{}, std::span<const zero::bfloat16* const>(inputs), to,
                      static_cast<std::uint64_t>(*count), 1.0F);
}

/// The collectives of the MPI library itself.
class mpi_own_contender final : public contender {
 public:
  mpi_own_contender(rank_place place, rank_memory memory) : contender(place, memory) {
    mpi_try(MPI_Op_create(add_bfloat16, 1, &bfloat16_sum_), "MPI_Op_create");
  }
  ~mpi_own_contender() override { MPI_Op_free(&bfloat16_sum_); }

  void run(const workload& load) override {
    if (load.elements > std::numeric_limits<int>::max()) {
      throw std::runtime_error("more elements than MPI 3 can count");
    }
    const int all = static_cast<int>(load.elements);
    if (load.what == operation::all_reduce) {
      mpi_try(MPI_Allreduce(MPI_IN_PLACE, memory().full, all, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD),
              "MPI_Allreduce");
      return;
    }
    const bool is_float = load.type == element::fp32;
    const MPI_Datatype type = is_float ? MPI_FLOAT : MPI_UINT16_T;
    const int of_shard = all / place().size;
    if (load.what == operation::all_gather) {
      mpi_try(MPI_Allgather(MPI_IN_PLACE, 0, type, memory().full, of_shard, type, MPI_COMM_WORLD),
              "MPI_Allgather");
      return;
    }
    mpi_try(MPI_Reduce_scatter_block(memory().full, memory().shard, of_shard, type,
                                     is_float ? MPI_SUM : bfloat16_sum_, MPI_COMM_WORLD),
            "MPI_Reduce_scatter_block");
  }

 private:
  MPI_Op bfloat16_sum_ = MPI_OP_NULL;
};

descriptor connect_to_program(const std::string& socket_name) {
  descriptor channel(checked(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket"));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket_name.size() >= sizeof(address.sun_path)) {
    throw std::runtime_error("the name of the socket is too long: " + socket_name);
  }
  socket_name.copy(address.sun_path, sizeof(address.sun_path) - 1);
  checked(::connect(channel.number(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
          "connect to " + socket_name);
  return channel;
}

}  // namespace

int run_mpi_rank(const std::string& socket_name, std::uint64_t bytes) {
  const zero::mpi_environment environment;
  rank_place place;
  mpi_try(MPI_Comm_rank(MPI_COMM_WORLD, &place.rank), "MPI_Comm_rank");
  mpi_try(MPI_Comm_size(MPI_COMM_WORLD, &place.size), "MPI_Comm_size");
  const descriptor channel = connect_to_program(socket_name);
  send_object(channel.number(), mpi_greeting{place.rank});

  const memory_block full(bytes);
  const memory_block shard(bytes / static_cast<std::uint64_t>(place.size));
  const rank_memory memory{full.data(), shard.data()};
  contender_map contenders;
  contenders.emplace(contender_id::mpi,
                     std::make_unique<communicator_contender<zero::mpi_communicator>>(
                         zero::mpi_communicator(MPI_COMM_WORLD), memory));
  contenders.emplace(contender_id::mpi_own, std::make_unique<mpi_own_contender>(place, memory));
  const worker self{channel.number(), place, CLOCK_PROCESS_CPUTIME_ID,
                    [] { MPI_Barrier(MPI_COMM_WORLD); }};
  if (self.serve(contenders)) return 0;
  MPI_Abort(MPI_COMM_WORLD, 1);
  return 1;
}

}  // namespace collectives_bench
