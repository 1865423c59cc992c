// Whether a text is on its way to being a JSON object, byte by byte.
#pragma once

#include <cstdint>
#include <string_view>

namespace winnow::server {

/// A pushdown automaton for JSON (RFC 8259) in UTF-8 whose root is an object. It is small, so that
/// trying a token is copying it. Two things that JSON allows are not taken: more than kMostSpace
/// bytes of white space in a row, which a model may never leave, and more than kMostDepth levels.
class JsonText {
 public:
  static constexpr int kMostDepth = 64;
  static constexpr int kMostSpace = 32;

  /// Whether the text so far and `byte` begin a JSON object; the text is unchanged when not.
  bool push(unsigned char byte);
  /// push() of all; where the text stands after a "no" is not defined.
  bool push(std::string_view bytes);
  /// Whether the object is complete.
  [[nodiscard]] bool is_complete() const { return place_ == Place::end; }

 private:
  enum class Place : std::uint8_t {
    start,        // of the text
    end,          // after the object
    first_key,    // after {
    key,          // after a comma in an object
    colon,        // after a key
    first_value,  // after [
    value,        // after a colon, or a comma in an array
    after_value,  // a comma or the end of the container follows
    string,       // within one
    escape,       // after a backslash
    hex,          // within \uXXXX
    literal,      // within true, false or null
    minus,        // numbers: after -
    zero,         // after a leading 0
    integer,      // after another digit
    point,        // after .
    fraction,     // after a digit behind the point
    exponent,     // after e
    sign,         // after the exponent's sign
    power,        // after a digit of the exponent
  };

  bool push_string(unsigned char byte);
  bool push_hex(unsigned char byte);
  bool push_text(unsigned char byte);
  bool push_number(unsigned char byte, bool& ended);
  bool push_structure(unsigned char byte);
  bool begin_value(unsigned char byte);
  bool open(bool object);
  bool close();
  bool go(Place place) {
    place_ = place;
    return true;
  }

  Place place_ = Place::start;
  bool in_key_ = false;      // the string is a key
  bool surrogate_ = false;   // the digits of \uXXXX begin with D
  bool after_high_ = false;  // the second half of a character must follow as \uXXXX
  std::uint8_t depth_ = 0;
  std::uint8_t spaces_ = 0;      // of white space in a row
  std::uint8_t left_ = 0;        // bytes of a character, or digits of \uXXXX, that are to come
  unsigned char lowest_ = 0x80;  // of the next byte of a character
  unsigned char highest_ = 0xBF;
  std::uint64_t objects_ = 0;  // bit d: the container at depth d + 1 is an object
  const char* rest_ = "";      // of a literal
};

}  // namespace winnow::server
