// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// links: zero_rendezvous
// timeout: 120
#include <catch2/catch.hpp>

#include <signal.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <zero/rendezvous/tcp_store.hpp>
#include <zero/rendezvous/tcp_store_server.hpp>

#include "unit/rendezvous/loopback.hpp"
#include "unit/rendezvous/process_ranks.hpp"
#include "unit/rendezvous/store_contract.hpp"

using namespace zero;
using namespace zero::test;

namespace {

using strings = std::vector<std::string>;

const std::string here = "127.0.0.1";

/// A server apart from rank 0 tells its port before any rank comes.
tcp_store_options apart(std::chrono::nanoseconds timeout = 20s) {
  tcp_store_options options;
  options.timeout = timeout;
  options.rank_0_serves = false;
  return options;
}

/// A port that listens already, for rank 0: nobody can take it in between.
class open_port {
 public:
  open_port() : number_(socket_.listen()) {}

  std::uint16_t number() const { return number_; }
  tcp_store_options options(int rank, std::chrono::nanoseconds timeout = 20s) {
    tcp_store_options result;
    result.timeout = timeout;
    if (rank == 0) result.listening_descriptor = socket_.release();
    return result;
  }

 private:
  loopback_socket socket_;
  std::uint16_t number_;
};

}  // namespace

TEST_CASE("a tcp store keeps the contract of a store") {
  open_port port;
  {
    tcp_store store(here, port.number(), 0, 1, port.options(0));
    CHECK(check_one_rank(store, "one") == strings{});
    CHECK(store.place() == "tcp store 127.0.0.1:" + std::to_string(port.number()));
  }
  CHECK(port_is_free(port.number()));
}

TEST_CASE("ranks that are threads meet in a tcp store, which rank 0 holds") {
  for (const int size : {1, 2, 3, 5, 8}) {
    CAPTURE(size);
    open_port port;
    CHECK(failures_of(on_ranks(size, [&](int rank) {
            tcp_store store(here, port.number(), rank, size, port.options(rank));
            check_between_ranks(store, rank, size);
          })) == strings{});
    CHECK(port_is_free(port.number()));
  }
}

TEST_CASE("ranks that are processes meet in a tcp store") {
  for (const int size : {2, 4}) {
    CAPTURE(size);
    open_port port;
    const auto results = in_processes(size, [&](int rank) {
      tcp_store store(here, port.number(), rank, size, port.options(rank));
      check_between_ranks(store, rank, size);
    });
    port.options(0);  // this process's copy of the socket, which would keep the port
    CHECK(failures_of(results) == strings{});
  }
}

TEST_CASE("fault_44 8 ranks start 50 times at one port") {
  const std::uint16_t port = loopback_socket().listen();  // free again after this line
  for (int start = 0; start < 50; ++start) {
    CAPTURE(start);
    const std::string value = std::to_string(start);
    REQUIRE(failures_of(on_ranks(8, [&](int rank) {
              tcp_store_options options;
              options.timeout = 20s;
              tcp_store store(here, port, rank, 8, options);
              if (rank == start % 8) store.set("who", value);
              const auto seen = store.get("who", far());
              if (seen != value) throw error("saw the value of start " + seen);
            })) == strings{});
  }
  CHECK(port_is_free(port));
}

TEST_CASE("a server apart from the ranks serves them, also over IPv6 and by name") {
  tcp_store_server server(3);
  REQUIRE(server.port() != 0);
  CHECK(failures_of(on_ranks(3, [&](int rank) {
          const std::string addresses[] = {"127.0.0.1", has_ipv6() ? "::1" : "127.0.0.1",
                                           "localhost"};
          tcp_store store(addresses[rank], server.port(), rank, 3, apart());
          check_between_ranks(store, rank, 3);
        })) == strings{});
}

TEST_CASE("rank 0 listens at an IPv6 address") {
  if (!has_ipv6()) {
    WARN("this host has no IPv6: not tested");
    return;
  }
  tcp_server_options options;
  options.address = "::1";
  tcp_store_server server(1, options);
  tcp_store store("::1", server.port(), 0, 1, apart());
  CHECK(store.place() == "tcp store [::1]:" + std::to_string(server.port()));
  CHECK(check_one_rank(store, "one") == strings{});
}

TEST_CASE("R12 a rank that starts late within the timeout is waited for over TCP") {
  for (const int late : {0, 2}) {
    CAPTURE(late);
    const std::uint16_t port = loopback_socket().listen();
    CHECK(failures_of(on_ranks(3, [&](int rank) {
            if (rank == late) std::this_thread::sleep_for(300ms);
            tcp_store_options options;
            options.timeout = 20s;
            tcp_store store(here, port, rank, 3, options);
            check_between_ranks(store, rank, 3);
          })) == strings{});
    CHECK(port_is_free(port));
  }
}

