#include "tokenizer/sentencepiece_write.h"

#include <cstdint>
#include <cstring>
#include <string_view>

namespace winnow {
namespace {

/// A protocol buffers message.
class Message {
 public:
  void number(int field, std::int64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(static_cast<std::uint64_t>(value));
  }
  void real(int field, float value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 5);
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    bytes_.append(bytes, sizeof value);
  }
  void text(int field, std::string_view value) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) {
      bytes_ += static_cast<char>(value | 0x80);
    }
    bytes_ += static_cast<char>(value);
  }

  std::string bytes_;
};

// Field numbers of sentencepiece_model.proto.
constexpr int kPieces = 1;
constexpr int kTrainer = 2;
constexpr int kNormalizer = 3;
constexpr int kBpe = 2;

Message trainer_of(const PieceVocabulary& model) {
  Message trainer;
  trainer.number(3, kBpe);
  trainer.number(4, static_cast<std::int64_t>(model.pieces.size()));
  trainer.number(35, 1);  // byte_fallback
  trainer.number(40, model.unknown);
  trainer.number(41, model.begin);
  trainer.number(42, model.end);
  return trainer;
}

Message normalizer_of(const PieceVocabulary& model) {
  Message normalizer;
  normalizer.text(1, "identity");
  normalizer.number(3, model.space_before ? 1 : 0);
  normalizer.number(4, 0);  // remove_extra_whitespaces
  normalizer.number(5, 1);  // escape_whitespaces
  return normalizer;
}

}  // namespace

std::string write_sentencepiece(const PieceVocabulary& model) {
  Message out;
  for (const PieceVocabulary::Piece& piece : model.pieces) {
    Message message;
    message.text(1, piece.text);
    message.real(2, piece.score);
    message.number(3, piece.type);
    out.text(kPieces, message.bytes());
  }
  out.text(kTrainer, trainer_of(model).bytes());
  out.text(kNormalizer, normalizer_of(model).bytes());
  return out.bytes();
}

}  // namespace winnow
