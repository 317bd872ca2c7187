// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// A store for ranks that are threads of one process. Copies share the values.
class memory_store {
 public:
  memory_store() : state_(std::make_shared<state>()) {}

  void set(std::string_view key, std::string_view bytes) {
    detail::check_value(place(), key, bytes);
    {
      const std::lock_guard lock(state_->mutex);
      state_->values.insert_or_assign(std::string(key), std::string(bytes));
    }
    state_->changed.notify_all();
  }

  std::string get(std::string_view key, store_deadline deadline) {
    detail::check_key(place(), key);
    const auto start = std::chrono::steady_clock::now();
    std::unique_lock lock(state_->mutex);
    for (;;) {
      const auto found = state_->values.find(key);
      if (found != state_->values.end()) return found->second;
      if (std::chrono::steady_clock::now() >= deadline) {
        throw rendezvous_timeout_error("no rank has set it",
                                       {place(), std::string(key), detail::seconds_since(start)});
      }
      // The longest point in time overflows when it is converted to the clock of the system.
      if (deadline == store_deadline::max())
        state_->changed.wait(lock);
      else
        state_->changed.wait_until(lock, deadline);
    }
  }

  bool contains(std::string_view key) {
    detail::check_key(place(), key);
    const std::lock_guard lock(state_->mutex);
    return state_->values.find(key) != state_->values.end();
  }

  bool remove(std::string_view key) {
    detail::check_key(place(), key);
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->values.find(key);
    if (found == state_->values.end()) return false;
    state_->values.erase(found);
    return true;
  }

  std::string place() const { return "memory store"; }

 private:
  struct state {
    std::mutex mutex;
    std::condition_variable changed;
    std::map<std::string, std::string, std::less<>> values;
  };

  std::shared_ptr<state> state_;
};

static_assert(Store<memory_store>);

}  // namespace zero
