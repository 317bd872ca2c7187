// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <zero/backends/shm/layout.hpp>
#include <zero/backends/shm/system.hpp>
#include <zero/backends/shm/transport.hpp>
#include <zero/backends/shm/world.hpp>
#include <zero/error.hpp>
#include <zero/rendezvous/store.hpp>

// How ranks find each other's memory: rank 0 puts an offer into the store, every other rank maps
// what is offered and answers, and rank 0 tells all what came of it. That a rank could map the
// segment and read the nonce in it is the proof that it runs on the same host.

namespace zero::detail {

/// The kernel that this process runs on and the numbers by which it names processes.
struct host_identity {
  fixed_text<40> boot_id;  // differs between hosts, and between two boots of one
  std::uint64_t pid_namespace;

  static host_identity of_this_process() {
    host_identity host = {};
    const owned_descriptor file(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
    if (!file) throw_system_error("cannot open /proc/sys/kernel/random/boot_id");
    char text[40];
    const ssize_t length = ::read(file.get(), text, sizeof(text));
    if (length <= 0) throw_system_error("cannot read /proc/sys/kernel/random/boot_id");
    host.boot_id.assign({text, static_cast<std::size_t>(length)});
    struct stat status = {};
    if (::stat("/proc/self/ns/pid", &status) != 0) throw_system_error("/proc/self/ns/pid");
    host.pid_namespace = status.st_ino;
    return host;
  }
};

/// What rank 0 puts into the store.
struct setup_offer {
  static constexpr std::uint64_t expected_version = 0x7A65'726F'2D73'6801U;

  std::uint64_t version;
  std::uint64_t size;
  std::uint64_t chunk_bytes;
  segment_offer segment;
  host_identity host;

  std::string encode() const {
    return std::string(reinterpret_cast<const char*>(this), sizeof(*this));
  }
  static setup_offer decode(std::string_view bytes) {
    setup_offer offer = {};
    if (bytes.size() == sizeof(offer)) std::memcpy(&offer, bytes.data(), sizeof(offer));
    if (offer.version != expected_version) {
      throw error("zero::shm: rank 0 runs another version of the library, or another machine");
    }
    return offer;
  }
};

enum class setup_outcome : std::uint32_t { ready, failed, mismatch, timeout };

/// What a rank answers, and what rank 0 concludes. The text is a rank's process id, or a list of
/// all ranks', where the outcome is ready, and the reason otherwise.
struct setup_answer {
  setup_outcome outcome = setup_outcome::ready;
  int rank = -1;  // that it is about
  std::string text;

  std::string encode() const {
    return std::to_string(static_cast<int>(outcome)) + ' ' + std::to_string(rank) + ' ' + text;
  }
  static setup_answer decode(std::string_view bytes) {
    setup_answer answer;
    answer.outcome = static_cast<setup_outcome>(take_number(bytes));
    answer.rank = static_cast<int>(take_number(bytes));
    answer.text = bytes;
    return answer;
  }
  /// The number at the front of `text`, which goes with the space behind it.
  static std::int64_t take_number(std::string_view& text) {
    std::int64_t number = 0;
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc{}) {
      throw error("zero::shm: the store holds '" + std::string(text) + "' in place of a number");
    }
    text.remove_prefix(static_cast<std::size_t>(end - text.data()));
    if (!text.empty()) text.remove_prefix(1);
    return number;
  }
};

/// One meeting in the store, under keys that start with `topic`.
template <Store S>
class setup_exchange {
 public:
  setup_exchange(S& store, std::string_view topic, int rank, int size, store_deadline deadline)
      : store_(store), topic_(topic), rank_(rank), size_(size), deadline_(deadline) {}

  void publish(const setup_offer& offer) {
    use_nonce(offer);
    store_.set(topic_ + "/offer", offer.encode());
  }
  /// Throws: rendezvous_timeout_error when rank 0 offers nothing in time.
  setup_offer receive() {
    const setup_offer offer = setup_offer::decode(store_.get(topic_ + "/offer", deadline_));
    use_nonce(offer);
    return offer;
  }

