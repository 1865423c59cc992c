// Far dropout: during pre-training, most heads see only their window in most documents, so
// that the model learns to read far back with few heads. Compression then costs little.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "ops/matrix.h"

namespace winnow::train {

struct FarDropout {
  struct Head {
    int layer = 0;
    int kv_head = 0;
  };
  int window = 64;              // a local head's query sees the keys of this many steps back
  double share = 0.0;           // share of documents with local heads
  double mixed = 0.0;           // of these documents: a coin decides for each head
  std::vector<Head> far_heads;  // never local
};

/// The local heads of one layer: a function of seed and document, the same on all devices.
struct LocalHeads {
  static constexpr int kMostHeads = 64;

  int layer = 0;
  std::uint64_t far = 0;  // bit h: KV head h is never local
  double share = 0.0;
  double mixed = 0.0;

  /// `document`: its first row in the batch.
  [[nodiscard]] constexpr bool contains(std::uint64_t seed, std::int32_t document,
                                        int kv_head) const {
    if ((far >> kv_head & 1U) != 0) {
      return false;
    }
    Random random(seed, static_cast<std::uint64_t>(document));
    const double kind = random.uniform();
    if (kind >= mixed) {
      return kind < share;
    }
    const int head = layer * kMostHeads + kv_head;
    return Random(random.bits(), static_cast<std::uint64_t>(head)).bits() >> 63U != 0;
  }
};

LocalHeads local_heads(const FarDropout& dropout, int layer);

/// The bias of keys beyond the window that no query sees. Finite, so that attention never combines
/// two infinities; exp of it is 0.
inline constexpr float kHiddenBias = -1e30F;

/// bias [T, kv_heads], for training attention with dropout's window: kHiddenBias for keys of local
/// heads, 0 for others.
void far_bias(const LocalHeads& local, std::uint64_t seed, std::span<const std::int32_t> first_key,
              ops::Matrix<float> bias);

}  // namespace winnow::train
