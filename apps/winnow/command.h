// The subcommands: each adds its flags and, when called, sets the function to run.
#pragma once

#include <CLI/CLI.hpp>

#include <functional>
#include <memory>
#include <string>

namespace winnow::cli {

/// A subcommand's work; returns the exit code.
using Run = std::function<int()>;

inline constexpr int kSuccess = 0;
inline constexpr int kFailure = 1;
inline constexpr int kInterrupted = 130;  // main() returns interrupt_status() instead

/// Adds the program's commands: commands.cc those of winnow, apps/demo that of winnow-demo.
void add_commands(CLI::App& app, Run& run);
/// What its user can do when the demo of `model` has ended, besides reading: "winnow serve ..., or
/// ".
std::string step_after_demo(const std::string& model);

void add_generate(CLI::App& app, Run& run);
void add_chat(CLI::App& app, Run& run);
void add_serve(CLI::App& app, Run& run);
void add_tokenize(CLI::App& app, Run& run);
void add_logits(CLI::App& app, Run& run);
void add_calibrate(CLI::App& app, Run& run);
void add_inspect(CLI::App& app, Run& run);
void add_eval(CLI::App& app, Run& run);
void add_report(CLI::App& app, Run& run);
void add_demo(CLI::App& app, Run& run);
void add_pull(CLI::App& app, Run& run);
void add_doctor(CLI::App& app, Run& run);
void add_bench(CLI::App& app, Run& run);
void add_train(CLI::App& app, Run& run);
void add_retrofit(CLI::App& app, Run& run);
void add_train_probe(CLI::App& app, Run& run);
void add_tokenize_data(CLI::App& app, Run& run);
void add_completions(CLI::App& app, Run& run);
void add_man_pages(CLI::App& app, Run& run);

/// Adds a subcommand whose flags are kept in an Options object that outlives parsing.
template <class Options>
CLI::App* add_command(CLI::App& app, Run& run, const char* name, const std::string& description,
                      std::shared_ptr<Options>& options, int (*body)(const Options&)) {
  options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand(name, description);
  command->callback([&run, options, body] { run = [options, body] { return body(*options); }; });
  return command;
}

}  // namespace winnow::cli