  /// Returns what rank 0 concludes from the answers of all: the first that is not ready, or the
  /// list of process ids.
  setup_answer conclude(const setup_answer& own) {
    if (rank_ != 0) {
      store_.set(key_of(rank_), own.encode());
      setup_answer result = setup_answer::decode(store_.get(key_of(0), deadline_));
      store_.remove(key_of(rank_));
      return result;
    }
    setup_answer result = own;
    for (int peer = 1; peer < size_; ++peer) {
      const setup_answer answer = answer_of(peer);
      if (result.outcome != setup_outcome::ready) continue;
      if (answer.outcome == setup_outcome::ready) {
        result.text += ' ' + answer.text;
      } else {
        result = answer;
      }
    }
    // Before the result: who has it may start over in the same store.
    store_.remove(topic_ + "/offer");
    store_.set(key_of(0), result.encode());
    return result;
  }

 private:
  /// No answer to an earlier offer is taken for one to this.
  void use_nonce(const setup_offer& offer) {
    topic_of_offer_ = topic_ + '/' + std::to_string(offer.segment.nonce[0]);
  }
  std::string key_of(int rank) const { return topic_of_offer_ + '/' + std::to_string(rank); }

  setup_answer answer_of(int peer) {
    try {
      return setup_answer::decode(store_.get(key_of(peer), deadline_));
    } catch (const rendezvous_timeout_error& late) {
      return {setup_outcome::timeout, peer,
              "rank " + std::to_string(peer) + " did not come: " + late.what()};
    }
  }

  S& store_;
  std::string topic_;
  std::string topic_of_offer_;
  int rank_;
  int size_;
  store_deadline deadline_;
};

/// Maps what was offered. Throws: zero::error that says why this rank cannot.
inline shared_segment accept_offer(const setup_offer& offer, int rank) {
  const host_identity host = host_identity::of_this_process();
  const std::string who = "zero::shm: rank " + std::to_string(rank) + " runs ";
  if (host.boot_id.view() != offer.host.boot_id.view()) {
    throw error(who + "on another host than rank 0: use gloo_communicator");
  }
  if (host.pid_namespace != offer.host.pid_namespace) {
    throw error(who + "in another pid namespace (container) than rank 0: start all ranks in one, " +
                "or use gloo_communicator");
  }
  return shared_segment::open(offer.segment);
}

inline void require_same_world(const setup_offer& offer, const segment_layout& layout, int rank) {
  const auto require = [&](const char* what, std::uint64_t own, std::uint64_t theirs) {
    if (own == theirs) return;
    throw mismatch_error("rank 0 was given " + std::string(what) + " " + std::to_string(theirs) +
                             ", rank " + std::to_string(rank) + " " + std::to_string(own),
                         {.backend = "shm", .rank = rank, .peer = 0, .operation = "setup"});
  };
  require("size", layout.size, offer.size);
  require("chunk_bytes", layout.chunk_bytes, offer.chunk_bytes);
}

/// The answer that the exception in flight amounts to.
inline setup_answer answer_of_current_exception(int rank) {
  try {
    throw;
  } catch (const mismatch_error& e) {
    return {setup_outcome::mismatch, rank, e.reason()};
  } catch (const std::exception& e) {
    return {setup_outcome::failed, rank, e.what()};
  }
}

[[noreturn]] inline void throw_setup_failure(const setup_answer& result, int rank, double seconds) {
  const communicator_failure where{.backend = "shm",
                                   .rank = rank,
                                   .peer = result.rank,
                                   .operation = "setup",
                                   .elapsed_seconds = seconds};
  if (result.outcome == setup_outcome::mismatch) throw mismatch_error(result.text, where);
  if (result.outcome == setup_outcome::timeout) throw timeout_error(result.text, where);
  throw communicator_error(result.text, where);
}

/// All ranks' processes, from the list that rank 0 made.
inline std::vector<peer_process> open_peers(std::string_view process_ids, int size) {
  std::vector<peer_process> peers;
  for (int rank = 0; rank < size; ++rank) {
    peer_process& peer = peers.emplace_back();
    peer.pid = setup_answer::take_number(process_ids);
    // Ranks that are threads of this process cannot die alone.
    if (peer.pid == ::getpid()) continue;
    peer.descriptor = std::make_shared<const owned_descriptor>(open_process(peer.pid));
  }
  return peers;
}

/// The offer of rank 0 for a segment that it made.
inline setup_offer describe_offer(const shared_segment& segment, const segment_layout& layout) {
  return {.version = setup_offer::expected_version,
          .size = layout.size,
          .chunk_bytes = layout.chunk_bytes,
          .segment = segment.offer(),
          .host = host_identity::of_this_process()};
}

/// The transport of a new world.
template <Store S>
std::unique_ptr<shm_transport> join_shm_world(S& store, const segment_layout& layout, int rank,
                                              std::chrono::nanoseconds timeout,
                                              std::chrono::nanoseconds setup_timeout) {
  transport_operation setup;
  setup.call.operation = "setup";
  setup.start = transport_operation::clock::now();
  setup.deadline = deadline_in(setup_timeout);
  const auto size = static_cast<int>(layout.size);
  setup_exchange<S> exchange(store, "shm", rank, size, setup.deadline);

  std::optional<shared_segment> segment;
  if (rank == 0) segment = shm_transport::create_control_segment(layout);
  setup_answer result{setup_outcome::ready, rank, std::to_string(::getpid())};
  if (size > 1) {
    try {
      if (rank == 0) {
        exchange.publish(describe_offer(*segment, layout));
      } else {
        const setup_offer offer = exchange.receive();
        try {
          require_same_world(offer, layout, rank);
          segment = accept_offer(offer, rank);
          open_process(::getpid());  // whether the kernel can
        } catch (...) {
          result = answer_of_current_exception(rank);
        }
      }
      const setup_answer own = result;
      result = exchange.conclude(own);
      if (own.outcome != setup_outcome::ready) result = own;
    } catch (const rendezvous_timeout_error& late) {
      result = {setup_outcome::timeout, 0, std::string("rank 0 did not come: ") + late.what()};
    }
  }
  if (result.outcome != setup_outcome::ready) {
    throw_setup_failure(result, rank, setup.elapsed_seconds());
  }
  auto world =
      std::make_shared<shm_world>(*std::move(segment), layout, rank, open_peers(result.text, size));
  world->meet(setup);  // all have mapped the segment
  world->segment().close_descriptor();
  return std::make_unique<shm_transport>(std::move(world), timeout);
}

}  // namespace zero::detail

