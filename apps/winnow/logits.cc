// winnow logits: writes the engine's results for given tokens, with its cache, to a file.
#include <algorithm>

#include "api/llm_load.h"
#include "api/llm_session.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "base/error.h"
#include "checkpoint/replaceable_file.h"
#include "checkpoint/safetensors.h"

namespace winnow::cli {
namespace {

constexpr const char* kLogits = "logits";
constexpr const char* kLiveEntries = "live_entries";

struct LogitsOptions {
  LoadOptions load;
  std::string tokens;
  std::string tokens_file;
  std::string output;
  bool decode = false;
  std::optional<int> prompt_tokens;
  std::optional<int> total_tokens;
};

std::vector<std::int32_t> read_tokens(const LogitsOptions& options, int vocab) {
  require(options.tokens.empty() != options.tokens_file.empty(),
          "either --tokens or --tokens-file is needed");
  auto tokens = options.tokens_file.empty()
                    ? parse_tokens(options.tokens, "--tokens")
                    : parse_tokens(read_file(options.tokens_file), "--tokens-file");
  for (const std::int32_t token : tokens) {
    require(token < vocab, "token {} is outside the vocabulary of {} tokens", token, vocab);
  }
  return tokens;
}

bool minds_prompt(const kvcache::RuleTraits& rule) {
  return rule.minds_prompt;
}

bool has_budget(const kvcache::RuleTraits& rule) {
  return rule.has_budget;
}

// Refuses settings that the rule would ignore.
void check_limits(const LogitsOptions& options, const kvcache::RuleTraits& rule) {
  require(!options.prompt_tokens || rule.minds_prompt,
          "--prompt-tokens {}: goes with --cache {} only, this is {}",
          options.prompt_tokens.value_or(0), kvcache::list_rules("or", minds_prompt), rule.name);
  require(!options.total_tokens || rule.has_budget,
          "--total-tokens {}: goes with a cache that has a budget ({}), this is {}",
          options.total_tokens.value_or(0), kvcache::list_rules("or", has_budget), rule.name);
}

kvcache::SequenceLimits limits_of(const LogitsOptions& options, int length) {
  const int prompt = options.prompt_tokens.value_or(options.decode ? 1 : length);
  const int total = options.total_tokens.value_or(length);
  require(prompt >= 0, "--prompt-tokens {} is negative", prompt);
  require(total >= 1, "--total-tokens {} is not at least 1", total);
  require(!options.prompt_tokens || prompt <= total,
          "--prompt-tokens {}: expected at most {}, the --total-tokens", prompt, total);
  return {prompt, total};
}

// If layers have different numbers of heads, all heads are in one row.
Shape shape_of_entries(const model::ModelSpec& config, std::int64_t rows) {
  if (!config.has_equal_heads()) {
    return {rows, config.cached_heads()};
  }
  return {rows, config.attention_before(config.layer_count()), config.attention().kv_heads};
}

int run_logits(const LogitsOptions& options) {
  require_replaceable(options.output, safetensors_of("logits of winnow", [](std::string_view name) {
                        return name == kLogits || name == kLiveEntries;
                      }));
  const auto loaded = engine::load_model(options.load);
  const model::ModelSpec& config = loaded->spec();
  check_limits(options, loaded->engine.cache.traits());
  const auto tokens = read_tokens(options, config.vocab);
  require(tokens.size() <= static_cast<std::size_t>(config.max_positions),
          "{} tokens are more than the model's {} positions", tokens.size(), config.max_positions);
  const auto vocab = static_cast<std::size_t>(config.vocab);
  const auto heads = static_cast<std::size_t>(config.cached_heads());
  Buffer<float> logits(tokens.size() * vocab);
  Buffer<std::int32_t> live(tokens.size() * heads);

  engine::Session session(*loaded->backend, loaded->engine,
                          limits_of(options, static_cast<int>(tokens.size())));
  const std::size_t chunk =
      options.decode ? 1 : static_cast<std::size_t>(loaded->engine.step_tokens);
  ProgressBar progress("logits", static_cast<std::int64_t>(tokens.size()), "tokens");
  for (std::size_t first = 0; first < tokens.size(); first += chunk) {
    stop_if_interrupted();
    const std::size_t count = std::min(chunk, tokens.size() - first);
    session.feed(std::span(tokens).subspan(first, count),
                 logits.span().subspan(first * vocab, count * vocab),
                 live.span().subspan(first * heads, count * heads));
    progress.update(static_cast<std::int64_t>(first + count));
  }
  const auto rows = static_cast<std::int64_t>(tokens.size());
  write_safetensors(
      options.output,
      {{kLogits, {DType::f32, {rows, config.vocab}, std::as_bytes(logits.span()).data()}},
       {kLiveEntries,
        {DType::i32, shape_of_entries(config, rows), std::as_bytes(live.span()).data()}}});
  return kSuccess;
}

}  // namespace

void add_logits(CLI::App& app, Run& run) {
  std::shared_ptr<LogitsOptions> options;
  CLI::App* command = add_command(
      app, run, "logits",
      "Writes the logits of given tokens, as the engine computes them with its cache, and how many "
      "entries each query saw: `logits` fp32 [T, V], `live_entries` int32 [T, layers, kv heads]",
      options, run_logits);
  const FlagGroup own(*command);
  own.open_option("--tokens", options->tokens, "IDS", "Token ids: 1,2,3 (no default)");
  own.open_option("--tokens-file", options->tokens_file, "FILE",
                  "A file with token ids, instead of --tokens; - is standard input (no default)");
  own.open_option("--output", options->output, "FILE", "The safetensors file to write (no default)")
      ->required();
  own.flag("--decode", options->decode, "Feed one token at a time (default: off)");
  own.open_option("--prompt-tokens", options->prompt_tokens, "P",
                  kvcache::list_rules("and", minds_prompt) +
                      ": how many tokens are prompt (default: all; with "
                      "--decode 1)");
  own.open_option("--total-tokens", options->total_tokens, "N",
                  kvcache::list_rules("and", has_budget) +
                      ": the length that --cr divides into the budget (default: the number of "
                      "tokens)");
  add_load_flags(*command, options->load);
}

}  // namespace winnow::cli
