#include "server/sampling_defaults.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/error.h"
#include "checkpoint/json.h"
#include "server/openai/field_table.h"

namespace winnow::server {
namespace {

using nlohmann::json;

const FieldRule& rule_of(std::string_view name) {
  return *std::ranges::find(field_rules(), name, &FieldRule::name);
}

// A key's value, within the range that requests have.
std::optional<double> read_number(const json& config, const char* name, const std::string& file) {
  const auto found = config.find(name);
  if (found == config.end() || found->is_null()) {
    return std::nullopt;
  }
  const FieldRule& rule = rule_of(name);
  const double value =
      found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
  require(value >= rule.lowest && value <= rule.highest,
          "{}: {} is {}; expected a number from {} to {} (--generation-config none ignores it)",
          file, name, described(*found), rule.lowest, rule.highest);
  return value;
}

// Whether the file asks for the most likely token always. Its temperature then has no effect, as in
// transformers.
bool asks_for_greedy(const json& config, const std::string& file) {
  const auto found = config.find("do_sample");
  if (found == config.end() || found->is_null()) {
    return false;
  }
  require(found->is_boolean(),
          "{}: do_sample is {}; expected true or false (--generation-config none ignores it)", file,
          described(*found));
  return !found->get<bool>();
}

}  // namespace

SamplingOptions neutral_sampling() {
  return {.temperature = 1.0};
}

SamplingOptions read_sampling_defaults(const std::filesystem::path& directory,
                                       const SamplingOptions& otherwise) {
  SamplingOptions defaults = otherwise;
  const std::filesystem::path file = directory / "generation_config.json";
  if (!std::filesystem::exists(file)) {
    return defaults;
  }
  const std::string name = file.string();
  const json config = parse_json(read_text_file(file), name);
  require(config.is_object(), "{}: expected an object", name);
  const auto value_or = [&](const char* key, double otherwise) {
    return read_number(config, key, name).value_or(otherwise);
  };
  const double stated = value_or("temperature", defaults.temperature);  // checked in any case
  defaults.temperature = asks_for_greedy(config, name) ? 0.0 : stated;
  defaults.top_p = value_or("top_p", defaults.top_p);
  defaults.top_k = std::max(0, static_cast<int>(value_or("top_k", defaults.top_k)));
  defaults.min_p = value_or("min_p", defaults.min_p);
  defaults.repetition_penalty = value_or("repetition_penalty", defaults.repetition_penalty);
  return defaults;
}

nlohmann::ordered_json to_json(const SamplingOptions& defaults) {
  const SamplingOptions neutral = neutral_sampling();
  nlohmann::ordered_json told = nlohmann::ordered_json::object();
  const auto tell = [&told](const char* name, auto value, auto otherwise) {
    if (value != otherwise) {
      told[name] = value;
    }
  };
  tell("temperature", defaults.temperature, neutral.temperature);
  tell("top_p", defaults.top_p, neutral.top_p);
  tell("top_k", defaults.top_k, neutral.top_k);
  tell("min_p", defaults.min_p, neutral.min_p);
  tell("repetition_penalty", defaults.repetition_penalty, neutral.repetition_penalty);
  return told;
}

}  // namespace winnow::server
