// From shuffled documents to batches of equal length.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "train/batch.h"
#include "train/shards.h"

namespace winnow::train {

/// Where a PackedReader stands.
struct PackingPosition {
  std::int64_t epoch = 0;
  std::int64_t piece = 0;   // next in the epoch's order
  std::int64_t offset = 0;  // tokens of it that were given out

  bool operator==(const PackingPosition&) const = default;
};

/// Endless sequences of `length` tokens. Documents are cut into pieces of at most a sequence, all
/// pieces are shuffled anew for each epoch, and fill the sequences one after another; what does not
/// fit continues in the next. Every part of a piece begins with the beginning-of-text token, if the
/// model has one, and sees only itself. Order and position depend on nothing but the seed, the
/// length and the documents.
class PackedReader {
 public:
  /// `shards` must outlive this.
  PackedReader(const Shards& shards, std::size_t length, std::optional<std::int32_t> begin_token,
               std::uint64_t seed);

  /// `sequences` sequences one after another.
  Batch next(std::size_t sequences);

  [[nodiscard]] const PackingPosition& position() const { return position_; }
  /// Error when there is no such place.
  void seek(const PackingPosition& position);
  /// Pieces per epoch.
  [[nodiscard]] std::size_t pieces() const { return pieces_.size(); }

 private:
  struct Piece {
    std::uint32_t document;
    std::uint32_t index;  // within the document
  };

  void shuffle();
  /// Appends part of the current piece, at most `room` tokens, and moves on.
  void append_part(Batch& batch, std::size_t room);

  const Shards& shards_;
  std::size_t length_;
  std::optional<std::int32_t> begin_token_;
  std::uint64_t seed_;
  std::size_t piece_tokens_;  // most tokens of a document in a sequence
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> order_;
  PackingPosition position_;
};

}  // namespace winnow::train
