#include "apps/winnow/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "apps/winnow/foreign_flags.h"
#include "base/spelling.h"

namespace winnow::cli {
namespace {

std::vector<std::string> flags_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      names.push_back("--" + name);
    }
  }
  return names;
}

std::vector<std::string> commands_of(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::App* inner : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(inner->get_name());
  }
  return names;
}

/// "is --prompt meant? ", or empty if no name is similar.
std::string suggestion(std::string_view word, const std::vector<std::string>& names) {
  const auto meant = std::ranges::find_if(
      names, [word](const auto& name) { return is_one_slip_away(word, name); });
  return meant == names.end() ? "" : fmt::format("is {} meant? ", *meant);
}

/// The first of the words that the parser could not assign.
std::string unknown_word(const CLI::App& command, const std::vector<std::string>& words) {
  const std::string& word = words.front();
  if (word.starts_with('-')) {
    const std::string flag = word.substr(0, word.find('='));
    const std::string foreign = foreign_hint(command, flag);
    return fmt::format("{} has no flag {} ({}", full_name(command), flag,
                       foreign.empty() ? suggestion(flag, flags_of(command)) : foreign);
  }
  const std::vector<std::string> commands = commands_of(command);
  if (!commands.empty()) {
    const std::string foreign =
        command.get_parent() == nullptr ? foreign_command_hint(word) : std::string();
    return fmt::format("{} has no command {} ({}", full_name(command), word,
                       foreign.empty() ? suggestion(word, commands) : foreign);
  }
  return fmt::format("not expected: {} (", fmt::join(words, " "));
}

// A word without a flag is the model, if the command takes one: it may be a slip. Empty: no model
// was given twice.
std::string two_models(const CLI::App& command) {
  const CLI::Option* const model = command.get_option_no_throw("--model");
  return model == nullptr || model->count() < 2
             ? ""
             : fmt::format("{}: expected one model; a word without a flag is one, too (",
                           fmt::join(model->results(), ", "));
}

}  // namespace

const CLI::App& called(const CLI::App& app) {
  const auto commands = app.get_subcommands();
  return commands.empty() ? app : called(*commands.front());
}

std::string full_name(const CLI::App& command) {
  const CLI::App* const parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : fmt::format("{} {}", full_name(*parent), command.get_name());
}

std::string parse_problem(const CLI::ParseError& error) {
  const std::string text = error.what();
  const auto parts = [&text](std::string_view before, std::string_view between) {
    const std::size_t middle = text.find(between);
    return text.starts_with(before) && middle != std::string::npos
               ? std::pair(text.substr(before.size(), middle - before.size()),
                           text.substr(middle + between.size()))
               : std::pair<std::string, std::string>();
  };
  if (const auto [flag, value] = parts("Could not convert: ", " = "); !flag.empty()) {
    const bool has_digits_alone = value.find_first_not_of("0123456789+-.") == std::string::npos;
    return fmt::format("{} {}: expected {}", flag, value,
                       has_digits_alone ? "a whole number in range" : "a number");
  }
  if (const auto [flag, times] = parts("", ": At Most 1 required but received "); !flag.empty()) {
    return fmt::format("{}: given {} times, expected once", flag, times);
  }
  if (const auto [flag, type] = parts("", ": 1 required "); type.ends_with(" missing")) {
    return fmt::format("{}: the value is missing", flag);
  }
  return text;
}

// A misspelt flag often leaves a required one missing: the misspelling is reported first.
std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = called(app);
  const std::vector<std::string> unknown = app.remaining(/*recurse=*/true);
  std::string problem = unknown.empty() ? two_models(command) : unknown_word(command, unknown);
  if (problem.empty()) {
    problem = fmt::format("{} (", parse_problem(error));
  }
  return fmt::format("{}see {} --help)", problem, full_name(command));
}

}  // namespace winnow::cli
