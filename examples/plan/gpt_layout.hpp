// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include <zero/layout.hpp>

namespace planning {

/// Sizes of a GPT as the GPT programs know it: learned positions, layer norms and linear layers
/// with bias, four times the width inside a block, the head tied to the token embedding.
struct gpt_sizes {
  std::uint64_t layers = 0;
  std::uint64_t width = 0;
  std::uint64_t vocabulary = 0;
  std::uint64_t context = 0;
};

/// Parses LAYERS,WIDTH,VOCAB,CONTEXT. Throws: example::usage_failure.
gpt_sizes parse_gpt(std::string_view text);

/// Units embedding, block0 .., final, head. The head is a unit with one tied tensor, because a
/// layout file says by ties which units are used again; it stores nothing.
/// Throws: zero::usage_error when sizes leave 64 bits.
zero::model_layout make_gpt_layout(const gpt_sizes& sizes, zero::layout_options options = {});

}  // namespace planning
