// SPDX-License-Identifier: Apache-2.0
// fp16 with a dynamic loss scale: an overflow on one rank makes every rank skip the step with no
// state changed, the scale halves, and after a window of finite steps it doubles again. The fp32
// master keeps updates that are too small for the fp16 parameter.

#include <zero/zero.hpp>

#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

namespace {

constexpr std::uint64_t elements = 10;

struct step_line {
  zero::step_report report;
  float parameter = 0;  ///< as stored, in fp16
  float master = 0;     ///< what the optimizer updates
};

std::vector<step_line> train(zero::threads_communicator& ranks) {
  zero::model_layout layout;
  const auto unit = layout.add_unit("layer");
  const auto tensor = layout.add_tensor(unit, "weight", {elements});
  zero::engine<zero::stage2, zero::fp16_mixed, zero::threads_communicator, zero::sgd> engine(
      ranks, layout, zero::sgd{.momentum = 0}, {.loss_scale = {.initial = 65536, .window = 3}});
  engine.initialize([](const zero::tensor_info&, std::uint64_t, std::span<float> values) {
    for (float& value : values) value = 1;
  });

  std::vector<step_line> lines;
  for (int step = 0; step < 8; ++step) {
    auto pass = engine.train();
    pass.forward(unit).parameters(tensor);
    {
      // The loss of rank 1 has the gradient 4, the others' is 0. What is written is the gradient
      // of loss x loss_scale; 4 x 16384 does not fit into fp16 any more.
      const auto opened = pass.backward(unit);
      const float gradient = ranks.rank() == 1 ? 4.0F : 0.0F;
      opened.add(tensor, std::vector<float>(elements, gradient * pass.loss_scale()));
    }
    pass.end();
    step_line line{engine.step({.lr = 1e-4}).get()};
    std::vector<zero::float16> stored(elements);
    std::vector<float> masters(elements);
    engine.export_parameters(tensor, stored);
    engine.export_tensor(tensor, masters);
    line.parameter = static_cast<float>(stored.back());
    line.master = masters.back();
    lines.push_back(line);
  }
  return lines;
}

}  // namespace

int main() {
  const auto ranks = zero::run_threads(2, train);
  std::string taken;
  bool passed = true;
  float before = 1;
  for (std::size_t i = 0; i < ranks[0].size(); ++i) {
    const step_line& line = ranks[0][i];
    const zero::step_report& report = line.report;
    std::printf("scale %6.0f  %s  norm %8.5f  fp16 parameter %.7f  master %.7f\n",
                report.loss_scale, report.skipped ? "skipped" : "taken  ", report.grad_norm,
                static_cast<double>(line.parameter), static_cast<double>(line.master));
    taken += report.skipped ? 's' : 't';
    // Both ranks came to the same verdict, though only rank 1 overflowed.
    passed = passed && ranks[1][i].report.skipped == report.skipped;
    // A skipped step changes nothing; a taken one sees the unscaled mean gradient, 2.
    passed = passed && (report.skipped ? line.master == before
                                       : report.grad_norm == 2 * std::sqrt(double{elements}));
    before = line.master;
  }
  // 4 x scale overflows at 65536, 32768 and 16384, fits at 8192, grows after three, overflows
  // again.
  passed = passed && taken == "ssstttst";
  // One step of 0.0002 is lost in fp16 (its spacing below 1 is 0.00049) and kept in the master.
  passed = passed && ranks[0][3].parameter == 1.0F && ranks[0][3].master < 1.0F;
  passed = passed && ranks[0].back().parameter < 1.0F;
  return passed ? 0 : 1;
}
