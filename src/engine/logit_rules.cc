#include "engine/logit_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.h"

namespace winnow::engine {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr double kMostDryPenalty = 1e4;  // a larger penalty makes no difference

void keep_allowed(std::span<const std::int32_t> allowed, std::span<float> logits) {
  std::vector<float> kept;
  kept.reserve(allowed.size());
  for (const std::int32_t token : allowed) {
    kept.push_back(logits[static_cast<std::size_t>(token)]);
  }
  std::ranges::fill(logits, kNever);
  for (std::size_t i = 0; i < allowed.size(); ++i) {
    logits[static_cast<std::size_t>(allowed[i])] = kept[i];
  }
}

// Forbids the last token of every banned sequence whose other tokens end the answer.
void ban_words(std::span<const std::vector<std::int32_t>> words,
               std::span<const std::int32_t> answer, std::span<float> logits) {
  for (const auto& word : words) {
    const auto before = std::span(word).first(word.size() - 1);
    if (before.size() <= answer.size() && std::ranges::equal(before, answer.last(before.size()))) {
      logits[static_cast<std::size_t>(word.back())] = kNever;
    }
  }
}

// Forbids stop tokens, unless they are the only ones left (a grammar is at its end).
void ban_stops(std::span<const std::int32_t> stops, std::span<float> logits) {
  std::vector<std::pair<std::int32_t, float>> saved;
  for (const std::int32_t stop : stops) {
    if (stop >= 0 && static_cast<std::size_t>(stop) < logits.size()) {
      saved.emplace_back(stop, std::exchange(logits[static_cast<std::size_t>(stop)], kNever));
    }
  }
  if (!saved.empty() && leaves_nothing(logits)) {
    for (auto i = saved.rbegin(); i != saved.rend(); ++i) {  // a repeated id's first value is real
      logits[static_cast<std::size_t>(i->first)] = i->second;
    }
  }
}

// matches[i]: the length of the longest common suffix of history[..i] and the history (Gusfield's
// Z-algorithm from the back), at most `most`.
std::vector<std::size_t> suffix_matches(std::span<const std::int32_t> history, std::size_t most) {
  const std::size_t size = history.size();
  const auto token = [&](std::size_t i) { return history[size - 1 - i]; };
  std::vector<std::size_t> matches(size, 0);
  std::size_t left = 0;
  std::size_t right = 0;  // the match that reaches farthest is [left, right)
  for (std::size_t i = 1; i < size; ++i) {
    std::size_t length = i < right ? std::min(right - i, matches[size - 1 - (i - left)]) : 0;
    while (i + length < size && token(length) == token(i + length)) {
      ++length;
    }
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    matches[size - 1 - i] = length;
  }
  std::ranges::for_each(matches, [&](std::size_t& length) { length = std::min(length, most); });
  return matches;
}

}  // namespace

