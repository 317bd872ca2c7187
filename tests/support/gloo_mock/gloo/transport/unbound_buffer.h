// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

// Declarations with the signatures that Gloo has had since 2025-04, as far as zero uses them: what
// includes them is compiled, not run.

namespace gloo::transport {

class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
  virtual bool waitRecv(int* rank, std::chrono::milliseconds timeout) = 0;
  virtual bool waitSend(int* rank, std::chrono::milliseconds timeout) = 0;
  virtual void abortWaitRecv() = 0;
  virtual void abortWaitSend() = 0;
  virtual void send(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  virtual void recv(int rank, std::uint64_t slot, std::size_t offset, std::size_t bytes) = 0;
  virtual void recv(std::vector<int> ranks, std::uint64_t slot, std::size_t offset,
                    std::size_t bytes) = 0;
};

}  // namespace gloo::transport
