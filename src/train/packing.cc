#include "train/packing.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "base/error.h"
#include "base/random.h"

namespace winnow::train {

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
  shuffle();
}

// Fisher-Yates, from the order of the documents, so that an epoch's order needs no history.
void PackedReader::shuffle() {
  order_.resize(pieces_.size());
  std::iota(order_.begin(), order_.end(), 0U);
  Random random(seed_, static_cast<std::uint64_t>(position_.epoch));
  for (std::size_t i = order_.size(); i > 1; --i) {
    std::swap(order_[i - 1], order_[random.bits() % i]);
  }
}

void PackedReader::seek(const PackingPosition& position) {
  require(position.epoch >= 0 && position.piece >= 0 && position.offset >= 0 &&
              position.piece < static_cast<std::int64_t>(pieces_.size()),
          "the training data has no piece {} in an epoch: it is not what it was", position.piece);
  position_ = position;
  shuffle();
}

Batch PackedReader::next(std::size_t sequences) {
  Batch batch;
  for (std::size_t end = length_; end <= sequences * length_; end += length_) {
    while (batch.size() < end) {
      append_part(batch, end - batch.size());
    }
  }
  return batch;
}

void PackedReader::append_part(Batch& batch, std::size_t room) {
  const Piece& piece = pieces_[order_[static_cast<std::size_t>(position_.piece)]];
  const Shards::View& document = shards_.document(piece.document);
  const std::size_t piece_begin = piece.index * piece_tokens_;
  const std::size_t piece_end = std::min(piece_begin + piece_tokens_, document.tokens.size());
  std::size_t at = piece_begin + static_cast<std::size_t>(position_.offset);
  const auto first_key = static_cast<std::int32_t>(batch.size());
  const auto append = [&](std::int32_t token, std::size_t next) {
    const bool has_next = next < document.tokens.size();
    const bool counts = has_next && (document.trained.empty() || document.trained[next] != 0);
    batch.tokens.push_back(token);
    batch.targets.push_back(has_next ? document.tokens[next] : 0);
    batch.weights.push_back(counts ? 1.0F : 0.0F);
    batch.first_key.push_back(first_key);
  };
  if (begin_token_) {
    append(*begin_token_, at);
    --room;
  }
  for (; room > 0 && at < piece_end; --room, ++at) {
    append(document.tokens[at], at + 1);
  }
  position_.offset = static_cast<std::int64_t>(at - piece_begin);
  if (at == piece_end) {
    position_.offset = 0;
    if (++position_.piece == static_cast<std::int64_t>(pieces_.size())) {
      position_.piece = 0;
      ++position_.epoch;
      shuffle();
    }
  }
}

}  // namespace winnow::train
