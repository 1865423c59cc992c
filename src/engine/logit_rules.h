// Sampling rules beyond temperature, top-k, top-p, min-p and penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::engine {

/// A value added to a token's logit; -infinity forbids the token.
struct LogitBias {
  std::int32_t token = 0;
  float bias = 0.0F;
};

/// DRY (Don't Repeat Yourself): if a token would extend a repetition of `allowed_length` tokens or
/// more, its logit is reduced by multiplier * base^(length - allowed_length).
struct DryRule {
  double multiplier = 0.0;  // 0: off
  double base = 1.75;
  int allowed_length = 2;
  int last_tokens = -1;                     // last tokens to search; -1: all
  std::vector<std::int32_t> breakers = {};  // sorted tokens that no repetition spans
};

/// XTC (Exclude Top Choices): with a given probability, removes all tokens above the threshold
/// except the least probable one.
struct XtcRule {
  double probability = 0.0;  // 0: off
  double threshold = 0.1;
};

/// Mirostat (Basu et al. 2021): truncates so that the text's surprise stays near tau bits per
/// token.
struct MirostatRule {
  int version = 0;  // 0: off; 1 or 2
  double tau = 5.0;
  double eta = 0.1;
};

struct LogitRules {
  std::vector<LogitBias> bias = {};
  std::vector<std::int32_t> allowed = {};                 // if not empty: the only tokens allowed
  std::vector<std::vector<std::int32_t>> bad_words = {};  // forbidden token sequences
  int min_tokens = 0;      // no stop token before so many tokens of the answer
  int penalty_tokens = 0;  // last tokens that penalties consider; 0: all
  DryRule dry = {};
  double typical_p = 1.0;  // locally typical sampling (Meister et al. 2022); 1: off
  XtcRule xtc = {};
  MirostatRule mirostat = {};

  /// Whether any rule is set.
  [[nodiscard]] bool any() const {
    return !bias.empty() || !allowed.empty() || !bad_words.empty() || min_tokens > 0 ||
           penalty_tokens > 0 || dry.multiplier > 0.0 || typical_p < 1.0 || xtc.probability > 0.0 ||
           mirostat.version > 0;
  }
};

/// Throws Error, which names the rule, if a value is out of range or a token not below `vocab`.
void validate(const LogitRules& rules, int vocab);

/// Applies bias, DRY, allowed tokens, bad words and min_tokens to the logits of the token after
/// `history`, whose first `prompt_tokens` are the prompt.
void edit_logits(const LogitRules& rules, std::span<const std::int32_t> history, int prompt_tokens,
                 std::span<const std::int32_t> stop_tokens, std::span<float> logits);

/// Whether every logit is -infinity: the rules leave no token.
bool leaves_nothing(std::span<const float> logits);

/// The penalties of DRY: pairs of a token and its penalty, at most one per token.
std::vector<LogitBias> dry_penalties(const DryRule& rule, std::span<const std::int32_t> history);

}  // namespace winnow::engine
