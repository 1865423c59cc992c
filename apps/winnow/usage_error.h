// Error messages for command lines with unknown words.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace winnow::cli {

/// The last command on the command line.
const CLI::App& called(const CLI::App& app);

/// A command with its parents: "winnow eval needle".
std::string full_name(const CLI::App& command);

/// The parser's error, in our words.
std::string parse_problem(const CLI::ParseError& error);

/// The error of a command line that could not be parsed, what may be meant, and whose --help
/// to read.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace winnow::cli
