// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/gloo/options.hpp>
#include <zero/backends/gloo/store_adapter.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/interfaces.hpp>
#include <zero/rendezvous/store.hpp>
#include <zero/version.hpp>

namespace zero::detail {

/// How ranks meet and become connected pairs. One object per communicator that is being made.
class gloo_setup {
 public:
  using clock = std::chrono::steady_clock;
  using device_pointer = std::shared_ptr<::gloo::transport::Device>;
  using context_pointer = std::shared_ptr<::gloo::rendezvous::Context>;

  gloo_setup(any_store store, int rank, int size, store_deadline deadline)
      : store_(std::move(store)), rank_(rank), size_(size), deadline_(deadline) {}

  /// Meets all ranks in the store under a prefix that this store has not seen before, and compares
  /// what has to be equal. Collective: all ranks. Returns the prefix.
  /// Throws: timeout_error that names the ranks that did not come, mismatch_error.
  std::string meet(const gloo_options& options, std::string_view algorithm) {
    // Before this rank is there: if it has no address, the others name it as missing.
    address_ = options.address;
    if (address_.empty()) {
      address_ = choose_interface(network_interfaces(), options.interface).address;
    }
    const std::string prefix = "gloo/" + std::to_string(next_generation());
    const std::string config = describe(options, algorithm);
    store_.set(arrival(prefix, rank_), config);
    for (int peer = 0; peer < size_; ++peer) {
      const std::string theirs = value_of(prefix, peer);
      if (theirs != config) {
        fail<mismatch_error>("rank " + std::to_string(rank_) + " has " + config + ", rank " +
                                 std::to_string(peer) + " has " + theirs,
                             peer);
      }
    }
    use_loopback_on_one_host(options, prefix);
    return prefix;
  }

  /// The network device of this process, with a thread of its own: made after any fork.
  device_pointer open_device() {
    ::gloo::transport::tcp::attr attributes;
    attributes.hostname = address_;
    device_pointer device;
    translate("no network device for the address '" + address_ + "'",
              [&] { device = ::gloo::transport::tcp::CreateDevice(attributes); });
    return device;
  }

  /// Connects every rank with every other one. Collective: all ranks, with the same prefix.
  context_pointer connect(device_pointer device, std::string_view prefix,
                          std::function<void()> check = {}) {
    auto context = std::make_shared<::gloo::rendezvous::Context>(rank_, size_);
    // A pair waits five times this for its connection. No later wait uses it: each has a deadline.
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline_ - clock::now());
    context->setTimeout(std::max(left / 5, std::chrono::milliseconds(1)));
    const auto store =
        std::make_shared<gloo_store_adapter>(store_, prefix, deadline_, std::move(check));
    translate("the ranks could not be connected", [&] { mesh(*context, store, device); });
    return context;
  }

  /// Gloo took its store by reference until 2025-04, and takes a shared pointer since.
  template <class Context, class StorePointer, class DevicePointer>
  static void mesh(Context& context, StorePointer store, DevicePointer& device) {
    std::shared_ptr<::gloo::rendezvous::Store> base = std::move(store);
    if constexpr (requires { context.connectFullMesh(base, device); }) {
      context.connectFullMesh(base, device);
    } else {
      context.connectFullMesh(*base, device);
    }
  }

 private:
  static std::string arrival(const std::string& prefix, int rank) {
    return prefix + "/arrived/" + std::to_string(rank);
  }

  /// Communicators made from one store, in the same order on every rank, are numbered by it. Only
  /// this rank writes its number, so a rank that was restarted meets nobody's old addresses.
  std::uint64_t next_generation() {
    const std::string key = "gloo/made/" + std::to_string(rank_);
    std::uint64_t made = 0;
    if (store_.contains(key)) made = std::stoull(store_.get(key, deadline_));
    store_.set(key, std::to_string(made + 1));
    return made;
  }

  std::string describe(const gloo_options& options, std::string_view algorithm) const {
    std::string text = "zero " + std::to_string(version_major) + '.' +
                       std::to_string(version_minor) + '.' + std::to_string(version_patch);
    text += ", size " + std::to_string(size_) + ", algorithm ";
    text += algorithm;
    text += ", segment_bytes " + std::to_string(options.segment_bytes) + ", depth " +
            std::to_string(options.depth) + ", checked_order " +
            (options.checked_order ? "true" : "false");
    return text;
  }

  std::string value_of(const std::string& prefix, int peer) {
    try {
      return store_.get(arrival(prefix, peer), deadline_);
    } catch (const rendezvous_timeout_error&) {
      std::string missing;
      int first = -1;
      for (int other = 0; other < size_; ++other) {
        if (store_.contains(arrival(prefix, other))) continue;
        if (first < 0) first = other;
        missing += (missing.empty() ? "" : ", ") + std::to_string(other);
      }
      if (first < 0) return store_.get(arrival(prefix, peer), deadline_);
      fail<timeout_error>("rank " + std::to_string(rank_) + " waited " +
                              std::to_string(elapsed_seconds()) + " s in " + store_.place() +
                              " for rank(s) " + missing,
                          first);
    }
  }

  /// Hosts refuse what their firewalls and routes do not expect; loopback always works. Throws
  /// where a rank would be reached at loopback from another host.
  void use_loopback_on_one_host(const gloo_options& options, const std::string& prefix) {
    prefixed_store<any_store> meeting(store_, prefix);
    const auto places = exchange_places(meeting, rank_, size_, address_, deadline_);
    const bool is_one_host = std::all_of(places.begin(), places.end(), [&](const auto& place) {
      return place.host == places.front().host;
    });
    if (is_one_host && options.interface.empty() && options.address.empty()) {
      address_ = "127.0.0.1";
    }
  }

  double elapsed_seconds() const {
    return std::chrono::duration<double>(clock::now() - start_).count();
  }

  template <class Error>
  [[noreturn]] void fail(const std::string& reason, int peer) const {
    throw Error(reason, {.backend = "gloo",
                         .rank = rank_,
                         .peer = peer,
                         .operation = "connect",
                         .sequence = 0,
                         .elapsed_seconds = elapsed_seconds()});
  }

  /// Gloo throws exceptions of two families that share nothing but std::exception.
  template <class Function>
  void translate(const std::string& what, Function function) const {
    try {
      function();
    } catch (const error&) {
      throw;  // the library's own: from the store, or from a check during a wait
    } catch (const std::exception& cause) {
      const std::string reason = what + " (gloo: " + cause.what() + ")";
      if (clock::now() >= deadline_) fail<timeout_error>(reason, -1);
      fail<communicator_error>(reason, -1);
    }
  }

  any_store store_;
  int rank_;
  int size_;
  clock::time_point start_ = clock::now();
  store_deadline deadline_;
  std::string address_;  // that peers connect to
};

/// A program that does nothing about SIGPIPE is ended by its first write to a peer that has died.
inline void ignore_sigpipe_if_default() {
  struct sigaction current {};
  if (::sigaction(SIGPIPE, nullptr, &current) != 0) return;
  if ((current.sa_flags & SA_SIGINFO) == 0 && current.sa_handler == SIG_DFL) {
    ::signal(SIGPIPE, SIG_IGN);
  }
}

}  // namespace zero::detail
