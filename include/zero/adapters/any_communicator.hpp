// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <zero/communicator.hpp>
#include <zero/detail/any_work.hpp>
#include <zero/detail/collective_checks.hpp>
#include <zero/detail/decorator.hpp>
#include <zero/detail/communicator_queries.hpp>
#include <zero/error.hpp>
#include <zero/numeric/element_traits.hpp>
#include <zero/range.hpp>

namespace zero {

namespace detail {

/// The element types that pass through a virtual call, as their wire ids.
template <class T>
concept ErasableElement =
    std::same_as<T, float> || std::same_as<T, double> || std::same_as<T, bfloat16> ||
    std::same_as<T, float16> || std::same_as<T, std::uint16_t> || std::same_as<T, std::uint64_t>;

/// A range without its element type.
struct erased_range {
  void* data;
  std::uint64_t size;
  std::uint64_t padding;
  std::uint32_t wire_id;

  template <class T, class Role>
  static erased_range of(range<T, Role> typed) noexcept {
    // const comes back in as(): the roles that are inputs are read as const there.
    using element = std::remove_const_t<T>;
    return {const_cast<element*>(typed.data()), typed.size(), typed.padding(),
            element_traits<element>::wire_id};
  }

  template <class T, class Role>
  range<T, Role> as() const noexcept {
    return {static_cast<T*>(data), size, padding};
  }
};

class any_communicator_interface {
 public:
  virtual ~any_communicator_interface() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string_view inner_name() const = 0;
  virtual void abort(std::string_view reason) noexcept = 0;
  virtual bool claim() noexcept = 0;
  virtual void unclaim() noexcept = 0;
  virtual int replicas() const = 0;
  virtual int replica() const = 0;
  virtual bool rounds_before_crossing() const = 0;
  virtual void lend_scratch(std::span<std::byte> scratch) noexcept = 0;
  virtual any_work reduce_scatter(erased_range in, erased_range out, reduce_options options) = 0;
  virtual any_work all_gather(erased_range in, erased_range out) = 0;
  virtual any_work all_reduce(range<double, full> values) = 0;
  virtual any_work broadcast(erased_range values, int root) = 0;
  virtual std::unique_ptr<any_communicator_interface> split(int color) = 0;
};

/// Calls `use` with a value whose type says which element the wire id stands for.
template <class Use>
any_work with_element(std::uint32_t wire_id, Use use) {
  switch (wire_id) {
    case element_traits<float>::wire_id:
      return use(std::type_identity<float>{});
    case element_traits<double>::wire_id:
      return use(std::type_identity<double>{});
    case element_traits<bfloat16>::wire_id:
      return use(std::type_identity<bfloat16>{});
    case element_traits<float16>::wire_id:
      return use(std::type_identity<float16>{});
    case element_traits<std::uint16_t>::wire_id:
      return use(std::type_identity<std::uint16_t>{});
    default:
      return use(std::type_identity<std::uint64_t>{});
  }
}

template <HasTopology C>
class any_communicator_model final : public any_communicator_interface {
  static_assert(std::is_same_v<typename C::memory_space, host_space>,
                "zero::any_communicator: a host communicator is needed");
  static_assert(C::sums == summation::rank_tree,
                "zero::any_communicator: the communicator has to sum in rank_tree order");
  static_assert(CanAllReduce<C>,
                "zero::any_communicator: the communicator lacks all_reduce(range<double, full>, "
                "queue)");

 public:
  explicit any_communicator_model(C& inner) noexcept : inner_(&inner) {}
  explicit any_communicator_model(std::unique_ptr<C> inner) noexcept
      : owned_(std::move(inner)), inner_(owned_.get()) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view inner_name() const override { return C::backend_name(); }
  void abort(std::string_view reason) noexcept override { inner_->abort(reason); }
  bool claim() noexcept override { return inner_->claim(); }
  void unclaim() noexcept override { inner_->unclaim(); }
  int replicas() const override { return replicas_of(*inner_); }
  int replica() const override { return replica_of(*inner_); }
  bool rounds_before_crossing() const override { return !crosses_unrounded(*inner_); }
  void lend_scratch(std::span<std::byte> scratch) noexcept override {
    detail::lend_scratch(*inner_, scratch);
  }

  any_work reduce_scatter(erased_range in, erased_range out, reduce_options options) override {
    return with_element(in.wire_id, [&]<class T>(std::type_identity<T>) -> any_work {
      if constexpr (SummableElement<T>) {
        if (out.wire_id == in.wire_id) return sum<T, T>(in, out, options);
        return sum<T, typename element_traits<T>::compute_type>(in, out, options);
      } else {
        refuse("reduce_scatter", element_traits<T>::name);
      }
    });
  }

  any_work all_gather(erased_range in, erased_range out) override {
    return with_element(in.wire_id,
                        [&]<class T>(std::type_identity<T>) { return gather<T>(in, out); });
  }

  any_work all_reduce(range<double, full> values) override {
    return any_work(inner_->all_reduce(values, {}));
  }

