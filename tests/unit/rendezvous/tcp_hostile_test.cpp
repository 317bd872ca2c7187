// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
// links: zero_rendezvous
// timeout: 60
#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <zero/rendezvous/detail/tcp_protocol.hpp>
#include <zero/rendezvous/tcp_store.hpp>
#include <zero/rendezvous/tcp_store_server.hpp>

#include "unit/rendezvous/loopback.hpp"
#include "unit/rendezvous/store_contract.hpp"

using namespace zero;
using namespace zero::test;
using detail::tcp_operation;

namespace {

const std::string here = "127.0.0.1";

tcp_store_options apart(std::chrono::nanoseconds timeout = 20s) {
  tcp_store_options options;
  options.timeout = timeout;
  options.rank_0_serves = false;
  return options;
}

std::string frame(detail::tcp_request_header header, const std::string& body = "") {
  const auto bytes = header.encode();
  return std::string(bytes.begin(), bytes.end()) + body;
}

detail::tcp_request_header header_of(tcp_operation operation, std::uint32_t key_bytes,
                                     std::uint32_t value_bytes) {
  detail::tcp_request_header header;
  header.operation = operation;
  header.key_bytes = key_bytes;
  header.value_bytes = value_bytes;
  return header;
}

std::string hello_of(int rank, int size) {
  return frame(header_of(tcp_operation::hello, 0, detail::tcp_hello::bytes),
               detail::tcp_hello{rank, size, 1, 2}.encode());
}

bool is_dropped(std::uint16_t port, const std::string& bytes) {
  loopback_socket stranger;
  if (!stranger.connect_to(port)) return false;
  stranger.send(bytes);
  return stranger.is_closed_by_peer();
}

/// A rank that shares the server with strangers and looks whether it still works.
void check_still_serves(tcp_store& store) {
  store.set("key", "value");
  CHECK(store.get("key", far()) == "value");
}

}  // namespace

