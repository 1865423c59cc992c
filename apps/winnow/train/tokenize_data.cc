// winnow tokenize-data: training data as tokens, made once for many runs.
#include "apps/winnow/command.h"
#include "apps/winnow/train/data.h"
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
  command->add_option("--model", flags->model, "Whose tokenizer and chat template (no default)")
      ->required()
      ->type_name("DIR");
  command
      ->add_option("--data", flags->data,
                   "JSONL, plain or .zst, with \"text\", \"parts\", \"prompt\" and \"completion\", "
                   "or \"messages\" (no default)")
      ->required()
      ->type_name("FILE");
  command->add_option("--out", flags->out, "The folder (no default)")->required()->type_name("DIR");
  command->add_flag("--mask-prompts", flags->mask_prompts,
                    "Predict only completions and the assistant's answers (default: everything)");
  command
      ->add_option("--max-malformed", flags->max_malformed,
                   "Share of malformed lines above which it stops")
      ->capture_default_str()
      ->type_name("SHARE");
  command->add_option("--threads", flags->threads, "Threads; 0: one per core")
      ->capture_default_str()
      ->type_name("T");
}

}  // namespace winnow::cli