  any_work broadcast(erased_range values, int root) override {
    return with_element(values.wire_id,
                        [&]<class T>(std::type_identity<T>) { return send<T>(values, root); });
  }

  std::unique_ptr<any_communicator_interface> split(int color) override {
    if constexpr (CanSplit<C>) {
      using part = any_communicator_model<split_of<C>>;
      return std::make_unique<part>(split_to_heap(*inner_, color));
    } else {
      refuse("split", "any color");
    }
  }

 private:
  template <class T, class U>
  any_work sum(erased_range in, erased_range out, reduce_options options) {
    if constexpr (CanReduceScatter<C, T, U>) {
      return any_work(
          inner_->reduce_scatter(in.as<const T, partial>(), out.as<U, shard>(), options, {}));
    } else {
      refuse("reduce_scatter", element_traits<T>::name);
    }
  }

  template <class T>
  any_work gather(erased_range in, erased_range out) {
    if constexpr (CanAllGather<C, T>) {
      return any_work(inner_->all_gather(in.as<const T, shard>(), out.as<T, full>(), {}));
    } else {
      refuse("all_gather", element_traits<T>::name);
    }
  }

  template <class T>
  any_work send(erased_range values, int root) {
    if constexpr (CanBroadcast<C, T>) {
      return any_work(inner_->broadcast(values.as<T, full>(), root, {}));
    } else {
      refuse("broadcast", element_traits<T>::name);
    }
  }

  [[noreturn]] void refuse(std::string_view operation, std::string_view what) const {
    throw_misuse(C::backend_name(), rank(), operation,
                 "this backend cannot do it for " + std::string(what));
  }

  std::unique_ptr<C> owned_;
  C* inner_;
};

}  // namespace detail

/// A host communicator whose type is chosen at run time.
///
/// Each collective is one virtual call; ranges, counts and results are those of the inner
/// communicator, bit for bit. Made from a reference it borrows, made from a unique_ptr it owns.
/// An operation that the inner type lacks throws usage_error.
class any_communicator {
 public:
  using memory_space = host_space;
  using queue = host_queue;
  using work = detail::any_work;

  static constexpr summation sums = summation::rank_tree;
  static constexpr std::string_view backend_name() noexcept { return "any"; }

  template <HasTopology C>
  requires(!std::same_as<C, any_communicator>) explicit any_communicator(C& inner)
      : model_(std::make_unique<detail::any_communicator_model<C>>(inner)) {}
  template <HasTopology C>
  explicit any_communicator(std::unique_ptr<C> inner)
      : model_(std::make_unique<detail::any_communicator_model<C>>(std::move(inner))) {}

  any_communicator(any_communicator&&) noexcept = default;
  any_communicator& operator=(any_communicator&&) noexcept = default;

  int rank() const noexcept { return model_->rank(); }
  int size() const noexcept { return model_->size(); }
  /// The name of the backend behind the virtual call.
  std::string_view inner_name() const noexcept { return model_->inner_name(); }

  void abort(std::string_view reason) noexcept { model_->abort(reason); }
  bool claim() noexcept { return model_->claim(); }
  void unclaim() noexcept { model_->unclaim(); }

  // Those of a hybrid inside; otherwise there is one group, and scratch is not needed.
  int replicas() const noexcept { return model_->replicas(); }
  int replica() const noexcept { return model_->replica(); }
  bool rounds_before_crossing() const noexcept { return model_->rounds_before_crossing(); }
  void lend_scratch(std::span<std::byte> scratch) noexcept { model_->lend_scratch(scratch); }

  template <detail::ErasableElement T, detail::SumOutputOf<T> U>
  work reduce_scatter(range<const T, partial> in, range<U, shard> out, reduce_options options = {},
                      queue = {}) {
    return model_->reduce_scatter(detail::erased_range::of(in), detail::erased_range::of(out),
                                  options);
  }

  template <detail::ErasableElement T>
  work all_gather(range<const T, shard> in, range<T, full> out, queue = {}) {
    return model_->all_gather(detail::erased_range::of(in), detail::erased_range::of(out));
  }

  work all_reduce(range<double, full> values, queue = {}) { return model_->all_reduce(values); }

  template <detail::ErasableElement T>
  work broadcast(range<T, full> values, int root, queue = {}) {
    return model_->broadcast(detail::erased_range::of(values), root);
  }

  any_communicator split(int color) { return any_communicator(model_->split(color)); }

 private:
  explicit any_communicator(std::unique_ptr<detail::any_communicator_interface> model) noexcept
      : model_(std::move(model)) {}

  std::unique_ptr<detail::any_communicator_interface> model_;
};

static_assert(Communicator<any_communicator, float> && CanSplit<any_communicator>);
static_assert(Communicator<any_communicator, bfloat16>);
static_assert(CanReduceScatter<any_communicator, float16, float>);
static_assert(CanAllGather<any_communicator, std::uint16_t>);

}  // namespace zero
