// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>

#include <cstdint>
#include <string_view>

#include <zero/adapters/any_communicator.hpp>
#include <zero/backends/delaying.hpp>
#include <zero/backends/faulty.hpp>
#include <zero/backends/metered.hpp>
#include <zero/backends/self.hpp>
#include <zero/backends/threads.hpp>
#include <zero/communicator.hpp>

using namespace zero;

namespace {

struct finished {
  finished() = default;
  finished(finished&&) = default;
  finished& operator=(finished&&) = default;
  void wait(host_queue) {}
};

/// Meets every requirement. Each type below it breaks one.
struct good {
  using memory_space = host_space;
  using queue = host_queue;
  using work = finished;
  static constexpr summation sums = summation::unspecified;
  static constexpr std::string_view backend_name() noexcept { return "good"; }
  int rank() const { return 0; }
  int size() const { return 1; }
  void abort(std::string_view) noexcept {}
  bool claim() noexcept { return true; }
  void unclaim() noexcept {}
  template <class T, class U>
  work reduce_scatter(range<const T, partial>, range<U, shard>, reduce_options, queue) {
    return {};
  }
  template <class T>
  work all_gather(range<const T, shard>, range<T, full>, queue) {
    return {};
  }
  work all_reduce(range<double, full>, queue) { return {}; }
  template <class T>
  work broadcast(range<T, full>, int, queue) {
    return {};
  }
  good split(int) { return {}; }
};

// Topology.
class hides_memory_space : public good {
  using memory_space = host_space;
};
class hides_queue : public good {
  using queue = host_queue;
};
class hides_work : public good {
  using work = finished;
};
struct work_of_int : good {
  using work = int;
};
struct rank_is_not_const : good {
  int rank() { return 0; }
};
struct size_is_not_const : good {
  int size() { return 1; }
};
struct rank_is_unsigned : good {
  unsigned rank() const { return 0; }
};
struct size_is_unsigned : good {
  unsigned size() const { return 1; }
};
struct sums_is_bool : good {
  static constexpr bool sums = true;
};
struct name_is_a_member : good {
  std::string_view backend_name() const { return "member"; }
};
struct abort_may_throw : good {
  void abort(std::string_view) {}
};
struct claim_may_throw : good {
  bool claim() { return true; }
};
struct claim_says_nothing : good {
  void claim() noexcept {}
};
struct unclaim_may_throw : good {
  void unclaim() {}
};

// Work.
struct copyable_work {
  void wait(host_queue) {}
};
struct immovable_work {
  immovable_work() = default;
  immovable_work(immovable_work&&) = delete;
  void wait(host_queue) {}
};
struct work_without_default : finished {
  explicit work_without_default(int) {}
};
struct wait_without_queue {
  wait_without_queue() = default;
  wait_without_queue(wait_without_queue&&) = default;
  wait_without_queue& operator=(wait_without_queue&&) = default;
  void wait() {}
};

// Operations.
struct reduces_into_full : good {
  template <class T, class U>
  work reduce_scatter(range<const T, partial>, range<U, full>, reduce_options, queue) {
    return {};
  }
};
struct reduces_without_options : good {
  template <class T, class U>
  work reduce_scatter(range<const T, partial>, range<U, shard>, queue) {
    return {};
  }
};
struct reduces_and_returns_nothing : good {
  template <class T, class U>
  void reduce_scatter(range<const T, partial>, range<U, shard>, reduce_options, queue) {}
};
struct gathers_partial : good {
  template <class T>
  work all_gather(range<const T, partial>, range<T, full>, queue) {
    return {};
  }
};
struct gathers_without_queue : good {
  template <class T>
  work all_gather(range<const T, shard>, range<T, full>) {
    return {};
  }
};
struct gathers_floats_only : good {
  work all_gather(range<const float, shard>, range<float, full>, queue) { return {}; }
};
struct reduces_floats_only_everywhere : good {
  work all_reduce(range<float, full>, queue) { return {}; }
};
struct broadcasts_from_nowhere : good {
  template <class T>
  work broadcast(range<T, full>, queue) {
    return {};
  }
};
struct splits_into_int : good {
  int split(int) { return 0; }
};

/// All six element types move; the four that are numbers can be summed.
template <class C>
constexpr bool is_complete_model() {
  return Communicator<C, float> && Communicator<C, double> && Communicator<C, bfloat16> &&
         Communicator<C, float16> && CanReduceScatter<C, bfloat16, float> &&
         CanReduceScatter<C, float16, float> && CanAllGather<C, std::uint16_t> &&
         CanAllGather<C, std::uint64_t> && CanBroadcast<C, std::uint16_t> &&
         CanBroadcast<C, std::uint64_t> && CanSplit<C>;
}

/// Hashes are not summed, floats are not narrowed by a sum, and a wider sum is not invented.
template <class C>
constexpr bool refuses_meaningless_sums() {
  return !CanReduceScatter<C, std::uint16_t> && !CanReduceScatter<C, std::uint64_t> &&
         !CanReduceScatter<C, float, bfloat16> && !CanReduceScatter<C, float, double>;
}

}  // namespace

