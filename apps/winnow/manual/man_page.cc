#include "apps/winnow/manual/man_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <vector>

#include "winnow/version.h"

namespace winnow::cli {
namespace {

// Escapes text for roff.
std::string roff(const std::string& text) {
  std::string result;
  for (const char letter : text) {
    result += letter == '\\' ? "\\e" : letter == '-' ? "\\-" : std::string(1, letter);
  }
  const bool commands = result.starts_with('.') || result.starts_with('\'');
  return commands ? "\\&" + result : result;
}

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char letter) {
    return static_cast<char>(std::toupper(letter));
  });
  return text;
}

std::string man_synopsis(const CommandPage& command) {
  std::string text = fmt::format("\\fB{}\\fR", roff(command.name));
  for (const FlagPage& flag : command.flags) {
    if (flag.required && !flag.positional) {
      text += fmt::format(" \\fB{}\\fR \\fI{}\\fR", roff(flag.name), roff(flag.type));
    }
  }
  text += command.subcommands.empty() ? " [\\fIOPTIONS\\fR]" : " \\fICOMMAND\\fR [\\fIOPTIONS\\fR]";
  for (const FlagPage& flag : command.flags) {
    if (flag.positional) {
      const std::string argument = fmt::format("\\fI{}\\fR", roff(flag.type));
      text += flag.required ? " " + argument : fmt::format(" [{}]", argument);
    }
  }
  return text;
}

std::string man_entry(const FlagPage& flag) {
  std::string text = ".TP\n";
  if (!flag.shorter.empty()) {
    text += fmt::format("\\fB{}\\fR, ", roff(flag.shorter));
  }
  text += flag.positional ? fmt::format("\\fI{}\\fR\n", roff(flag.type))
          : flag.type.empty()
              ? fmt::format("\\fB{}\\fR\n", roff(flag.name))
              : fmt::format("\\fB{}\\fR \\fI{}\\fR\n", roff(flag.name), roff(flag.type));
  text += roff(flag.help);
  if (!flag.standard.empty()) {
    text += fmt::format(" (default: {})", roff(flag.standard));
  }
  return text + "\n";
}

// In the order of --help: each group at the position of its first flag.
std::string man_options(const CommandPage& command) {
  std::vector<std::string> groups;
  for (const FlagPage& flag : command.flags) {
    if (std::ranges::find(groups, flag.group) == groups.end()) {
      groups.push_back(flag.group);
    }
  }
  std::string text;
  for (const std::string& group : groups) {
    text += fmt::format(".SH {}\n", roff(upper_case(group)));
    for (const FlagPage& flag : command.flags) {
      if (flag.group == group) {
        text += man_entry(flag);
      }
    }
  }
  return text;
}

std::string man_commands(const CommandPage& command) {
  std::string text = command.subcommands.empty() ? "" : ".SH COMMANDS\n";
  for (std::size_t i = 0; i < command.subcommands.size(); ++i) {
    text += fmt::format(".TP\n\\fB{}\\fR(1)\n{}\n",
                        roff(joined(command.name, '-') + "-" + command.subcommands[i]),
                        roff(command.descriptions[i]));
  }
  return text;
}

std::string see_also(const CommandPage& command) {
  const std::size_t last = command.name.rfind(' ');
  return last == std::string::npos ? ""
                                   : fmt::format(".SH SEE ALSO\n\\fB{}\\fR(1)\n",
                                                 roff(joined(command.name.substr(0, last), '-')));
}

}  // namespace

std::string man_page(const CommandPage& command) {
  const std::string name = joined(command.name, '-');
  return fmt::format(".TH {} 1 \"\" \"winnow {}\" \"winnow\"\n", roff(upper_case(name)),
                     WINNOW_VERSION) +
         fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(in_brief(command.description))) +
         fmt::format(".SH SYNOPSIS\n{}\n", man_synopsis(command)) +
         fmt::format(".SH DESCRIPTION\n{}.\n", roff(command.description)) + man_options(command) +
         man_commands(command) + see_also(command);
}

}  // namespace winnow::cli