void validate(const LogitRules& rules, int vocab) {
  const auto check = [vocab](std::int32_t token, std::string_view where) {
    require(token >= 0 && token < vocab, "{}: token {} is outside the vocabulary of {} tokens",
            where, token, vocab);
  };
  for (const LogitBias& bias : rules.bias) {
    check(bias.token, "logit bias");
    require(!std::isnan(bias.bias) && bias.bias < std::numeric_limits<float>::infinity(),
            "logit bias {} of token {} is not a finite number, or -infinity", bias.bias,
            bias.token);
  }
  for (const std::int32_t token : rules.allowed) {
    check(token, "allowed tokens");
  }
  for (const auto& word : rules.bad_words) {
    require(!word.empty(), "bad words: a sequence has no tokens");
    std::ranges::for_each(word, [&](std::int32_t token) { check(token, "bad words"); });
  }
  require(rules.min_tokens >= 0, "min tokens {} is negative", rules.min_tokens);
  require(rules.penalty_tokens >= 0, "penalty tokens {} is negative", rules.penalty_tokens);
  require(rules.dry.multiplier >= 0.0 && std::isfinite(rules.dry.multiplier),
          "DRY multiplier {} is not a number from 0 up", rules.dry.multiplier);
  require(rules.dry.base >= 1.0 && std::isfinite(rules.dry.base),
          "DRY base {} is not a number from 1 up", rules.dry.base);
  require(rules.dry.allowed_length >= 1, "DRY allowed length {} is not at least 1",
          rules.dry.allowed_length);
  require(rules.dry.last_tokens >= -1, "DRY last tokens {} is not at least -1",
          rules.dry.last_tokens);
  require(rules.typical_p > 0.0 && rules.typical_p <= 1.0, "typical-p {} is not in (0, 1]",
          rules.typical_p);
  require(rules.xtc.probability >= 0.0 && rules.xtc.probability <= 1.0,
          "XTC probability {} is not in [0, 1]", rules.xtc.probability);
  require(rules.xtc.threshold >= 0.0 && rules.xtc.threshold <= 1.0,
          "XTC threshold {} is not in [0, 1]", rules.xtc.threshold);
  require(rules.mirostat.version >= 0 && rules.mirostat.version <= 2,
          "mirostat {}: there are versions 1 and 2", rules.mirostat.version);
  require(rules.mirostat.tau >= 0.0 && std::isfinite(rules.mirostat.tau),
          "mirostat tau {} is not a number from 0 up", rules.mirostat.tau);
  require(rules.mirostat.eta >= 0.0 && rules.mirostat.eta <= 1.0,
          "mirostat eta {} is not in [0, 1]", rules.mirostat.eta);
}

std::vector<LogitBias> dry_penalties(const DryRule& rule, std::span<const std::int32_t> history) {
  if (rule.last_tokens >= 0) {
    history = history.last(std::min(history.size(), static_cast<std::size_t>(rule.last_tokens)));
  }
  // Only tokens after the last breaker can be repeated.
  std::size_t most = 0;
  while (most < history.size() &&
         !std::ranges::binary_search(rule.breakers, history[history.size() - 1 - most])) {
    ++most;
  }
  const auto least = static_cast<std::size_t>(rule.allowed_length);
  if (rule.multiplier == 0.0 || most < least) {
    return {};
  }
  const std::vector<std::size_t> matches = suffix_matches(history, most);
  std::unordered_map<std::int32_t, std::size_t> longest;  // by the token that would be repeated
  for (std::size_t i = 0; i + 1 < history.size(); ++i) {
    const std::int32_t next = history[i + 1];
    if (matches[i] >= least && !std::ranges::binary_search(rule.breakers, next)) {
      std::size_t& length = longest[next];
      length = std::max(length, matches[i]);
    }
  }
  std::vector<LogitBias> penalties;
  for (const auto& [token, length] : longest) {
    const double penalty =
        rule.multiplier * std::pow(rule.base, static_cast<double>(length - least));
    penalties.push_back({token, -static_cast<float>(std::min(penalty, kMostDryPenalty))});
  }
  return penalties;
}

void edit_logits(const LogitRules& rules, std::span<const std::int32_t> history, int prompt_tokens,
                 std::span<const std::int32_t> stop_tokens, std::span<float> logits) {
  const auto answer = history.subspan(static_cast<std::size_t>(prompt_tokens));
  for (const LogitBias& bias : rules.bias) {
    logits[static_cast<std::size_t>(bias.token)] += bias.bias;
  }
  for (const LogitBias& penalty : dry_penalties(rules.dry, history)) {
    logits[static_cast<std::size_t>(penalty.token)] += penalty.bias;
  }
  if (!rules.allowed.empty()) {
    keep_allowed(rules.allowed, logits);
  }
  ban_words(rules.bad_words, answer, logits);
  if (answer.size() < static_cast<std::size_t>(rules.min_tokens)) {
    ban_stops(stop_tokens, logits);
  }
}

bool leaves_nothing(std::span<const float> logits) {
  return std::ranges::all_of(logits, [](float logit) { return logit == kNever; });
}

}  // namespace winnow::engine
