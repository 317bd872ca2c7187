// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <zero/rendezvous/error.hpp>
#include <zero/rendezvous/host.hpp>
#include <zero/rendezvous/store.hpp>

namespace zero {

/// One address of a network interface that is up; an interface with several appears several times.
struct network_interface {
  std::string name;     ///< "eth0"
  std::string address;  ///< as a number, e.g. "10.0.0.3"
  bool is_ipv6 = false;

  bool operator==(const network_interface&) const = default;
};

/// Whether only processes of the same host reach the address.
inline bool is_loopback_address(std::string_view address) noexcept {
  return address.starts_with("127.") || address == "::1";
}

namespace detail {

inline std::string address_text(const sockaddr* address) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const void* bytes = nullptr;
  if (address->sa_family == AF_INET) {
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  } else if (address->sa_family == AF_INET6) {
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  }
  if (bytes == nullptr ||
      ::inet_ntop(address->sa_family, bytes, text.data(), text.size()) == nullptr) {
    return {};
  }
  return text.data();
}

/// Valid on one link only, and meaningless without the link's name.
inline bool is_link_local(const sockaddr* address) noexcept {
  return address->sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
}

inline std::vector<std::string_view> split_at_commas(std::string_view text) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const auto comma = text.find(',');
    if (comma != 0) parts.push_back(text.substr(0, comma));
    text = comma == std::string_view::npos ? std::string_view{} : text.substr(comma + 1);
  }
  return parts;
}

[[noreturn]] inline void throw_no_interface(const std::string& reason,
                                            std::span<const network_interface> all) {
  short_list list;
  for (const auto& one : all) list.add(one.name + ' ' + one.address);
  throw rendezvous_error(reason + "; this host has " + (all.empty() ? "none" : list.text()),
                         {"network interfaces of " + host_name(), "", 0});
}

/// Lower is likelier to be reached by other hosts: bridges of containers and virtual machines carry
/// the same addresses on every host.
inline int reach_order(const network_interface& one) {
  if (is_loopback_address(one.address)) return 4;
  const std::string_view name = one.name;
  const bool is_bridge = name.starts_with("docker") || name.starts_with("virbr") ||
                         name.starts_with("br-") || name.starts_with("cni") ||
                         name.starts_with("lxc") || name.starts_with("podman");
  return (is_bridge ? 2 : 0) + (one.is_ipv6 ? 1 : 0);
}

}  // namespace detail

/// The addresses of this host that a peer could be given. Throws: rendezvous_error.
inline std::vector<network_interface> network_interfaces() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) {
    throw rendezvous_error("cannot list them: " + std::generic_category().message(errno),
                           {"network interfaces of " + host_name(), "", 0});
  }
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, &::freeifaddrs);
  std::vector<network_interface> all;
  for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
    constexpr unsigned needed = IFF_UP | IFF_RUNNING;
    if (at->ifa_addr == nullptr || (at->ifa_flags & needed) != needed) continue;
    std::string text = detail::address_text(at->ifa_addr);
    if (text.empty() || detail::is_link_local(at->ifa_addr)) continue;
    all.push_back({at->ifa_name, std::move(text), at->ifa_addr->sa_family == AF_INET6});
  }
  return all;
}

/// The address that this host's packets to `host` would carry as their sender, empty if it has no
/// way there. Nothing is sent. A peer that `host` names has a way back to it.
inline std::string address_toward(const std::string& host) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(host.c_str(), "9", &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, &::freeaddrinfo);
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int descriptor = ::socket(at->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (descriptor < 0) continue;
    sockaddr_storage own{};
    socklen_t length = sizeof own;
    auto* const own_address = reinterpret_cast<sockaddr*>(&own);
    std::string text;
    if (::connect(descriptor, at->ai_addr, at->ai_addrlen) == 0 &&
        ::getsockname(descriptor, own_address, &length) == 0 &&
        !detail::is_link_local(own_address)) {
      text = detail::address_text(own_address);
    }
    ::close(descriptor);
    // Many systems give their own name the address 127.0.1.1, which is no answer for other hosts.
    const bool loopback_was_meant = is_loopback_address(host) || host == "localhost";
    if (!text.empty() && (!is_loopback_address(text) || loopback_was_meant)) return text;
  }
  return {};
}

