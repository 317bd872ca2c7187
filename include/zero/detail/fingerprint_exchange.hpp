// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <zero/communicator.hpp>
#include <zero/detail/communicator_queries.hpp>
#include <zero/detail/executor.hpp>
#include <zero/detail/hash_agreement.hpp>
#include <zero/detail/traffic.hpp>
#include <zero/error.hpp>
#include <zero/fingerprint.hpp>
#include <zero/layout.hpp>

namespace zero::detail {

/// Compares the ranks' fingerprints before any payload moves. All messages have a fixed size, so
/// ranks that disagree about everything else can still have this conversation.
template <HasTopology C>
class fingerprint_exchange {
 public:
  using queue = typename C::queue;
  using space = typename C::memory_space;

  fingerprint_exchange(traffic<C>& wire, const model_layout& layout, executor<space>& on, queue q)
      : wire_(wire), layout_(layout), executor_(on), queue_(q) {}

  /// Throws: mismatch_error on every rank, naming the field, the two ranks, and where it is a
  /// matter of tensors, the first one that differs.
  void compare(const fingerprint& mine) {
    // Groups of a hybrid must fail together, so all ranks are asked before the ranks of a group.
    const int replicas = replicas_of(wire_.communicator());
    const std::optional<std::size_t> word =
        replicas > 1 ? first_word_that_differs(mine, replicas) : std::nullopt;
    if (replicas > 1 && !word) return;
    compare_in_group(mine);
    if (word) {
      fail("the replicas were built from different descriptions: they differ in " +
               std::string(fingerprint::word_names[*word]),
           -1);
    }
  }

 private:
  template <class T>
  using mirror = typename executor<space>::template mirror<T>;

  /// The words that speak of tensors: names, shapes, types, groups.
  static constexpr std::size_t tensor_words = 4;

  /// Over all ranks of all replicas; every rank gets the same answer.
  std::optional<std::size_t> first_word_that_differs(const fingerprint& mine, int replicas) {
    constexpr std::size_t parts = hash_agreement::size;
    std::array<double, fingerprint::word_count * parts> sums{};
    const auto of_word = [&](std::size_t word) { return sums.data() + word * parts; };
    for (std::size_t word = 0; word < fingerprint::word_count; ++word) {
      hash_agreement::write(of_word(word), mine.words[word]);
    }
    mirror<double> operand(executor_, sums);
    operand.upload(sums.size(), queue_);
    wire_.all_reduce(range<double, full, space>(operand.data(), sums.size()), queue_).wait(queue_);
    operand.download(sums.size(), queue_);
    const int ranks = wire_.communicator().size() * replicas;
    for (std::size_t word = 0; word < fingerprint::word_count; ++word) {
      if (!hash_agreement::holds(of_word(word), mine.words[word], ranks)) return word;
    }
    return std::nullopt;
  }

  void compare_in_group(const fingerprint& mine) {
    constexpr std::size_t words = fingerprint::word_count;
    const std::vector<std::uint64_t> all = gather(mine.words);
    const std::size_t ranks = all.size() / words;
    for (std::size_t word = 0; word < words; ++word) {
      for (std::size_t rank = 1; rank < ranks; ++rank) {
        if (all[rank * words + word] == all[word]) continue;
        std::string text = "the ranks were built from different descriptions: rank " +
                           std::to_string(rank) + " differs from rank 0 in " +
                           std::string(fingerprint::word_names[word]);
        if (word < tensor_words) text += first_different_tensor();
        fail(text, static_cast<int>(rank));
      }
    }
  }

  [[noreturn]] void fail(const std::string& text, int rank) const {
    throw mismatch_error(text, {std::string(backend_of(wire_.communicator())),
                                wire_.communicator().rank(), rank, "fingerprint", 0, 0});
  }

  std::vector<std::uint64_t> gather(std::span<const std::uint64_t> mine) {
    std::vector<std::uint64_t> own(mine.begin(), mine.end());
    std::vector<std::uint64_t> all(own.size() *
                                   static_cast<std::size_t>(wire_.communicator().size()));
    mirror<std::uint64_t> sent(executor_, own);
    mirror<std::uint64_t> received(executor_, all);
    sent.upload(own.size(), queue_);
    wire_
        .all_gather(range<const std::uint64_t, shard, space>(sent.data(), own.size()),
                    range<std::uint64_t, full, space>(received.data(), all.size()), queue_)
        .wait(queue_);
    received.download(all.size(), queue_);
    return all;
  }

  bool is_same_everywhere(std::uint64_t word) {
    const std::vector<std::uint64_t> all = gather(std::span(&word, 1));
    return std::all_of(all.begin(), all.end(),
                       [&](std::uint64_t other) { return other == all.front(); });
  }

  /// Bisects over prefixes; every rank sees the same answers and takes the same path.
  std::string first_different_tensor() {
    const std::uint64_t own_count = layout_.tensor_count();
    const std::vector<std::uint64_t> counts = gather(std::span(&own_count, 1));
    std::uint64_t equal = 0;
    std::uint64_t different = *std::max_element(counts.begin(), counts.end());
    if (is_same_everywhere(tensor_prefix_hash(layout_, different))) return "";
    while (different - equal > 1) {
      const std::uint64_t middle = equal + (different - equal) / 2;
      (is_same_everywhere(tensor_prefix_hash(layout_, middle)) ? equal : different) = middle;
    }
    const std::uint64_t first = different - 1;
    std::string text = "; the first tensor that differs is number " + std::to_string(first);
    if (first >= layout_.tensor_count()) return text + ", which this rank does not have";
    const tensor_info info = layout_.info(tensor_id{static_cast<std::uint32_t>(first)});
    text += ", here \"" + std::string(info.name) + "\" of shape [";
    for (std::size_t d = 0; d < info.shape.size(); ++d) {
      text += (d == 0 ? "" : ", ") + std::to_string(info.shape[d]);
    }
    return text + "]";
  }

  traffic<C>& wire_;
  const model_layout& layout_;
  executor<space>& executor_;
  queue queue_;
};

}  // namespace zero::detail