namespace zero {

/// Whether all ranks run where they can share memory, found out by sharing some.
///
/// The same answer on every rank; a program chooses between shm_communicator and a network with it.
/// Collective: all ranks, with one store. Throws: rendezvous_error when a rank does not answer
/// before the deadline, and what the store throws.
template <Store S>
bool shm_host_is_shared(S& store, int rank, int size, store_deadline deadline) {
  if (size == 1) return true;
  using detail::setup_outcome;
  const detail::segment_layout layout{0, 0};
  detail::setup_exchange<S> exchange(store, "shm-probe", rank, size, deadline);
  detail::setup_answer own{setup_outcome::ready, rank, "0"};
  std::optional<detail::shared_segment> segment;
  detail::setup_offer offer = {};
  if (rank == 0) {
    offer.version = detail::setup_offer::expected_version;
    try {
      segment = detail::shared_segment::create(layout.page_bytes);
      offer = detail::describe_offer(*segment, layout);
    } catch (...) {
      own = detail::answer_of_current_exception(rank);  // the others cannot map an empty offer
    }
    exchange.publish(offer);
  } else {
    offer = exchange.receive();
  }
  try {
    if (rank != 0) detail::accept_offer(offer, rank);
    detail::open_process(::getpid());
  } catch (...) {
    own = detail::answer_of_current_exception(rank);
  }
  const detail::setup_answer result = exchange.conclude(own);
  if (result.outcome == setup_outcome::timeout) {
    throw rendezvous_timeout_error(result.text, {store.place(), "shm-probe", 0});
  }
  return result.outcome == setup_outcome::ready;
}

}  // namespace zero
