// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace gloo {

class IStore {
 public:
  virtual ~IStore();
  virtual void set(const std::string& key, const std::vector<char>& data) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
};

namespace rendezvous {

class Store : public IStore {
 public:
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout);
  virtual bool has_v2_support();
  virtual std::int64_t add(const std::string& key, std::int64_t value);
};

}  // namespace rendezvous
}  // namespace gloo
