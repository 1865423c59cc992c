// winnow tokenize: text to token ids.
#include <fmt/ranges.h>

#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
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
  const FlagGroup own(*command);
  add_model_flag(own, options->model)->required();
  own.flag("--no-special", options->no_special,
           "Leave out BOS and all else that the model adds (default: off)");
}

}  // namespace winnow::cli
