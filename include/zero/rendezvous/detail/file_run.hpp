// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <zero/rendezvous/detail/file_presence.hpp>
#include <zero/rendezvous/detail/posix_files.hpp>
#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/host.hpp>
#include <zero/rendezvous/store.hpp>

// How the ranks of one run agree on a directory that no other run has used.
//
//   run-<run id>-<nonce>/        made by rank 0, whose nonce it is
//     offer                      rank 0 is present; says the world size
//     hello-<rank>-<nonce>       that rank is present
//     roster                     rank 0: the nonces that belong together, one a line
//     refused                    rank 0: why there will be no roster
//     key-<key>                  the values
//
// A rank says hello wherever it finds an offer, and takes part in the run whose roster holds its
// own nonce, which it drew a moment ago. So it can read nothing that an earlier run left, whatever
// lies there: an offer whose rank 0 died is never answered. Offer and hellos are also the tokens of
// presence. Whoever removes the last token of a process that lives removes the run.

namespace zero::detail {

/// Waits a little longer each time, so that a short wait is short and a long one costs little.
class poll_pause {
 public:
  void wait() {
    std::this_thread::sleep_for(next_);
    next_ = next_ * 3 / 2 < longest ? next_ * 3 / 2 : longest;
  }

 private:
  static constexpr std::chrono::microseconds longest{20'000};
  std::chrono::microseconds next_{200};
};

/// One rank's part in finding, using and leaving a run's directory.
class file_run {
 public:
  file_run(std::string parent, std::string run_id, int rank, int size)
      : parent_(std::move(parent)),
        run_id_(std::move(run_id)),
        rank_(rank),
        own_{size, host_name(), this_process()},
        nonce_(random_nonce()) {}

  /// Collective: all ranks. Throws: rendezvous_error; nothing is left then.
  void join(store_deadline deadline) {
    start_ = std::chrono::steady_clock::now();
    try {
      if (rank_ == 0)
        gather(deadline);
      else
        be_gathered(deadline);
    } catch (...) {
      leave();
      throw;
    }
  }

  /// The directory of the run; valid after join.
  const std::string& directory() const noexcept { return directory_; }

  /// A name that no other writer uses.
  std::string unfinished_name() {
    return "new-" + nonce_ + '-' + std::to_string(writes_.fetch_add(1));
  }

  /// Idempotent. The last of the ranks that live takes the files with it.
  void leave() noexcept {
    for (const std::string& run : std::exchange(present_in_, {})) {
      try {
        ::unlink((run + '/' + token_name()).c_str());
        if (has_living_token(run, own_.process.machine)) continue;
        detail::remove_directory(run);
        remove_own_directory(parent_);  // stays while another run is in it
      } catch (...) {
        // The directory cannot be read any more, so there is nothing that could be removed.
      }
    }
  }

 private:
  static constexpr std::size_t longest_text = std::size_t{1} << 20;

  std::string token_name() const {
    return rank_ == 0 ? "offer" : "hello-" + std::to_string(rank_) + '-' + nonce_;
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw rendezvous_mismatch_error(reason, where());
  }
  rendezvous_failure where() const { return {"file store " + parent_, "", seconds_since(start_)}; }

  std::string run_prefix() const { return "run-" + name_for(run_id_) + '-'; }

  /// The directories of this run id.
  std::vector<std::string> runs() const {
    std::vector<std::string> found;
    const std::string prefix = run_prefix();
    for (const std::string& name : names_in(parent_)) {
      if (name.starts_with(prefix) && is_nonce(std::string_view(name).substr(prefix.size()))) {
        found.push_back(parent_ + '/' + name);
      }
    }
    return found;
  }

  bool lives(const std::optional<presence>& p) const {
    return detail::lives(p, own_.process.machine);
  }

  // Rank 0.

  void gather(store_deadline deadline) {
    check_own_directory(parent_);
    remove_stale_runs(parent_, own_.process.machine);
    publish_offer();
    // Looked at again: of two that offer at the same time, at least one sees the other.
    refuse_if_another_gathers();
    std::map<int, std::pair<std::string, presence>> joined;  // rank -> nonce, presence
    poll_pause pause;
    for (;;) {
      joined = hellos();
      if (static_cast<int>(joined.size()) + 1 == own_.size) break;
      if (std::chrono::steady_clock::now() >= deadline) give_up_waiting(joined);
      pause.wait();
    }
    std::string roster;
    for (const auto& [rank, who] : joined) roster += who.first + '\n';
    if (!write_file(directory_, "roster", roster, unfinished_name())) {
      fail("the directory of this run was removed by somebody");
    }
  }

  /// The directory appears with the offer in it: without a token it would count as stale.
  void publish_offer() {
    constexpr int attempts = 100;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      // The parent may vanish in between: the last rank of an earlier run takes it along.
      make_own_directory(parent_);
      const std::string draft = parent_ + '/' + draft_name(own_.process, nonce_);
      if (::mkdir(draft.c_str(), 0700) != 0) {
        if (errno == ENOENT) continue;
        throw_file_error("make directory", draft, errno);
      }
      directory_ = parent_ + '/' + run_prefix() + nonce_;
      write_file(draft, "offer", own_.text(), unfinished_name());
      if (::rename(draft.c_str(), directory_.c_str()) != 0) {
        const int reason = errno;
        detail::remove_directory(draft);
        throw_file_error("make directory", directory_, reason);
      }
      present_in_.push_back(directory_);
      return;
    }
    fail("the directory is removed as often as it is made; choose another one");
  }

