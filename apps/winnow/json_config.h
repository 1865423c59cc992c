// A command's flags from a JSON file.
#pragma once

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace winnow::cli {

/// Sets every flag that the command line does not set from a file {"flag-name": value, ...}:
/// numbers, texts, true and false, and lists if a flag takes several values. Throws an Error
/// that names file and key for an unknown flag or a wrong value.
void apply_json_config(CLI::App& command, const std::string& file);

/// The values of all flags, given or default, by name; without the names in `except`.
nlohmann::ordered_json flag_values(const CLI::App& command, const std::vector<std::string>& except);

}  // namespace winnow::cli
