// winnow train-probe: learns a compression probe for a plain model, whose weights stay as they are.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "api/llm_load.h"
#include "apps/winnow/command.h"
#include "apps/winnow/flags.h"
#include "apps/winnow/interrupt.h"
#include "apps/winnow/output.h"
#include "apps/winnow/progress.h"
#include "apps/winnow/train/data.h"
#include "base/error.h"
#include "base/sha256.h"
#include "checkpoint/digest.h"
#include "train/probe/probe_trainer.h"

namespace winnow::cli {
namespace {

namespace fs = std::filesystem;

constexpr double kMostTarget = 1000.0;

struct TrainProbeFlags {
  LoadOptions load = {.cache = "dense"};
  std::vector<std::string> data;
  std::string out;
  int length = 1000;
  std::int64_t max_tokens = 500000;
  double target_cr = 4.0;
  double ridge = 1.0;
  std::uint64_t seed = 1;
};

void check_probe_flags(const TrainProbeFlags& flags) {
  require(flags.length >= 2, "--length {}: expected 2 or more", flags.length);
  require(flags.max_tokens >= 2 * std::int64_t{flags.length},
          "--max-tokens {}: expected at least two texts of --length {}", flags.max_tokens,
          flags.length);
  require(flags.target_cr >= 1.0 && flags.target_cr <= kMostTarget,
          "--target-cr {}: expected 1 to {}", flags.target_cr, kMostTarget);
  require(flags.ridge > 0.0 && std::isfinite(flags.ridge), "--ridge {}: expected more than 0",
          flags.ridge);
  std::error_code ignored;
  require(!fs::equivalent(flags.load.model, flags.out, ignored),
          "--out {}: that is the model, the probe gets a folder of its own", flags.out);
  model::require_kvzap_place(flags.out);
}

train::Shards open_probe_data(const TrainProbeFlags& flags, const model::ModelSpec& spec) {
  train::TokenizeOptions options;
  options.files.assign(flags.data.begin(), flags.data.end());
  options.model = flags.load.model;
  return open_data(options, spec, fs::path(flags.out) / "training" / "data");
}

using Pieces = std::span<const std::span<const std::int32_t>>;

// All that determines the sums of a training.
nlohmann::ordered_json settings_of(const TrainProbeFlags& flags, const train::Repeater& repeater,
                                   Pieces pieces) {
  Sha256 data;
  for (const auto& piece : pieces) {
    const train::Repetition repetition = repeater.repeat(piece);
    data.update(std::as_bytes(std::span(repetition.tokens)));
  }
  return {{"model", checkpoint_digest(flags.load.model)},
          {"length", flags.length},
          {"number of texts", pieces.size()},
          {"choice of texts or chat template", data.finish()}};
}

// As it is printed, so that --probe-threshold can say the same.
double rounded_threshold(const train::ProbeFit& fit, double ratio) {
  constexpr double kSteps = 1000.0;
  return std::round(kSteps * fit.threshold(ratio)) / kSteps;
}

void print_probe(const TrainProbeFlags& flags, const train::TrainedProbe& probe) {
  print(fmt::format(
      "{}: a probe trained on {} tokens; on {} held-out tokens it explains {:.0f} % "
      "of the scores' variance\n",
      flags.out, grouped(probe.tokens), grouped(probe.fit.tokens), 100.0 * probe.fit.explained));
  print("Beyond the window it keeps on the held-out tokens\n");
  for (const int ratio : {2, 4, 8, 16}) {
    print(fmt::format("  1 entry in {:<2}  with --probe {} --probe-threshold {:.3f}\n", ratio,
                      flags.out, rounded_threshold(probe.fit, ratio)));
  }
  print(fmt::format("Its own threshold, for --probe {} alone, is that of --target-cr {}: {:.3f}\n",
                    flags.out, flags.target_cr, rounded_threshold(probe.fit, flags.target_cr)));
}

train::TrainedProbe train_with_progress(const TrainProbeFlags& flags,
                                        const engine::LoadedModel& model,
                                        const train::Repeater& repeater, Pieces pieces,
                                        const train::ProbeSumsFile& kept) {
  const auto all = static_cast<std::int64_t>(pieces.size());
  const auto learned = all - static_cast<std::int64_t>(train::held_out_pieces(pieces.size()));
  std::optional<ProgressBar> progress;  // of the texts that an earlier training has left
  std::int64_t first = 0;
  std::int64_t read = 0;
  const auto on_piece = [&](std::int64_t done) {
    if (!progress) {
      first = done;
      progress.emplace("train-probe", all - first, "texts");
    }
    read = std::min(done, learned);
    progress->update(done - first);
    stop_if_interrupted();
  };
  try {
    train::TrainedProbe probe = train::train_probe(
        model, repeater, pieces, {.penalty = flags.ridge, .on_piece = on_piece, .kept = &kept});
    progress->clear();
    return probe;
  } catch (const Interrupted&) {
    progress->clear();
    print_note(fmt::format("stopped after {} of {} texts: the same command goes on from there\n",
                           grouped(read), grouped(learned)));
    throw;
  }
}

int run_train_probe(const TrainProbeFlags& flags) {
  check_probe_flags(flags);
  const model::ModelSpec spec = model::read_spec(flags.load.model);
  train::require_probe_model(spec);
  const train::Repeater repeater(flags.load.model, spec);
  const auto length = static_cast<std::size_t>(flags.length);
  require(repeater.size(length) <= static_cast<std::size_t>(spec.max_positions),
          "--length {}: a text and its repetition take {} tokens, the model has {} positions",
          flags.length, repeater.size(length), spec.max_positions);
  const train::Shards shards = open_probe_data(flags, spec);
  const auto pieces = train::draw_pieces(
      shards, length, static_cast<std::size_t>(flags.max_tokens) / length, flags.seed);
  require(pieces.size() >= 2,
          "--data: its documents have {} texts of {} tokens, but a probe needs 2 or more: give "
          "longer documents or a smaller --length",
          pieces.size(), flags.length);
  const train::ProbeSumsFile kept(fs::path(flags.out) / "training" / "sums",
                                  settings_of(flags, repeater, pieces));
  const auto loaded = engine::load_model(flags.load);
  const train::TrainedProbe probe = train_with_progress(flags, *loaded, repeater, pieces, kept);
  model::save_kvzap(flags.out, spec, probe.layers, rounded_threshold(probe.fit, flags.target_cr));
  kept.remove();
  print_probe(flags, probe);
  return kSuccess;
}

}  // namespace

void add_train_probe(CLI::App& app, Run& run) {
  std::shared_ptr<TrainProbeFlags> flags;
  CLI::App* command =
      add_command(app, run, "train-probe",
                  "Trains a probe beside a plain model that scores cache entries (KVzap, linear), "
                  "for --probe; the model stays as it is",
                  flags, run_train_probe);
  const FlagGroup own(*command);
  add_model_flag(own, flags->load.model)->required();
  own.open_option("--data", flags->data, "FILE",
                  "Texts like those that the model will read: JSONL, plain or .zst, with \"text\", "
                  "\"parts\", \"prompt\" and \"completion\", or \"messages\"; or one folder that "
                  "tokenize-data made (no default)")
      ->required();
  own.open_option("--out", flags->out, "DIR", "The folder for the probe (no default)")->required();
  own.option("--length", flags->length, "N",
             "Tokens of a text, which the model reads and repeats; shorter documents are not used");
  own.option("--max-tokens", flags->max_tokens, "N", "Take so many tokens, drawn from all data");
  own.option("--target-cr", flags->target_cr, "X",
             "Beyond the window the probe keeps one entry in X, measured on held-out tokens; "
             "--probe-threshold says otherwise when it is used");
  own.option("--ridge", flags->ridge, "X", "Penalty of the regression's squared weights");
  own.option("--seed", flags->seed, "N", "Seed of the draw");
  add_threads_flag(own, flags->load.threads);
}

}  // namespace winnow::cli
