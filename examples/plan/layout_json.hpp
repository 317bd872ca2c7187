// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <zero/layout.hpp>

// Layout files: {"schema": "zero.layout/1", "units": [{"name", "tensors": [{"name", "shape",
// "trainable", "group", "tied_to"}]}]}. trainable defaults to true, group ("decay" or "no_decay")
// to "decay"; tied_to names an earlier tensor, null or nothing means an own one.
namespace planning {

/// Reads a layout file's text. `source` stands in front of complaints.
/// Throws: example::usage_failure, one line that says where and what, for anything but a valid
/// layout: unknown or repeated keys, wrong types, names taken twice, sizes beyond 64 bits.
zero::model_layout parse_layout(const std::string& text, const std::string& source,
                                zero::layout_options options = {});

/// Reads a layout file. Throws: as parse_layout; example::absent_failure when it cannot be opened.
zero::model_layout read_layout(const std::string& path, zero::layout_options options = {});

/// The layout as the text of a layout file. Groups other than decay and no_decay, and uses that do
/// not follow from ties, have no place there.
std::string layout_text(const zero::model_layout& layout);

}  // namespace planning
