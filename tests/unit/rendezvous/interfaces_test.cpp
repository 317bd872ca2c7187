// SPDX-License-Identifier: Apache-2.0
// labels: multi_rank fault
#include <catch2/catch.hpp>

#include <algorithm>
#include <string>
#include <vector>

#include <zero/rendezvous/host.hpp>
#include <zero/rendezvous/interfaces.hpp>
#include <zero/rendezvous/memory_store.hpp>

#include "unit/rendezvous/store_contract.hpp"

using namespace zero;
using namespace zero::test;

namespace {

const std::vector<network_interface> typical{
    {"lo", "127.0.0.1", false},       {"docker0", "172.17.0.1", false}, {"eth0", "fd00::7", true},
    {"eth0", "10.0.0.7", false},      {"eth1", "192.168.1.7", false},   {"lo", "::1", true},
    {"docker-lan", "10.9.9.9", false}};

std::string chosen(const std::string& choice, const std::string& toward = "") {
  return choose_interface(typical, choice, toward).address;
}

}  // namespace

TEST_CASE("by default an address is chosen that other hosts reach") {
  CHECK(chosen("") == "10.0.0.7");
  const std::vector<network_interface> only_ipv6{typical[0], typical[1], typical[2]};
  CHECK(choose_interface(only_ipv6).address == "fd00::7");
  const std::vector<network_interface> only_bridge{typical[0], typical[1]};
  CHECK(choose_interface(only_bridge).address == "172.17.0.1");
  const std::vector<network_interface> alone{typical[0]};
  CHECK(choose_interface(alone).address == "127.0.0.1");
}

TEST_CASE("the way to rank 0 decides where the choice leaves it open") {
  CHECK(chosen("", "192.168.1.7") == "192.168.1.7");
  CHECK(chosen("", "127.0.0.1") == "127.0.0.1");
  CHECK(chosen("", "203.0.113.1") == "10.0.0.7");
  CHECK(chosen("eth0", "192.168.1.7") == "10.0.0.7");
  CHECK(chosen("^eth0", "192.168.1.7") == "192.168.1.7");
}

TEST_CASE("an interface is chosen by name, by address, or by what it is not") {
  CHECK(chosen("eth1") == "192.168.1.7");
  CHECK(chosen("eth9,eth1,eth0") == "192.168.1.7");
  CHECK(chosen("=eth1") == "192.168.1.7");
  CHECK(chosen("lo") == "127.0.0.1");
  CHECK(chosen("fd00::7") == "fd00::7");
  CHECK(chosen("172.17.0.1") == "172.17.0.1");
  CHECK(chosen("^lo,docker") == "10.0.0.7");
  CHECK(chosen("^lo,docker,eth0") == "192.168.1.7");
  CHECK(chosen("^lo,docker0,eth") == "10.9.9.9");
  CHECK(chosen("^=docker,lo,eth0,eth1,docker-lan") == "172.17.0.1");
}

TEST_CASE("a choice that fits nothing is an error that lists what there is") {
  for (const std::string choice : {"eth", "eth9", "10.0.0.8", "^lo,docker,eth", "^", ",", "="}) {
    CAPTURE(choice);
    const auto result = result_of([&] { chosen(choice); });
    CHECK(result.kind == store_outcome::rendezvous);
    CHECK(result.says('\'' + choice + '\''));
    CHECK(result.says("eth0 10.0.0.7"));
  }
  CHECK(result_of([&] { choose_interface({}); }).says("this host has none"));
}

TEST_CASE("this host has a loopback interface, and a way to itself") {
  const auto all = network_interfaces();
  CHECK(std::any_of(all.begin(), all.end(),
                    [](const auto& one) { return is_loopback_address(one.address); }));
  CHECK(address_toward("127.0.0.1") == "127.0.0.1");
  CHECK(is_loopback_address(address_toward("localhost")));
  CHECK(address_toward("no..name").empty());
  // Its own name may stand for 127.0.1.1, which is no address for others.
  CHECK_FALSE(is_loopback_address(address_toward(host_name())));
  CHECK(choose_interface(all, "127.0.0.1").address == "127.0.0.1");
}

TEST_CASE("an id of this host is one word and the same each time") {
  CHECK(host_id() == host_id());
  CHECK(host_id().find_first_of(" \n") == std::string::npos);
  CHECK(host_id().size() > 10);
}

TEST_CASE("ranks learn where all of them are") {
  for (const int size : {1, 2, 5}) {
    memory_store store;
    CHECK(failures_of(on_ranks(size, [&](int rank) {
            const std::string address = "10.0.0." + std::to_string(rank);
            const auto places = exchange_places(store, rank, size, address, far());
            for (int peer = 0; peer < size; ++peer) {
              const auto& place = places.at(static_cast<std::size_t>(peer));
              if (place.host != host_id() || place.address != "10.0.0." + std::to_string(peer)) {
                throw error("a place is wrong");
              }
            }
          })).empty());
  }
}

TEST_CASE("loopback addresses serve a world of one host and are refused for several") {
  for (const std::string loopback : {"127.0.0.1", "127.0.1.1", "::1"}) {
    CAPTURE(loopback);
    memory_store one_host;
    CHECK(failures_of(on_ranks(3, [&](int rank) {
            exchange_places(one_host, rank, 3, loopback, far());
          })).empty());
    memory_store two_hosts;
    const auto results = on_ranks(3, [&](int rank) {
      exchange_places(two_hosts, rank, 3, rank == 1 ? loopback : "10.0.0.1", far(),
                      rank == 2 ? "b" : "a");
    });
    for (const auto& result : results) {
      CAPTURE(result.text);
      CHECK(result.kind == store_outcome::rendezvous);
      CHECK(result.says("rank 1 on a gives its peers the address " + loopback +
                        ", which rank 2 on b cannot reach"));
      CHECK(result.says("set the option 'interface'"));
    }
  }
}
