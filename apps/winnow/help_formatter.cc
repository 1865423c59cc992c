#include "apps/winnow/help_formatter.h"

#include <sstream>

namespace winnow::cli {
namespace {

constexpr std::size_t kLineWidth = 80;
constexpr std::size_t kNames = 28;  // columns for flags, before their descriptions

std::string wrap(const std::string& text, std::size_t width) {
  std::istringstream words(text);
  std::string result;
  std::size_t column = 0;
  for (std::string word; words >> word;) {
    if (column > 0) {
      const bool fits = column + 1 + word.size() <= width;
      result += fits ? ' ' : '\n';
      column = fits ? column + 1 : 0;
    }
    result += word;
    column += word.size();
  }
  return result;
}

}  // namespace

HelpFormatter::HelpFormatter() {
  column_width(kNames);
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return wrap(CLI::Formatter::make_description(app), kLineWidth) + "\n";
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  std::ostringstream out;
  CLI::detail::format_help(out, command->get_name(),
                           wrap(command->get_description(), kLineWidth - kNames), kNames);
  return out.str();
}

// An option that is also a flag is described there, once.
std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  if (!is_positional || !option->nonpositional()) {
    return CLI::Formatter::make_option(option, is_positional);
  }
  std::ostringstream out;
  CLI::detail::format_help(out, "  " + make_option_name(option, true),
                           "The same as " + make_option_name(option, false), kNames);
  return out.str();
}

std::string HelpFormatter::make_option_desc(const CLI::Option* option) const {
  return wrap(option->get_description(), kLineWidth - kNames);
}

}  // namespace winnow::cli
