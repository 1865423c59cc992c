// Small tokenizers for tests.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/byte_alphabet.h"

namespace winnow::testing {

/// A byte-level tokenizer.json: ids 0 to 255 are the bytes, 256 is "th", 257 "the", 258 " the",
/// 259 the special token "<|end|>", 260 the added token "<think>".
inline nlohmann::json tiny_tokenizer() {
  nlohmann::json vocab;
  for (int byte = 0; byte < 256; ++byte) {
    std::string character;
    append_in_byte_alphabet(std::string(1, static_cast<char>(byte)), character);
    vocab[character] = byte;
  }
  vocab["th"] = 256;
  vocab["the"] = 257;
  vocab["\u0120the"] = 258;
  return {
      {"normalizer", nullptr},
      {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
      {"decoder", {{"type", "ByteLevel"}}},
      {"post_processor", nullptr},
      {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", {"t h", "th e", "\u0120 the"}}}},
      {"added_tokens",
       {{{"id", 259}, {"content", "<|end|>"}, {"special", true}},
        {{"id", 260}, {"content", "<think>"}, {"special", false}, {"normalized", false}}}},
  };
}

/// Writes Protocol Buffers: a field of bytes, of a small number, of a float.
inline std::string bytes_field(int number, std::string_view bytes) {
  std::string out(1, static_cast<char>(number << 3 | 2));
  for (std::size_t rest = bytes.size();; rest >>= 7) {
    out += static_cast<char>((rest & 0x7F) | (rest >= 0x80 ? 0x80 : 0));
    if (rest < 0x80) {
      break;
    }
  }
  return out.append(bytes);
}
inline std::string number_field(int number, int value) {
  return {static_cast<char>(number << 3), static_cast<char>(value)};
}
inline std::string float_field(int number, float value) {
  std::string out(1, static_cast<char>(number << 3 | 5));
  return out.append(reinterpret_cast<const char*>(&value), sizeof value);  // little-endian hosts
}

/// One piece of a SentencePiece model. Types: 1 normal, 2 unknown, 3 control, 6 byte.
inline std::string piece(std::string_view text, float score, int type) {
  return bytes_field(1, bytes_field(1, text) + float_field(2, score) + number_field(3, type));
}

/// A BPE model with byte fallback: 0 "<unk>", 1 "<s>", 2 "</s>", 3 to 258 the bytes, then "▁", "t",
/// "h", "e", "th", "the", "▁the" (259 to 265).
inline std::string tiny_sentencepiece(std::string_view normalizer_extra = {}) {
  std::string model = piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3);
  for (int byte = 0; byte < 256; ++byte) {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    model += piece(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, 6);
  }
  model += piece("\u2581", -4, 1) + piece("t", -5, 1) + piece("h", -6, 1) + piece("e", -7, 1) +
           piece("th", -1, 1) + piece("the", -2, 1) + piece("\u2581the", -3, 1);
  const std::string byte_fallback = {'\x98', '\x02', '\x01'};  // field 35
  model += bytes_field(2, number_field(3, 2) + byte_fallback);
  return model + bytes_field(3, bytes_field(1, "identity") + number_field(4, 0) +
                                    std::string(normalizer_extra));
}

using Ids = std::vector<std::int32_t>;

}  // namespace winnow::testing
