// The fields of a request that say how tokens are chosen.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/openai/json_fields.h"

namespace winnow::server {

/// Rules whose tokens only a tokenizer knows.
struct TextRules {
  std::vector<std::pair<std::string, float>> bias;
  std::vector<std::string> bad_words;
  std::vector<std::string> dry_breakers;
};

/// What fields do not say stays as it is in `sampling`.
void parse_sampling(const Fields& fields, SamplingOptions& sampling);
void parse_rules(const Fields& fields, engine::LogitRules& rules, TextRules& texts);

}  // namespace winnow::server
