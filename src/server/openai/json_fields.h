// Typed access to the fields of a request's body; what is wrong is an ApiError naming the field.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::server {

/// The body as a JSON object; ApiError when it is anything else.
nlohmann::json parse_body(std::string_view body);

/// A field that is null counts as absent.
class Fields {
 public:
  /// `object` must outlive this; `path` is what its fields' names begin with ("messages[0].").
  explicit Fields(const nlohmann::json& object, std::string path = {})
      : object_(object), path_(std::move(path)) {}

  [[nodiscard]] const nlohmann::json* find(const char* name) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const char* name, std::int64_t lowest,
                                                    std::int64_t highest) const;
  /// Any integer of 64 bits, with or without a sign, as those bits.
  [[nodiscard]] std::optional<std::uint64_t> bits(const char* name) const;
  [[nodiscard]] std::optional<double> number(const char* name, double lowest, double highest) const;
  [[nodiscard]] std::optional<bool> boolean(const char* name) const;
  [[nodiscard]] std::optional<std::string> text(const char* name) const;
  /// The object under `name`, or null.
  [[nodiscard]] const nlohmann::json* object(const char* name) const;
  /// The field is absent, or nothing that would change the answer; else ApiError.
  void refuse_unless(const char* name, const std::function<bool(const nlohmann::json&)>& harmless,
                     std::string_view why) const;
  /// Throws ApiError saying that `name` should have been `expected`.
  [[noreturn]] void reject(const std::string& name, std::string_view expected) const;

 private:
  const nlohmann::json& object_;
  std::string path_;
};

/// Token ids in `value`; ApiError about `param` when it is no array of them.
std::vector<std::int32_t> token_ids(const nlohmann::json& value, const std::string& param);

}  // namespace winnow::server
