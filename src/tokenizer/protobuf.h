// Protocol buffers' wire format, as far as SentencePiece models use it.
// https://protobuf.dev/programming-guides/encoding/
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace winnow {

/// Walks the fields of one message: while (reader.next()) { switch (reader.field()) ... }.
class ProtobufReader {
 public:
  enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

  /// `where`: the prefix of error messages.
  ProtobufReader(std::string_view message, std::string where)
      : rest_(message), where_(std::move(where)) {}

  /// Reads the next field; false at the end. Error when the message is cut short or damaged.
  bool next();

  [[nodiscard]] std::uint32_t field() const { return field_; }
  /// The field's value as this type; Error when its wire type differs.
  [[nodiscard]] std::uint64_t varint() const;
  [[nodiscard]] std::string_view bytes() const;
  [[nodiscard]] float fixed32() const;

 private:
  std::uint64_t read_varint();
  std::string_view read_bytes(std::uint64_t length);
  void check(Wire wire) const;

  std::string_view rest_;
  std::string where_;
  std::uint32_t field_ = 0;
  Wire wire_ = Wire::varint;
  std::uint64_t varint_ = 0;
  std::string_view bytes_;
};

}  // namespace winnow