TEST_CASE("R12 a rank missing over TCP is a timeout that names it on all others") {
  for (const int missing : {1, 3}) {
    CAPTURE(missing);
    open_port port;
    const auto results = on_ranks(4, [&](int rank) {
      if (rank == missing) return;
      // Rank 0 stays until the others have heard.
      tcp_store store(here, port.number(), rank, 4, port.options(rank, rank == 0 ? 1s : 400ms));
    });
    for (int rank = 0; rank < 4; ++rank) {
      const auto& result = results[static_cast<std::size_t>(rank)];
      CAPTURE(rank, result.text);
      if (rank == missing) continue;
      CHECK(result.kind == store_outcome::timeout);
      CHECK(result.says("1 of 4 ranks did not come: " + std::to_string(missing) + ";"));
    }
    CHECK(port_is_free(port.number()));
  }
}

TEST_CASE("R12 without rank 0 the others time out") {
  const std::uint16_t port = loopback_socket().listen();
  const auto results = on_ranks(3, [&](int rank) {
    tcp_store_options options;
    options.timeout = 200ms;
    if (rank > 0) tcp_store(here, port, rank, 3, options);
  });
  for (const std::size_t rank : {1U, 2U}) {
    CAPTURE(results[rank].text);
    CHECK(results[rank].kind == store_outcome::timeout);
    CHECK(results[rank].says("rank " + std::to_string(rank) + " cannot reach rank 0 there: "));
    CHECK(results[rank].says("tcp store 127.0.0.1:" + std::to_string(port)));
    CHECK(results[rank].says("MASTER_ADDR and MASTER_PORT"));
  }
}

TEST_CASE("fault_44 R12 a port that is taken is an error that names it") {
  loopback_socket other;
  const std::uint16_t port = other.listen();
  for (const std::string& address : {here, std::string("localhost")}) {
    const auto result = result_of([&] { tcp_store store(address, port, 0, 2); });
    CAPTURE(result.text);
    CHECK(result.kind == store_outcome::rendezvous);
    CHECK(result.says("another process listens at port " + std::to_string(port)));
    CHECK(result.says("set MASTER_PORT (or ZERO_STORE_PORT) to a free port on all ranks"));
  }
}

TEST_CASE("an address that is not of this host is an error that says so") {
  tcp_server_options options;
  options.address = "192.0.2.1";  // for documentation only: no host has it
  const auto result = result_of([&] { tcp_store_server server(1, options); });
  CHECK(result.kind == store_outcome::rendezvous);
  CHECK(result.says("rank 0 has to run on the host that MASTER_ADDR names"));
}

TEST_CASE("fault_44 R12 over TCP a world size that differs is an error that names both") {
  for (const int odd : {2, 4}) {
    CAPTURE(odd);
    open_port port;
    const auto results = on_ranks(3, [&](int rank) {
      if (rank == 1) std::this_thread::sleep_for(50ms);
      tcp_store store(here, port.number(), rank, rank == 1 ? odd : 3, port.options(rank));
    });
    for (const auto& result : results) {
      CAPTURE(result.text);
      CHECK(result.kind == store_outcome::mismatch);
      CHECK(result.says("the store was opened with a world size of 3, rank 1 ("));
      CHECK(result.says(") came with " + std::to_string(odd)));
    }
    CHECK(port_is_free(port.number()));
  }
}

TEST_CASE("R12 a rank that comes twice is refused on all ranks while the world gathers") {
  open_port port;
  const auto results = on_ranks(3, [&](int thread) {
    tcp_store store(here, port.number(), thread == 0 ? 0 : 1, 3, port.options(thread));
  });
  for (const auto& result : results) {
    CAPTURE(result.text);
    CHECK(result.kind == store_outcome::mismatch);
    CHECK(result.says("came twice; two jobs need a port or a run id each"));
  }
}

TEST_CASE("R12 a latecomer does not disturb a world that is complete") {
  tcp_store_server server(2);
  std::unique_ptr<tcp_store> ranks[2];
  REQUIRE(failures_of(on_ranks(2, [&](int rank) {
            ranks[rank] = std::make_unique<tcp_store>(here, server.port(), rank, 2, apart());
          })) == strings{});
  for (const int size : {2, 3}) {
    const auto late = result_of([&] { tcp_store s(here, server.port(), 1, size, apart(1s)); });
    CAPTURE(late.text);
    CHECK(late.kind == store_outcome::mismatch);
  }
  ranks[0]->set("key", "still there");
  CHECK(ranks[1]->get("key", far()) == "still there");
}

