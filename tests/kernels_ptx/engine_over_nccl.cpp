// SPDX-License-Identifier: Apache-2.0
// A program that trains over NCCL, a thread for each device, as a user writes it without nvcc: the
// kernels come from another file. It trains once more on the host and compares.
//
// engine_over_nccl [RANKS]: without RANKS it takes the devices that there are, at most two, since
// NCCL promises no order for the sum of more. Exit codes: 0 equal bits, 1 not, 3 no device, 4 an
// error of the library.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <vector>

#include <zero/backends/nccl.hpp>
#include <zero/backends/threads.hpp>
#include <zero/cuda.hpp>
#include <zero/rendezvous/memory_store.hpp>

namespace {

constexpr std::uint64_t inputs = 5003;

/// Where tensors are handed over: on a device they are copied there and back, in one stream.
class on_device {
 public:
  using communicator = zero::nccl_communicator;

  explicit on_device(int device) : memory_(device) {}
  ~on_device() { memory_.deallocate(values_, bytes, zero::cuda_memory::alignment_bytes); }
  on_device(const on_device&) = delete;
  on_device& operator=(const on_device&) = delete;

  zero::cuda_queue queue() const { return stream_; }

  template <class Scope>
  void read(const Scope& unit, zero::tensor_id tensor, std::vector<float>& values) const {
    unit.read(tensor, zero::range<float, zero::full, zero::cuda_space>(values_, inputs));
    copy(values.data(), values_, cudaMemcpyDeviceToHost);
    stream_.synchronize();
  }
  template <class Scope>
  void add(const Scope& unit, zero::tensor_id tensor, const std::vector<float>& values) const {
    copy(values_, values.data(), cudaMemcpyHostToDevice);
    unit.add(tensor, zero::range<const float, zero::partial, zero::cuda_space>(values_, inputs));
  }

 private:
  static constexpr std::uint64_t bytes = inputs * sizeof(float);

  void copy(float* to, const float* from, cudaMemcpyKind kind) const {
    zero::detail::cuda_try(cudaMemcpyAsync(to, from, bytes, kind, stream_.get()),
                           "cudaMemcpyAsync");
  }

  zero::unique_cuda_stream stream_;
  zero::cuda_memory memory_;
  float* values_ = static_cast<float*>(memory_.allocate(bytes, zero::cuda_memory::alignment_bytes));
};

class on_host {
 public:
  using communicator = zero::threads_communicator;

  static communicator::queue queue() { return {}; }
  template <class Scope>
  void read(const Scope& unit, zero::tensor_id tensor, std::vector<float>& values) const {
    unit.read(tensor, values);
  }
  template <class Scope>
  void add(const Scope& unit, zero::tensor_id tensor, const std::vector<float>& values) const {
    unit.add(tensor, values);
  }
};

struct outcome {
  std::vector<float> weights;
  std::vector<double> norms;  ///< of the steps' gradients
  bool operator==(const outcome&) const = default;
};

/// Fits the weights of a line; each rank has a sample of its own in every step.
template <class Place>
outcome train(typename Place::communicator& ranks, const Place& place) {
  zero::model_layout layout({.alignment_bytes = 256});
  const auto line = layout.add_unit("line");
  const auto weights = layout.add_tensor(line, "weights", {inputs});
  zero::engine<zero::stage2, zero::bf16_mixed, typename Place::communicator, zero::adamw> engine(
      ranks, layout, zero::adamw{}, {}, place.queue());
  engine.initialize(
      [](const zero::tensor_info&, std::uint64_t first, std::span<float> values) {
        for (float& value : values) value = std::sin(static_cast<float>(first++));
      },
      place.queue());

  outcome result;
  result.weights.resize(inputs);
  std::vector<float> w(inputs);
  for (int step = 0; step < 5; ++step) {
    const auto phase = static_cast<float>(step * ranks.size() + ranks.rank());
    const auto input = [&](std::size_t i) { return std::cos(phase * static_cast<float>(i)); };
    auto pass = engine.train();
    float error = 0;
    {
      auto unit = pass.forward(line, place.queue());
      place.read(unit, weights, w);
      for (std::size_t i = 0; i < inputs; ++i) error += (w[i] - 2) * input(i);
    }
    {
      auto unit = pass.backward(line, place.queue());
      for (std::size_t i = 0; i < inputs; ++i) w[i] = error * input(i) / inputs;
      place.add(unit, weights, w);
    }
    pass.end();
    result.norms.push_back(engine.step({.lr = 0.01, .clip = 0.01}, place.queue()).get().grad_norm);
  }
  engine.export_tensor(weights, result.weights, place.queue());
  return result;
}

std::vector<outcome> train_on_devices(int ranks) {
  zero::memory_store store;
  // A thread for each rank, and none of what the threads' own communicator can do.
  return zero::run_threads(ranks, [&](zero::threads_communicator& thread) {
    std::optional<zero::cuda_device_guard> guard;  // device 0 is every thread's first
    if (thread.rank() != 0) guard.emplace(thread.rank());
    zero::nccl_communicator comm(store, thread.rank(), ranks);
    const on_device place(comm.device());
    outcome result = train(comm, place);
    comm.synchronize(place.queue());
    return result;
  });
}

int run(int ranks) {
  const std::vector<outcome> found = train_on_devices(ranks);
  const std::vector<outcome> expected = zero::run_threads(
      ranks, [](zero::threads_communicator& comm) { return train(comm, on_host{}); });
  const bool is_equal = found == expected;
  std::printf("%d ranks over NCCL, last norm %.17g: %s ranks in threads\n", ranks,
              found[0].norms.back(), is_equal ? "the bits of" : "not the bits of");
  return is_equal ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  if (ranks == 0) {
    const zero::cuda_devices devices = zero::cuda_device_count();
    if (devices.count == 0) {
      std::printf("%s\n", devices.reason.c_str());
      return 3;
    }
    ranks = devices.count < 2 ? devices.count : 2;
  }
  try {
    return run(ranks);
  } catch (const zero::nccl_error& e) {
    std::printf("zero::nccl_error %d: %s\n", e.code(), e.what());
    return 4;
  } catch (const zero::error& e) {
    std::printf("zero::error: %s\n", e.what());
    return 4;
  }
}
