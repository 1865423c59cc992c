// Request fields that control sampling.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/request.h"
#include "server/openai/json_fields.h"

namespace winnow::server {

/// Rules with texts, which need a tokenizer to become tokens.
struct TextRules {
  std::vector<std::pair<std::string, float>> bias;
  std::vector<std::string> bad_words;
  std::vector<std::string> dry_breakers;
};

/// Fields that are absent leave `sampling` unchanged.
void parse_sampling(const Fields& fields, SamplingOptions& sampling);
void parse_rules(const Fields& fields, engine::LogitRules& rules, TextRules& texts);

}  // namespace winnow::server
