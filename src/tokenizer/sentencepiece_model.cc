#include "tokenizer/sentencepiece_model.h"

#include <algorithm>
#include <cmath>

#include "checkpoint/json.h"
#include "tokenizer/json_field.h"
#include "tokenizer/protobuf.h"
#include "tokenizer/token_text.h"
#include "tokenizer/utf8.h"

namespace winnow {
namespace {

using Kind = SentencePieceModel::Kind;

SentencePieceModel::Piece read_piece(std::string_view bytes, const std::string& where) {
  SentencePieceModel::Piece piece;
  ProtobufReader reader(bytes, where);
  while (reader.next()) {
    if (reader.field() == 1) {
      piece.text = reader.bytes();
    } else if (reader.field() == 2) {
      require(std::isfinite(reader.fixed32()), "{}: the score is not a finite number", where);
    } else if (reader.field() == 3) {
      require(reader.varint() >= 1 && reader.varint() <= 6, "{}: type {}; expected 1 to 6", where,
              reader.varint());
      piece.kind = static_cast<Kind>(reader.varint());
    }
  }
  require(!piece.text.empty() && is_valid_utf8(piece.text) &&
              piece.text.find('\0') == std::string::npos,
          "{}: expected a text in UTF-8, not empty and without NUL", where);
  if (piece.kind == Kind::byte && byte_token(piece.text) < 0) {
    fail("{}: {} is of type byte; expected a name like <0x0A>", where, in_quotes(piece.text));
  }
  return piece;
}

void read_trainer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  constexpr std::uint32_t kUnknownSurface = 44;
  ProtobufReader reader(bytes, where);
  while (reader.next()) {
    if (reader.field() == kUnknownSurface) {
      model.unknown_surface = to_valid_utf8(reader.bytes());
    }
  }
}

void read_normalizer(std::string_view bytes, const std::string& where, SentencePieceModel& model) {
  ProtobufReader reader(bytes, where);
  while (reader.next()) {
    if (reader.field() == 2) {
      check_charsmap(reader.bytes(), where);
      model.separable = model.separable && reader.bytes().empty();
    } else if (reader.field() == 3) {
      model.add_dummy_prefix = reader.varint() != 0;
    } else if (reader.field() == 4) {
      model.remove_extra_whitespaces = reader.varint() != 0;
    } else if (reader.field() == 5) {
      model.separable = model.separable && reader.varint() != 0;
    }
  }
}

void refuse_denormalizer(std::string_view bytes, const std::string& where) {
  ProtobufReader reader(bytes, where);
  while (reader.next()) {
    if (reader.field() == 2 && !reader.bytes().empty()) {
      throw Unsupported(fmt::format("{}: rewriting decoded text is not supported", where));
    }
  }
}

std::uint32_t read_unit(std::string_view bytes, std::size_t index) {
  std::uint32_t unit = 0;
  for (unsigned i = 0; i < 4; ++i) {
    unit |= std::uint32_t{static_cast<unsigned char>(bytes[4 * index + i])} << 8 * i;
  }
  return unit;
}

}  // namespace

void check_charsmap(std::string_view charsmap, const std::string& where) {
  if (charsmap.empty()) {
    return;
  }
  const auto good = [&](bool ok) { require(ok, "{}: the character map is damaged", where); };
  good(charsmap.size() > 4);
  const std::uint32_t trie_bytes = read_unit(charsmap, 0);
  good(trie_bytes % 4 == 0 && trie_bytes >= 4 && trie_bytes < charsmap.size() - 4);
  const std::string_view trie = charsmap.substr(4, trie_bytes);
  const std::string_view strings = charsmap.substr(4 + trie_bytes);
  good(strings.back() == '\0' && is_valid_utf8(strings));
  // A unit is a leaf (bit 31, and the offset of a string) or a node: the child for a byte is at the
  // node's index XOR its offset XOR the byte; the node's own leaf is at byte 0.
  const std::size_t count = trie.size() / 4;
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t unit = read_unit(trie, i);
    if ((unit & 0x80000000U) != 0) {
      good(i != 0);  // every search begins at the root without checking its type
      continue;
    }
    const std::uint32_t offset = (unit >> 10) << ((unit & 0x200U) >> 6);
    const std::size_t children = i ^ offset;
    good((children | 0xFFU) < count);
    if ((unit & 0x100U) != 0) {
      good((read_unit(trie, children) & 0x7FFFFFFFU) < strings.size());
    }
  }
}

namespace {

// Whether `piece` contains a space directly after a character that is not a space.
bool spans_words(std::string_view piece) {
  bool after_other = false;
  while (!piece.empty()) {
    const bool space = piece.starts_with(kVisibleSpace);
    if (space && after_other) {
      return true;
    }
    after_other = !space;
    piece.remove_prefix(utf8_length(piece[0]));
  }
  return false;
}

}  // namespace

SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& name) {
  SentencePieceModel model;
  ProtobufReader reader(bytes, name);
  while (reader.next()) {
    switch (reader.field()) {
      case 1:
        model.pieces.push_back(
            read_piece(reader.bytes(), fmt::format("{}: piece {}", name, model.pieces.size())));
        break;
      case 2:
        read_trainer(reader.bytes(), name + ": trainer_spec", model);
        break;
      case 3:
        read_normalizer(reader.bytes(), name + ": normalizer_spec", model);
        break;
      case 5:
        refuse_denormalizer(reader.bytes(), name + ": denormalizer_spec");
        break;
      default:
        break;
    }
  }
  require(!model.pieces.empty(), "{}: no pieces; expected a SentencePiece model", name);
  const auto is_space = [](const auto& piece) { return piece.text == kVisibleSpace; };
  model.separable = model.separable && !model.remove_extra_whitespaces &&
                    std::any_of(model.pieces.begin(), model.pieces.end(), is_space) &&
                    std::none_of(model.pieces.begin(), model.pieces.end(),
                                 [](const auto& piece) { return spans_words(piece.text); });
  return model;
}

}  // namespace winnow