TEST_CASE("fault_44 R12 a rank of another job is told whose port it is") {
  tcp_server_options options;
  options.run_id = "job 17";
  tcp_store_server server(1, options);
  tcp_store_options own = apart(1s);
  own.run_id = "job 18";
  const auto other = result_of([&] { tcp_store store(here, server.port(), 0, 1, own); });
  CAPTURE(other.text);
  CHECK(other.kind == store_outcome::mismatch);
  CHECK(other.says("the port serves run 'job 17', this rank belongs to run 'job 18'"));
  own.run_id = "job 17";
  tcp_store store(here, server.port(), 0, 1, own);
  CHECK_FALSE(store.contains("key"));
}

TEST_CASE("the server waits for ranks that still read what let rank 0 go on") {
  for (int round = 0; round < 20; ++round) {
    CAPTURE(round);
    open_port port;
    CHECK(failures_of(on_ranks(4, [&](int rank) {
            tcp_store store(here, port.number(), rank, 4, port.options(rank));
            store_barrier(store, "all", rank, 4, far());
            if (rank > 0) std::this_thread::sleep_for(std::chrono::milliseconds(rank));
            if (store.contains("absent")) throw error("a key that nobody set");
          })) == strings{});
  }
}

TEST_CASE("R12 losing rank 0 is an error that says so") {
  open_port port;
  std::vector<child_process> children;
  for (int rank = 0; rank < 3; ++rank) {
    children.emplace_back([&, rank] {
      tcp_store store(here, port.number(), rank, 3, port.options(rank));
      store_barrier(store, "all", rank, 3, far());
      if (rank == 0) ::raise(SIGKILL);
      if (rank == 1) store.get("never", far());
      // Writes into a connection that was reset: once it closed, once it is known to have closed.
      for (;;) store.set("key", "value");
    });
  }
  port.options(0);
  CHECK(children[0].finish().signal == SIGKILL);
  for (const std::size_t rank : {1U, 2U}) {
    const auto result = children[rank].finish();
    CAPTURE(result.call.text);
    CHECK(result.signal == 0);
    CHECK(result.call.kind == store_outcome::rendezvous);
    CHECK(result.call.says("lost rank 0, which held the store"));
  }
}

TEST_CASE("R12 a rank 0 that hangs is a timeout that says so") {
  open_port port;
  child_process rank0([&] {
    tcp_store store(here, port.number(), 0, 2, port.options(0));
    ::raise(SIGSTOP);
  });
  port.options(0);
  tcp_store_options options;
  options.timeout = 20s;
  options.request_timeout = 300ms;
  tcp_store store(here, port.number(), 1, 2, options);
  // Set may be answered a few times before rank 0 stops.
  store_result set;
  for (int i = 0; i < 1000 && set.kind == store_outcome::returned; ++i) {
    std::this_thread::sleep_for(1ms);
    set = result_of([&] { store.set("key", "value"); });
  }
  CHECK(set.kind == store_outcome::timeout);
  CHECK(set.says("rank 0 does not answer; its process hangs or its host is cut off"));
  const auto get = result_of([&] { store.get("other", soon()); });
  CHECK(get.kind == store_outcome::timeout);
}

TEST_CASE("a descriptor that does not listen is refused") {
  loopback_socket idle;
  REQUIRE(idle.bind_to(0));
  for (const int descriptor : {idle.descriptor(), 0, 12345}) {
    tcp_store_options options;
    options.listening_descriptor = descriptor;
    const auto result = result_of([&] { tcp_store store(here, 0, 0, 1, options); });
    CHECK(result.kind == store_outcome::rendezvous);
    CHECK(result.says("is not a listening socket"));
  }
}

TEST_CASE("a rank or a port that cannot be is refused before anything is opened") {
  for (const auto& world : {std::pair{-1, 2}, std::pair{2, 2}, std::pair{0, 0}}) {
    const int rank = world.first;
    const int size = world.second;
    CHECK(result_of([&] { tcp_store store(here, 1, rank, size); }).kind == store_outcome::usage);
  }
  CHECK(result_of([&] { tcp_store store(here, 0, 0, 1); }).kind == store_outcome::usage);
  CHECK(result_of([&] { tcp_store_server server(0); }).kind == store_outcome::usage);
}
