// winnow tokenize-data: tokenises training data once for many runs.
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/train/data.h"
#include "apps/winnow/train/flags.h"
#include "base/threads.h"

namespace winnow::cli {
namespace {

struct TokenizeDataFlags {
  std::string model;
  std::vector<std::string> data;
  std::string out;
  bool mask_prompts = false;
  double max_malformed = 0.01;
  int threads = 0;
};

int run_tokenize_data(const TokenizeDataFlags& flags) {
  train::TokenizeOptions options;
  options.files.assign(flags.data.begin(), flags.data.end());
  options.model = flags.model;
  options.mask_prompts = flags.mask_prompts;
  options.max_malformed = flags.max_malformed;
  train::Shards::require_place(flags.out, train::data_origin(options));
  set_threads(flags.threads);
  tokenize_with_progress(options, model::read_spec(flags.model), flags.out);
  return kSuccess;
}

}  // namespace

void add_tokenize_data(CLI::App& app, Run& run) {
  std::shared_ptr<TokenizeDataFlags> flags;
  CLI::App* command =
      add_command(app, run, "tokenize-data",
                  "Tokenises training data into a folder that train and retrofit take as --data",
                  flags, run_tokenize_data);
  const FlagGroup own(*command);
  own.open_option(
         kModelFlag, flags->model, kModelType,
         "Model directory, GGUF file, or org/name[@revision] on the Hub, with the tokenizer and "
         "chat template (no default)")
      ->required();
  own.open_option("--data", flags->data, "FILE",
                  "JSONL, plain or .zst, with \"text\", \"parts\", \"prompt\" and \"completion\", "
                  "or \"messages\" (no default)")
      ->required();
  own.open_option("--out", flags->out, "DIR", "The folder to write (no default)")->required();
  add_document_flags(own, flags->mask_prompts, flags->max_malformed);
  add_threads_flag(own, flags->threads);
}

}  // namespace winnow::cli
