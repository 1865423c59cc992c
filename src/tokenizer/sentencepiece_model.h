// The contents of a tokenizer.model, read and checked before the SentencePiece library sees it: the
// library trusts its models.
// https://github.com/google/sentencepiece/blob/master/src/sentencepiece_model.proto
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace winnow {

struct SentencePieceModel {
  enum class Kind : std::uint8_t {
    normal = 1,
    unknown = 2,
    control = 3,
    user_defined = 4,
    unused = 5,
    byte = 6
  };
  struct Piece {
    std::string text;
    Kind kind = Kind::normal;
  };

  std::vector<Piece> pieces;  // the index is the id
  std::string unknown_surface = " \xE2\x81\x87 ";
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  // Text may be encoded in parts, cut before spaces: the model has no replacements, and no piece
  // with a space after another character.
  bool separable = true;
};

/// Reads a model's bytes; `name`: the file's name in messages. Throws Error when the model is
/// corrupt, Unsupported (json_field.h) when it needs decoded text to be rewritten.
SentencePieceModel read_sentencepiece_model(std::string_view bytes, const std::string& name);

/// Error if a lookup in `charsmap`, a model's table of character replacements (a double-array trie,
/// then NUL-terminated strings), could lead outside of it for any text.
void check_charsmap(std::string_view charsmap, const std::string& where);

/// U+2581, a space in pieces.
inline constexpr std::string_view kVisibleSpace = "\xE2\x96\x81";

}  // namespace winnow
