// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include <zero/error.hpp>
#include <zero/rendezvous/error.hpp>

namespace zero {

/// The point in time at which a wait gives up.
using store_deadline = std::chrono::steady_clock::time_point;

/// The deadline that lies `wait` ahead; a wait that is too long for the clock never ends.
template <class Rep, class Period>
store_deadline deadline_in(std::chrono::duration<Rep, Period> wait) {
  using clock = std::chrono::steady_clock;
  const auto now = clock::now();
  const auto left = store_deadline::max() - now;
  // Compared in double seconds: a duration of another unit may not fit the clock's ticks.
  if (std::chrono::duration<double>(wait) >= std::chrono::duration<double>(left)) {
    return store_deadline::max();
  }
  return now + std::chrono::duration_cast<clock::duration>(wait);
}

/// What every store refuses to take, so that a program does not depend on the store it was run on.
struct store_limits {
  static constexpr std::size_t key_bytes = 1024;
  static constexpr std::size_t value_bytes = std::size_t{1} << 20;
};

/// A few small values under string keys that all ranks of one run share.
///
/// It is how ranks find each other before a communicator exists: addresses, an id, a barrier.
/// `set` replaces what was there. `get` waits until the key exists and throws
/// rendezvous_timeout_error at the deadline. `contains` and `remove` do not wait for other ranks;
/// `remove` says whether the key existed. `place` names the store in messages. Several threads of
/// a rank may use one store at once.
/// Throws: rendezvous_error; usage_error for an empty key and beyond store_limits.
template <class S>
concept Store = requires(S& store, const S& constant, std::string_view key, std::string_view bytes,
                         store_deadline deadline) {
  store.set(key, bytes);
  { store.get(key, deadline) } -> std::same_as<std::string>;
  { store.contains(key) } -> std::same_as<bool>;
  { store.remove(key) } -> std::same_as<bool>;
  { constant.place() } -> std::convertible_to<std::string>;
};

namespace detail {

inline void check_key(std::string_view place, std::string_view key) {
  if (key.empty() || key.size() > store_limits::key_bytes) {
    throw usage_error("zero: " + std::string(place) + ": a key has 1 to " +
                      std::to_string(store_limits::key_bytes) + " bytes, this one has " +
                      std::to_string(key.size()));
  }
}

inline void check_value(std::string_view place, std::string_view key, std::string_view bytes) {
  check_key(place, key);
  if (bytes.size() > store_limits::value_bytes) {
    throw usage_error("zero: " + std::string(place) + ", key '" + std::string(key) +
                      "': a value has at most " + std::to_string(store_limits::value_bytes) +
                      " bytes, this one has " + std::to_string(bytes.size()));
  }
}

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// "2" or "2, 5, 7": the first few of a list that may have thousands of entries.
class short_list {
 public:
  void add(std::string_view entry) {
    if (++count_ > shown) return;
    if (!text_.empty()) text_ += ", ";
    text_ += entry;
  }
  std::size_t count() const noexcept { return count_; }
  std::string text() const {
    return count_ > shown ? text_ + " and " + std::to_string(count_ - shown) + " more" : text_;
  }

 private:
  static constexpr std::size_t shown = 8;
  std::string text_;
  std::size_t count_ = 0;
};

}  // namespace detail

/// Waits until all keys exist.
/// Throws: rendezvous_timeout_error that names those which do not.
template <Store S>
void wait_for_keys(S& store, std::span<const std::string> keys, store_deadline deadline) {
  const auto start = std::chrono::steady_clock::now();
  try {
    for (const std::string& key : keys) store.get(key, deadline);
  } catch (const rendezvous_timeout_error&) {
    detail::short_list missing;
    for (const std::string& key : keys) {
      if (!store.contains(key)) missing.add(key);
    }
    if (missing.count() == 0) return;  // the last one came between the deadline and this look
    throw rendezvous_timeout_error(std::to_string(missing.count()) + " of " +
                                       std::to_string(keys.size()) +
                                       " keys are missing: " + missing.text(),
                                   {store.place(), "", detail::seconds_since(start)});
  }
}

/// A view of a store in which every key starts with `prefix` and a slash. It borrows the store.
///
/// Each communicator and each generation gets a prefix of its own, so that nobody reads the
/// addresses that an earlier one left.
template <Store S>
class prefixed_store {
 public:
  prefixed_store(S& store, std::string_view prefix)
      : store_(&store), prefix_(std::string(prefix) + '/') {}

