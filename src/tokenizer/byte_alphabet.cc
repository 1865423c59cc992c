#include "tokenizer/byte_alphabet.h"

#include <algorithm>
#include <array>

#include "tokenizer/utf8.h"

namespace winnow {
namespace {

constexpr std::size_t kLastCode = 0x143;  // 256 + the 68 bytes that are not printable - 1

struct Alphabet {
  std::array<std::string, 256> characters;  // byte -> character
  std::array<int, kLastCode + 1> bytes{};   // code point -> byte, -1 for none
};

bool is_printable(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xFF && byte != 0xAD);
}

Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next = 0x100;
  for (unsigned byte = 0; byte < 256; ++byte) {
    const char32_t code = is_printable(byte) ? char32_t{byte} : next++;
    append_utf8(code, alphabet.characters[byte]);
    alphabet.bytes[code] = static_cast<int>(byte);
  }
  return alphabet;
}

const Alphabet& alphabet() {
  static const Alphabet instance = make_alphabet();
  return instance;
}

}  // namespace

void append_in_byte_alphabet(std::string_view bytes, std::string& out) {
  const auto& characters = alphabet().characters;
  const auto stands_for_itself = [](char c) { return c >= '!' && c <= '~'; };
  while (!bytes.empty()) {
    const auto end = std::ranges::find_if_not(bytes, stands_for_itself);
    out.append(bytes.begin(), end);
    bytes.remove_prefix(static_cast<std::size_t>(end - bytes.begin()));
    if (!bytes.empty()) {
      out += characters[static_cast<unsigned char>(bytes.front())];
      bytes.remove_prefix(1);
    }
  }
}

std::optional<std::string> from_byte_alphabet(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const Utf8Step step = utf8_step(text);
    const int byte = step.code <= kLastCode ? alphabet().bytes[step.code] : -1;
    if (byte < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(byte);
    text.remove_prefix(step.length);
  }
  return out;
}

}  // namespace winnow
