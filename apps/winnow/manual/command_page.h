// The commands' help, as data for completions and man pages.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace winnow::cli {

struct FlagPage {
  std::string name;          // "--model"; for a positional its type
  std::string shorter = {};  // "-h", if there is a short form
  std::string type = {};     // "DIR"; empty: a switch
  std::string help = {};
  std::string standard = {};  // the default, if `help` does not mention it
  std::string group = {};
  bool positional = false;
  bool required = false;

  /// Whether its value is the name of a file or directory.
  [[nodiscard]] bool names_file() const { return type == "DIR" || type == "FILE"; }
};

struct CommandPage {
  std::string name;  // "winnow eval needle"
  std::string description;
  std::vector<FlagPage> flags;
  std::vector<std::string> subcommands;   // the last word of each
  std::vector<std::string> descriptions;  // of each
};

/// `app` and all its subcommands, each before its own; hidden ones are left out.
std::vector<CommandPage> list_commands(const CLI::App& app);

/// The beginning of a description, short enough for a line of a menu.
std::string in_brief(const std::string& description);

/// "winnow eval needle" with `joint` instead of spaces.
std::string joined(const std::string& name, char joint);

}  // namespace winnow::cli
