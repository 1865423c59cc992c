#include "eval/measure_divergence.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace winnow::eval {
namespace {

std::string name(std::size_t prompt) {
  return fmt::format("prompt {}", prompt);
}

Json record_of(const GreedyRun& run, const GreedyRun& reference) {
  const GreedyDivergence greedy = compare_greedy(run, reference);
  const ForcedDivergence forced = compare_forced(run, reference);
  return {{"tokens_scored", greedy.tokens_scored},
          {"tokens_matched", greedy.tokens_matched},
          {"kld_sum", greedy.kld * greedy.tokens_scored},
          {"tokens", forced.tokens},
          {"agreements", forced.agreements},
          {"forced_kld_sum", forced.kld_sum},
          {"compression_ratio", run.cache.compression_ratio()},
          {"kv_bytes", run.cache.bytes}};
}

DivergenceResult summarize(const Journal& journal, std::size_t prompts) {
  DivergenceResult result;
  RatioMean kld;
  RatioMean forced_kld;
  RatioMean forced_match;
  Mean ratio;
  Mean bytes;
  for (std::size_t i = 0; i < prompts; ++i) {
    const Json* record = journal.find(name(i));
    if (record == nullptr) {
      continue;
    }
    const auto scored = record->at("tokens_scored").get<std::int64_t>();
    const auto tokens = record->at("tokens").get<std::int64_t>();
    result.tokens_scored += scored;
    result.tokens_matched += record->at("tokens_matched").get<std::int64_t>();
    result.tokens += tokens;
    kld.add(record->at("kld_sum").get<double>(), scored);
    forced_kld.add(record->at("forced_kld_sum").get<double>(), tokens);
    forced_match.add(record->at("agreements").get<double>(), tokens);
    ratio.add(record->at("compression_ratio").get<double>());
    bytes.add(record->at("kv_bytes").get<double>());
  }
  result.kld = kld.estimate();
  result.forced_kld = forced_kld.estimate();
  result.forced_match = forced_match.estimate();
  result.compression_ratio = ratio.count() > 0 ? ratio.mean() : 1.0;
  result.kv_bytes = bytes.mean();
  return result;
}

}  // namespace

std::vector<std::vector<std::int32_t>> cut_prompts(std::span<const std::int32_t> text,
                                                   std::span<const std::int32_t> prefix,
                                                   int prompts, int context) {
  require(prompts >= 1, "--prompts {}: at least 1 is needed", prompts);
  require(context > static_cast<int>(prefix.size()), "--context {}: expected more than {}", context,
          prefix.size());
  const std::size_t length = static_cast<std::size_t>(context) - prefix.size();
  const auto count = static_cast<std::size_t>(prompts);
  require(text.size() >= length * count, "the text has {} tokens: {} prompts of {} need {}",
          text.size(), prompts, length, length * count);
  std::vector<std::vector<std::int32_t>> result;
  for (std::size_t i = 0; i < count; ++i) {
    const auto piece = text.subspan(i * (text.size() / count), length);
    result.emplace_back(prefix.begin(), prefix.end());
    result.back().insert(result.back().end(), piece.begin(), piece.end());
  }
  return result;
}

DivergenceResult measure_divergence(const engine::LoadedModel& model,
                                    const ReferenceRuns& reference,
                                    std::span<const std::vector<std::int32_t>> prompts,
                                    const DivergenceOptions& options) {
  require(options.steps >= 1, "--steps {}: at least 1 is needed", options.steps);
  require(options.batch >= 1, "--batch {}: at least 1 is needed", options.batch);
  Journal in_memory;
  Journal& journal = options.journal != nullptr ? *options.journal : in_memory;
  const auto batch = static_cast<std::size_t>(options.batch);
  for (std::size_t first = 0; first < prompts.size(); first += batch) {
    const std::size_t count = std::min(batch, prompts.size() - first);
    bool is_known = true;
    for (std::size_t i = first; i < first + count; ++i) {
      is_known = is_known && journal.find(name(i)) != nullptr;
    }
    if (!is_known) {
      const auto references = reference(first, count);
      const auto runs =
          run_greedy_together(model, prompts.subspan(first, count), options.steps, references);
      for (std::size_t i = 0; i < count; ++i) {
        journal.add(name(first + i), record_of(runs[i], references[i]));
      }
    }
    if (options.on_progress && !options.on_progress(static_cast<std::int64_t>(first + count))) {
      break;
    }
  }
  return summarize(journal, prompts.size());
}

}  // namespace winnow::eval
