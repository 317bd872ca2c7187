// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gloo/rendezvous/store.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/rendezvous/store.hpp>

namespace zero::detail {

/// A store that belongs to somebody else.
template <Store S>
class borrowed_store {
 public:
  explicit borrowed_store(S& store) noexcept : store_(&store) {}

  void set(std::string_view key, std::string_view bytes) { store_->set(key, bytes); }
  std::string get(std::string_view key, store_deadline deadline) {
    return store_->get(key, deadline);
  }
  bool contains(std::string_view key) { return store_->contains(key); }
  bool remove(std::string_view key) { return store_->remove(key); }
  std::string place() const { return store_->place(); }

 private:
  S* store_;
};

/// A store of the library as Gloo wants it.
///
/// Gloo's own waits end after a fixed 30 s whatever the context's timeout says, so every wait here
/// ends at a deadline that was given before. `check` is called while a wait goes on and may throw
/// to end it.
class gloo_store_adapter final : public ::gloo::rendezvous::Store {
 public:
  gloo_store_adapter(any_store store, std::string_view prefix, store_deadline deadline,
                     std::function<void()> check = {})
      : store_(std::move(store)),
        prefix_(std::string(prefix) + '/'),
        deadline_(deadline),
        check_(std::move(check)) {}

  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, std::string_view(data.data(), data.size()));
  }

  std::vector<char> get(const std::string& key) override {
    const std::string value = wait_for(prefix_ + key);
    return {value.begin(), value.end()};
  }

  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) wait_for(prefix_ + key);
  }
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& /*timeout*/) override {
    wait(keys);
  }

 private:
  std::string wait_for(const std::string& key) {
    if (!check_) return store_.get(key, deadline_);
    while (!store_.contains(key)) {
      check_();
      constexpr std::chrono::milliseconds look_again(20);
      try {
        return store_.get(key, std::min(deadline_, deadline_in(look_again)));
      } catch (const rendezvous_timeout_error&) {
        if (std::chrono::steady_clock::now() >= deadline_) throw;
      }
    }
    return store_.get(key, deadline_);
  }

  any_store store_;
  std::string prefix_;
  store_deadline deadline_;
  std::function<void()> check_;
};

}  // namespace zero::detail
