// Sampling rules beyond temperature, top-k, top-p, min-p and penalties.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow::engine {

/// What is added to a token's logit; -infinity: the token never comes.
struct LogitBias {
  std::int32_t token = 0;
  float bias = 0.0F;
};

/// DRY (Don't Repeat Yourself): a token that would repeat a text of `allowed_length` tokens or more
/// loses multiplier * base^(length - allowed_length) of its logit.
struct DryRule {
  double multiplier = 0.0;  // 0: off
  double base = 1.75;
  int allowed_length = 2;
  int last_tokens = -1;                     // that are looked at; -1: all
  std::vector<std::int32_t> breakers = {};  // tokens, sorted, beyond which no repetition reaches
};

/// XTC (Exclude Top Choices): with a given probability, removes all tokens above the threshold
/// except the least probable one.
struct XtcRule {
  double probability = 0.0;  // 0: off
  double threshold = 0.1;
};

/// Mirostat (Basu et al. 2021): truncates such that the text's surprise stays near tau bits a
/// token.
struct MirostatRule {
  int version = 0;  // 0: off; 1 or 2
  double tau = 5.0;
  double eta = 0.1;
};

struct LogitRules {
  std::vector<LogitBias> bias = {};
  std::vector<std::int32_t> allowed = {};                 // not empty: no other tokens
  std::vector<std::vector<std::int32_t>> bad_words = {};  // token sequences that never come
  int min_tokens = 0;      // of the answer, before which no stop token comes
  int penalty_tokens = 0;  // last tokens that penalties look at; 0: all
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

/// Throws Error naming the rule that is out of range, or a token outside a vocabulary of `vocab`.
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
