// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include <gloo/rendezvous/context.h>

namespace gloo::transport::tcp {

struct attr {
  std::string hostname;
  std::string iface;
};

std::shared_ptr<::gloo::transport::Device> CreateDevice(const struct attr& attributes);

}  // namespace gloo::transport::tcp
