#include "apps/winnow/json_config.h"

#include <algorithm>

#include "apps/winnow/usage_error.h"
#include "base/error.h"
#include "checkpoint/json.h"
#include "checkpoint/json_text.h"

namespace winnow::cli {
namespace {

using nlohmann::json;

std::string as_word(const json& value, const std::string& where) {
  require(value.is_string() || value.is_number() || value.is_boolean(),
          "{}: expected a number, a text, true or false, got {}", where, described(value));
  return value.is_string() ? value.get<std::string>() : json_text(value);
}

void set_flag(CLI::Option& option, const json& value, const std::string& where) {
  if (option.get_type_size() == 0) {  // a switch, without a value
    require(value.is_boolean(), "{}: expected true or false, got {}", where, described(value));
    if (value.get<bool>()) {
      option.add_result("true");
    }
  } else if (value.is_array()) {
    for (const json& item : value) {
      option.add_result(as_word(item, where));
    }
  } else {
    option.add_result(as_word(value, where));
  }
  if (option.count() > 0) {
    option.run_callback();
  }
}

}  // namespace

void apply_json_config(CLI::App& command, const std::string& file) {
  const json config = parse_json(read_text_file(file), file);
  require(config.is_object(), "{}: expected an object of flags", file);
  for (const auto& [key, value] : config.items()) {
    CLI::Option* const option = command.get_option_no_throw("--" + key);
    const std::string where = fmt::format("{}: {}", file, key);
    require(option != nullptr && key != "config" && key != "help", "{}: {} has no such flag", where,
            command.get_name());
    if (option->count() > 0) {
      continue;  // the command line has priority
    }
    try {
      set_flag(*option, value, where);
    } catch (const CLI::ParseError& error) {
      fail("{}: {}", where, parse_problem(error));
    }
  }
}

nlohmann::ordered_json flag_values(const CLI::App& command,
                                   const std::vector<std::string>& except) {
  nlohmann::ordered_json values;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) {
      continue;
    }
    const std::string& name = option->get_lnames().front();
    if (std::ranges::find(except, name) != except.end()) {
      continue;
    }
    const auto& given = option->results();
    values[name] = given.empty()       ? nlohmann::ordered_json(option->get_default_str())
                   : given.size() == 1 ? nlohmann::ordered_json(given.front())
                                       : nlohmann::ordered_json(given);
  }
  return values;
}

}  // namespace winnow::cli