TEST_CASE("strangers are dropped and the ranks are served") {
  tcp_store_server server(1);
  tcp_store store(here, server.port(), 0, 1, apart());
  constexpr std::uint32_t huge = 0xffffffffU;
  detail::tcp_request_header wrong_magic = header_of(tcp_operation::hello, 0, 24);
  wrong_magic.magic = 0;
  for (const std::string& bytes : {
           std::string("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
           std::string(1000, '\0'),
           std::string(1000, '\xff'),
           frame(wrong_magic),
           // Lengths that would take gigabytes.
           frame(header_of(tcp_operation::hello, huge, huge)),
           frame(header_of(tcp_operation::hello, 0, huge)),
           frame(header_of(tcp_operation::hello, huge, 24)),
           // Requests without a hello.
           frame(header_of(tcp_operation::get, 3, 0), "key"),
           frame(header_of(tcp_operation::set, 3, 3), "keynew"),
           frame(header_of(static_cast<tcp_operation>(0), 0, 24), std::string(24, 'x')),
           frame(header_of(static_cast<tcp_operation>(99), 0, 24), std::string(24, 'x')),
       }) {
    CAPTURE(bytes);
    CHECK(is_dropped(server.port(), bytes));
    check_still_serves(store);
  }
}

TEST_CASE("a peer that joined and then breaks the protocol is dropped") {
  constexpr std::uint32_t too_long = store_limits::value_bytes + 1;
  for (const std::string& bytes : {
           hello_of(0, 1),
           frame(header_of(tcp_operation::set, 3, too_long)),
           frame(header_of(tcp_operation::set, store_limits::key_bytes + 1, 0)),
           frame(header_of(static_cast<tcp_operation>(7), 0, 0)),
           std::string("garbage garbage garbage garbage"),
       }) {
    CAPTURE(bytes);
    tcp_store_server server(1);
    CHECK(is_dropped(server.port(), hello_of(0, 1) + bytes));
  }
}

TEST_CASE("a peer that talks while its request waits is dropped") {
  tcp_store_server server(1);
  auto get = header_of(tcp_operation::get, 3, 0);
  get.wait_milliseconds = 1'000'000'000;
  CHECK(is_dropped(server.port(), hello_of(0, 1) + frame(get, "key") + "more"));
}

TEST_CASE("another version of the protocol is told so") {
  tcp_store_server server(1);
  auto header = header_of(tcp_operation::hello, 0, detail::tcp_hello::bytes);
  header.version = 99;
  loopback_socket peer;
  REQUIRE(peer.connect_to(server.port()));
  peer.send(frame(header, detail::tcp_hello{0, 1, 1, 2}.encode()));
  std::string answer(300, '\0');
  const auto count = ::recv(peer.descriptor(), answer.data(), answer.size(), 0);
  REQUIRE(count > 12);
  answer.resize(static_cast<std::size_t>(count));
  CHECK(answer.find("the store speaks version 1 of its protocol, this rank version 99") !=
        std::string::npos);
}

TEST_CASE("random bytes neither stop the server nor reach a value") {
  const auto seed = std::random_device{}();
  INFO("seed " << seed);
  CAPTURE(seed);
  std::mt19937 random(seed);
  tcp_store_server server(2);
  std::unique_ptr<tcp_store> ranks[2];
  REQUIRE(failures_of(on_ranks(2, [&](int rank) {
            ranks[rank] = std::make_unique<tcp_store>(here, server.port(), rank, 2, apart());
          })).empty());
  for (int i = 0; i < 300; ++i) {
    std::string bytes = hello_of(static_cast<int>(random() % 3), 2);
    bytes +=
        frame(header_of(static_cast<tcp_operation>(random() % 8), random() % 64, random() % 64),
              std::string(random() % 128, 'x'));
    for (unsigned flips = random() % 4; flips > 0; --flips) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    bytes.resize(random() % (bytes.size() + 1));
    loopback_socket stranger;
    REQUIRE(stranger.connect_to(server.port()));
    stranger.send(bytes);
  }
  check_still_serves(*ranks[0]);
  CHECK(ranks[1]->get("key", far()) == "value");
}

TEST_CASE("more strangers than the server takes are closed, and ranks still get through") {
  tcp_store_server server(1);
  tcp_store store(here, server.port(), 0, 1, apart());
  std::vector<loopback_socket> strangers(100);
  for (auto& stranger : strangers) REQUIRE(stranger.connect_to(server.port()));
  CHECK(strangers.back().is_closed_by_peer());
  check_still_serves(store);
}

TEST_CASE("R12 another program at the port is an error that says so") {
  loopback_socket other;
  const std::uint16_t port = other.listen();
  const std::string greeting = "SSH-2.0-another program answers at this port\r\n";
  std::thread serving([&] {
    const int peer = ::accept(other.descriptor(), nullptr, nullptr);
    (void)!::send(peer, greeting.data(), greeting.size(), MSG_NOSIGNAL);
    // Closed only after the peer has read: a reset could overtake the greeting.
    char buffer[256];
    while (::recv(peer, buffer, sizeof buffer, 0) > 0) {
    }
    ::close(peer);
  });
  const auto result = result_of([&] { tcp_store store(here, port, 1, 2, apart(5s)); });
  serving.join();
  CAPTURE(result.text);
  CHECK(result.kind == store_outcome::rendezvous);
  CHECK(result.says("what answers there is no store of zero: another program uses the port"));
}

TEST_CASE("R12 a program that closes every connection is tried until the deadline") {
  loopback_socket other;
  const std::uint16_t port = other.listen();
  std::thread serving([&] {
    for (;;) {
      const int peer = ::accept(other.descriptor(), nullptr, nullptr);
      if (peer < 0) return;
      ::close(peer);
    }
  });
  const auto result = result_of([&] { tcp_store store(here, port, 1, 2, apart(300ms)); });
  ::shutdown(other.descriptor(), SHUT_RDWR);
  serving.join();
  CAPTURE(result.text);
  CHECK(result.kind == store_outcome::timeout);
}
