#include "checkpoint/gguf/block_formats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "base/error.h"

namespace winnow::gguf {
namespace {

constexpr int kBlock = 32;
constexpr int kSuperBlock = 256;

int byte(const std::byte* at) {
  return std::to_integer<int>(*at);
}
int signed_byte(const std::byte* at) {
  return static_cast<std::int8_t>(byte(at));
}
std::uint32_t word16(const std::byte* at) {
  return static_cast<std::uint32_t>(byte(at) | byte(at + 1) << 8);
}
float half(const std::byte* at) {
  return to_float(f16{static_cast<std::uint16_t>(word16(at))});
}

void decode_f32(const std::byte* block, float* out) {
  std::memcpy(out, block, sizeof *out);
}
void decode_f16(const std::byte* block, float* out) {
  *out = half(block);
}
void decode_bf16(const std::byte* block, float* out) {
  *out = to_float(bf16{static_cast<std::uint16_t>(word16(block))});
}

/// Decodes 16 bytes with 32 codes of 4 bits: first all low nibbles, then all high ones.
template <class Value>
void decode_nibbles(const std::byte* codes, float* out, const Value& value) {
  for (int i = 0; i < kBlock / 2; ++i) {
    out[i] = value(byte(codes + i) & 15, i);
    out[i + kBlock / 2] = value(byte(codes + i) >> 4, i + kBlock / 2);
  }
}

void decode_q4_0(const std::byte* block, float* out) {
  const float scale = half(block);
  decode_nibbles(block + 2, out, [=](int q, int) { return static_cast<float>(q - 8) * scale; });
}

void decode_q4_1(const std::byte* block, float* out) {
  const float scale = half(block);
  const float least = half(block + 2);
  decode_nibbles(block + 4, out, [=](int q, int) { return static_cast<float>(q) * scale + least; });
}

/// The fifth bit of code i of 32, in place.
int fifth_bit(const std::byte* bits, int i) {
  return (byte(bits + i / 8) >> (i % 8) & 1) << 4;
}

void decode_q5_0(const std::byte* block, float* out) {
  const float scale = half(block);
  decode_nibbles(block + 6, out, [=](int q, int i) {
    return static_cast<float>((q | fifth_bit(block + 2, i)) - 16) * scale;
  });
}

void decode_q5_1(const std::byte* block, float* out) {
  const float scale = half(block);
  const float least = half(block + 2);
  decode_nibbles(block + 8, out, [=](int q, int i) {
    return static_cast<float>(q | fifth_bit(block + 4, i)) * scale + least;
  });
}

void decode_q8_0(const std::byte* block, float* out) {
  const float scale = half(block);
  for (int i = 0; i < kBlock; ++i) {
    out[i] = static_cast<float>(signed_byte(block + 2 + i)) * scale;
  }
}

/// Scale and minimum, 6 bits each, of one of the eight parts of a Q4_K or Q5_K block.
struct ScaleAndLeast {
  int scale;
  int least;
};
ScaleAndLeast packed_scale(const std::byte* packed, int part) {
  if (part < 4) {
    return {byte(packed + part) & 63, byte(packed + part + 4) & 63};
  }
  return {(byte(packed + part + 4) & 15) | (byte(packed + part - 4) >> 6) << 4,
          (byte(packed + part + 4) >> 4) | (byte(packed + part) >> 6) << 4};
}

/// Decodes eight parts of 32 codes; code(part, i) returns a code.
template <class Code>
void decode_parts(const std::byte* block, float* out, const Code& code) {
  for (int part = 0; part < kSuperBlock / kBlock; ++part) {
    const ScaleAndLeast packed = packed_scale(block + 4, part);
    const float scale = half(block) * static_cast<float>(packed.scale);
    const float least = half(block + 2) * static_cast<float>(packed.least);
    for (int i = 0; i < kBlock; ++i) {
      *out++ = scale * static_cast<float>(code(part, i)) - least;
    }
  }
}

/// Two parts share 32 bytes: the low and the high nibbles.
int nibble_of_part(const std::byte* codes, int part, int i) {
  const int both = byte(codes + part / 2 * kBlock + i);
  return part % 2 == 0 ? both & 15 : both >> 4;
}

void decode_q4_k(const std::byte* block, float* out) {
  decode_parts(block, out, [=](int part, int i) { return nibble_of_part(block + 16, part, i); });
}

void decode_q5_k(const std::byte* block, float* out) {
  decode_parts(block, out, [=](int part, int i) {
    return nibble_of_part(block + 48, part, i) | (byte(block + 16 + i) >> part & 1) << 4;
  });
}

/// The low two bits of a code: in each half of 128 codes, 32 bytes hold the first, second, third
/// and fourth 32 codes.
int crumb(const std::byte* codes, int k) {
  return byte(codes + k / 128 * 32 + k % 32) >> (2 * (k % 128 / 32)) & 3;
}

void decode_q2_k(const std::byte* block, float* out) {
  const float scale = half(block + 80);
  const float least = half(block + 82);
  for (int k = 0; k < kSuperBlock; ++k) {
    const int both = byte(block + k / 16);  // scale and minimum of 16 codes
    out[k] = scale * static_cast<float>(both & 15) * static_cast<float>(crumb(block + 16, k)) -
             least * static_cast<float>(both >> 4);
  }
}

void decode_q3_k(const std::byte* block, float* out) {
  const std::byte* const high = block;
  const std::byte* const scales = block + 96;
  const float scale = half(block + 108);
  for (int k = 0; k < kSuperBlock; ++k) {
    const int group = k / 16;
    const int low_scale = byte(scales + group % 8) >> (group / 8 * 4) & 15;
    const int high_scale = byte(scales + 8 + group % 4) >> (group / 4 * 2) & 3;
    const int has_high = byte(high + k % 32) >> (k / 32) & 1;
    const int code = crumb(block + 32, k) - (has_high == 0 ? 4 : 0);
    out[k] =
        scale * static_cast<float>((low_scale | high_scale << 4) - 32) * static_cast<float>(code);
  }
}

void decode_q6_k(const std::byte* block, float* out) {
  const std::byte* const low = block;
  const std::byte* const high = block + 128;
  const std::byte* const scales = block + 192;
  const float scale = half(block + 208);
  for (int k = 0; k < kSuperBlock; ++k) {
    const int part = k / 128;          // of two halves, each with 64 bytes of low bits
    const int quarter = k % 128 / 32;  // of a half
    const int i = k % 32;
    const int both = byte(low + part * 64 + quarter % 2 * 32 + i);
    const int code = (quarter < 2 ? both & 15 : both >> 4) |
                     (byte(high + part * 32 + i) >> (2 * quarter) & 3) << 4;
    out[k] =
        scale * static_cast<float>(signed_byte(scales + k / 16)) * static_cast<float>(code - 32);
  }
}

constexpr std::array<float, 16> kNonLinear{-127, -104, -83, -65, -49, -35, -22, -10,
                                           1,    13,   25,  38,  53,  69,  89,  113};

void decode_iq4_nl(const std::byte* block, float* out) {
  const float scale = half(block);
  decode_nibbles(block + 2, out,
                 [=](int q, int) { return scale * kNonLinear[static_cast<std::size_t>(q)]; });
}

void decode_iq4_xs(const std::byte* block, float* out) {
  for (int part = 0; part < kSuperBlock / kBlock; ++part) {
    const int low = byte(block + 4 + part / 2) >> (part % 2 * 4) & 15;
    const int high = static_cast<int>(word16(block + 2) >> (2 * part) & 3);
    const float scale = half(block) * static_cast<float>((low | high << 4) - 32);
    decode_nibbles(block + 8 + part * kBlock / 2, out + part * kBlock,
                   [=](int q, int) { return scale * kNonLinear[static_cast<std::size_t>(q)]; });
  }
}

void decode_mxfp4(const std::byte* block, float* out) {
  constexpr std::array<float, 8> kValues{0.0F, 0.5F, 1.0F, 1.5F, 2.0F, 3.0F, 4.0F, 6.0F};
  const float scale = std::ldexp(1.0F, byte(block) - 127);
  decode_nibbles(block + 1, out, [=](int q, int) {
    const float value = kValues[static_cast<std::size_t>(q & 7)] * scale;
    return q < 8 ? value : -value;
  });
}

constexpr std::array<BlockFormat, 16> kFormats{{
    {kF32, "F32", 1, 4, decode_f32},
    {kF16, "F16", 1, 2, decode_f16},
    {2, "Q4_0", kBlock, 18, decode_q4_0},
    {3, "Q4_1", kBlock, 20, decode_q4_1},
    {6, "Q5_0", kBlock, 22, decode_q5_0},
    {7, "Q5_1", kBlock, 24, decode_q5_1},
    {8, "Q8_0", kBlock, 34, decode_q8_0},
    {10, "Q2_K", kSuperBlock, 84, decode_q2_k},
    {11, "Q3_K", kSuperBlock, 110, decode_q3_k},
    {12, "Q4_K", kSuperBlock, 144, decode_q4_k},
    {13, "Q5_K", kSuperBlock, 176, decode_q5_k},
    {14, "Q6_K", kSuperBlock, 210, decode_q6_k},
    {20, "IQ4_NL", kBlock, 18, decode_iq4_nl},
    {23, "IQ4_XS", kSuperBlock, 136, decode_iq4_xs},
    {kBF16, "BF16", 1, 2, decode_bf16},
    {39, "MXFP4", kBlock, 17, decode_mxfp4},
}};

std::string known_formats() {
  std::string names;
  for (const BlockFormat& format : kFormats) {
    names.append(names.empty() ? "" : ", ").append(format.name);
  }
  return names;
}

}  // namespace

const BlockFormat& block_format(std::uint32_t type, const std::string& where) {
  const auto* found = std::ranges::find(kFormats, type, &BlockFormat::type);
  require(found != kFormats.end(), "{}: ggml type {} is not supported; winnow reads {}", where,
          type, known_formats());
  return *found;
}

}  // namespace winnow::gguf
