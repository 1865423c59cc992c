// The commands of the program winnow.
#include <fmt/format.h>

#include "apps/winnow/command.h"
#include "apps/winnow/program_name.h"

namespace winnow::cli {
namespace {

constexpr const char* kFirstSteps =
    "First steps:\n"
    "  winnow doctor                         what this machine can do, which models fit\n"
    "  winnow chat --model Qwen/Qwen3-0.6B   download a model and talk to it\n"
    "  winnow COMMAND --help                 every flag of a command";

}  // namespace

void add_commands(CLI::App& app, Run& run) {
  add_doctor(app, run);  // in the order in which a new user needs them
  add_demo(app, run);
  add_pull(app, run);
  add_inspect(app, run);
  add_chat(app, run);
  add_generate(app, run);
  add_serve(app, run);
  add_retrofit(app, run);
  add_train(app, run);
  add_train_probe(app, run);
  add_tokenize_data(app, run);
  add_eval(app, run);
  add_report(app, run);
  add_bench(app, run);
  add_calibrate(app, run);
  add_tokenize(app, run);
  add_logits(app, run);
  add_completions(app, run);
  add_man_pages(app, run);
  app.footer(kFirstSteps);  // commands inherit the current footer
}

std::string step_after_demo(const std::string& model) {
  return fmt::format("{} serve --model {}, or ", program_name(), model);
}

}  // namespace winnow::cli
