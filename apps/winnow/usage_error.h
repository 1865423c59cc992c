// What is said of words that the command line does not know.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace winnow::cli {

/// The last command that was named.
const CLI::App& called(const CLI::App& app);

/// A command with those that it is part of: "winnow eval needle".
std::string full_name(const CLI::App& command);

/// What the parser found wrong, in our words.
std::string parse_problem(const CLI::ParseError& error);

/// What is wrong with a command line that could not be parsed, what may be meant, and whose --help
/// says more.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error);

}  // namespace winnow::cli
