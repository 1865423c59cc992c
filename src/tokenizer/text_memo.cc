#include "tokenizer/text_memo.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace winnow {
namespace {

constexpr std::size_t kMostTexts = 256;
constexpr std::size_t kMostBytes = std::size_t{32} << 20;  // of all

std::size_t common_length(std::string_view a, std::string_view b) {
  constexpr std::size_t kBlock = 256;
  const std::size_t most = std::min(a.size(), b.size());
  std::size_t length = 0;
  while (length + kBlock <= most &&
         std::memcmp(a.data() + length, b.data() + length, kBlock) == 0) {
    length += kBlock;
  }
  while (length < most && a[length] == b[length]) {
    ++length;
  }
  return length;
}

std::size_t bytes_of(const TextMemo::Text& text) {
  return text.bytes.size() + text.ids.size() * sizeof(std::int32_t) +
         text.checkpoints.size() * sizeof(TextMemo::Checkpoint);
}

}  // namespace

TextMemo::Match TextMemo::find(std::string_view text) {
  const std::lock_guard lock(mutex_);
  auto best = texts_.end();
  Match match;
  std::size_t farthest = 0;
  for (auto candidate = texts_.begin(); candidate != texts_.end(); ++candidate) {
    const auto& checkpoints = (*candidate)->checkpoints;
    const std::size_t common = common_length(text, (*candidate)->bytes);
    const auto end = std::ranges::upper_bound(checkpoints, common, {}, &Checkpoint::seen);
    const auto count = static_cast<std::size_t>(end - checkpoints.begin());
    if (count > 0 && checkpoints[count - 1].seen > farthest) {
      farthest = checkpoints[count - 1].seen;
      match = {*candidate, count};
      best = candidate;
    }
  }
  if (best != texts_.end()) {
    std::rotate(best, best + 1, texts_.end());
  }
  return match;
}

void TextMemo::put(Text text) {
  const std::lock_guard lock(mutex_);
  std::erase_if(texts_, [&](const auto& other) { return text.bytes.starts_with(other->bytes); });
  texts_.push_back(std::make_shared<const Text>(std::move(text)));
  std::size_t bytes = 0;
  for (const auto& kept : texts_) {
    bytes += bytes_of(*kept);
  }
  while (texts_.size() > kMostTexts || bytes > kMostBytes) {
    bytes -= bytes_of(*texts_.front());
    texts_.erase(texts_.begin());
  }
}

}  // namespace winnow
