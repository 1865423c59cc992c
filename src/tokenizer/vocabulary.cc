#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "checkpoint/json.h"

namespace winnow {
namespace {

std::uint32_t hash_of(std::string_view token) {
  return static_cast<std::uint32_t>(std::hash<std::string_view>{}(token));
}

}  // namespace

Vocabulary::Vocabulary(const JsonField& field) {
  if (!field.is_object()) {
    field.expected("an object of token ids");
  }
  std::int32_t size = 0;
  for (const auto& item : field.json().items()) {
    const JsonField id(item.value(), field.where());
    size = std::max(size, id.as_id() + 1);
  }
  count_ = static_cast<std::int32_t>(field.json().size());
  tokens_.resize(static_cast<std::size_t>(size));
  for (const auto& item : field.json().items()) {
    const auto id = item.value().get<std::int32_t>();
    std::optional<std::string>& token = tokens_[static_cast<std::size_t>(id)];
    if (token) {
      fail("{}: {} and {} both have id {}; expected one token per id", field.where(),
           in_quotes(*token), in_quotes(item.key()), id);
    }
    token = item.key();
  }
  build_table(field.json().size());
}

Vocabulary::Vocabulary(std::vector<std::string> tokens)
    : count_(static_cast<std::int32_t>(tokens.size())) {
  require(tokens.size() <= kMaxTokenId, "{} tokens; expected at most {}", tokens.size(),
          kMaxTokenId);
  tokens_.assign(std::make_move_iterator(tokens.begin()), std::make_move_iterator(tokens.end()));
  build_table(tokens_.size());
}

void Vocabulary::build_table(std::size_t count) {
  std::size_t slots = 16;
  while (slots < 2 * count) {
    slots *= 2;
  }
  slots_.resize(slots);
  for (std::int32_t id = 0; id < size(); ++id) {
    if (const std::string* token = this->token(id)) {
      const std::uint32_t hash = hash_of(*token);
      slots_[slot_of(*token, hash)] = {hash, id};
    }
  }
}

std::size_t Vocabulary::slot_of(std::string_view token, std::uint32_t hash) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash & mask;
  while (slots_[i].id >= 0 &&
         (slots_[i].hash != hash || *tokens_[static_cast<std::size_t>(slots_[i].id)] != token)) {
    i = (i + 1) & mask;
  }
  return i;
}

std::optional<std::int32_t> Vocabulary::find(std::string_view token) const {
  if (slots_.empty()) {
    return std::nullopt;
  }
  const std::int32_t id = slots_[slot_of(token, hash_of(token))].id;
  return id < 0 ? std::nullopt : std::optional(id);
}

const std::string* Vocabulary::token(std::int32_t id) const {
  if (id < 0 || id >= size() || !tokens_[static_cast<std::size_t>(id)]) {
    return nullptr;
  }
  return &*tokens_[static_cast<std::size_t>(id)];
}

}  // namespace winnow
