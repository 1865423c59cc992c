#include "tokenizer/protobuf.h"

#include <bit>

#include "base/error.h"

namespace winnow {

bool ProtobufReader::next() {
  if (rest_.empty()) {
    return false;
  }
  const std::uint64_t tag = read_varint();
  field_ = static_cast<std::uint32_t>(tag >> 3);
  wire_ = static_cast<Wire>(tag & 7);
  require(field_ != 0 && tag >> 32 == 0, "{}: damaged: a field of number {}", where_, tag >> 3);
  switch (wire_) {
    case Wire::varint:
      varint_ = read_varint();
      return true;
    case Wire::fixed64:
      bytes_ = read_bytes(8);
      return true;
    case Wire::bytes:
      bytes_ = read_bytes(read_varint());
      return true;
    case Wire::fixed32:
      bytes_ = read_bytes(4);
      return true;
  }
  fail("{}: damaged: field {} is of wire type {}; expected 0, 1, 2 or 5", where_, field_, tag & 7);
}

std::uint64_t ProtobufReader::read_varint() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<unsigned char>(read_bytes(1)[0]);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80) {
      return value;
    }
  }
  fail("{}: damaged: a number of more than 64 bits", where_);
}

std::string_view ProtobufReader::read_bytes(std::uint64_t length) {
  require(length <= rest_.size(), "{}: cut short: {} bytes expected, {} left", where_, length,
          rest_.size());
  const std::string_view bytes = rest_.substr(0, length);
  rest_.remove_prefix(length);
  return bytes;
}

void ProtobufReader::check(Wire wire) const {
  require(wire_ == wire, "{}: damaged: field {} is of wire type {}; expected {}", where_, field_,
          static_cast<int>(wire_), static_cast<int>(wire));
}

std::uint64_t ProtobufReader::varint() const {
  check(Wire::varint);
  return varint_;
}

std::string_view ProtobufReader::bytes() const {
  check(Wire::bytes);
  return bytes_;
}

float ProtobufReader::fixed32() const {
  check(Wire::fixed32);
  std::uint32_t bits = 0;
  for (unsigned i = 0; i < 4; ++i) {
    bits |= std::uint32_t{static_cast<unsigned char>(bytes_[i])} << 8 * i;
  }
  return std::bit_cast<float>(bits);
}

}  // namespace winnow
