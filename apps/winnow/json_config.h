// A command's flags from a JSON file.
#pragma once

#include <CLI/CLI.hpp>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace winnow::cli {

/// Sets every flag that the command line left open from a file {"flag-name": value, ...}: numbers,
/// texts, true and false, and lists where a flag takes several values. Error naming file and key
/// for a flag that the command does not have, or a value that it does not take.
void apply_json_config(CLI::App& command, const std::string& file);

/// The values of all flags, given or by default, by name; those named in `except` are left out.
nlohmann::ordered_json flag_values(const CLI::App& command, const std::vector<std::string>& except);

}  // namespace winnow::cli
