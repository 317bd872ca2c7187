// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>
#include <vector>

#include <zero/error.hpp>
#include <zero/rendezvous/store.hpp>

// What every store promises, run with one thread per rank. The functions return what is wrong, so
// that the main thread can assert: an empty list is a pass.

namespace zero::test {

using namespace std::chrono_literals;

/// Ends a wait that a correct store never needs.
inline store_deadline far() {
  return deadline_in(20s);
}
/// A deadline that is meant to pass.
inline store_deadline soon() {
  return deadline_in(100ms);
}

enum class store_outcome { returned, timeout, mismatch, rendezvous, usage, other };

/// How a call on a store ended, in a form that can be compared.
struct store_result {
  store_outcome kind = store_outcome::returned;
  std::string text;

  bool says(std::string_view part) const { return text.find(part) != std::string::npos; }
};

template <class Call>
store_result result_of(Call call) {
  try {
    call();
    return {};
  } catch (const rendezvous_timeout_error& e) {
    return {store_outcome::timeout, e.what()};
  } catch (const rendezvous_mismatch_error& e) {
    return {store_outcome::mismatch, e.what()};
  } catch (const rendezvous_error& e) {
    return {store_outcome::rendezvous, e.what()};
  } catch (const usage_error& e) {
    return {store_outcome::usage, e.what()};
  } catch (const std::exception& e) {
    return {store_outcome::other, e.what()};
  }
}

/// Runs `function(rank)` in one thread per rank and tells how each ended.
template <class Function>
std::vector<store_result> on_ranks(int size, Function function) {
  std::vector<store_result> results(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      results[static_cast<std::size_t>(rank)] = result_of([&] { function(rank); });
    });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

/// The texts of those that failed.
inline std::vector<std::string> failures_of(const std::vector<store_result>& results) {
  std::vector<std::string> failures;
  for (std::size_t rank = 0; rank < results.size(); ++rank) {
    if (results[rank].kind != store_outcome::returned) {
      failures.push_back("rank " + std::to_string(rank) + ": " + results[rank].text);
    }
  }
  return failures;
}

class expectations {
 public:
  void expect(bool holds, const std::string& what) {
    if (!holds) failures_.push_back(what);
  }
  std::vector<std::string> take() { return std::move(failures_); }

 private:
  std::vector<std::string> failures_;
};

/// The contract as one rank sees it. `prefix` separates the ranks that run it at once.
template <Store S>
std::vector<std::string> check_one_rank(S& store, const std::string& prefix) {
  expectations check;
  const std::string key = prefix + "/key";
  check.expect(!store.contains(key), "a key that nobody set is not there");
  store.set(key, "one");
  check.expect(store.contains(key), "a key is there after set");
  check.expect(store.get(key, far()) == "one", "get returns what was set");
  store.set(key, "two");
  check.expect(store.get(key, far()) == "two", "set replaces");
  const std::string all_bytes = [] {
    std::string bytes;
    for (int byte = 0; byte < 256; ++byte) bytes.push_back(static_cast<char>(byte));
    return bytes;
  }();
  store.set(prefix + all_bytes, all_bytes);
  check.expect(store.get(prefix + all_bytes, far()) == all_bytes, "keys and values are bytes");
  store.set(key, "");
  check.expect(store.contains(key) && store.get(key, far()).empty(), "an empty value is a value");
  const std::string big(store_limits::value_bytes, 'x');
  store.set(key, big);
  check.expect(store.get(key, far()) == big, "the largest value arrives");
  std::string long_key = prefix;
  long_key.resize(store_limits::key_bytes, '/');
  store.set(long_key, "long");
  std::string other_long_key = long_key;
  other_long_key.back() = 'z';
  check.expect(store.get(long_key, far()) == "long", "the longest key serves");
  check.expect(!store.contains(other_long_key), "long keys that end differently differ");
  check.expect(store.remove(key) && !store.contains(key), "remove removes");
  check.expect(!store.remove(key), "removing twice says so");

  const auto late = result_of([&] { store.get(prefix + "/absent", soon()); });
  check.expect(late.kind == store_outcome::timeout && late.says(prefix + "/absent") &&
                   late.says(store.place()),
               "a timeout names key and place: " + late.text);
  const auto past = result_of([&] { store.get(prefix + "/absent", store_deadline{}); });
  check.expect(past.kind == store_outcome::timeout, "a deadline in the past: " + past.text);
  store.set(key, "there");
  check.expect(store.get(key, store_deadline{}) == "there", "what is there needs no time");
  check.expect(result_of([&] { store.set("", "x"); }).kind == store_outcome::usage, "empty key");
  check.expect(result_of([&] { store.set(long_key + "x", "x"); }).kind == store_outcome::usage,
               "a key that is too long");
  check.expect(result_of([&] { store.set(key, big + "x"); }).says("1048577"),
               "a value that is too long");
  return check.take();
}

/// What ranks promise each other. Every rank runs it at once.
template <Store S>
void check_between_ranks(S& store, int rank, int size) {
  expectations check;
  const auto name = [](int of) { return "address/" + std::to_string(of); };
  store.set(name(rank), "rank " + std::to_string(rank));
  for (int peer = 0; peer < size; ++peer) {
    check.expect(store.get(name(peer), far()) == "rank " + std::to_string(peer),
                 "every rank reads what its peers set");
  }
  store_barrier(store, "first", rank, size, far());
  prefixed_store inner(store, "inner");
  check.expect(!inner.contains(name(rank)), "a prefix hides the keys outside");
  store_barrier(inner, "first", rank, size, far());
  inner.set(name(rank), "inner");
  check.expect(store.get("inner/" + name(rank), far()) == "inner", "a prefix ends in a slash");

  // A get that waits keeps no other thread of the rank from working.
  std::string relayed;
  std::thread waiting([&] { relayed = store.get("relay/" + std::to_string(rank), far()); });
  std::this_thread::sleep_for(5ms);
  store.set("relay/" + std::to_string(rank), "relayed");
  waiting.join();
  check.expect(relayed == "relayed", "two threads of a rank share a store");
  store_barrier(store, "last", rank, size, far());
  for (const auto& failure : check.take()) throw error(failure);
}

}  // namespace zero::test
