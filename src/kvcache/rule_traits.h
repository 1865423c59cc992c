// The traits of every rule, one row per rule. Code tests a trait, never the rule.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kvcache/eviction/eviction.h"

namespace winnow::kvcache {

enum class RuleKind : std::uint8_t {
  dense,      // everything
  dms,        // learned delayed eviction
  dmc,        // learned append-or-merge
  streaming,  // attention sinks and a window (StreamingLLM)
  tova,       // over budget, drop the entry with the least current attention in the layer
  h2o,        // over budget, drop the entry with the least cumulative attention in the head
  quest,      // everything is kept; decode reads the most promising pages
  random,     // over budget, drop any token of the answer
  snapkv,     // after the prompt, keep what its last queries attend to
  rkv,        // over budget, drop entries with little attention that are similar to others
  vatp,       // h2o, attention weighted by the size of values
  pyramidkv,  // snapkv, with more for the first layers and less for the last
  expected_attention,  // after the prompt, keep what future queries are expected to attend to
  triattention,        // over budget, drop what the model's mean queries attend to least
  dms_quest,           // dms; decode reads the most promising pages of what is kept
  dms_budget,          // dms; over budget, drop the entry that the model came closest to evicting
};

/// The tokens that a budget of 1 / CR is counted from.
enum class BudgetOf : std::uint8_t {
  sequence,  // the prompt and the new tokens
  prompt,    // the prompt: the new tokens come on top
  answer,    // the new tokens: the prompt comes on top
};

/// The properties of a rule that code tests. A new rule is a row of kRules, its mechanism, tests
/// and docs.
struct RuleTraits {
  RuleKind kind = RuleKind::dense;
  std::string_view name;

  // The source of decisions: the model (a retrofit), a budget (a sequence's length over --cr), or
  // both.
  bool marks = false;       // a decision marks an entry to be dropped when it leaves the window
  bool merges = false;      // a decision merges a token into the open entry, a running average
  bool has_budget = false;  // entries per head, from --cr
  BudgetOf budget_of = BudgetOf::sequence;

  // What happens to entries.
  bool has_sinks = false;              // first tokens are archived when they leave the window
  const Eviction* eviction = nullptr;  // how entries of the archive are dropped by score
  bool limits_archive = false;         // the archive holds at most the budget less the window;
                                       // over it, the entry with the highest logit is dropped
  bool selects = false;                // a query after the prompt reads only some archive pages
  bool minds_prompt = false;           // behaviour depends on the prompt's length
  bool keeps_all = false;              // every token keeps its entry, so a sequence can be cut

  bool calibrated = false;  // needs statistics of the model's queries

  /// Whether the model decides, and whether only the model does.
  [[nodiscard]] constexpr bool learned() const { return marks || merges; }
  [[nodiscard]] constexpr bool learned_alone() const { return learned() && !has_budget; }
  [[nodiscard]] constexpr bool drops() const { return eviction != nullptr; }
  /// Whether each token over the budget drops one entry; else entries are dropped in rounds.
  [[nodiscard]] bool drops_each() const { return drops() && eviction->held_after == hold_budget; }
  /// Whether archived entries have scores by which some of them leave the archive.
  [[nodiscard]] constexpr bool scores_entries() const { return drops() || limits_archive; }
  /// Whether statistics of the prompt's queries are kept until its end.
  [[nodiscard]] bool notes_queries() const { return drops() && eviction->note_queries != nullptr; }
  /// Whether devices run the rule as well as the CPU.
  [[nodiscard]] bool has_kernels() const {
    return !drops() || eviction->device_score != DeviceScore::none;
  }
  /// Whether all heads of a layer drop the same position.
  [[nodiscard]] bool drops_by_layer() const { return drops() && eviction->by_layer; }
  /// Whether what a KV head drops, or the count of what its queries read, takes all its queries.
  /// Scores by layer are summed over queries, wherever they are.
  [[nodiscard]] bool needs_groups() const { return (drops() && !drops_by_layer()) || selects; }
  /// Whether the cached entries depend on the tokens alone, so that other sequences can reuse them.
  /// A budget depends on the length of the whole request.
  [[nodiscard]] constexpr bool shares_prefixes() const { return !has_budget; }
};

/// Indexed by RuleKind.
inline constexpr std::array<RuleTraits, 16> kRules{{
    {.kind = RuleKind::dense, .name = "dense", .keeps_all = true},
    {.kind = RuleKind::dms, .name = "dms", .marks = true},
    {.kind = RuleKind::dmc, .name = "dmc", .merges = true},
    {.kind = RuleKind::streaming, .name = "streaming", .has_budget = true, .has_sinks = true},
    {.kind = RuleKind::tova, .name = "tova", .has_budget = true, .eviction = &kTovaEviction},
    {.kind = RuleKind::h2o, .name = "h2o", .has_budget = true, .eviction = &kH2oEviction},
    {.kind = RuleKind::quest,
     .name = "quest",
     .has_budget = true,
     .selects = true,
     .minds_prompt = true,
     .keeps_all = true},
    {.kind = RuleKind::random,
     .name = "random",
     .has_budget = true,
     .budget_of = BudgetOf::answer,
     .eviction = &kRandomEviction,
     .minds_prompt = true},
    {.kind = RuleKind::snapkv,
     .name = "snapkv",
     .has_budget = true,
     .budget_of = BudgetOf::prompt,
     .eviction = &kSnapKvEviction,
     .minds_prompt = true},
    {.kind = RuleKind::rkv,
     .name = "rkv",
     .has_budget = true,
     .eviction = &kRkvEviction,
     .minds_prompt = true},
    {.kind = RuleKind::vatp, .name = "vatp", .has_budget = true, .eviction = &kVatpEviction},
    {.kind = RuleKind::pyramidkv,
     .name = "pyramidkv",
     .has_budget = true,
     .budget_of = BudgetOf::prompt,
     .eviction = &kPyramidKvEviction,
     .minds_prompt = true},
    {.kind = RuleKind::expected_attention,
     .name = "expected_attention",
     .has_budget = true,
     .budget_of = BudgetOf::prompt,
     .eviction = &kExpectedAttentionEviction,
     .minds_prompt = true},
    {.kind = RuleKind::triattention,
     .name = "triattention",
     .has_budget = true,
     .eviction = &kTriAttentionEviction,
     .calibrated = true},
    {.kind = RuleKind::dms_quest,
     .name = "dms_quest",
     .marks = true,
     .has_budget = true,
     .selects = true,
     .minds_prompt = true},
    {.kind = RuleKind::dms_budget,
     .name = "dms_budget",
     .marks = true,
     .has_budget = true,
     .limits_archive = true},
}};

/// The traits of layers with a sliding window, under every cache rule: entries are dropped when
/// they leave the window.
inline constexpr RuleTraits kSlidingWindow{.name = "sliding window", .has_sinks = true};

constexpr const RuleTraits& traits_of(RuleKind kind) {
  const auto row = static_cast<std::size_t>(kind);
  assert(kRules[row].kind == kind);
  return kRules[row];
}

constexpr std::string_view rule_name(RuleKind kind) {
  return traits_of(kind).name;
}

/// "dense", "dms", ...; nullopt for anything else.
std::optional<RuleKind> parse_rule(std::string_view name);

/// The names of the rules for which `has` is true, at least one: "tova, h2o or quest".
std::string list_rules(
    std::string_view conjunction,
    bool (*has)(const RuleTraits&) = [](const RuleTraits&) { return true; });

}  // namespace winnow::kvcache
