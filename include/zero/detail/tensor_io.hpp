// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <zero/detail/engine_state.hpp>
#include <zero/detail/hash.hpp>
#include <zero/detail/hash_agreement.hpp>
#include <zero/detail/parameter_flow.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Values of whole tensors into and out of the model states.
///
/// Works on pieces: they are computed on the host, whatever memory the states lie in.
template <class State>
class tensor_io {
 public:
  using queue = typename State::queue;
  using space = typename State::space;
  using precision = typename State::precision;
  using parameter_type = typename State::parameter_type;
  using stage = typename State::stage;
  static constexpr std::uint64_t piece_elements = 16384;

  tensor_io(State& state, parameter_flow<State>& parameters)
      : state_(state), parameters_(parameters) {}

  /// Every rank computes the values of its own shards; replicated states are gathered.
  template <class Function>
  void initialize(Function& values, queue q) {
    std::vector<float> piece(piece_elements);
    piece_buffers buffers(piece_elements);
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      auto& store = state_.at(unit_id{u});
      for (const auto* segments : {&store.shard_segments, &store.frozen_segments}) {
        for (const segment& part : *segments) fill(part, values, piece, buffers, q);
      }
      gather_replicated(unit_id{u}, q);
    }
    for (tensor_progress& tensor : state_.tensors) tensor.has_values = true;
  }

  /// Rank `root`'s values reach every rank. Moves: the tensor's elements in fp32, by broadcast.
  void import_from(tensor_id tensor, std::span<const float> values, int root, queue q) {
    const tensor_info info = owner_info(tensor);
    if (root < 0 || root >= state_.ranks()) {
      throw usage_error("zero::engine::import_tensor: rank " + std::to_string(root) + " of " +
                        std::to_string(state_.ranks()) + " does not exist");
    }
    if (state_.rank() == root) require_size("import_tensor", info, values.size());
    parameters_.wait(info.unit, q);
    std::vector<float> piece(std::min(piece_elements, info.elements));
    piece_buffers buffers(piece.size());
    mirror<float> operand(state_.executor, piece);
    for (std::uint64_t first = 0; first < info.elements; first += piece_elements) {
      const std::uint64_t count = std::min(piece_elements, info.elements - first);
      if (state_.rank() == root) {
        std::copy_n(values.data() + first, count, piece.begin());
      }
      if (state_.all_ranks() > 1) {
        operand.upload(count, q);
        state_.wire.broadcast(range<float, full, space>(operand.data(), count), root, q).wait(q);
        operand.download(count, q);
      }
      store_run(info, state_.layout.offset(info.id) + first,
                std::span<const float>(piece.data(), count), buffers, q);
    }
    mark(info);
  }

  /// Every rank has the same values already; a hash of them is compared.
  void import_same(tensor_id tensor, std::span<const float> values, queue q) {
    const tensor_info info = owner_info(tensor);
    require_size("import_tensor", info, values.size());
    hasher hash;
    for (const float value : values) hash.add(std::uint64_t{std::bit_cast<std::uint32_t>(value)});
    if (!same_everywhere(hash.value(), q)) {
      throw mismatch_error("the ranks passed different values for tensor \"" +
                               std::string(info.name) + "\" to import_tensor",
                           {std::string(backend_of(state_.wire.communicator())), state_.rank(), -1,
                            "import_tensor", 0, 0});
    }
    parameters_.wait(info.unit, q);
    piece_buffers buffers(std::min(piece_elements, info.elements));
    for (std::uint64_t first = 0; first < info.elements; first += piece_elements) {
      const std::uint64_t count = std::min(piece_elements, info.elements - first);
      store_run(info, state_.layout.offset(info.id) + first, values.subspan(first, count), buffers,
                q);
    }
    mark(info);
  }

  /// The tensor's fp32 values (masters where there are any) on every rank.
  /// Moves: the tensor's elements, by broadcasts from their owners, where they are partitioned.
  void export_values(tensor_id tensor, std::span<float> out, queue q) {
    const tensor_info info = owner_info(tensor);
    require_size("export_tensor", info, out.size());
    parameters_.wait(info.unit, q);
    constexpr bool is_partitioned =
        has_master<precision> ? stage::partitions_optimizer_state : stage::partitions_parameters;
    piece_buffers buffers(std::min(piece_elements, info.elements));
    export_runs(info, out, is_partitioned, q, [&](std::uint64_t position, std::span<float> run) {
      read_values(info, position, run, buffers, q);
    });
  }

  /// The tensor's parameters as they are stored, on every rank.
  void export_parameters(tensor_id tensor, std::span<parameter_type> out, queue q) {
    const tensor_info info = owner_info(tensor);
    require_size("export_parameters", info, out.size());
    parameters_.wait(info.unit, q);
    export_runs(info, out, stage::partitions_parameters, q,
                [&](std::uint64_t position, std::span<parameter_type> run) {
                  state_.executor.download(held_parameters(info).at(position), run.data(),
                                           run.size(), q);
                });
  }

  /// Parameters and masters of a run of elements, on the host.
  struct piece_buffers {
    explicit piece_buffers(std::uint64_t elements) : parameters(elements), masters(elements) {}
    std::vector<parameter_type> parameters;
    std::vector<master_type<precision>> masters;
  };

  /// The fp32 values from a position of the tensor's flat range on, which must be held here; at
  /// most as many as the buffers have places.
  void read_values(const tensor_info& info, std::uint64_t position, std::span<float> values,
                   piece_buffers& buffers, queue q) const {
    auto& store = state_.at(info.unit);
    const auto count = static_cast<std::uint64_t>(values.size());
    state_.executor.download(held_parameters(info).at(position), buffers.parameters.data(), count,
                             q);
    if (!info.trainable) {
      for (std::uint64_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(buffers.parameters[i]);
      }
      return;
    }
    if constexpr (has_master<precision>) {
      state_.executor.download(store.masters.at(position), buffers.masters.data(), count, q);
    }
    for (std::uint64_t i = 0; i < count; ++i) {
      values[i] = static_cast<float>(precision::load(buffers.parameters[i], buffers.masters[i]));
    }
  }

  /// True when every rank passed the same value.
  bool same_everywhere(std::uint64_t value, queue q) {
    if (state_.all_ranks() == 1) return true;
    std::array<double, hash_agreement::size> message{};
    hash_agreement::write(message.data(), value);
    mirror<double> operand(state_.executor, message);
    operand.upload(message.size(), q);
    state_.wire.all_reduce(range<double, full, space>(operand.data(), message.size()), q).wait(q);
    operand.download(message.size(), q);
    return hash_agreement::holds(message.data(), value, state_.all_ranks());
  }

 private:
  template <class T>
  using mirror = typename executor<space>::template mirror<T>;

  tensor_info owner_info(tensor_id tensor) const {
    return state_.layout.info(state_.layout.owner(tensor));
  }
  void mark(const tensor_info& info) { state_.tensors[info.id.value].has_values = true; }

  static void require_size(const char* call, const tensor_info& info, std::uint64_t size) {
    if (size == info.elements) return;
    throw usage_error("zero::engine::" + std::string(call) + ": tensor \"" +
                      std::string(info.name) + "\" has " + std::to_string(info.elements) +
                      " elements, the span has " + std::to_string(size));
  }

  placed<parameter_type>& held_parameters(const tensor_info& info) const {
    auto& store = state_.at(info.unit);
    return info.trainable ? store.parameters : store.frozen_parameters;
  }

  template <class Function>
  void fill(const segment& part, Function& values, std::vector<float>& piece,
            piece_buffers& buffers, queue q) {
    const tensor_info info = state_.layout.info(part.tensor);
    for (std::uint64_t done = 0; done < part.count; done += piece_elements) {
      const std::uint64_t count = std::min(piece_elements, part.count - done);
      const std::span<float> span(piece.data(), static_cast<std::size_t>(count));
      values(info, part.first_in_tensor + done, span);
      store_run(info, part.begin + done, span, buffers, q);
    }
  }

  /// Stores values in parameters and masters, as far as they are held here.
  void store_run(const tensor_info& info, std::uint64_t begin, std::span<const float> values,
                 piece_buffers& buffers, queue q) {
    auto& store = state_.at(info.unit);
    if (!info.trainable) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        buffers.parameters[i] = static_cast<parameter_type>(values[i]);
      }
      upload_held(begin, values.size(), buffers.parameters, store.frozen_parameters, q);
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      precision::store(values[i], buffers.parameters[i], buffers.masters[i]);
    }
    upload_held(begin, values.size(), buffers.parameters, store.parameters, q);
    if constexpr (has_master<precision>) {
      upload_held(begin, values.size(), buffers.masters, store.masters, q);
    }
  }

  template <class T>
  void upload_held(std::uint64_t begin, std::uint64_t count, const std::vector<T>& from,
                   const placed<T>& to, queue q) {
    const interval common = intersect({begin, begin + count}, to.held);
    if (common.empty()) return;
    state_.executor.upload(from.data() + (common.begin - begin), to.at(common.begin), common.size(),
                           q);
  }

  /// Replicated states receive the other ranks' shards.
  void gather_replicated(unit_id unit, queue q) {
    if (state_.ranks() == 1) return;
    auto& store = state_.at(unit);
    const auto all_gather = [&](const partition& cut, std::uint64_t padding, auto& state) {
      const std::uint64_t own = cut.owned_by(state_.rank()).begin;
      parameters_.gather(cut, padding, state.at(own), state.data, q).wait(q);
    };
    if constexpr (!stage::partitions_parameters) {
      all_gather(store.trainable, store.trainable_padding, store.parameters);
      all_gather(store.frozen, store.frozen_padding, store.frozen_parameters);
    }
    if constexpr (has_master<precision> && !stage::partitions_optimizer_state) {
      all_gather(store.trainable, store.trainable_padding, store.masters);
    }
  }

  /// Owners write their part of `out` and broadcast it; without partitions it is a local copy.
  /// `read(position, run)` gets runs of at most piece_elements.
  template <class T, class Read>
  void export_runs(const tensor_info& info, std::span<T> out, bool is_partitioned, queue q,
                   Read read) {
    const std::uint64_t begin = state_.layout.offset(info.id);
    const interval tensor{begin, begin + info.elements};
    auto& store = state_.at(info.unit);
    const partition& cut = info.trainable ? store.trainable : store.frozen;
    // Frozen tensors are partitioned only where parameters are.
    const bool partitioned = is_partitioned && (info.trainable || stage::partitions_parameters);
    for (int owner = 0; owner < (partitioned ? cut.ranks : 1); ++owner) {
      const interval part = partitioned ? intersect(tensor, cut.owned_by(owner)) : tensor;
      if (part.empty()) continue;
      const std::span<T> values = out.subspan(part.begin - begin, part.size());
      if (!partitioned || owner == state_.rank()) {
        for (std::uint64_t first = 0; first < part.size(); first += piece_elements) {
          const std::uint64_t count = std::min(piece_elements, part.size() - first);
          read(part.begin + first, values.subspan(first, count));
        }
      }
      if (!partitioned || state_.ranks() == 1) continue;
      mirror<T> operand(state_.executor, values);
      operand.upload(values.size(), q);
      state_.wire.broadcast(range<T, full, space>(operand.data(), part.size()), owner, q).wait(q);
      operand.download(values.size(), q);
    }
  }

  State& state_;
  parameter_flow<State>& parameters_;
};

}  // namespace zero::detail
