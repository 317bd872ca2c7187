// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// timeout: 120
#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <zero/rendezvous/file_store.hpp>
#include <zero/rendezvous/host.hpp>

#include "unit/rendezvous/process_ranks.hpp"
#include "unit/rendezvous/store_contract.hpp"
#include "unit/rendezvous/temporary_folder.hpp"

using namespace zero;
using namespace zero::test;

namespace {

using strings = std::vector<std::string>;

const file_store_options patient{.run_id = {}, .timeout = 20s};
const file_store_options hasty{.run_id = {}, .timeout = 300ms};

/// Waits until rank 0 of a run has said that it is there.
bool wait_for_offer(const temporary_folder& folder) {
  const auto deadline = far();
  while (std::chrono::steady_clock::now() < deadline) {
    for (const std::string& name : folder.files()) {
      if (name.find("draft-") == std::string::npos && name.ends_with("/offer")) return true;
    }
    std::this_thread::sleep_for(1ms);
  }
  return false;
}

void meet(const std::string& path, int rank, int size, file_store_options options = patient) {
  file_store store(path, rank, size, std::move(options));
  check_between_ranks(store, rank, size);
}

}  // namespace

TEST_CASE("a file store keeps the contract of a store and leaves no file") {
  const temporary_folder folder;
  {
    file_store store(folder.path(), 0, 1);
    CHECK(check_one_rank(store, "one") == strings{});
    CHECK(store.place() == "file store " + folder.path());
  }
  CHECK(folder.files() == strings{});
}

