// SPDX-License-Identifier: Apache-2.0
// The Gloo backend against the declarations beside this file; tests/unit/backends/gloo_upstream.py
// compiles it.

#include <zero/backends/gloo.hpp>
#include <zero/rendezvous/memory_store.hpp>

namespace {

template <class Context, class Store, class Device>
constexpr bool takes_a_reference = requires(Context& context, Store& store,
                                            std::shared_ptr<Device>& device) {
  context.connectFullMesh(store, device);
};
static_assert(
    !takes_a_reference<gloo::rendezvous::Context, gloo::rendezvous::Store, gloo::transport::Device>,
    "the installed Gloo was found instead");

}  // namespace

template class zero::basic_gloo_communicator<zero::gloo_algorithm::direct>;
template class zero::basic_gloo_communicator<zero::gloo_algorithm::ring>;

int main() {
  zero::memory_store store;
  zero::gloo_communicator communicator(store, 0, 2);
  double value = 1;
  communicator.all_reduce(zero::range<double, zero::full>(&value, 1));
}
