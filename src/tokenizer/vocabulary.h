// Token strings and their ids.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/json_field.h"

namespace winnow {

/// A map between strings and ids; ids may have holes.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Reads {"token": id, ...}. Error for another format, or when two tokens have one id.
  explicit Vocabulary(const JsonField& field);
  /// A token's index is its id; of equal tokens, the last is found.
  explicit Vocabulary(std::vector<std::string> tokens);

  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  /// nullptr when no token has this id.
  [[nodiscard]] const std::string* token(std::int32_t id) const;
  /// The number of tokens.
  [[nodiscard]] std::int32_t count() const { return count_; }
  /// One more than the largest id.
  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }

 private:
  // An open-addressing hash table: reading a model's merges looks up a million strings.
  struct Slot {
    std::uint32_t hash = 0;
    std::int32_t id = -1;  // -1: free
  };

  void build_table(std::size_t count);
  // The slot of `token`, or the free slot where it would go.
  [[nodiscard]] std::size_t slot_of(std::string_view token, std::uint32_t hash) const;

  std::int32_t count_ = 0;
  std::vector<std::optional<std::string>> tokens_;
  std::vector<Slot> slots_;
};

}  // namespace winnow
