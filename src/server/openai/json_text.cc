#include "server/openai/json_text.h"

namespace winnow::server {
namespace {

bool is_space(unsigned char byte) {
  return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r';
}

bool is_digit(unsigned char byte) {
  return byte >= '0' && byte <= '9';
}

bool is_hex(unsigned char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

}  // namespace

bool JsonText::push(std::string_view bytes) {
  for (const char byte : bytes) {
    if (!push(static_cast<unsigned char>(byte))) {
      return false;
    }
  }
  return true;
}

bool JsonText::push(unsigned char byte) {
  switch (place_) {
    case Place::string:
    case Place::escape:
    case Place::hex:
      return push_string(byte);
    case Place::literal:
      if (static_cast<unsigned char>(*rest_) != byte) {
        return false;
      }
      return *++rest_ == '\0' ? go(Place::after_value) : true;
    case Place::minus:
    case Place::zero:
    case Place::integer:
    case Place::point:
    case Place::fraction:
    case Place::exponent:
    case Place::sign:
    case Place::power: {
      bool ended = false;
      if (push_number(byte, ended)) {
        return true;
      }
      if (!ended) {
        return false;
      }
      const JsonText before = *this;
      place_ = Place::after_value;
      if (!push_structure(byte)) {
        *this = before;
        return false;
      }
      return true;
    }
    default:
      return push_structure(byte);
  }
}

// `ended`: the byte is no part of the number, which may end here.
bool JsonText::push_number(unsigned char byte, bool& ended) {
  const bool digit = is_digit(byte);
  switch (place_) {
    case Place::minus:
      return digit && go(byte == '0' ? Place::zero : Place::integer);
    case Place::integer:
      if (digit) {
        return true;
      }
      [[fallthrough]];
    case Place::zero:
      if (byte == '.') {
        return go(Place::point);
      }
      [[fallthrough]];
    case Place::fraction:
      if (place_ == Place::fraction && digit) {
        return true;
      }
      if (byte == 'e' || byte == 'E') {
        return go(Place::exponent);
      }
      ended = true;
      return false;
    case Place::point:
      return digit && go(Place::fraction);
    case Place::exponent:
      return (byte == '+' || byte == '-') ? go(Place::sign) : digit && go(Place::power);
    case Place::sign:
      return digit && go(Place::power);
    default:  // power
      ended = !digit;
      return digit;
  }
}

bool JsonText::push_string(unsigned char byte) {
  if (place_ == Place::hex) {
    return push_hex(byte);
  }
  if (place_ == Place::escape) {
    if (byte == 'u') {
      left_ = 4;
      return go(Place::hex);
    }
    return !after_high_ &&
           std::string_view("\"\\/bfnrt").find(static_cast<char>(byte)) != std::string_view::npos &&
           go(Place::string);
  }
  if (left_ == 0 && byte == '\\') {
    return go(Place::escape);
  }
  if (after_high_) {
    return false;
  }
  if (left_ == 0 && byte == '"') {
    return go(in_key_ ? Place::colon : Place::after_value);
  }
  return push_text(byte);
}

// A digit of \uXXXX. D800 to DBFF are the first half of a character, DC00 to DFFF, which must
// follow and stands nowhere else, the second: the first two digits tell.
bool JsonText::push_hex(unsigned char byte) {
  if (!is_hex(byte)) {
    return false;
  }
  const bool d = byte == 'd' || byte == 'D';
  const bool upper = byte > '9' && (byte | 0x20) >= 'c';  // c, d, e or f
  if (left_ == 4) {
    if (after_high_ && !d) {
      return false;
    }
    surrogate_ = d;
  } else if (left_ == 3 && surrogate_) {
    const bool half = byte >= '8';  // of either kind
    if (upper != after_high_) {
      return false;
    }
    after_high_ = half && !upper;
  }
  return --left_ > 0 || go(Place::string);
}

// A byte of a character within a string: UTF-8 as Unicode's table 3-7 has it.
bool JsonText::push_text(unsigned char byte) {
  if (left_ > 0) {
    if (byte < lowest_ || byte > highest_) {
      return false;
    }
    lowest_ = 0x80;
    highest_ = 0xBF;
    --left_;
    return true;
  }
  if (byte < 0x20 || (byte >= 0x80 && byte < 0xC2) || byte > 0xF4) {
    return false;
  }
  if (byte >= 0xC2) {
    left_ = byte < 0xE0 ? 1 : byte < 0xF0 ? 2 : 3;
    lowest_ = byte == 0xE0 ? 0xA0 : byte == 0xF0 ? 0x90 : 0x80;
    highest_ = byte == 0xED ? 0x9F : byte == 0xF4 ? 0x8F : 0xBF;
  }
  return true;
}

bool JsonText::push_structure(unsigned char byte) {
  if (is_space(byte)) {
    if (place_ == Place::end || spaces_ == kMostSpace) {
      return false;
    }
    ++spaces_;
    return true;
  }
  const JsonText before = *this;
  spaces_ = 0;
  const bool in_object = depth_ > 0 && (objects_ >> (depth_ - 1) & 1) != 0;
  bool taken = false;
  switch (place_) {
    case Place::start:
      taken = byte == '{' && open(true);
      break;
    case Place::first_key:
    case Place::key:
      in_key_ = true;
      taken =
          byte == '"' ? go(Place::string) : place_ == Place::first_key && byte == '}' && close();
      break;
    case Place::colon:
      taken = byte == ':' && go(Place::value);
      break;
    case Place::first_value:
      taken = byte == ']' ? close() : begin_value(byte);
      break;
    case Place::value:
      taken = begin_value(byte);
      break;
    case Place::after_value:
      taken = byte == ',' ? go(in_object ? Place::key : Place::value)
                          : byte == (in_object ? '}' : ']') && close();
      break;
    default:
      break;
  }
  if (!taken) {
    *this = before;
  }
  return taken;
}

bool JsonText::begin_value(unsigned char byte) {
  const auto literal = [&](const char* rest) {
    rest_ = rest;
    return go(Place::literal);
  };
  switch (byte) {
    case '{':
      return open(true);
    case '[':
      return open(false);
    case '"':
      in_key_ = false;
      return go(Place::string);
    case '-':
      return go(Place::minus);
    case '0':
      return go(Place::zero);
    case 't':
      return literal("rue");
    case 'f':
      return literal("alse");
    case 'n':
      return literal("ull");
    default:
      return is_digit(byte) && go(Place::integer);
  }
}

bool JsonText::open(bool object) {
  if (depth_ == kMostDepth) {
    return false;
  }
  const std::uint64_t bit = std::uint64_t{1} << depth_;
  objects_ = object ? objects_ | bit : objects_ & ~bit;
  ++depth_;
  return go(object ? Place::first_key : Place::first_value);
}

bool JsonText::close() {
  --depth_;
  return go(depth_ == 0 ? Place::end : Place::after_value);
}

}  // namespace winnow::server
