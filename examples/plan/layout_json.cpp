// SPDX-License-Identifier: Apache-2.0
#include "layout_json.hpp"

#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "program.hpp"

namespace planning {
namespace {

using json = nlohmann::json;

constexpr const char* schema_name = "zero.layout/1";

/// Bytes of a file may stand in a complaint; what is no ASCII may not even be text.
std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

/// What nlohmann says, without its own name in front, on one line.
std::string reason_of(const std::exception& failure) {
  std::string text = failure.what();
  if (const std::size_t end = text.find("] "); text.starts_with("[") && end != std::string::npos) {
    text.erase(0, end + 2);
  }
  return printable(text);
}

/// A name from the file, fit for one line of a terminal.
std::string in_quotes(const std::string& name) {
  return "\"" + printable(name.substr(0, 60)) + (name.size() > 60 ? "..." : "") + "\"";
}

/// Walks the parsed file. Knows for each complaint where it is.
class layout_reader {
 public:
  layout_reader(std::string source, zero::layout_options options)
      : source_(std::move(source)), layout_(options) {}

  zero::model_layout read(const std::string& text) {
    const json root = parse(text);
    require_keys(root, "the file", {"schema", "units"}, {});
    const std::string schema = string_at(root, "schema", "schema");
    if (schema != schema_name) {
      fail("schema", in_quotes(schema) + " is not " + in_quotes(schema_name));
    }
    const json& units = array_at(root, "units", "units");
    for (std::size_t u = 0; u < units.size(); ++u) {
      read_unit(units[u], "units[" + std::to_string(u) + "]");
    }
    return std::move(layout_);
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& what) const {
    throw example::usage_failure(source_ + ": " + where + ": " + what);
  }

  /// What the layout itself refuses, with the place in the file.
  template <class Call>
  auto guarded(const std::string& where, Call call) const {
    try {
      return call();
    } catch (const zero::usage_error& failure) {
      fail(where, printable(failure.what()));
    }
  }

  /// A name that can stand in a table: control characters could do anything to a terminal.
  const std::string& name_at(const json& object, const std::string& where) const {
    const std::string& name = string_at(object, "name", where);
    for (const char c : name) {
      if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') {
        fail(where, in_quotes(name) + " contains a control character");
      }
    }
    return name;
  }

  /// Parses, and refuses keys that stand twice in an object, of which the library keeps the last.
  json parse(const std::string& text) const {
    std::vector<std::set<std::string>> open;
    std::optional<std::string> repeated;
    const auto watch = [&](int /*depth*/, json::parse_event_t event, json& value) {
      if (event == json::parse_event_t::object_start)
        open.emplace_back();
      if (event == json::parse_event_t::object_end)
        open.pop_back();
      if (event == json::parse_event_t::key) {
        const auto& key = value.get_ref<const std::string&>();
        if (!open.back().insert(key).second)
          repeated = key;
      }
      return true;
    };
    json root;
    try {
      root = json::parse(text, watch);
    } catch (const json::exception& failure) {
      throw example::usage_failure(source_ + ": not JSON: " + reason_of(failure));
    }
    if (repeated)
      fail("the file", "key " + in_quotes(*repeated) + " stands twice in one object");
    return root;
  }

  void require_keys(const json& object, const std::string& where,
                    std::initializer_list<const char*> required,
                    std::initializer_list<const char*> optional) const {
    if (!object.is_object())
      fail(where, std::string("an object is wanted, not ") + kind(object));
    for (const char* key : required) {
      if (!object.contains(key))
        fail(where, "key " + in_quotes(key) + " is missing");
    }
    for (const auto& item : object.items()) {
      bool known = false;
      for (const auto& keys : {required, optional}) {
        for (const char* key : keys)
          known = known || item.key() == key;
      }
      if (!known)
        fail(where, "unknown key " + in_quotes(item.key()));
    }
  }

  static const char* kind(const json& value) {
    return value.is_number_float() ? "a fraction" : value.type_name();
  }

  const std::string& string_at(const json& object, const char* key,
                               const std::string& where) const {
    const json& value = object[key];
    if (!value.is_string())
      fail(where, std::string("a string is wanted, not ") + kind(value));
    return value.get_ref<const std::string&>();
  }

  const json& array_at(const json& object, const char* key, const std::string& where) const {
    const json& value = object[key];
    if (!value.is_array())
      fail(where, std::string("an array is wanted, not ") + kind(value));
    return value;
  }