  void set(std::string_view key, std::string_view bytes) { store_->set(full(key), bytes); }
  std::string get(std::string_view key, store_deadline deadline) {
    return store_->get(full(key), deadline);
  }
  bool contains(std::string_view key) { return store_->contains(full(key)); }
  bool remove(std::string_view key) { return store_->remove(full(key)); }
  std::string place() const { return store_->place(); }

 private:
  std::string full(std::string_view key) const {
    detail::check_key(place(), key);
    return prefix_ + std::string(key);
  }

  S* store_;
  std::string prefix_;
};

namespace detail {

class store_interface {
 public:
  virtual ~store_interface() = default;
  virtual void set(std::string_view key, std::string_view bytes) = 0;
  virtual std::string get(std::string_view key, store_deadline deadline) = 0;
  virtual bool contains(std::string_view key) = 0;
  virtual bool remove(std::string_view key) = 0;
  virtual std::string place() const = 0;
};

template <Store S>
class store_model final : public store_interface {
 public:
  template <class... Arguments>
  explicit store_model(Arguments&&... arguments) : store_(std::forward<Arguments>(arguments)...) {}

  void set(std::string_view key, std::string_view bytes) override { store_.set(key, bytes); }
  std::string get(std::string_view key, store_deadline deadline) override {
    return store_.get(key, deadline);
  }
  bool contains(std::string_view key) override { return store_.contains(key); }
  bool remove(std::string_view key) override { return store_.remove(key); }
  std::string place() const override { return store_.place(); }

 private:
  S store_;
};

}  // namespace detail

/// Owns a store of any type. Copies share it; it goes with the last of them.
class any_store {
 public:
  /// Builds the store in place: stores that hold files or sockets cannot be moved.
  template <Store S, class... Arguments>
  static any_store make(Arguments&&... arguments) {
    return any_store(
        std::make_shared<detail::store_model<S>>(std::forward<Arguments>(arguments)...));
  }

  void set(std::string_view key, std::string_view bytes) { store_->set(key, bytes); }
  std::string get(std::string_view key, store_deadline deadline) {
    return store_->get(key, deadline);
  }
  bool contains(std::string_view key) { return store_->contains(key); }
  bool remove(std::string_view key) { return store_->remove(key); }
  std::string place() const { return store_->place(); }

 private:
  explicit any_store(std::shared_ptr<detail::store_interface> store) noexcept
      : store_(std::move(store)) {}

  std::shared_ptr<detail::store_interface> store_;
};

static_assert(Store<any_store> && Store<prefixed_store<any_store>>);

/// Returns when all ranks have called it with the same name, which serves once per store.
///
/// Rank 0 collects the others and lets them go, so N ranks cost O(N) requests in all.
/// Collective: all ranks. Throws: rendezvous_timeout_error that says which ranks did not come.
template <Store S>
void store_barrier(S& store, std::string_view name, int rank, int size, store_deadline deadline) {
  if (size < 1 || rank < 0 || rank >= size) {
    throw usage_error("zero::store_barrier: rank " + std::to_string(rank) +
                      " does not exist in a world of " + std::to_string(size));
  }
  const auto start = std::chrono::steady_clock::now();
  const auto arrival = [&](int of) { return std::string(name) + "/arrived/" + std::to_string(of); };
  const std::string open = std::string(name) + "/open";
  try {
    store.set(arrival(rank), "");
    if (rank == 0) {
      for (int peer = 1; peer < size; ++peer) store.get(arrival(peer), deadline);
      store.set(open, "");
    } else {
      store.get(open, deadline);
    }
  } catch (const rendezvous_timeout_error&) {
    detail::short_list missing;
    for (int peer = 0; peer < size; ++peer) {
      if (!store.contains(arrival(peer))) missing.add(std::to_string(peer));
    }
    const std::string reason =
        missing.count() > 0 ? std::to_string(missing.count()) + " of " + std::to_string(size) +
                                  " ranks are missing at this barrier: " + missing.text() +
                                  "; look for their errors, or allow more time if they start late"
                            : "all ranks arrived, but rank 0 gave up before the last of them";
    throw rendezvous_timeout_error(
        reason, {store.place(), std::string(name), detail::seconds_since(start)});
  }
}

}  // namespace zero
