// winnow eval divergence: greedy continuations compared with a reference's.
#include <fmt/format.h>

#include "apps/winnow/eval/eval.h"
#include "apps/winnow/eval/reference.h"
#include "apps/winnow/eval/run.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/model_names.h"
#include "apps/winnow/output.h"
#include "base/error.h"
#include "base/sha256.h"
#include "eval/measure_divergence.h"

namespace winnow::cli {
namespace {

struct DivergenceFlags : EvalFlags {
  std::string text;
  std::string reference = "dense";
  std::string save_logits;
  int prompts = 4;
  int context = 1024;
  int steps = 16;
};

using Prompts = std::vector<std::vector<std::int32_t>>;

bool is_saved(const DivergenceFlags& flags) {
  return flags.reference.ends_with(".safetensors");
}

Json to_json(const eval::DivergenceResult& result) {
  return {{"kld", result.kld.mean},
          {"kld_error", result.kld.error},
          {"tokens_scored", result.tokens_scored},
          {"tokens_matched", result.tokens_matched},
          {"tokens", result.tokens},
          {"forced_kld", result.forced_kld.mean},
          {"forced_kld_error", result.forced_kld.error},
          {"token_match", result.forced_match.mean},
          {"token_match_error", result.forced_match.error},
          {"compression_ratio", result.compression_ratio},
          {"kv_bytes", result.kv_bytes}};
}

void print_table(const eval::DivergenceResult& result) {
  print(fmt::format("KLD while tokens agree  {} nats/token\n",
                    with_error(result.kld.mean, result.kld.error, 6)));
  print(fmt::format("tokens scored           {} of {}, {} the same\n",
                    grouped(result.tokens_scored), grouped(result.tokens),
                    grouped(result.tokens_matched)));
  print(fmt::format("KLD on its text         {} nats/token\n",
                    with_error(result.forced_kld.mean, result.forced_kld.error, 6)));
  print(fmt::format(
      "token match on its text {} %\n",
      with_error(100.0 * result.forced_match.mean, 100.0 * result.forced_match.error, 2)));
  print(fmt::format("compression ratio       {:.2f}\n", result.compression_ratio));
  print(fmt::format("cache per prompt        {}\n", readable_bytes(result.kv_bytes)));
}

// The outputs of the reference, from its file or by running it.
eval::ReferenceRuns reference_runs(const DivergenceFlags& flags, const Prompts& prompts,
                                   const engine::LoadedModel& model,
                                   const engine::LoadedModel* reference) {
  if (is_saved(flags)) {
    auto saved = std::make_shared<std::vector<eval::GreedyRun>>(
        eval::load_runs(flags.reference, prompts, flags.steps, model.spec().vocab));
    return [saved](std::size_t first, std::size_t count) {
      const auto begin = saved->begin() + static_cast<std::ptrdiff_t>(first);
      return std::vector<eval::GreedyRun>(begin, begin + static_cast<std::ptrdiff_t>(count));
    };
  }
  require(reference->spec().vocab == model.spec().vocab,
          "the reference has a vocabulary of {} tokens, the model one of {}",
          reference->spec().vocab, model.spec().vocab);
  return [&flags, &prompts, reference](std::size_t first, std::size_t count) {
    return eval::run_greedy_together(*reference, std::span(prompts).subspan(first, count),
                                     flags.steps);
  };
}

int save_logits(const DivergenceFlags& flags, EvalRun& run, const Prompts& prompts) {
  const auto progress = run.progress(static_cast<std::int64_t>(prompts.size()), "prompts");
  std::vector<eval::GreedyRun> runs;
  const auto batch = static_cast<std::size_t>(flags.batch);
  while (runs.size() < prompts.size()) {
    const std::size_t count = std::min(batch, prompts.size() - runs.size());
    for (auto& one : eval::run_greedy_together(
             run.model(), std::span(prompts).subspan(runs.size(), count), flags.steps)) {
      runs.push_back(std::move(one));
    }
    if (!progress(static_cast<std::int64_t>(runs.size()))) {
      return kInterrupted;
    }
  }
  eval::save_runs(flags.save_logits, prompts, runs);
  return run.finish({{"saved", flags.save_logits}, {"prompts", prompts.size()}}, [&] {
    print(fmt::format("{} prompts and {} tokens after each: {}\n", prompts.size(), flags.steps,
                      flags.save_logits));
  });
}

int run_divergence(const DivergenceFlags& flags) {
  const bool saves = !flags.save_logits.empty();
  if (saves) {
    eval::require_saved_runs(flags.save_logits);
  }
  const auto reference =
      is_saved(flags) || saves ? nullptr : load_reference(flags.load, flags.reference);
  const std::string text = read_text(flags.text);
  Sha256 digest;
  digest.update(text);
  Json settings{{"text", flags.text},       {"text_sha256", digest.finish()},
                {"prompts", flags.prompts}, {"context", flags.context},
                {"steps", flags.steps},     {"reference", flags.reference}};
  if (reference && flags.reference != "dense") {
    settings["reference"] = describe_model(flags.reference, *reference);
  }
  require(!saves || flags.out.empty(), "--save-logits: writes no results: leave out --out");
  EvalRun run("divergence", flags, settings);
  if (reference) {
    note_empty_comparison(flags.load, flags.reference, run.model());
  }
  const auto tokens = run.tokenizer().encode(text, {.add_special = false, .parse_special = false});
  const Prompts prompts = eval::cut_prompts(tokens, run.prefix(), flags.prompts, flags.context);
  if (saves) {
    return save_logits(flags, run, prompts);
  }
  eval::DivergenceOptions options;
  options.steps = flags.steps;
  options.batch = flags.batch;
  options.journal = &run.journal();
  options.on_progress = run.progress(flags.prompts, "prompts");
  const auto result = eval::measure_divergence(
      run.model(), reference_runs(flags, prompts, run.model(), reference.get()), prompts, options);
  return run.finish(to_json(result), [&result] { print_table(result); });
}

}  // namespace

void add_eval_divergence(CLI::App& eval, Run& run) {
  std::shared_ptr<DivergenceFlags> flags;
  CLI::App* command =
      add_command(eval, run, "divergence",
                  "Compares greedy continuations of --prompts pieces of a text with those of a "
                  "reference: KLD and token match, while both agree and on the reference's text",
                  flags, run_divergence);
  const FlagGroup own(*command);
  add_text_flag(own, flags->text);
  own.option("--prompts", flags->prompts, "N", "Pieces of the text, spread evenly over it");
  own.option("--context", flags->context, "N", "Tokens per prompt");
  own.option("--steps", flags->steps, "N", "Tokens generated after each prompt");
  own.option("--reference", flags->reference, kReferenceType,
             "dense (the same model without compression), a model, or what "
             "--save-logits wrote");
  own.open_option("--save-logits", flags->save_logits, "FILE.safetensors",
                  "Compare nothing: write this model's continuations and logits, to be a "
                  "reference elsewhere (no default)");
  add_eval_flags(*command, *flags);
}

}  // namespace winnow::cli