TEST_CASE("the concept holds for a model that has everything") {
  STATIC_REQUIRE(is_complete_model<good>());
}

TEST_CASE("topology: each requirement is one") {
  STATIC_REQUIRE(!HasTopology<hides_memory_space>);
  STATIC_REQUIRE(!HasTopology<hides_queue>);
  STATIC_REQUIRE(!HasTopology<hides_work>);
  STATIC_REQUIRE(!HasTopology<work_of_int>);
  STATIC_REQUIRE(!HasTopology<rank_is_not_const>);
  STATIC_REQUIRE(!HasTopology<size_is_not_const>);
  STATIC_REQUIRE(!HasTopology<rank_is_unsigned>);
  STATIC_REQUIRE(!HasTopology<size_is_unsigned>);
  STATIC_REQUIRE(!HasTopology<sums_is_bool>);
  STATIC_REQUIRE(!HasTopology<name_is_a_member>);
  STATIC_REQUIRE(!HasTopology<abort_may_throw>);
  STATIC_REQUIRE(!HasTopology<claim_may_throw>);
  STATIC_REQUIRE(!HasTopology<claim_says_nothing>);
  STATIC_REQUIRE(!HasTopology<unclaim_may_throw>);
  STATIC_REQUIRE(!HasTopology<int>);
}

TEST_CASE("work: each requirement is one") {
  STATIC_REQUIRE(Work<finished, host_queue>);
  STATIC_REQUIRE(!Work<copyable_work, host_queue>);
  STATIC_REQUIRE(!Work<immovable_work, host_queue>);
  STATIC_REQUIRE(!Work<work_without_default, host_queue>);
  STATIC_REQUIRE(!Work<wait_without_queue, host_queue>);
}

TEST_CASE("operations: each requirement is one") {
  STATIC_REQUIRE(!CanReduceScatter<reduces_into_full, float>);
  STATIC_REQUIRE(!CanReduceScatter<reduces_without_options, float>);
  STATIC_REQUIRE(!CanReduceScatter<reduces_and_returns_nothing, float>);
  STATIC_REQUIRE(!CanAllGather<gathers_partial, float>);
  STATIC_REQUIRE(!CanAllGather<gathers_without_queue, float>);
  STATIC_REQUIRE(!CanAllReduce<reduces_floats_only_everywhere>);
  STATIC_REQUIRE(!CanBroadcast<broadcasts_from_nowhere, float>);
  STATIC_REQUIRE(!CanSplit<splits_into_int>);

  STATIC_REQUIRE(!Communicator<reduces_into_full>);
  STATIC_REQUIRE(!Communicator<gathers_partial>);
  STATIC_REQUIRE(!Communicator<gathers_floats_only>);  // fingerprints are 64-bit words
  STATIC_REQUIRE(!Communicator<reduces_floats_only_everywhere>);
  STATIC_REQUIRE(!Communicator<broadcasts_from_nowhere>);
  STATIC_REQUIRE(Communicator<splits_into_int>);  // split is nobody's need but a hybrid's
}

TEST_CASE("the shipped communicators are complete models") {
  using stack = faulty<delaying<metered<threads_communicator>>>;
  STATIC_REQUIRE(is_complete_model<threads_communicator>());
  STATIC_REQUIRE(is_complete_model<self_communicator>());
  STATIC_REQUIRE(is_complete_model<any_communicator>());
  STATIC_REQUIRE(is_complete_model<metered<threads_communicator>>());
  STATIC_REQUIRE(is_complete_model<delaying<threads_communicator>>());
  STATIC_REQUIRE(is_complete_model<faulty<threads_communicator>>());
  STATIC_REQUIRE(is_complete_model<stack>());

  STATIC_REQUIRE(refuses_meaningless_sums<threads_communicator>());
  STATIC_REQUIRE(refuses_meaningless_sums<self_communicator>());
  STATIC_REQUIRE(refuses_meaningless_sums<any_communicator>());
  STATIC_REQUIRE(refuses_meaningless_sums<stack>());
}

TEST_CASE("a decorator lacks what the inner communicator lacks, and nothing else") {
  STATIC_REQUIRE(!CanAllReduce<metered<reduces_floats_only_everywhere>>);
  STATIC_REQUIRE(CanBroadcast<metered<reduces_floats_only_everywhere>, float>);
  STATIC_REQUIRE(!CanAllGather<faulty<gathers_floats_only>, std::uint64_t>);
  STATIC_REQUIRE(CanAllGather<faulty<gathers_floats_only>, float>);
  STATIC_REQUIRE(metered<good>::sums == summation::unspecified);
}
