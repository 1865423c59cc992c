// What --help knows of the commands, for completions and man pages.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace winnow::cli {

struct FlagPage {
  std::string name;          // "--model"; of a positional its type
  std::string shorter = {};  // "-h", if it has one
  std::string type = {};     // "DIR"; empty: a switch
  std::string help = {};
  std::string standard = {};  // what holds without it, if that is not in `help`
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
  std::vector<std::string> subcommands;   // their last words
  std::vector<std::string> descriptions;  // and what they do
};

/// `app` and all its subcommands, each before its own; hidden ones are left out.
std::vector<CommandPage> list_commands(const CLI::App& app);

/// The first words of a description: what a line of a menu has room for.
std::string in_brief(const std::string& description);

/// "winnow eval needle" with `joint` for spaces.
std::string joined(const std::string& name, char joint);

}  // namespace winnow::cli
