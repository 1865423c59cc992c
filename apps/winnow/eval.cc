// winnow eval: what compression costs. So far: perplexity, and divergence from a reference run.
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "command.h"
#include "eval/perplexity.h"
#include "flags.h"
#include "interrupt.h"
#include "output.h"
#include "progress.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {
namespace {

struct PerplexityFlags {
  LoadOptions load;
  std::string text;
  std::string reference;
  int context = 4096;
  std::int64_t max_tokens = 0;
  bool json = false;
};

// The model that --reference names: a directory, or "dense" for the model without compression.
std::unique_ptr<const engine::LoadedModel> load_reference(const PerplexityFlags& flags) {
  if (flags.reference.empty()) {
    return nullptr;
  }
  LoadOptions load = flags.load;
  load.cache = "dense";
  load.cr.reset();
  load.window.reset();
  if (flags.reference != "dense") {
    load.model = flags.reference;
    load.weights = "auto";
    load.kv_dtype.clear();
  }
  return engine::load_model(load);
}

nlohmann::ordered_json to_json(const PerplexityFlags& flags, const eval::PerplexityResult& result) {
  nlohmann::ordered_json json{{"model", flags.load.model},
                              {"text", flags.text},
                              {"context", flags.context},
                              {"cache", flags.load.cache},
                              {"weights", flags.load.weights},
                              {"kv_dtype", flags.load.kv_dtype},
                              {"perplexity", result.perplexity()},
                              {"nll_per_token", result.nll_per_token},
                              {"nll_error", result.nll_error},
                              {"tokens", result.tokens},
                              {"compression_ratio", result.compression_ratio},
                              {"kv_bytes", result.kv_bytes}};
  if (result.divergence) {
    json["reference"] = flags.reference;
    json["kld"] = result.divergence->kld;
    json["kld_error"] = result.divergence->kld_error;
    json["top1_agreement"] = result.divergence->top1_agreement;
  }
  return json;
}

void print_table(const eval::PerplexityResult& result) {
  print(fmt::format("perplexity         {:.4f}  ({:.5f} +- {:.5f} nats/token)\n",
                    result.perplexity(), result.nll_per_token, result.nll_error));
  print(fmt::format("tokens scored      {}\n", grouped(result.tokens)));
  print(fmt::format("compression ratio  {:.2f}\n", result.compression_ratio));
  print(fmt::format("cache per window   {}\n", readable_bytes(result.kv_bytes)));
  if (result.divergence) {
    print(fmt::format("KLD                {:.5f} +- {:.5f} nats/token\n", result.divergence->kld,
                      result.divergence->kld_error));
    print(fmt::format("top-1 agreement    {:.2f} %\n", 100.0 * result.divergence->top1_agreement));
  }
}

int run_perplexity(const PerplexityFlags& flags) {
  const auto loaded = engine::load_model(flags.load);
  const auto reference = load_reference(flags);
  const auto tokenizer = load_tokenizer(flags.load.model);
  const std::string text = read_file(flags.text);
  const auto tokens = tokenizer->encode(text, {.add_special = false, .parse_special = false});

  eval::PerplexityOptions options;
  options.context = flags.context;
  options.max_tokens = flags.max_tokens;
  if (loaded->model.config().bos_token) {
    options.prefix = {*loaded->model.config().bos_token};
  }
  const auto total = static_cast<std::int64_t>(tokens.size());
  ProgressBar progress("perplexity",
                       flags.max_tokens > 0 ? std::min(flags.max_tokens, total) : total, "tokens");
  options.on_progress = [&progress](std::int64_t done) {
    progress.update(done);
    return !interrupted();
  };
  const auto result = eval::measure_perplexity(*loaded, reference.get(), tokens, options);
  progress.clear();
  if (flags.json) {
    print_json(to_json(flags, result));
  } else {
    print_table(result);
  }
  return interrupted() ? kInterrupted : kSuccess;
}

}  // namespace

void add_eval(CLI::App& app, Run& run) {
  CLI::App* eval = app.add_subcommand("eval", "Measures what compression costs");
  std::shared_ptr<PerplexityFlags> flags;
  CLI::App* command = add_command(
      *eval, run, "perplexity",
      "Perplexity of a text, teacher-forced in windows of --context tokens, with the decisions and "
      "the cache of inference",
      flags, run_perplexity);
  command->add_option("--text", flags->text, "The text file; - is standard input (no default)")
      ->required()
      ->type_name("FILE");
  command->add_option("--context", flags->context, "Tokens per window (default: 4096)")
      ->type_name("N");
  command
      ->add_option("--max-tokens", flags->max_tokens,
                   "Take only the text's first tokens (default: 0, all)")
      ->type_name("N");
  command
      ->add_option("--reference", flags->reference,
                   "Also report the divergence from a reference: dense (the same model without "
                   "compression) or a model directory (no default)")
      ->type_name("dense|DIR");
  command->add_flag("--json", flags->json, "Print JSON (default: off)");
  add_load_flags(*command, flags->load);
}

}  // namespace winnow::cli
