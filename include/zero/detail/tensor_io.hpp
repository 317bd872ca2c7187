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
#include <zero/detail/parameter_flow.hpp>
#include <zero/detail/step_math.hpp>
#include <zero/error.hpp>

namespace zero::detail {

/// Values of whole tensors into and out of the model states.
///
/// Works piecewise, so that no rank ever needs more than the tensor itself at once.
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
    for (std::uint32_t u = 0; u < state_.layout.unit_count(); ++u) {
      auto& store = state_.at(unit_id{u});
      for (const auto* segments : {&store.shard_segments, &store.frozen_segments}) {
        for (const segment& part : *segments) fill(part, values, piece);
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
    for (std::uint64_t first = 0; first < info.elements; first += piece_elements) {
      const std::uint64_t count = std::min(piece_elements, info.elements - first);
      if (state_.rank() == root) {
        std::copy_n(values.data() + first, count, piece.begin());
      }
      if (state_.all_ranks() > 1) {
        state_.wire.broadcast(range<float, full, space>(piece.data(), count), root, q).wait(q);
      }
      store_everywhere(info, first, std::span<const float>(piece.data(), count));
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
    store_everywhere(info, 0, values);
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
    export_pieces(info, out, is_partitioned, q,
                  [&](std::uint64_t position) { return value_at(info, position); });
  }

  /// The tensor's parameters as they are stored, on every rank.
  void export_parameters(tensor_id tensor, std::span<parameter_type> out, queue q) {
    const tensor_info info = owner_info(tensor);
    require_size("export_parameters", info, out.size());
    parameters_.wait(info.unit, q);
    export_pieces(info, out, stage::partitions_parameters, q,
                  [&](std::uint64_t position) { return *held_parameters(info).at(position); });
  }

  /// The fp32 value at a position of the tensor's flat range, which must be held here.
  float value_at(const tensor_info& info, std::uint64_t position) const {
    auto& store = state_.at(info.unit);
    if (!info.trainable) return to_float(*store.frozen_parameters.at(position));
    const parameter_type parameter = *store.parameters.at(position);
    if constexpr (has_master<precision>) {
      return static_cast<float>(precision::load(parameter, *store.masters.at(position)));
    } else {
      return static_cast<float>(precision::load(parameter, no_master{}));
    }
  }

  /// True when every rank passed the same value.
  bool same_everywhere(std::uint64_t value, queue q) {
    if (state_.all_ranks() == 1) return true;
    std::array<double, hash_agreement::size> message{};
    hash_agreement::write(message, value);
    state_.wire.all_reduce(range<double, full, space>(message.data(), message.size()), q).wait(q);
    return hash_agreement::holds(message, value, state_.all_ranks());
  }

 private:
  template <class T>
  static float to_float(T value) {
    return static_cast<float>(value);
  }

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
  void fill(const segment& part, Function& values, std::vector<float>& piece) {
    const tensor_info info = state_.layout.info(part.tensor);
    for (std::uint64_t done = 0; done < part.count; done += piece_elements) {
      const std::uint64_t count = std::min(piece_elements, part.count - done);
      const std::span<float> span(piece.data(), static_cast<std::size_t>(count));
      values(info, part.first_in_tensor + done, span);
      for (std::uint64_t i = 0; i < count; ++i) store_value(info, part.begin + done + i, span[i]);
    }
  }

  /// Stores one value in parameter and master, as far as they are held here.
  void store_value(const tensor_info& info, std::uint64_t position, float value) {
    auto& store = state_.at(info.unit);
    placed<parameter_type>& parameters = held_parameters(info);
    const bool holds_parameter = contains(parameters.held, position);
    if (!info.trainable) {
      if (holds_parameter) *parameters.at(position) = static_cast<parameter_type>(value);
      return;
    }
    parameter_type parameter{};
    master_type<precision> master{};
    precision::store(value, parameter, master);
    if (holds_parameter) *parameters.at(position) = parameter;
    if constexpr (has_master<precision>) {
      if (contains(store.masters.held, position)) *store.masters.at(position) = master;
    }
  }
  static bool contains(interval held, std::uint64_t position) noexcept {
    return held.begin <= position && position < held.end;
  }

  void store_everywhere(const tensor_info& info, std::uint64_t first,
                        std::span<const float> values) {
    const std::uint64_t begin = state_.layout.offset(info.id) + first;
    for (std::uint64_t i = 0; i < values.size(); ++i) store_value(info, begin + i, values[i]);
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
  template <class T, class ValueAt>
  void export_pieces(const tensor_info& info, std::span<T> out, bool is_partitioned, queue q,
                     ValueAt value_at_position) {
    const std::uint64_t begin = state_.layout.offset(info.id);
    const interval tensor{begin, begin + info.elements};
    auto& store = state_.at(info.unit);
    const partition& cut = info.trainable ? store.trainable : store.frozen;
    // Frozen tensors are partitioned only where parameters are.
    const bool partitioned = is_partitioned && (info.trainable || stage::partitions_parameters);
    for (int owner = 0; owner < (partitioned ? cut.ranks : 1); ++owner) {
      const interval part = partitioned ? intersect(tensor, cut.owned_by(owner)) : tensor;
      if (part.empty()) continue;
      T* const values = out.data() + (part.begin - begin);
      if (!partitioned || owner == state_.rank()) {
        for (std::uint64_t i = 0; i < part.size(); ++i) {
          values[i] = value_at_position(part.begin + i);
        }
      }
      if (!partitioned || state_.ranks() == 1) continue;
      state_.wire.broadcast(range<T, full, space>(values, part.size()), owner, q).wait(q);
    }
  }

  State& state_;
  parameter_flow<State>& parameters_;
};

}  // namespace zero::detail
