#include "server/openai/grammar_constraint.h"

#include <algorithm>

#include "base/error.h"
#include "checkpoint/json_text.h"
#include "grammar/grammar_text.h"
#include "grammar/json_schema.h"
#include "grammar/regex_parser.h"
#include "server/http/api_error.h"

namespace winnow::server {
namespace {

using Kind = AnswerFormat::Kind;

constexpr std::size_t kMostGrammarBytes = std::size_t{1} << 20;  // of a schema or grammar

grammar::RuleSet rules_of(const AnswerFormat& format) {
  grammar::RuleSet rules;
  switch (format.kind) {
    case Kind::json_schema:
      return grammar::json_schema_rules(format.schema, format.spaces);
    case Kind::regex:
      rules.add("root", grammar::parse_regex(format.pattern, grammar::RegexMatch::whole));
      return rules;
    case Kind::choice: {
      std::vector<grammar::ExpressionPtr> choices;
      for (const std::string& text : format.choices) {
        choices.push_back(grammar::bytes(text));
      }
      rules.add("root", grammar::choice(std::move(choices)));
      return rules;
    }
    case Kind::grammar:
      return grammar::parse_grammar(format.pattern);
    case Kind::json_object:
    case Kind::text:
      break;
  }
  return grammar::json_object_rules(format.spaces);
}

// A key that identifies the format.
std::string key_of(const AnswerFormat& format) {
  std::string key(1, static_cast<char>('0' + static_cast<int>(format.kind)));
  key += format.spaces == grammar::JsonSpaces::none ? "dense" : "";
  key += format.kind == Kind::json_schema ? json_text(format.schema) : format.pattern;
  for (const std::string& text : format.choices) {
    key += std::to_string(text.size()) + ":" + text;
  }
  return key;
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> GrammarCache::vocabulary() {
  std::call_once(vocabulary_made_, [this] {
    std::vector<std::string> bytes(static_cast<std::size_t>(tokens_));
    for (std::int32_t token = 0; token < tokens_; ++token) {
      if (tokenizer_.has_token(token)) {  // vocabularies are padded
        const bool is_mark = std::ranges::find(marks_, token) != marks_.end();
        bytes[static_cast<std::size_t>(token)] = tokenizer_.token_bytes(token, !is_mark);
      }
    }
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(std::move(bytes));
  });
  return vocabulary_;
}

std::shared_ptr<grammar::TokenGrammar> GrammarCache::find(const AnswerFormat& format,
                                                          std::string_view header) {
  return find(key_of(format) + std::string(header), format.field, [&] {
    grammar::RuleSet rules = rules_of(format);
    if (!header.empty()) {
      rules.root = rules.add(
          "behind a header",
          grammar::sequence({grammar::bytes(std::string(header)), grammar::reference(rules.root)}));
    }
    return rules;
  });
}

std::shared_ptr<grammar::TokenGrammar> GrammarCache::find(
    std::string key, const std::string& param, const std::function<grammar::RuleSet()>& make) {
  if (key.size() > kMostGrammarBytes) {
    throw ApiError(400, param + " is larger than 1 MiB", param, "invalid_value");
  }
  const std::shared_ptr<Entry> found = entry(std::move(key));
  const std::lock_guard lock(found->making);
  if (found->grammar == nullptr && found->refusal.empty()) {
    fill(*found, make);
  } else if (found->grammar != nullptr) {
    forget_what_is_too_much(*found);
  }
  make_room();
  if (found->grammar == nullptr) {
    throw ApiError(400, param + ": " + found->refusal, param, "unsupported_format");
  }
  return found->grammar;
}

// The entry of a key, new or not, which becomes the most recently used one.
std::shared_ptr<GrammarCache::Entry> GrammarCache::entry(std::string key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(
      entries_, key, [](const auto& each) -> const std::string& { return each->key; });
  if (found == entries_.end()) {
    entries_.push_front(std::make_shared<Entry>(std::move(key)));
  } else {
    entries_.splice(entries_.begin(), entries_, found);
  }
  return entries_.front();
}

void GrammarCache::fill(Entry& entry, const std::function<grammar::RuleSet()>& make) {
  std::shared_ptr<grammar::TokenGrammar> grammar;
  std::string refusal;
  try {
    grammar =
        std::make_shared<grammar::TokenGrammar>(make(), vocabulary(), limits_.prepare_seconds);
  } catch (const Error& error) {
    refusal = error.what();
  }
  entry.prepared_bytes = grammar == nullptr ? 0 : grammar->learnt_bytes();
  const std::lock_guard lock(mutex_);
  entry.grammar = std::move(grammar);
  entry.refusal = std::move(refusal);
}

// Requests that use the old states keep them; the compiled grammar is shared. Masks are computed in
// advance as for a new grammar, else the engine would compute them while all streams wait; unless
// they alone are too much, since then every request would prepare them.
void GrammarCache::forget_what_is_too_much(Entry& entry) {
  if (entry.grammar->learnt_bytes() <= limits_.learnt_bytes) {
    return;
  }
  const bool prepares = entry.prepared_bytes <= limits_.learnt_bytes;
  auto fresh = std::make_shared<grammar::TokenGrammar>(entry.grammar->compiled(), vocabulary(),
                                                       prepares ? limits_.prepare_seconds : 0.0);
  const std::lock_guard lock(mutex_);
  entry.grammar.swap(fresh);
}

void GrammarCache::make_room() {
  Entries dropped;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  auto end = entries_.begin();
  for (std::size_t count = 0; end != entries_.end(); ++end, ++count) {
    bytes += (*end)->bytes();
    if (count > 0 && (bytes > limits_.bytes || count >= limits_.entries)) {
      break;
    }
  }
  dropped.splice(dropped.end(), entries_, end, entries_.end());
}

std::size_t GrammarCache::bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& entry : entries_) {
    bytes += entry->bytes();
  }
  return bytes;
}

std::size_t GrammarCache::Entry::bytes() const {
  const std::size_t text = sizeof(Entry) + key.capacity() + refusal.capacity();
  return grammar == nullptr
             ? text
             : text + sizeof(*grammar) + grammar->compiled_bytes() + grammar->learnt_bytes();
}

}  // namespace winnow::server