TEST_CASE("ranks that are threads meet in a file store") {
  const temporary_folder folder;
  for (const int size : {1, 2, 3, 5, 8}) {
    CAPTURE(size);
    CHECK(failures_of(on_ranks(size, [&](int rank) { meet(folder.path(), rank, size); })) ==
          strings{});
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("ranks that are processes meet in a file store, which takes its directory along") {
  const temporary_folder folder;
  for (const int size : {1, 2, 4}) {
    CAPTURE(size);
    CHECK(failures_of(in_processes(size, [&](int rank) { meet(folder / "run", rank, size); })) ==
          strings{});
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("fault_44 8 ranks start 50 times in one directory") {
  const temporary_folder folder;
  for (int start = 0; start < 50; ++start) {
    CAPTURE(start);
    const std::string value = std::to_string(start);
    REQUIRE(failures_of(on_ranks(8, [&](int rank) {
              file_store store(folder.path(), rank, 8, patient);
              // The same key in each start: a value of another start would be a stale file.
              if (rank == start % 8) store.set("who", value);
              const auto seen = store.get("who", far());
              if (seen != value) throw error("saw the value of start " + seen);
            })) == strings{});
    REQUIRE(folder.files() == strings{});
  }
}

TEST_CASE("fault_44 a run that was killed leaves nothing that a larger world reads") {
  const temporary_folder folder;
  {
    std::vector<child_process> children;
    for (int rank = 0; rank < 2; ++rank) {
      children.emplace_back([&, rank] {
        file_store store(folder.path(), rank, 2, patient);
        store.set("address/" + std::to_string(rank), "stale");
        store.set("address/2", "stale");
        store_barrier(store, "all", rank, 2, far());
        ::pause();
      });
    }
    const auto deadline = far();
    while (folder.files().size() < 8 && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(2ms);
    }
  }  // kills them
  REQUIRE(folder.files().size() >= 8);
  CHECK(failures_of(in_processes(3, [&](int rank) { meet(folder.path(), rank, 3); })) == strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("fault_44 an offer of a rank 0 that was killed is not answered") {
  const temporary_folder folder;
  {
    child_process rank0([&] { file_store store(folder / "run", 0, 2, patient); });
    REQUIRE(wait_for_offer(folder));
  }
  const auto alone = result_of([&] { file_store store(folder / "run", 1, 2, hasty); });
  CHECK(alone.kind == store_outcome::timeout);
  CHECK(alone.says("rank 0 has not come; this is rank 1 of 2"));
  CHECK(failures_of(in_processes(2, [&](int rank) { meet(folder / "run", rank, 2); })) ==
        strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("a rank 0 that was killed before it had made its offer leaves nothing to the next run") {
  const temporary_folder folder;
  process_identity ended = this_process();
  ended.start_ticks += 1;  // whoever had this number before
  const std::string nonce(32, '0');
  REQUIRE(::mkdir((folder / detail::draft_name(ended, nonce)).c_str(), 0700) == 0);
  REQUIRE(::mkdir((folder / detail::draft_name(this_process(), nonce)).c_str(), 0700) == 0);
  meet(folder.path(), 0, 1);
  // The one of a process that lives is not touched.
  CHECK(folder.files() == strings{detail::draft_name(this_process(), nonce)});
}

TEST_CASE("the last rank that lives removes the files when another one was killed") {
  const temporary_folder folder;
  for (const int victim : {0, 2}) {
    CAPTURE(victim);
    std::vector<child_process> children;
    for (int rank = 0; rank < 3; ++rank) {
      children.emplace_back([&, rank] {
        file_store store(folder / "run", rank, 3, patient);
        store_barrier(store, "all", rank, 3, far());
        if (rank == victim) ::raise(SIGKILL);
        // Others leave after the victim has ended, as they do when their communicator tells them.
        std::this_thread::sleep_for(200ms);
      });
    }
    for (int rank = 0; rank < 3; ++rank) {
      const auto result = children[static_cast<std::size_t>(rank)].finish();
      CHECK(result.signal == (rank == victim ? SIGKILL : 0));
    }
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("fault_44 two jobs with their run ids gather in one directory at once") {
  const temporary_folder folder;
  const auto results = on_ranks(8, [&](int thread) {
    const std::string job = thread % 2 == 0 ? "7" : "7-1";
    file_store store(folder / "jobs", thread / 2, 4, {.run_id = job, .timeout = 20s});
    store.set("job", job);
    check_between_ranks(store, thread / 2, 4);
    if (store.get("job", far()) != job) throw error("saw the other job");
    store_barrier(store, "end", thread / 2, 4, far());
  });
  CHECK(failures_of(results) == strings{});
  CHECK(folder.files() == strings{});
}

TEST_CASE("R12 two jobs without run ids that gather at once are refused") {
  const temporary_folder folder;
  std::vector<store_result> results(3);
  // The first job waits for its rank 1 when the second job's rank 0 comes.
  std::thread first(
      [&] { results[0] = result_of([&] { file_store store(folder.path(), 0, 2, patient); }); });
  CHECK(wait_for_offer(folder));
  results[1] = result_of([&] { file_store store(folder.path(), 0, 2, patient); });
  CHECK(results[1].kind == store_outcome::mismatch);
  CHECK(results[1].says("another job gathers its 2 ranks in the same directory"));
  CHECK(results[1].says("give each job a directory or a run id"));
  // The first one is not disturbed.
  results[2] = result_of([&] { file_store store(folder.path(), 1, 2, patient); });
  first.join();
  CHECK(results[0].text.empty());
  CHECK(results[2].text.empty());
  CHECK(folder.files() == strings{});
}

TEST_CASE("R12 a rank that comes twice is refused on all ranks") {
  const temporary_folder folder;
  // Rank 2 is still to come: a world that is complete would not look at a further rank.
  const auto results = on_ranks(
      3, [&](int thread) { file_store store(folder.path(), thread == 0 ? 0 : 1, 3, patient); });
  for (const auto& result : results) {
    CAPTURE(result.text);
    CHECK(result.kind == store_outcome::mismatch);
    CHECK(result.says("rank 1 came twice"));
  }
  CHECK(folder.files() == strings{});
}

TEST_CASE("fault_44 a world size that differs is an error on all ranks that names both") {
  const temporary_folder folder;
  for (const int odd : {2, 4}) {
    CAPTURE(odd);
    const auto results = on_ranks(3, [&](int rank) {
      // Rank 2 may come when all is over and removed; then it waits in vain.
      file_store store(folder.path(), rank, rank == 1 ? odd : 3, rank == 2 ? hasty : patient);
    });
    for (const std::size_t rank : {0U, 1U}) {
      CAPTURE(results[rank].text);
      CHECK(results[rank].kind == store_outcome::mismatch);
      CHECK(results[rank].says("rank 0 was started with a world size of 3, rank 1 (process "));
      CHECK(results[rank].says(") with " + std::to_string(odd)));
    }
    CHECK(results[2].kind != store_outcome::returned);
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("R12 a missing rank is a timeout that names it on all others") {
  const temporary_folder folder;
  for (const int missing : {1, 3}) {
    CAPTURE(missing);
    const auto results = on_ranks(4, [&](int rank) {
      if (rank == missing) return;
      // Rank 0 gives up first, so the others hear its reason.
      file_store store(folder / "run", rank, 4, rank == 0 ? hasty : patient);
    });
    for (int rank = 0; rank < 4; ++rank) {
      const auto& result = results[static_cast<std::size_t>(rank)];
      CAPTURE(rank, result.text);
      if (rank == missing) continue;
      CHECK(result.kind == store_outcome::timeout);
      CHECK(result.says("1 of 4 ranks did not come: " + std::to_string(missing) + ";"));
    }
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("R12 without rank 0 the others time out and leave nothing") {
  const temporary_folder folder;
  const auto results = on_ranks(3, [&](int rank) {
    if (rank > 0) file_store(folder / "run", rank, 3, hasty);
  });
  for (const std::size_t rank : {1U, 2U}) {
    CHECK(results[rank].kind == store_outcome::timeout);
    CHECK(results[rank].says("rank 0 has not come; this is rank " + std::to_string(rank)));
  }
  CHECK(folder.files() == strings{});
}

TEST_CASE("R12 a rank that starts late within the timeout is waited for") {
  const temporary_folder folder;
  for (const int late : {0, 2}) {
    CAPTURE(late);
    CHECK(failures_of(on_ranks(3, [&](int rank) {
            if (rank == late) std::this_thread::sleep_for(300ms);
            meet(folder.path(), rank, 3);
          })) == strings{});
    CHECK(folder.files() == strings{});
  }
}

TEST_CASE("a directory that others can write to is refused") {
  const temporary_folder folder;
  REQUIRE(::chmod(folder.path().c_str(), 0770) == 0);
  const auto open = result_of([&] { file_store store(folder.path(), 0, 1); });
  CHECK(open.kind == store_outcome::rendezvous);
  CHECK(open.says("other users can write to the directory; run chmod go-w on it"));

  const auto absent = result_of([&] { file_store store(folder / "a/b", 0, 1); });
  CHECK(absent.says("No such file or directory"));

  std::ofstream(folder / "file") << "text";
  const auto file = result_of([&] { file_store store(folder / "file", 0, 1); });
  CHECK(file.says("this is not a directory"));
  REQUIRE(::symlink(folder.path().c_str(), (folder / "link").c_str()) == 0);
  CHECK(result_of([&] { file_store store(folder / "link", 0, 1); }).says("not a directory"));
}

TEST_CASE("a directory of another user is refused") {
  if (::geteuid() != 0) {
    WARN("only root can give a directory away: not tested");
    return;
  }
  const temporary_folder folder;
  const std::string path = folder / "foreign";
  REQUIRE(::mkdir(path.c_str(), 0700) == 0);
  REQUIRE(::chown(path.c_str(), 65534, 65534) == 0);
  for (const int rank : {0, 1}) {
    const auto result = result_of([&] { file_store store(path, rank, 2, patient); });
    CHECK(result.kind == store_outcome::rendezvous);
    CHECK(result.says("the directory belongs to user 65534, this process runs as user 0"));
  }
}

TEST_CASE("the run's directory can be read by its user only") {
  const temporary_folder folder;
  file_store store(folder / "run", 0, 1);
  const auto files = folder.files();
  REQUIRE(files.size() >= 2);
  for (const std::size_t index : {0U, 1U}) {
    struct stat status {};
    REQUIRE(::stat((folder / files[index]).c_str(), &status) == 0);
    CHECK((status.st_mode & 0777U) == 0700U);
  }
}

TEST_CASE("a run that is removed by hand is an error, not a wait") {
  const temporary_folder folder;
  file_store store(folder.path(), 0, 1);
  for (const auto& name : folder.files()) ::unlink((folder / name).c_str());
  for (const auto& name : folder.files()) ::rmdir((folder / name).c_str());
  const auto get = result_of([&] { store.get("key", far()); });
  CHECK(get.kind == store_outcome::rendezvous);
  CHECK(get.says("was removed while this rank still used it"));
  CHECK(result_of([&] { store.set("key", "x"); }).says("was removed"));
}

TEST_CASE("foreign and damaged files in the directory are left alone") {
  const temporary_folder folder;
  const std::string damaged = "run--0123456789abcdef0123456789abcdef";
  REQUIRE(::mkdir((folder / damaged).c_str(), 0700) == 0);
  std::ofstream(folder / (damaged + "/offer")) << "zero-rendezvous 1 two";
  std::ofstream(folder / "notes.txt") << "mine";
  REQUIRE(::mkdir((folder / "data").c_str(), 0700) == 0);
  CHECK(failures_of(on_ranks(2, [&](int rank) { meet(folder.path(), rank, 2); })) == strings{});
  auto left = folder.files();
  std::sort(left.begin(), left.end());
  CHECK(left == strings{"data", "notes.txt"});
}

TEST_CASE("a rank that cannot be is refused before any file is made") {
  const temporary_folder folder;
  for (const auto& world : {std::pair{-1, 2}, std::pair{2, 2}, std::pair{0, 0}}) {
    const int rank = world.first;
    const int size = world.second;
    CHECK(result_of([&] { file_store store(folder / "run", rank, size); }).kind ==
          store_outcome::usage);
  }
  CHECK(folder.files() == strings{});
}

TEST_CASE("a process is known to have ended only where that is certain") {
  const process_identity self = this_process();
  CHECK_FALSE(has_ended(self, self.machine));
  CHECK(this_process() == self);
  process_identity other = self;
  other.start_ticks += 1;
  CHECK(has_ended(other, self.machine));
  other.machine = "elsewhere";
  CHECK_FALSE(has_ended(other, self.machine));

  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  const process_identity zombie{self.machine, child, 0};
  const auto deadline = far();
  while (!has_ended(zombie, self.machine) && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(1ms);
  }
  CHECK(has_ended(zombie, self.machine));
  ::waitpid(child, nullptr, 0);
  CHECK(has_ended(zombie, self.machine));
}
