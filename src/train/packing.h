// From shuffled documents to batches of equal length.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "train/batch.h"
#include "train/shards.h"

namespace winnow::train {

/// The position of a PackedReader.
struct PackingPosition {
  std::int64_t epoch = 0;
  std::int64_t sequence = 0;  // next index in the epoch's order

  bool operator==(const PackingPosition&) const = default;
};

/// Endless sequences of `length` tokens. Documents are cut into pieces of at most one sequence; all
/// pieces are reshuffled for each epoch and packed whole, each into the fullest open sequence
/// with room (best fit: Ding et al. 2024, "Fewer Truncations Improve Language Modeling"), so
/// that a question is never cut from the text that answers it. Padding has weight 0.
/// Every piece begins with the beginning-of-text token, if the model has one, and sees only itself.
/// Order and position depend only on the seed, the length and the documents.
class PackedReader {
 public:
  /// `shards` must outlive this.
  PackedReader(const Shards& shards, std::size_t length, std::optional<std::int32_t> begin_token,
               std::uint64_t seed);

  /// The next `sequences` sequences.
  Batch next(std::size_t sequences);

  [[nodiscard]] const PackingPosition& position() const { return position_; }
  /// Error when the position does not exist.
  void seek(const PackingPosition& position);
  /// Number of sequences in the current epoch.
  [[nodiscard]] std::size_t sequences() const { return ends_.size(); }

 private:
  struct Piece {
    std::uint32_t document;
    std::uint32_t index;  // within the document
  };

  /// Tokens of a piece in a sequence, the beginning-of-text token included.
  [[nodiscard]] std::size_t size(const Piece& piece) const;
  /// Plans the epoch of position_.
  void pack();
  void append(Batch& batch, const Piece& piece) const;
  void append_padding(Batch& batch, std::size_t count) const;

  const Shards& shards_;
  std::size_t length_;
  std::optional<std::int32_t> begin_token_;
  std::uint64_t seed_;
  std::size_t piece_tokens_;  // maximum number of a document's tokens in a sequence
  std::vector<Piece> pieces_;
  std::vector<std::uint32_t> order_;  // of pieces: the epoch's sequences one after another
  std::vector<std::size_t> ends_;     // of the sequences in order_
  PackingPosition position_;
};

}  // namespace winnow::train
