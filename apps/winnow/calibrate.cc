// winnow calibrate: statistics of a model's queries over a text, for cache rules that need them.
#include <fmt/format.h>

#include <algorithm>

#include "api/llm_load.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flag_group.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "base/error.h"
#include "engine/calibrate.h"
#include "engine/calibration_file.h"
#include "kvcache/rule_traits.h"
#include "tokenizer/tokenizer.h"

namespace winnow::cli {
namespace {

struct CalibrateOptions {
  LoadOptions load = {.cache = "dense"};
  std::string text;
  std::string output;
  int max_tokens = 32768;
};

int run_calibrate(const CalibrateOptions& options) {
  engine::require_calibration(options.output);
  require(options.max_tokens >= 1, "--max-tokens {}: expected 1 or more", options.max_tokens);
  const std::string text = read_text(options.text);
  require(!text.empty(), "--text {}: is empty", options.text);
  const auto loaded = engine::load_model(options.load);
  require(!loaded->spec().has_latents(), "{}: queries of latent attention are not calibrated",
          options.load.model);
  auto tokens = load_tokenizer(options.load.model)
                    ->encode(text, {.add_special = true, .parse_special = false});
  require(!tokens.empty(), "--text {}: has no tokens", options.text);
  const int most = std::min(options.max_tokens, loaded->spec().max_positions);
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(most)));
  ProgressBar progress("calibrate", static_cast<std::int64_t>(tokens.size()), "tokens");
  const auto calibration =
      engine::calibrate(*loaded->backend, loaded->engine, tokens, [&](std::size_t done) {
        stop_if_interrupted();
        progress.update(static_cast<std::int64_t>(done));
      });
  progress.clear();
  engine::write_calibration(options.output, calibration, loaded->cache_shape());
  print_note(fmt::format("{}: statistics of {} tokens\n", options.output, tokens.size()));
  return kSuccess;
}

}  // namespace

void add_calibrate(CLI::App& app, Run& run) {
  std::shared_ptr<CalibrateOptions> options;
  CLI::App* command = add_command(
      app, run, "calibrate",
      fmt::format("Reads a text and writes statistics of the model's queries before RoPE, which "
                  "--cache {} needs as --calibration",
                  kvcache::list_rules("and", [](const auto& rule) { return rule.calibrated; })),
      options, run_calibrate);
  const FlagGroup own(*command);
  add_model_flag(own, options->load.model)->required();
  own.open_option("--text", options->text, "FILE",
                  "Text like what the model will read, the longer the better; - is standard input "
                  "(no default)")
      ->required();
  own.open_option("--output", options->output, "FILE", "The safetensors file to write (no default)")
      ->required();
  own.option("--max-tokens", options->max_tokens, "N",
             "Take the text's first tokens, no more than the model has positions");
  add_threads_flag(own, options->load.threads);
}

}  // namespace winnow::cli