/// Chooses the interface whose address this process gives to its peers.
///
/// `choice` is empty, or an address of this host, or names in order of preference ("eth0,eth1",
/// compared whole), or a list of what not to take, compared from the start as NCCL does
/// ("^lo,docker"; "^=docker0" compares whole). `toward` is an address of this host from
/// address_toward(rank 0), or empty; it decides where `choice` leaves it open and allows it.
/// Throws: rendezvous_error that lists what there is.
inline network_interface choose_interface(std::span<const network_interface> all,
                                          std::string_view choice = {},
                                          std::string_view toward = {}) {
  for (const auto& one : all) {
    if (one.address == choice) return one;
  }
  const bool excludes = choice.starts_with('^');
  std::string_view list = choice.substr(excludes ? 1 : 0);
  const bool whole = list.starts_with('=') || !excludes;
  if (list.starts_with('=')) list.remove_prefix(1);
  const auto names = detail::split_at_commas(list);
  if (!choice.empty() && names.empty()) {
    detail::throw_no_interface("the choice '" + std::string(choice) + "' has no name in it", all);
  }

  std::vector<network_interface> allowed;
  if (choice.empty() || excludes) {
    for (const auto& one : all) {
      const bool is_excluded = std::any_of(names.begin(), names.end(), [&](std::string_view name) {
        return whole ? one.name == name : std::string_view(one.name).starts_with(name);
      });
      if (!is_excluded) allowed.push_back(one);
    }
  } else {
    for (const std::string_view name : names) {
      std::copy_if(all.begin(), all.end(), std::back_inserter(allowed),
                   [&](const auto& one) { return one.name == name; });
      if (!allowed.empty()) break;
    }
  }
  if (allowed.empty()) {
    detail::throw_no_interface("none matches '" + std::string(choice) + '\'', all);
  }
  for (const auto& one : allowed) {
    if (!toward.empty() && one.address == toward) return one;
  }
  return *std::min_element(allowed.begin(), allowed.end(), [](const auto& a, const auto& b) {
    return detail::reach_order(a) < detail::reach_order(b);
  });
}

/// Where a rank runs and at which address it is reached.
struct rank_place {
  std::string host;  ///< see host_id()
  std::string address;
};

/// Tells every rank where all of them are, in rank order.
///
/// Ranks of one host have equal `host`, whatever a launcher claims.
/// Collective: all ranks, once per store (or prefix). Throws: rendezvous_error, on all ranks, where
/// a rank would be reached at a loopback address although others run elsewhere.
template <Store S>
std::vector<rank_place> exchange_places(S& store, int rank, int size, const std::string& address,
                                        store_deadline deadline,
                                        const std::string& host = host_id()) {
  const auto key = [](int of) { return "place/" + std::to_string(of); };
  store.set(key(rank), host + ' ' + address + '\n');
  std::string text;
  if (rank == 0) {
    for (int peer = 0; peer < size; ++peer) text += store.get(key(peer), deadline);
    store.set("places", text);
  } else {
    text = store.get("places", deadline);
  }
  std::vector<rank_place> places;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto space = text.find(' ', begin);
    const auto end = text.find('\n', begin);
    if (end == std::string::npos || space > end) break;
    places.push_back({text.substr(begin, space - begin), text.substr(space + 1, end - space - 1)});
    begin = end + 1;
  }
  if (places.size() != static_cast<std::size_t>(size)) {
    throw rendezvous_error("rank 0 published " + std::to_string(places.size()) + " places for " +
                               std::to_string(size) + " ranks",
                           {store.place(), "places", 0});
  }
  for (std::size_t one = 0; one < places.size(); ++one) {
    if (!is_loopback_address(places[one].address)) continue;
    for (std::size_t other = 0; other < places.size(); ++other) {
      if (places[other].host == places[one].host) continue;
      throw rendezvous_error(
          "rank " + std::to_string(one) + " on " + places[one].host +
              " gives its peers the address " + places[one].address + ", which rank " +
              std::to_string(other) + " on " + places[other].host +
              " cannot reach: set the option 'interface' to a network interface or an address of "
              "that host which the others reach, e.g. eth0",
          {store.place(), "", 0});
    }
  }
  return places;
}

}  // namespace zero
