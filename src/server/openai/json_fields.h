// Typed access to a request body's fields; errors are ApiError that names the field.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

/// The body as a JSON object; ApiError when it is anything else.
nlohmann::json parse_body(std::string_view body);

/// A null field counts as absent.
class Fields {
 public:
  /// `object` must outlive this; `path` is the prefix of its fields' names ("messages[0].").
  explicit Fields(const nlohmann::json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}
  /// `spelled` (must outlive this): names in errors, for fields that the client calls differently.
  Fields(const nlohmann::json& object, const std::map<std::string, std::string>& spelled)
      : object_(object), spelled_(&spelled) {}

  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const char* name, std::int64_t lowest,
                                                    std::int64_t highest) const;
  /// Any integer of 64 bits, signed or unsigned, as those bits.
  [[nodiscard]] std::optional<std::uint64_t> bits(const char* name) const;
  [[nodiscard]] std::optional<double> number(const char* name, double lowest, double highest) const;
  [[nodiscard]] std::optional<bool> boolean(const char* name) const;
  [[nodiscard]] std::optional<std::string> text(const char* name) const;
  /// The object under `name`, or null.
  [[nodiscard]] const nlohmann::json* object(const char* name) const;
  /// Any integer or number, or `otherwise`; the range was checked before.
  [[nodiscard]] int integer_or(const char* name, int otherwise) const;
  [[nodiscard]] double number_or(const char* name, double otherwise) const;
  [[nodiscard]] bool boolean_or(const char* name, bool otherwise) const {
    return boolean(name).value_or(otherwise);
  }
  /// The array of strings under `name`, at most `most`; empty if absent.
  [[nodiscard]] std::vector<std::string> texts(const char* name, std::size_t most) const;
  /// The token ids under `name`; empty if absent.
  [[nodiscard]] std::vector<std::int32_t> tokens(const char* name) const;
  /// The client's name for a field, with its path.
  [[nodiscard]] std::string name_of(const std::string& name) const;
  /// Throws ApiError that says that `name` should have been `expected`.
  [[noreturn]] void reject(const std::string& name, std::string_view expected) const;

 private:
  const nlohmann::json& object_;
  std::string path_;
  const std::map<std::string, std::string>* spelled_ = nullptr;
};

/// Token ids in `value`; ApiError about `param` when it is not an array of them.
std::vector<std::int32_t> token_ids(const nlohmann::json& value, const std::string& param);

}  // namespace winnow::server
