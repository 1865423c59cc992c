// How flags are declared: a value with its default, a value without one, a switch.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <utility>

namespace winnow::cli {

/// Flags of a command under one heading of --help.
class FlagGroup {
 public:
  /// Without `heading`: among the command's own options.
  explicit FlagGroup(CLI::App& command, std::string heading = {})
      : command_(command), heading_(std::move(heading)) {}

  /// A value whose default --help shows.
  template <class Value>
  CLI::Option* option(const std::string& flag, Value& value, const char* type,
                      const std::string& help) const {
    return open_option(flag, value, type, help)->capture_default_str();
  }
  /// A value without a default to show: `help` describes what happens without the flag.
  template <class Value>
  CLI::Option* open_option(const std::string& flag, Value& value, const char* type,
                           const std::string& help) const {
    return placed(command_.add_option(flag, value, help)->type_name(type));
  }
  CLI::Option* flag(const std::string& flag, bool& value, const std::string& help) const {
    return placed(command_.add_flag(flag, value, help));
  }

 private:
  CLI::Option* placed(CLI::Option* option) const {
    return heading_.empty() ? option : option->group(heading_);
  }

  CLI::App& command_;
  std::string heading_;
};

}  // namespace winnow::cli