  void read_unit(const json& unit, const std::string& where) {
    require_keys(unit, where, {"name", "tensors"}, {});
    const std::string& name = name_at(unit, where + ".name");
    const zero::unit_id id = guarded(where, [&] { return layout_.add_unit(name); });
    const json& tensors = array_at(unit, "tensors", where + ".tensors");
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      read_tensor(id, tensors[t], where + ".tensors[" + std::to_string(t) + "]");
    }
  }

  void read_tensor(zero::unit_id unit, const json& tensor, const std::string& where) {
    require_keys(tensor, where, {"name", "shape"}, {"trainable", "group", "tied_to"});
    const std::string& name = name_at(tensor, where + ".name");
    if (name.empty())
      fail(where + ".name", "a tensor needs a name");
    const std::vector<std::uint64_t> shape = read_shape(tensor, where + ".shape");
    zero::tensor_options options;
    if (tensor.contains("trainable")) {
      const json& value = tensor["trainable"];
      if (!value.is_boolean()) {
        fail(where + ".trainable", std::string("true or false is wanted, not ") + kind(value));
      }
      options.trainable = value.get<bool>();
    }
    if (tensor.contains("tied_to") && !tensor["tied_to"].is_null()) {
      const std::string& owner = string_at(tensor, "tied_to", where + ".tied_to");
      const auto known = tensors_.find(owner);
      if (known == tensors_.end()) {
        fail(where + ".tied_to", "there is no earlier tensor " + in_quotes(owner));
      }
      options.tied_to = known->second;
    }
    const zero::group_id group = read_group(tensor, where + ".group");
    const zero::tensor_id id =
        guarded(where, [&] { return layout_.add_tensor(unit, name, shape, group, options); });
    tensors_.emplace(name, id);
  }

  std::vector<std::uint64_t> read_shape(const json& tensor, const std::string& where) const {
    std::vector<std::uint64_t> shape;
    const json& extents = array_at(tensor, "shape", where);
    for (std::size_t i = 0; i < extents.size(); ++i) {
      const json& extent = extents[i];
      const std::string here = where + "[" + std::to_string(i) + "]";
      if (!extent.is_number_unsigned()) {
        fail(here, extent.is_number() ? extent.dump() + " is not a whole number from 0 to 2^63 - 1"
                                      : std::string("a number is wanted, not ") + kind(extent));
      }
      shape.push_back(extent.get<std::uint64_t>());
    }
    return shape;
  }

  zero::group_id read_group(const json& tensor, const std::string& where) const {
    if (!tensor.contains("group"))
      return zero::decay;
    const std::string& name = string_at(tensor, "group", where);
    if (name == "decay")
      return zero::decay;
    if (name == "no_decay")
      return zero::no_decay;
    fail(where, in_quotes(name) + " is neither \"decay\" nor \"no_decay\"");
  }

  std::string source_;
  zero::model_layout layout_;
  std::map<std::string, zero::tensor_id> tensors_;
};

}  // namespace

zero::model_layout parse_layout(const std::string& text, const std::string& source,
                                zero::layout_options options) {
  return layout_reader(source, options).read(text);
}

zero::model_layout read_layout(const std::string& path, zero::layout_options options) {
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  bool is_readable = file.is_open();
  std::string text;
  try {
    if (is_readable)
      text.assign(std::istreambuf_iterator<char>(file), {});
  } catch (const std::ios_base::failure&) {  // a directory, say
    is_readable = false;
  }
  if (!is_readable) {
    throw example::absent_failure("cannot read " + path + ": " +
                                  std::generic_category().message(errno));
  }
  return parse_layout(text, path, options);
}

std::string layout_text(const zero::model_layout& layout) {
  using ordered = nlohmann::ordered_json;
  ordered units = ordered::array();
  for (std::uint32_t u = 0; u < layout.unit_count(); ++u) {
    ordered tensors = ordered::array();
    for (const zero::tensor_id id : layout.tensors({u})) {
      const zero::tensor_info info = layout.info(id);
      ordered tied = nullptr;
      if (layout.is_tied(id))
        tied = layout.info(layout.owner(id)).name;
      tensors.push_back(
          {{"name", info.name},
           {"shape", std::vector<std::uint64_t>(info.shape.begin(), info.shape.end())},
           {"trainable", info.trainable},
           {"group", info.group == zero::no_decay ? "no_decay" : "decay"},
           {"tied_to", tied}});
    }
    units.push_back({{"name", layout.unit_name({u})}, {"tensors", tensors}});
  }
  return ordered{{"schema", schema_name}, {"units", units}}.dump(1) + "\n";
}

}  // namespace planning
