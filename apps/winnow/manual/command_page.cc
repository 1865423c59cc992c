#include "apps/winnow/manual/command_page.h"

#include <algorithm>

namespace winnow::cli {
namespace {

FlagPage page_of(const CLI::Option& option) {
  FlagPage page;
  const auto& names = option.get_lnames();
  const auto& letters = option.get_snames();
  page.positional = names.empty() && letters.empty();
  page.type = option.get_expected_max() == 0 ? "" : option.get_type_name();
  page.name = !names.empty()     ? "--" + names.front()
              : !letters.empty() ? "-" + letters.front()
                                 : page.type;
  if (!names.empty() && !letters.empty()) {
    page.shorter = "-" + letters.front();
  }
  page.help = option.get_description();
  page.standard = option.get_default_str();
  page.group = option.get_group();
  page.required = option.get_required();
  return page;
}

void add_pages(const CLI::App& app, const std::string& name, std::vector<CommandPage>& pages) {
  CommandPage page;
  page.name = name;
  page.description = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) {
      page.flags.push_back(page_of(*option));
    }
  }
  auto commands = app.get_subcommands([](const CLI::App*) { return true; });
  std::erase_if(commands, [](const CLI::App* command) { return command->get_group().empty(); });
  for (const CLI::App* command : commands) {
    page.subcommands.push_back(command->get_name());
    page.descriptions.push_back(command->get_description());
  }
  pages.push_back(std::move(page));
  for (const CLI::App* command : commands) {
    add_pages(*command, name + " " + command->get_name(), pages);
  }
}

}  // namespace

std::vector<CommandPage> list_commands(const CLI::App& app) {
  std::vector<CommandPage> pages;
  add_pages(app, app.get_name(), pages);
  return pages;
}

std::string in_brief(const std::string& description) {
  const std::string text = description.substr(0, description.find_first_of(",;:("));
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string joined(const std::string& name, char joint) {
  std::string result = name;
  std::ranges::replace(result, ' ', joint);
  return result;
}

}  // namespace winnow::cli