  void refuse_if_another_gathers() {
    for (const std::string& run : runs()) {
      if (run == directory_ || file_exists(run + "/roster") || file_exists(run + "/refused")) {
        continue;
      }
      const auto other = read_presence(run + "/offer");
      // Of a process on another host nobody knows whether it lives.
      if (!lives(other) || other->process.machine != own_.process.machine) continue;
      refuse("mismatch", "another job gathers its " + std::to_string(other->size) +
                             " ranks in the same directory (rank 0: " + other->describe() +
                             "); give each job a directory or a run id of its own");
    }
  }

  /// Who has said hello by now. Throws: what the world is refused for.
  std::map<int, std::pair<std::string, presence>> hellos() {
    std::map<int, std::pair<std::string, presence>> joined;
    for (const std::string& name : names_in(directory_)) {
      constexpr std::string_view prefix = "hello-";
      const auto dash = name.find('-', prefix.size());
      if (!name.starts_with(prefix) || dash == std::string::npos) continue;
      const auto who = read_presence(directory_ + '/' + name);
      if (!lives(who)) continue;  // it left, or it died and was perhaps started again
      int rank = -1;
      std::from_chars(name.data() + prefix.size(), name.data() + dash, rank);
      if (who->size != own_.size) {
        refuse("mismatch", "rank 0 was started with a world size of " + std::to_string(own_.size) +
                               ", rank " + std::to_string(rank) + " (" + who->describe() +
                               ") with " + std::to_string(who->size));
      }
      const auto [at, is_new] = joined.emplace(rank, std::pair{name.substr(dash + 1), *who});
      if (!is_new) {
        refuse("mismatch", "rank " + std::to_string(rank) +
                               " came twice: " + at->second.second.describe() + " and " +
                               who->describe() + "; two jobs need a directory or a run id each");
      }
    }
    return joined;
  }

  [[noreturn]] void refuse(const std::string& kind, const std::string& reason) {
    write_file(directory_, "refused", kind + '\n' + reason, unfinished_name());
    if (kind == "timeout") throw rendezvous_timeout_error(reason, where());
    fail(reason);
  }

  [[noreturn]] void give_up_waiting(const std::map<int, std::pair<std::string, presence>>& joined) {
    short_list missing;
    for (int rank = 1; rank < own_.size; ++rank) {
      if (!joined.contains(rank)) missing.add(std::to_string(rank));
    }
    refuse("timeout", std::to_string(missing.count()) + " of " + std::to_string(own_.size) +
                          " ranks did not come: " + missing.text() +
                          "; look for their errors, check that all ranks see this directory, or "
                          "allow more time");
  }

  // The other ranks.

  void be_gathered(store_deadline deadline) {
    poll_pause pause;
    for (;;) {
      if (check_own_directory(parent_)) {
        for (const std::string& run : runs()) {
          if (answer(run)) return;
        }
      }
      if (std::chrono::steady_clock::now() >= deadline) throw_nobody_gathers();
      pause.wait();
    }
  }

  /// Says hello to an open offer, or looks what became of it. Returns whether this rank is in.
  bool answer(const std::string& run) {
    if (std::find(present_in_.begin(), present_in_.end(), run) == present_in_.end()) {
      if (file_exists(run + "/roster") || file_exists(run + "/refused")) return false;
      if (!lives(read_presence(run + "/offer"))) return false;
      if (write_file(run, token_name(), own_.text(), unfinished_name())) present_in_.push_back(run);
      return false;
    }
    if (const auto roster = read_file(run + "/roster", longest_text)) {
      if (roster->find(nonce_ + '\n') == std::string::npos) return false;
      directory_ = run;
      withdraw_elsewhere();
      return true;
    }
    if (const auto refused = read_file(run + "/refused", longest_text)) {
      const auto line = refused->find('\n');
      const std::string reason = "rank 0 says: " + refused->substr(line + 1);
      if (refused->starts_with("timeout")) throw rendezvous_timeout_error(reason, where());
      fail(reason);
    }
    return false;
  }

  void withdraw_elsewhere() {
    std::erase(present_in_, directory_);
    leave();
    present_in_.push_back(directory_);
  }

  [[noreturn]] void throw_nobody_gathers() const {
    std::string reason = "rank 0 has not come";
    for (const std::string& run : present_in_) {
      if (const auto offer = read_presence(run + "/offer")) {
        reason = "rank 0 (" + offer->describe() + ") gathers " + std::to_string(offer->size) +
                 " ranks and is not done";
      }
    }
    throw rendezvous_timeout_error(
        reason + "; this is rank " + std::to_string(rank_) + " of " + std::to_string(own_.size) +
            ": look for the errors of the other ranks, check that all of them use this directory" +
            (run_id_.empty() ? "" : " and the run id '" + run_id_ + "'") + ", or allow more time",
        where());
  }

  std::string parent_;
  std::string run_id_;
  int rank_;
  presence own_;
  std::string nonce_;
  std::string directory_;
  std::vector<std::string> present_in_;  ///< runs that hold a token of this rank
  std::atomic<std::uint64_t> writes_{0};
  std::chrono::steady_clock::time_point start_{};
};

}  // namespace zero::detail
