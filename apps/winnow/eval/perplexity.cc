// winnow eval perplexity: a text, teacher-forced, and the divergence of its predictions from a
// reference's.
#include <fmt/format.h>

#include <cmath>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/reference.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "base/sha256.h"
#include "eval/perplexity.h"

namespace winnow::cli {
namespace {

struct PerplexityFlags : EvalFlags {
  std::string text;
  std::string reference;
  int context = 4096;
  std::int64_t max_tokens = 0;
};

Json to_json(const PerplexityFlags& flags, const eval::PerplexityResult& result) {
  Json json{{"model", flags.load.model},
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
    json["reference_perplexity"] = std::exp(result.divergence->reference_nll);
    json["nll_change"] = result.divergence->change.mean;
    json["nll_change_error"] = result.divergence->change.error;
  }
  return json;
}

void print_table(const eval::PerplexityResult& result) {
  print(fmt::format("perplexity         {:.4f}  ({} nats/token)\n", result.perplexity(),
                    with_error(result.nll_per_token, result.nll_error, 5)));
  print(fmt::format("tokens scored      {}\n", grouped(result.tokens)));
  print(fmt::format("compression ratio  {:.2f}\n", result.compression_ratio));
  print(fmt::format("cache per text     {}\n", readable_bytes(result.kv_bytes)));
  if (result.divergence) {
    const eval::PerplexityResult::Divergence& divergence = *result.divergence;
    print(fmt::format("of the reference   {:.4f}; the model's is {:+.2f} % ({} nats/token)\n",
                      std::exp(divergence.reference_nll),
                      100.0 * std::expm1(divergence.change.mean),
                      with_error(divergence.change.mean, divergence.change.error, 5)));
    print(fmt::format("KLD                {} nats/token\n",
                      with_error(divergence.kld, divergence.kld_error, 5)));
    print(fmt::format("top-1 agreement    {:.2f} %\n", 100.0 * divergence.top1_agreement));
  }
}

int run_perplexity(const PerplexityFlags& flags) {
  const auto reference = load_reference(flags.load, flags.reference);
  const std::string text = read_text(flags.text);
  Sha256 digest;
  digest.update(text);
  Json settings{{"text", flags.text},
                {"text_sha256", digest.finish()},
                {"context", flags.context},
                {"max_tokens", flags.max_tokens}};
  if (reference) {
    settings["reference"] =
        flags.reference == "dense" ? Json("dense") : describe_model(flags.reference, *reference);
  }
  EvalRun run("perplexity", flags, settings);
  note_empty_comparison(flags.load, flags.reference, run.model());
  const auto tokens = run.tokenizer().encode(text, {.add_special = false, .parse_special = false});
  const auto total = static_cast<std::int64_t>(tokens.size());

  eval::PerplexityOptions options;
  options.context = flags.context;
  options.max_tokens = flags.max_tokens;
  options.prefix = run.prefix();
  options.batch = flags.batch;
  options.journal = &run.journal();
  options.on_progress =
      run.progress(flags.max_tokens > 0 ? std::min(flags.max_tokens, total) : total, "tokens");
  const auto result = eval::measure_perplexity(run.model(), reference.get(), tokens, options);
  return run.finish(to_json(flags, result), [&result] { print_table(result); });
}

}  // namespace

void add_eval_perplexity(CLI::App& eval, Run& run) {
  std::shared_ptr<PerplexityFlags> flags;
  CLI::App* command = add_command(
      eval, run, "perplexity",
      "Perplexity of a text, teacher-forced in windows of --context tokens, with the decisions and "
      "the cache of inference",
      flags, run_perplexity);
  const FlagGroup own(*command);
  add_text_flag(own, flags->text);
  own.option("--context", flags->context, "N", "Tokens per window");
  own.option("--max-tokens", flags->max_tokens, "N", "Take only the text's first tokens; 0: all");
  own.open_option("--reference", flags->reference, kDenseOrModelType,
                  "Also report the divergence from a reference: dense (the same model without "
                  "compression) or a model (no default)");
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
