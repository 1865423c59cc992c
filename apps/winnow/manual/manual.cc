// winnow completions, and winnow man-pages, which the build calls.
#include <fmt/format.h>

#include <array>
#include <filesystem>

#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/manual/completions.h"
#include "apps/winnow/manual/man_page.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "checkpoint/atomic_file.h"

namespace winnow::cli {
namespace {

struct CompletionFlags {
  const CLI::App* app = nullptr;
  std::string shell;
};

int run_completions(const CompletionFlags& flags) {
  const auto commands = list_commands(*flags.app);
  require(flags.shell == "bash" || flags.shell == "zsh" || flags.shell == "fish",
          "completions {}: expected bash, zsh or fish", flags.shell);
  print(flags.shell == "bash"  ? bash_completions(commands)
        : flags.shell == "zsh" ? zsh_completions(commands)
                               : fish_completions(commands));
  return kSuccess;
}

struct ManPageFlags {
  const CLI::App* app = nullptr;
  std::string folder;
};

int run_man_pages(const ManPageFlags& flags) {
  std::error_code problem;
  std::filesystem::create_directories(flags.folder, problem);
  require(!problem, "{}: cannot create: {}", flags.folder, problem.message());
  for (const CommandPage& command : list_commands(*flags.app)) {
    write_text_file(std::filesystem::path(flags.folder) / (joined(command.name, '-') + ".1"),
                    man_page(command));
  }
  return kSuccess;
}

}  // namespace

void add_completions(CLI::App& app, Run& run) {
  std::shared_ptr<CompletionFlags> flags;
  CLI::App* command =
      add_command(app, run, "completions", "Prints a completion script for bash, zsh or fish",
                  flags, run_completions);
  flags->app = &app;
  FlagGroup(*command).open_option("shell", flags->shell, "SHELL", "bash, zsh or fish")->required();
}

void add_man_pages(CLI::App& app, Run& run) {
  std::shared_ptr<ManPageFlags> flags;
  CLI::App* command = add_command(app, run, "man-pages", "Writes a man page for every command",
                                  flags, run_man_pages);
  command->group("");  // not in --help
  flags->app = &app;
  FlagGroup(*command)
      .open_option("folder", flags->folder, "DIR", "The folder to write")
      ->required();
}

}  // namespace winnow::cli
