// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>

#include <gloo/rendezvous/store.h>
#include <gloo/transport/unbound_buffer.h>

namespace gloo {

namespace transport {

class Device {
 public:
  virtual ~Device();
};

class Pair {
 public:
  virtual ~Pair();
  virtual void close() = 0;
};

}  // namespace transport

class Context {
 public:
  Context(int rank, int size, int base = 2);
  ~Context();

  const int rank;
  const int size;

  std::unique_ptr<transport::Pair>& getPair(int rank);
  std::unique_ptr<transport::UnboundBuffer> createUnboundBuffer(void* data, std::size_t bytes);
  void closeConnections();
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {

class Context : public ::gloo::Context {
 public:
  Context(int rank, int size, int base = 2);

  /// The store is shared; until 2025-04 it was taken by reference.
  void connectFullMesh(std::shared_ptr<Store> store, std::shared_ptr<transport::Device>& device);
};

}  // namespace rendezvous
}  // namespace gloo
