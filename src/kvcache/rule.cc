#include "kvcache/rule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {
namespace {

constexpr std::array<std::pair<RuleKind, std::string_view>, 7> kNames{{
    {RuleKind::dense, "dense"},
    {RuleKind::dms, "dms"},
    {RuleKind::dmc, "dmc"},
    {RuleKind::streaming, "streaming"},
    {RuleKind::tova, "tova"},
    {RuleKind::h2o, "h2o"},
    {RuleKind::quest, "quest"},
}};

int budget_of(const CacheConfig& config, const SequenceLimits& limits) {
  return std::max(1, static_cast<int>(limits.total_tokens / config.cr));
}

// Quest's page: max(16, 2 CR) entries, rounded up to whole pages of the pool.
int quest_page(double cr) {
  const int wanted = std::max(16, static_cast<int>(std::ceil(2.0 * cr)));
  return (wanted + ops::kPageEntries - 1) / ops::kPageEntries * ops::kPageEntries;
}

}  // namespace

std::string_view rule_name(RuleKind kind) {
  return std::ranges::find(kNames, kind, &decltype(kNames)::value_type::first)->second;
}

std::optional<RuleKind> parse_rule(std::string_view name) {
  const auto* found = std::ranges::find(kNames, name, &decltype(kNames)::value_type::second);
  return found == kNames.end() ? std::nullopt : std::optional(found->first);
}

void validate(const CacheConfig& config) {
  require(config.cr >= 1.0 && std::isfinite(config.cr), "compression ratio {} is not at least 1",
          config.cr);
  require(config.window >= 0, "window {} is negative", config.window);
  require(config.rule != RuleKind::dms || (config.shift >= 0 && config.shift <= config.window + 1),
          "decision shift {} is not between 0 and {}: a key of a window of {} would leave it "
          "undecided",
          config.shift, config.window + 1, config.window);
  require(config.sinks >= 0, "{} attention sinks: a negative number", config.sinks);
}

Rule::Rule(const CacheConfig& config, const SequenceLimits& limits)
    : kind(config.rule), shift(config.shift), prompt_tokens(limits.prompt_tokens) {
  validate(config);
  switch (kind) {
    case RuleKind::dense:
      break;
    case RuleKind::dms:
      window = config.window;
      break;
    case RuleKind::dmc:
      window = 0;  // the open entry
      break;
    case RuleKind::streaming: {
      budget = budget_of(config, limits);
      sinks = std::min(config.sinks, budget - 1);
      window = budget - sinks - 1;
      break;
    }
    case RuleKind::tova:
    case RuleKind::h2o:
      budget = budget_of(config, limits);
      break;
    case RuleKind::quest:
      budget = budget_of(config, limits);
      page_entries = quest_page(config.cr);
      break;
  }
}

}  // namespace winnow::kvcache
