#include "tokenizer/utf8.h"

#include <cstring>

namespace winnow {
namespace {

struct Lead {
  std::size_t length;            // 0: no character begins with this byte
  unsigned second_first = 0x80;  // the second byte's range is narrower for some leads: no overlong
  unsigned second_last = 0xBF;   // forms, no surrogates, nothing above U+10FFFF
};

Lead classify(unsigned lead) {
  if (lead < 0x80) {
    return {1};
  }
  if (lead < 0xC2 || lead > 0xF4) {
    return {0};
  }
  if (lead < 0xE0) {
    return {2};
  }
  if (lead < 0xF0) {
    return {3, lead == 0xE0 ? 0xA0U : 0x80U, lead == 0xED ? 0x9FU : 0xBFU};
  }
  return {4, lead == 0xF0 ? 0x90U : 0x80U, lead == 0xF4 ? 0x8FU : 0xBFU};
}

// The number of ASCII bytes at the beginning of `bytes`.
std::size_t ascii_length(std::string_view bytes) {
  constexpr std::uint64_t kHighBits = 0x8080808080808080U;
  std::size_t length = 0;
  for (std::uint64_t word = 0; length + sizeof(word) <= bytes.size(); length += sizeof(word)) {
    std::memcpy(&word, bytes.data() + length, sizeof(word));
    if ((word & kHighBits) != 0) {
      break;
    }
  }
  while (length < bytes.size() && static_cast<unsigned char>(bytes[length]) < 0x80) {
    ++length;
  }
  return length;
}

}  // namespace

Utf8Step utf8_step(std::string_view bytes) {
  using Kind = Utf8Step::Kind;
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const Lead lead = classify(byte(0));
  if (lead.length == 1) {
    return {Kind::character, 1, byte(0)};
  }
  if (lead.length == 0) {
    return {Kind::invalid, 1};
  }
  char32_t code = byte(0) & (0x7FU >> lead.length);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == bytes.size()) {
      return {Kind::incomplete, i};
    }
    const unsigned first = i == 1 ? lead.second_first : 0x80;
    const unsigned last = i == 1 ? lead.second_last : 0xBF;
    if (byte(i) < first || byte(i) > last) {
      return {Kind::invalid, i};
    }
    code = code << 6 | (byte(i) & 0x3FU);
  }
  return {Kind::character, lead.length, code};
}

bool is_ascii(std::string_view bytes) {
  return ascii_length(bytes) == bytes.size();
}

bool is_valid_utf8(std::string_view bytes) {
  for (bytes.remove_prefix(ascii_length(bytes)); !bytes.empty();
       bytes.remove_prefix(ascii_length(bytes))) {
    const Utf8Step step = utf8_step(bytes);
    if (step.kind != Utf8Step::Kind::character) {
      return false;
    }
    bytes.remove_prefix(step.length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  while (!bytes.empty()) {
    const std::size_t ascii = ascii_length(bytes);
    out += bytes.substr(0, ascii);
    bytes.remove_prefix(ascii);
    if (!bytes.empty()) {
      const Utf8Step step = utf8_step(bytes);
      out += step.kind == Utf8Step::Kind::character ? bytes.substr(0, step.length)
                                                    : kReplacementCharacter;
      bytes.remove_prefix(step.length);
    }
  }
  return out;
}

void append_utf8(char32_t code, std::string& out) {
  const auto tail = [&](int shift) {
    out += static_cast<char>(0x80U | (static_cast<unsigned>(code) >> shift & 0x3FU));
  };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xC0U | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    out += static_cast<char>(0xE0U | code >> 12);
    tail(6);
    tail(0);
  } else {
    out += static_cast<char>(0xF0U | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace winnow
