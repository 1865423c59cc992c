#include "kvcache/rule.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kvcache/cache_shape.h"
#include "ops/kv_page.h"

namespace winnow::kvcache {
namespace {

int part_of(int tokens, double cr) {
  return std::max(1, static_cast<int>(tokens / cr));
}

int budget_of(const CacheConfig& config, const SequenceLimits& limits) {
  switch (config.traits().budget_of) {  // no default: the compiler reports a missing case
    case BudgetOf::sequence:
      break;
    case BudgetOf::prompt:
      return part_of(limits.prompt_tokens, config.cr);
    case BudgetOf::answer:
      return limits.prompt_tokens + part_of(limits.total_tokens - limits.prompt_tokens, config.cr);
  }
  return part_of(limits.total_tokens, config.cr);
}

// The entries of a Quest page: max(16, 2 CR), rounded up to whole pages of the pool.
int quest_page(double cr) {
  const int wanted = std::max(16, static_cast<int>(std::ceil(2.0 * cr)));
  return (wanted + ops::kPageEntries - 1) / ops::kPageEntries * ops::kPageEntries;
}

}  // namespace

void validate(const CacheConfig& config) {
  require(config.cr >= 1.0 && std::isfinite(config.cr), "compression ratio {} is not at least 1",
          config.cr);
  require(config.window >= 0, "window {} is negative", config.window);
  require(!config.traits().marks || (config.shift >= 0 && config.shift <= config.window + 1),
          "decision shift {} is not between 0 and {}: a key of a window of {} would leave it "
          "undecided",
          config.shift, config.window + 1, config.window);
  require(config.sinks >= 0, "{} attention sinks: a negative number", config.sinks);
}

Rule::Rule(const CacheConfig& config, const SequenceLimits& limits)
    : traits(&config.traits()), shift(config.shift), prompt_tokens(limits.prompt_tokens) {
  validate(config);
  if (traits->has_budget) {
    budget = budget_of(config, limits);
  }
  if (traits->marks) {
    window = config.window;
  } else if (traits->merges) {
    window = 0;  // holds the open entry
  } else if (traits->has_sinks) {
    sinks = std::min(config.sinks, budget - 1);
    window = budget - sinks - 1;
  }
  if (traits->selects) {
    page_entries = quest_page(config.cr);
  }
}

Rule Rule::of_layer(const CacheShape& shape, int layer) const {
  Rule own = *this;
  if (const int reach = shape.reach_of(layer); reach > 0) {
    own.traits = &kSlidingWindow;
    own.window = reach - 1;
    own.sinks = 0;
    own.chunked = shape.chunked;
  } else if (drops() && traits->eviction->layer_budget != nullptr) {
    own.budget = traits->eviction->layer_budget(*this, shape.full_layers_before(layer),
                                                shape.full_layers_before(shape.layers));
  }
  return own;
}

int Rule::window_entries(int length) const {
  return chunked && length > 0 ? (length - 1) % (window + 1) + 1 : std::min(length, window + 1);
}

int Rule::window_before(int length) const {
  return chunked ? length % (window + 1) : std::min(length, window);
}

int Rule::pages_read() const {
  const int entries = std::max(1, budget - (window + 1));
  return (entries + page_entries - 1) / page_entries;
}

int Rule::archive_limit() const {
  return std::max(0, budget - (window + 1));
}

int Rule::sure_room(int length) const {
  return std::max(0, window + 1 + archive_limit() - length);
}

Spared Rule::spared() const {
  return drops() && traits->eviction->spares != nullptr ? traits->eviction->spares(*this)
                                                        : Spared();
}

bool Rule::observes(int position) const {
  return drops() && traits->eviction->observes != nullptr &&
         traits->eviction->observes(*this, position);
}

bool Rule::drops_at(int length) const {
  return drops() && traits->eviction->held_after(*this, length - 1) >=
                        traits->eviction->held_after(*this, length);
}

int Rule::rows_at_once(int length, int rows) const {
  if (drops()) {
    int at_once = 0;
    for (int position = length; at_once < rows; ++at_once, ++position) {
      if (observes(position) || drops_at(position + 1)) {
        break;
      }
    }
    return at_once;
  }
  return traits->selects ? std::clamp(prompt_tokens - length, 0, rows) : rows;
}

Rule::ArchiveChange Rule::archive_change(int length, int tokens) const {
  if (traits->limits_archive) {
    const int left = length + tokens - (window + 1);  // entries that have left the window in total
    return {.most = archive_limit(), .drops = left > archive_limit()};
  }
  if (!drops()) {
    return {.most = length + tokens, .drops = false};
  }
  ArchiveChange change{.most = 0, .drops = false};
  for (int position = length; position < length + tokens; ++position) {
    const int held = traits->eviction->held_after(*this, position) + 1;
    change.most = std::max(change.most, held);
    change.drops |= traits->eviction->held_after(*this, position + 1) < held;
  }
  return change;
}

int hold_budget(const Rule& rule, int length) {
  return std::min(length, rule.budget);
}

}  // namespace winnow::kvcache
