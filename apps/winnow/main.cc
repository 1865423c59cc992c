// winnow: the command line.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "api/llm_load.h"
#include "apps/winnow/command.h"
#include "apps/winnow/help_formatter.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "apps/winnow/program_name.h"
#include "apps/winnow/usage_error.h"
#include "base/build_commit.h"
#include "base/error.h"
#include "base/error_text.h"
#include "winnow/version.h"

namespace winnow::cli {
namespace {

int report(std::string message) {
  std::ranges::replace(message, '\n', ' ');
  print_note(fmt::format("winnow: error: {}\n", message));
  return kFailure;
}

// `winnow help COMMAND` is `winnow COMMAND --help`, `winnow version` is `winnow --version`.
std::vector<std::string> words_of(int argc, char** argv) {
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && (words.front() == "help" || words.front() == "version")) {
    words.front().insert(0, "--");
    std::rotate(words.begin(), words.begin() + 1, words.end());
  }
  return words;
}

int parse_and_run(std::vector<std::string> words) {
  CLI::App app("LLM inference with a KV cache that learns what to keep", "winnow");
  app.set_version_flag("--version", with_build_commit("winnow " WINNOW_VERSION));
  app.formatter(std::make_shared<HelpFormatter>());
  Run run;
  add_commands(app, run);
  if (std::ranges::find(words, "-hf") != words.end()) {
    // The parser would read it as -h and -f, and show the help.
    return report("llama.cpp's -hf is --model here: --model org/name[:TYPE]");
  }
  try {
    std::ranges::reverse(words);  // as the parser takes them
    app.parse(std::move(words));
  } catch (const CLI::Success& request) {  // --help, --version
    const int code = app.exit(request);
    require_system(std::cout.flush().good(), "cannot write to standard output");
    return code;
  } catch (const CLI::ParseError& error) {
    return report(usage_error(app, error));
  }
  if (!run) {
    const CLI::App& command = called(app);  // winnow, or winnow eval
    const CLI::App* const parent = command.get_parent();
    print_now(command.help(parent == nullptr ? "" : full_name(*parent)));
    return kSuccess;
  }
  catch_interrupts();
  find_named_models(app);
  const int code = run();
  print_now("");
  return code == kInterrupted ? interrupt_status() : code;
}

}  // namespace
}  // namespace winnow::cli

int main(int argc, char** argv) {
  try {
    winnow::cli::set_program_name(argc > 0 ? argv[0] : "");
    return winnow::cli::parse_and_run(winnow::cli::words_of(argc, argv));
  } catch (const winnow::engine::RankEnded&) {
    return winnow::cli::kSuccess;
  } catch (const winnow::cli::Interrupted&) {
    return winnow::cli::interrupt_status();
  } catch (const std::exception& error) {
    return winnow::cli::report(winnow::error_text(error));
  }
}
