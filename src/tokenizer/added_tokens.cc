#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "checkpoint/json.h"
#include "tokenizer/char_class.h"
#include "tokenizer/regex.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

std::uint64_t edge(std::int32_t node, char c) {
  return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<unsigned char>(c);
}

bool stands_alone(std::string_view text, TextRange range) {
  return !ends_with_word(text.substr(0, range.begin)) && !begins_with_word(text.substr(range.end));
}

// Adds the white space that the token includes; text that an earlier token took is not included.
TextRange strip(std::string_view text, TextRange range, const AddedToken& token,
                std::size_t taken) {
  if (token.lstrip && taken < range.begin) {
    range.begin -= trailing_space(text.substr(taken, range.begin - taken));
  }
  if (token.rstrip) {
    range.end += leading_space(text.substr(range.end));
  }
  return range;
}

}  // namespace

AddedToken parse_added_token(const JsonField& field, std::int32_t id) {
  AddedToken token;
  token.id = id;
  token.content = field["content"].as_string();
  token.single_word = field["single_word"].as_bool_or(false);
  token.lstrip = field["lstrip"].as_bool_or(false);
  token.rstrip = field["rstrip"].as_bool_or(false);
  token.special = field["special"].as_bool_or(false);
  token.normalized = field["normalized"].as_bool_or(!token.special);
  return token;
}

std::vector<AddedToken> with_ids(const std::vector<AddedToken>& tokens,
                                 const Vocabulary& vocabulary) {
  std::vector<AddedToken> kept;
  std::unordered_map<std::string_view, std::size_t> places;
  std::int32_t next = vocabulary.count();
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) {
      continue;
    }
    const auto [place, added] = places.try_emplace(token.content, kept.size());
    if (!added) {
      AddedToken& before = kept[place->second];
      const std::int32_t id = before.id;
      const bool special = before.special;
      before = token;
      before.id = id;
      before.special = token.special || special;
      continue;
    }
    kept.push_back(token);
    kept.back().id = vocabulary.find(token.content).value_or(next);
    next = std::max(next, kept.back().id + 1);
    require(kept.back().id <= kMaxTokenId, "more than {} tokens", kMaxTokenId);
  }
  return kept;
}

void TokenTrie::insert(std::string_view key, std::int32_t value) {
  if (key.empty()) {
    return;
  }
  first_[static_cast<unsigned char>(key[0])] = true;
  std::int32_t node = 0;
  for (const char c : key) {
    const auto [child, added] =
        children_.try_emplace(edge(node, c), static_cast<std::int32_t>(values_.size()));
    if (added) {
      values_.push_back(-1);
    }
    node = child->second;
  }
  if (values_[static_cast<std::size_t>(node)] < 0) {
    values_[static_cast<std::size_t>(node)] = value;
  }
}

TokenTrie::Match TokenTrie::longest(std::string_view text) const {
  Match best;
  std::int32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto child = children_.find(edge(node, text[i]));
    if (child == children_.end()) {
      break;
    }
    node = child->second;
    if (const std::int32_t value = values_[static_cast<std::size_t>(node)]; value >= 0) {
      best = {value, i + 1};
    }
  }
  return best;
}

AddedTokens::AddedTokens(const std::vector<AddedToken>& tokens, const Normalizer& normalizer,
                         const std::string& where) {
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) {
      continue;
    }
    const std::int32_t id = token.id;
    const auto [place, added] = tokens_.try_emplace(id, token);
    require(added || place->second.content == token.content,
            "{}: {} and {} both have id {}; expected one token per id", where,
            in_quotes(place->second.content), in_quotes(token.content), id);
    AddedToken& kept = place->second;
    kept.text = kept.normalized ? normalizer.apply(kept.content) : kept.content;
    ids_.try_emplace(kept.content, id);
    if (kept.special) {
      specials_.insert(kept.content);
    }
    (kept.normalized ? normalized_ : raw_).insert(kept.text, id);
  }
}

std::vector<AddedTokens::Part> AddedTokens::split_at(std::string_view text, const TokenTrie& trie,
                                                     bool parse_special) const {
  std::vector<Part> parts;
  std::size_t done = 0;
  const auto add_text = [&](std::size_t end) {
    if (done < end) {
      parts.push_back({std::string(text.substr(done, end - done)), -1, done});
    }
  };
  for (std::size_t at = trie.next_place(text, 0); at < text.size();
       at = trie.next_place(text, at)) {
    const TokenTrie::Match match = trie.longest(text.substr(at));
    if (match.value < 0) {
      ++at;
      continue;
    }
    const TextRange found{at, at + match.length};
    at = found.end;
    const AddedToken& token = tokens_.at(match.value);
    if ((token.special && !parse_special) || (token.single_word && !stands_alone(text, found))) {
      continue;
    }
    const TextRange range = strip(text, found, token, done);
    add_text(range.begin);
    parts.push_back({{}, token.id});
    done = range.end;
  }
  add_text(text.size());
  return parts;
}

std::vector<AddedTokens::Part> AddedTokens::split(std::string_view text,
                                                  const Normalizer& normalizer,
                                                  bool parse_special) const {
  std::vector<Part> parts;
  for (Part& raw : split_at(text, raw_, parse_special)) {
    if (raw.id >= 0) {
      parts.push_back(std::move(raw));
      continue;
    }
    const std::size_t character = raw.begin == 0 ? utf8_length(raw.text.front()) : 0;
    const TracedText normal = normalizer.trace(raw.text, character);
    for (Part& part : split_at(normal.text, normalized_, parse_special)) {
      part.origin = std::min(part.text.size(), normal.origin - std::min(normal.origin, part.begin));
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

bool AddedTokens::is_special(std::int32_t id) const {
  const AddedToken* token = find(id);
  return token != nullptr && specials_.contains(token->text);
}

const AddedToken* AddedTokens::find(std::int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

const AddedToken* AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? nullptr : find(found->second);
}

}  // namespace winnow
