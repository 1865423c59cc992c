// The metadata of a GGUF file, and the keys of each architecture. Private to gguf_model.cc.
#pragma once

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "checkpoint/gguf/gguf_file.h"
#include "checkpoint/json.h"
#include "model/gguf_model.h"

namespace winnow::model::detail {

using nlohmann::json;

/// The metadata of one architecture.
class Metadata {
 public:
  explicit Metadata(const gguf::File& file) : file_(file), architecture_(gguf_architecture(file)) {}

  [[nodiscard]] const std::string& architecture() const { return architecture_; }
  [[nodiscard]] const json* find(const std::string& key) const {
    const auto found = file_.metadata().find(architecture_ + "." + key);
    return found == file_.metadata().end() ? nullptr : &*found;
  }
  [[nodiscard]] json need(const std::string& key) const {
    const json* value = find(key);
    require(value != nullptr, "{}: {}.{} is missing", file_.path().string(), architecture_, key);
    return single(key, *value);
  }
  [[nodiscard]] json get(const std::string& key, json absent) const {
    const json* value = find(key);
    return value == nullptr ? absent : single(key, *value);
  }
  /// need() for a number.
  [[nodiscard]] double number(const std::string& key) const {
    const json value = need(key);
    require(value.is_number(), "{}: {}.{}: expected a number, got {}", file_.path().string(),
            architecture_, key, described(value));
    return value.get<double>();
  }
  [[nodiscard]] const gguf::File& file() const { return file_; }
  /// Copies the file's value of `key`, if it has one, to config.json's `name`.
  void copy(const std::string& key, json& config, const char* name) const {
    if (find(key) != nullptr) {
      config[name] = need(key);
    }
  }

 private:
  /// Files of models whose layers differ have an array.
  [[nodiscard]] json single(const std::string& key, const json& value) const {
    if (!value.is_array()) {
      return value;
    }
    require(!value.empty() && std::adjacent_find(value.begin(), value.end(),
                                                 std::not_equal_to<>()) == value.end(),
            "{}: {}.{}: layers that differ are not supported", file_.path().string(), architecture_,
            key);
    return value.front();
  }

  const gguf::File& file_;
  std::string architecture_;
};

/// An architecture's names in llama.cpp and transformers.
struct GgufArchitecture {
  std::string_view name;
  const char* model_type;
  /// Adds the architecture's own keys to config.json.
  void (*add)(const Metadata& metadata, json& config) = nullptr;
};

/// Null if winnow does not read it.
const GgufArchitecture* find_gguf_architecture(std::string_view name);

/// A tensor that every file has.
inline const gguf::Tensor& need_tensor(const gguf::File& file, const std::string& name) {
  const auto found = file.tensors().find(name);
  require(found != file.tensors().end(), "{}: tensor {} is missing", file.path().string(),
          in_quotes(name));
  return found->second;
}

}  // namespace winnow::model::detail
