#include "apps/winnow/manual/completions.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace winnow::cli {
namespace {

// Single-quoted for a shell. A quote inside ends the string, is added escaped, and reopens it.
std::string shell_quoted(const std::string& text, const std::string& quote = "'\\''") {
  std::string result = "'";
  for (const char letter : text) {
    result += letter == '\'' ? quote : std::string(1, letter);
  }
  return result + "'";
}

// Puts a backslash before each of `letters`.
std::string with_backslashes(const std::string& text, std::string_view letters) {
  std::string result;
  for (const char letter : text) {
    if (letters.find(letter) != std::string_view::npos) {
      result += '\\';
    }
    result += letter;
  }
  return result;
}

bool has_subcommands(const CommandPage& command) {
  return !command.subcommands.empty();
}

// "a|b" for the flags that `wanted` selects.
template <class Wanted>
std::string flag_patterns(std::span<const CommandPage> commands, const Wanted& wanted) {
  std::vector<std::string> found;
  for (const CommandPage& command : commands) {
    for (const FlagPage& flag : command.flags) {
      if (!flag.positional && !flag.type.empty() && wanted(flag)) {
        found.push_back(fmt::format("'{} {}'", command.name, flag.name));
      }
    }
  }
  return fmt::format("{}", fmt::join(found, "|"));
}

}  // namespace

std::string bash_completions(std::span<const CommandPage> commands) {
  std::string steps;
  std::string lists;
  for (const CommandPage& command : commands) {
    std::vector<std::string> words = command.subcommands;
    for (const std::string& word : words) {
      steps += fmt::format("      '{0} {1}') command='{0} {1}' ;;\n", command.name, word);
    }
    for (const FlagPage& flag : command.flags) {
      if (!flag.positional) {
        words.push_back(flag.name);
      }
    }
    lists += fmt::format("    '{}') words='{}' ;;\n", command.name, fmt::join(words, " "));
  }
  return fmt::format(
      R"(# bash completion for winnow: source <(winnow completions bash)
_winnow() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}}
  local command=winnow word words=
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$command $word" in
{}    esac
  done
  case "$command $previous" in
    {}) return ;;  # files, by default
    {}) compopt +o default +o bashdefault 2>/dev/null; return ;;
  esac
  case $command in
{}  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o bashdefault -o default -F _winnow winnow
)",
      steps, flag_patterns(commands, [](const FlagPage& flag) { return flag.names_file(); }),
      flag_patterns(commands, [](const FlagPage& flag) { return !flag.names_file(); }), lists);
}

namespace {

// The action of zsh's _arguments that completes values.
std::string zsh_values(const FlagPage& flag) {
  return flag.type == "DIR" ? "_files -/" : flag.names_file() ? "_files" : " ";
}

std::string zsh_flag(const FlagPage& flag) {
  const std::string help = with_backslashes(in_brief(flag.help), "[]:\\");
  if (flag.positional) {
    return shell_quoted(fmt::format("*:{}:{}", with_backslashes(flag.type, ":"), zsh_values(flag)));
  }
  if (flag.type.empty()) {
    return shell_quoted(fmt::format("{}[{}]", flag.name, help));
  }
  return shell_quoted(fmt::format("*{}=[{}]:{}:{}", flag.name, help,
                                  with_backslashes(flag.type, ":"), zsh_values(flag)));
}

std::string zsh_function(const CommandPage& command) {
  const std::string name = joined(command.name, '_');
  std::string text = fmt::format("_{}() {{\n", name);
  std::string choices;
  std::string calls;
  for (std::size_t i = 0; i < command.subcommands.size(); ++i) {
    const std::string& word = command.subcommands[i];
    choices +=
        " " + shell_quoted(word + ":" + with_backslashes(in_brief(command.descriptions[i]), ":"));
    calls += fmt::format("        {0}) _{1}_{2} ;;\n", word, name, joined(word, '_'));
  }
  text += has_subcommands(command) ? fmt::format(
                                         "  local state line\n  local -a commands=({} )\n"
                                         "  _arguments -C",
                                         choices)
                                   : "  _arguments";
  for (const FlagPage& flag : command.flags) {
    text += " \\\n    " + zsh_flag(flag);
  }
  if (has_subcommands(command)) {
    text += fmt::format(
        " \\\n    '1: :->command' '*:: :->rest'\n"
        "  case $state in\n"
        "    command) _describe command commands ;;\n"
        "    rest)\n"
        "      case $words[1] in\n{}      esac ;;\n"
        "  esac",
        calls);
  }
  return text + "\n}\n";
}

}  // namespace

std::string zsh_completions(std::span<const CommandPage> commands) {
  std::string text =
      "#compdef winnow\n# zsh completion for winnow: source <(winnow completions zsh)\n";
  for (const CommandPage& command : commands) {
    text += zsh_function(command);
  }
  return text + R"(if [[ $funcstack[1] == _winnow ]]; then
  _winnow "$@"
else
  compdef _winnow winnow
fi
)";
}

namespace {

// The condition that the words so far name `command` and, if it has subcommands, none of them.
std::string fish_condition(const CommandPage& command) {
  std::string condition;
  std::size_t at = command.name.find(' ');
  while (at != std::string::npos) {
    const std::size_t next = command.name.find(' ', at + 1);
    condition += fmt::format("{}__fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                             command.name.substr(at + 1, next - at - 1));
    at = next;
  }
  if (has_subcommands(command)) {
    condition +=
        fmt::format("{}not __fish_seen_subcommand_from {}", condition.empty() ? "" : "; and ",
                    fmt::join(command.subcommands, " "));
  }
  return shell_quoted(condition);
}

std::string fish_flag(const FlagPage& flag) {
  std::string text = fmt::format(" -l {}", flag.name.substr(2));
  if (!flag.type.empty()) {
    text += flag.names_file() ? " -r -F" : " -x";
  }
  return text + " -d " + shell_quoted(with_backslashes(in_brief(flag.help), "\\"), "\\'");
}

}  // namespace

std::string fish_completions(std::span<const CommandPage> commands) {
  std::string text =
      "# fish completion for winnow: winnow completions fish | source\ncomplete -c winnow -f\n";
  for (const CommandPage& command : commands) {
    const std::string begin = "complete -c winnow -n " + fish_condition(command);
    for (std::size_t i = 0; i < command.subcommands.size(); ++i) {
      text += fmt::format(
          "{} -a {} -d {}\n", begin, command.subcommands[i],
          shell_quoted(with_backslashes(in_brief(command.descriptions[i]), "\\"), "\\'"));
    }
    for (const FlagPage& flag : command.flags) {
      text += flag.positional ? begin + " -F\n" : begin + fish_flag(flag) + "\n";
    }
  }
  return text;
}

}  // namespace winnow::cli
