#include "train/packing.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace winnow::train {
namespace {

/// Maximum number of sequences that wait for fitting pieces. More reduce padding, but keep pieces
/// further from their random position.
constexpr std::size_t kOpenSequences = 64;

}  // namespace

PackedReader::PackedReader(const Shards& shards, std::size_t length,
                           std::optional<std::int32_t> begin_token, std::uint64_t seed)
    : shards_(shards),
      length_(length),
      begin_token_(begin_token),
      seed_(seed),
      piece_tokens_(length - (begin_token ? 1 : 0)) {
  require(length >= 2, "sequences of {} tokens: at least 2 are needed", length);
  for (std::size_t i = 0; i < shards.documents(); ++i) {
    const std::size_t tokens = shards.document(i).tokens.size();
    for (std::size_t begin = 0; begin < tokens; begin += piece_tokens_) {
      pieces_.push_back(
          {static_cast<std::uint32_t>(i), static_cast<std::uint32_t>(begin / piece_tokens_)});
    }
  }
  require(!pieces_.empty(), "the training data has no tokens");
  require(pieces_.size() < std::numeric_limits<std::uint32_t>::max(),
          "the training data has {} pieces of {} tokens, which are too many", pieces_.size(),
          piece_tokens_);
  pack();
}

std::size_t PackedReader::size(const Piece& piece) const {
  const std::size_t left =
      shards_.document(piece.document).tokens.size() - piece.index * piece_tokens_;
  return std::min(left, piece_tokens_) + (begin_token_ ? 1 : 0);
}

// The order of the documents determines everything, so an epoch's plan needs no history.
void PackedReader::pack() {
  std::vector<std::uint32_t> shuffled(pieces_.size());
  std::iota(shuffled.begin(), shuffled.end(), 0U);
  Random random(seed_, static_cast<std::uint64_t>(position_.epoch));
  for (std::size_t i = shuffled.size(); i > 1; --i) {  // Fisher-Yates
    std::swap(shuffled[i - 1], shuffled[random.bits() % i]);
  }
  order_.clear();
  ends_.clear();
  std::multimap<std::size_t, std::vector<std::uint32_t>> open;  // by the space that is left
  const auto close = [&](auto sequence) {
    order_.insert(order_.end(), sequence->second.begin(), sequence->second.end());
    ends_.push_back(order_.size());
    open.erase(sequence);
  };
  for (const std::uint32_t piece : shuffled) {
    const std::size_t tokens = size(pieces_[piece]);
    const auto found = open.lower_bound(tokens);
    std::size_t room = length_;
    std::vector<std::uint32_t> sequence;
    if (found != open.end()) {
      room = found->first;
      sequence = std::move(found->second);
      open.erase(found);
    }
    sequence.push_back(piece);
    const auto placed = open.emplace(room - tokens, std::move(sequence));
    if (placed->first == 0) {
      close(placed);
    } else if (open.size() > kOpenSequences) {
      close(open.begin());
    }
  }
  while (!open.empty()) {
    close(open.begin());
  }
}

void PackedReader::seek(const PackingPosition& position) {
  require(position.epoch >= 0, "the training data has no epoch {}", position.epoch);
  position_ = position;
  pack();
  require(position.sequence >= 0 && position.sequence < static_cast<std::int64_t>(ends_.size()),
          "the training data has no sequence {} in an epoch: it is not what it was",
          position.sequence);
}

Batch PackedReader::next(std::size_t sequences) {
  Batch batch;
  for (std::size_t end = length_; end <= sequences * length_; end += length_) {
    const auto index = static_cast<std::size_t>(position_.sequence);
    for (std::size_t i = index == 0 ? 0 : ends_[index - 1]; i < ends_[index]; ++i) {
      append(batch, pieces_[order_[i]]);
    }
    append_padding(batch, end - batch.size());
    if (++position_.sequence == static_cast<std::int64_t>(ends_.size())) {
      position_ = {position_.epoch + 1, 0};
      pack();
    }
  }
  return batch;
}

void PackedReader::append(Batch& batch, const Piece& piece) const {
  const Shards::View& document = shards_.document(piece.document);
  const std::size_t begin = piece.index * piece_tokens_;
  const std::size_t end = std::min(begin + piece_tokens_, document.tokens.size());
  const auto first_key = static_cast<std::int32_t>(batch.size());
  const auto push = [&](std::int32_t token, std::size_t next) {
    const bool has_next = next < document.tokens.size();
    batch.tokens.push_back(token);
    batch.targets.push_back(has_next ? document.tokens[next] : 0);
    batch.weights.push_back(!has_next                  ? 0.0F
                            : document.weights.empty() ? 1.0F
                                                       : document.weights[next]);
    batch.first_key.push_back(first_key);
  };
  if (begin_token_) {
    push(*begin_token_, begin);
  }
  for (std::size_t at = begin; at < end; ++at) {
    push(document.tokens[at], at + 1);
  }
}

void PackedReader::append_padding(Batch& batch, std::size_t count) const {
  const auto first_key = static_cast<std::int32_t>(batch.size());
  batch.tokens.insert(batch.tokens.end(), count, begin_token_.value_or(0));
  batch.targets.insert(batch.targets.end(), count, 0);
  batch.weights.insert(batch.weights.end(), count, 0.0F);
  batch.first_key.insert(batch.first_key.end(), count, first_key);
}

}  // namespace winnow::train
