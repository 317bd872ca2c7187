// SPDX-License-Identifier: Apache-2.0
#include <zero/backends/threads.hpp>

#include "process_ranks.hpp"
#include "program.hpp"
#include "ranks.hpp"

namespace gpt {

namespace {

class thread_ranks final : public rank_world {
 public:
  explicit thread_ranks(const run_settings& settings)
      : ranks_(settings.ranks), options_{.timeout = timeout_of(settings)} {}

  bool is_reporting() const override { return true; }

  run_record run(const std::function<run_record(zero::any_communicator&)>& body) override {
    const auto records =
        zero::run_threads(ranks_, options_, [&](zero::threads_communicator& threads) {
          zero::any_communicator communicator(threads);
          return body(communicator);
        });
    return records.front();
  }

 private:
  int ranks_;
  zero::threads_options options_;
};

}  // namespace

#ifndef GPT_WITH_PROCESSES
void adopt_launch(run_settings&, bool) {}

std::unique_ptr<rank_world> open_process_ranks(const run_settings& settings) {
  throw example::absent_failure("--backend " + settings.backend +
                                " is not built in: libasio-dev was not there; there is: threads");
}
#endif

std::unique_ptr<rank_world> open_ranks(const run_settings& settings) {
  if (settings.backend == "threads") return std::make_unique<thread_ranks>(settings);
#ifndef GPT_WITH_PROCESSES
  if (settings.backend == "auto") return std::make_unique<thread_ranks>(settings);
#endif
  return open_process_ranks(settings);
}

}  // namespace gpt
