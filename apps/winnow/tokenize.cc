// winnow tokenize: text to token ids.
#include <fmt/ranges.h>

#include "apps/winnow/command.h"
#include "apps/winnow/output.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {
namespace {

struct TokenizeOptions {
  std::string model;
  bool no_special = false;
};

int run_tokenize(const TokenizeOptions& options) {
  const auto tokenizer = load_tokenizer(options.model);
  const auto ids = tokenizer->encode(read_standard_input(),
                                     {.add_special = !options.no_special, .parse_special = true});
  print(fmt::format("{}\n", fmt::join(ids, " ")));
  return kSuccess;
}

}  // namespace

void add_tokenize(CLI::App& app, Run& run) {
  std::shared_ptr<TokenizeOptions> options;
  CLI::App* command =
      add_command(app, run, "tokenize",
                  "Reads text from standard input and prints its token ids, separated by spaces",
                  options, run_tokenize);
  command->add_option("--model", options->model, "Hugging Face model directory (no default)")
      ->required()
      ->type_name("DIR");
  command->add_flag("--no-special", options->no_special,
                    "Leave out BOS and whatever else the model adds (default: off)");
}

}  // namespace winnow::cli
