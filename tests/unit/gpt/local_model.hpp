// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "model.hpp"
#include "units.hpp"

namespace gpt_test {

/// A whole model in plain vectors, without any engine: what the tests of the model run on.
template <class Real>
class local_model {
 public:
  local_model(const gpt::configuration& model, std::uint64_t batch, std::uint64_t length,
              std::uint64_t seed)
      : units(gpt::describe_units(model)), state(model, batch, length) {
    for (const gpt::unit_description& unit : units) {
      for (const gpt::tensor_description& tensor : unit.tensors) {
        const std::uint64_t key = gpt::tensor_key(unit.name, tensor.name);
        std::vector<Real> values(tensor.elements());
        for (std::uint64_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<Real>(gpt::initial_value(model, tensor.start, key, i, seed));
        }
        gradients.emplace_back(values.size());
        parameters.push_back(std::move(values));
      }
    }
  }

  double forward(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> targets) {
    gpt::embedding_forward<Real>(embedding(), tokens, state);
    for (std::uint64_t block = 0; block < layers(); ++block) {
      gpt::block_forward<Real>(block, block_parameters(block), state);
    }
    gpt::final_forward<Real>(final_parameters(), state);
    return gpt::head_forward<Real>(embedding(), targets, state);
  }

  /// Adds to the gradients.
  void backward(std::span<const std::uint8_t> tokens, std::span<const std::uint8_t> targets,
                Real loss_scale = 1) {
    const auto embedding_gradients = gpt::embedding_from<Real*>(pointers(gradients, 0));
    gpt::head_backward<Real>(embedding(), embedding_gradients, targets, loss_scale, state);
    gpt::final_backward<Real>(final_parameters(),
                              gpt::final_from<Real*>(pointers(gradients, units.size() - 1)),
                              state);
    for (std::uint64_t block = layers(); block-- > 0;) {
      gpt::block_backward<Real>(block, block_parameters(block),
                                gpt::block_from<Real*>(pointers(gradients, block + 1)), state);
    }
    gpt::embedding_backward<Real>(embedding_gradients, tokens, state);
  }

  void zero_gradients() {
    for (std::vector<Real>& gradient : gradients) {
      gradient.assign(gradient.size(), Real{0});
    }
  }

  gpt::embedding_tensors<const Real*> embedding() {
    return gpt::embedding_from<const Real*>(constant(pointers(parameters, 0)));
  }
  gpt::block_tensors<const Real*> block_parameters(std::uint64_t block) {
    return gpt::block_from<const Real*>(constant(pointers(parameters, block + 1)));
  }
  gpt::final_tensors<const Real*> final_parameters() {
    return gpt::final_from<const Real*>(constant(pointers(parameters, units.size() - 1)));
  }

  std::uint64_t layers() const { return units.size() - 2; }

  std::vector<gpt::unit_description> units;
  gpt::activations<Real> state;
  std::vector<std::vector<Real>> parameters;  // unit after unit, tensor after tensor
  std::vector<std::vector<Real>> gradients;

 private:
  std::vector<Real*> pointers(std::vector<std::vector<Real>>& values, std::uint64_t unit) const {
    std::uint64_t first = 0;
    for (std::uint64_t i = 0; i < unit; ++i) {
      first += units[i].tensors.size();
    }
    std::vector<Real*> result;
    for (std::uint64_t i = 0; i < units[unit].tensors.size(); ++i) {
      result.push_back(values[first + i].data());
    }
    return result;
  }

  static std::vector<const Real*> constant(const std::vector<Real*>& values) {
    return {values.begin(), values.end()};
  }
};

/// AdamW in its plain form, for one process.
template <class Real>
class plain_adamw {
 public:
  explicit plain_adamw(const local_model<Real>& model, double weight_decay = 0)
      : weight_decay_(weight_decay) {
    for (const std::vector<Real>& tensor : model.parameters) {
      m_.emplace_back(tensor.size());
      v_.emplace_back(tensor.size());
    }
    for (const gpt::unit_description& unit : model.units) {
      for (const gpt::tensor_description& tensor : unit.tensors) {
        decays_.push_back(tensor.decays);
      }
    }
  }

  void step(local_model<Real>& model, double lr) {
    constexpr double beta1 = 0.9;
    constexpr double beta2 = 0.99;
    ++steps_;
    const Real scale = static_cast<Real>(lr / (1 - std::pow(beta1, steps_)));
    const Real correction = static_cast<Real>(1 / (1 - std::pow(beta2, steps_)));
    for (std::size_t t = 0; t < model.parameters.size(); ++t) {
      const Real shrink = static_cast<Real>(decays_[t] ? lr * weight_decay_ : 0.0);
      for (std::size_t i = 0; i < model.parameters[t].size(); ++i) {
        const Real gradient = model.gradients[t][i];
        Real& m = m_[t][i];
        Real& v = v_[t][i];
        m += static_cast<Real>(1 - beta1) * (gradient - m);
        v += static_cast<Real>(1 - beta2) * (gradient * gradient - v);
        Real& parameter = model.parameters[t][i];
        parameter -= scale * m / (std::sqrt(v * correction) + static_cast<Real>(1e-8)) +
                     shrink * parameter;
      }
    }
  }

 private:
  double weight_decay_;
  int steps_ = 0;
  std::vector<std::vector<Real>> m_, v_;
  std::vector<bool> decays_;
};

}  // namespace gpt_test
