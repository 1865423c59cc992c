// --help, wrapped to the width of a terminal.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace winnow::cli {

class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();

  std::string make_description(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_desc(const CLI::Option* option) const override;
};

}  // namespace winnow::cli
