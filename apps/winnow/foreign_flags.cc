#include "apps/winnow/foreign_flags.h"

#include <fmt/format.h>

#include <algorithm>

#include "apps/winnow/usage_error.h"

namespace winnow::cli {
namespace {

bool has_flag(const CLI::App& command, std::string_view flag) {
  return command.get_option_no_throw(std::string(flag)) != nullptr;
}

/// The first command that has the flag; null: none.
const CLI::App* owner_of(std::string_view flag, const CLI::App& command) {
  const CLI::App* root = &command;
  while (root->get_parent() != nullptr) {
    root = root->get_parent();
  }
  const auto commands = root->get_subcommands([](const CLI::App*) { return true; });
  const auto found = std::ranges::find_if(
      commands, [flag](const CLI::App* other) { return has_flag(*other, flag); });
  return found == commands.end() ? nullptr : *found;
}

}  // namespace

std::string foreign_command_hint(std::string_view name) {
  const auto* const found = std::ranges::find(kForeignCommands, name, &ForeignCommand::name);
  return found == kForeignCommands.end() ? ""
                                         : fmt::format("Ollama's {} is {}; ", name, found->here);
}

std::string foreign_hint(const CLI::App& command, std::string_view flag) {
  const auto* const found = std::ranges::find(kForeignFlags, flag, &ForeignFlag::flag);
  if (found == kForeignFlags.end()) {
    return "";
  }
  const std::string whose = fmt::format("{}'s {} is ", found->program, flag);
  if (found->here.empty()) {
    return fmt::format("{}{}; ", whose, found->note);
  }
  if (has_flag(command, found->here)) {
    return fmt::format("{}{}{} here; ", whose, found->here, found->note);
  }
  const CLI::App* const owner = owner_of(found->here, command);
  return owner == nullptr ? "" : fmt::format("{}{} of {}; ", whose, found->here, full_name(*owner));
}

}  // namespace winnow::cli
