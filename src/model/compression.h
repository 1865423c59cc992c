// The retrofit of a model (docs/method.md).
#pragma once

#include <cstdint>

namespace winnow::model {

/// What an adapter computes from a layer's input: a number for each KV head.
struct AdapterSpec {
  enum class Kind : std::uint8_t {
    linear,  // a projection
    mlp,     // a projection of gelu(a hidden layer)
    gate,    // how much the token's own key outweighs a few fixed keys (adapter.h)
  };

  Kind kind = Kind::linear;
  int width = 0;         // mlp: width of the hidden layer; gate: of a key
  int sinks = 0;         // gate: number of fixed keys
  bool own_norm = true;  // else its input is attention's, normed

  bool operator==(const AdapterSpec&) const = default;
};

/// How a DMS model decides what to evict.
struct DmsConfig {
  enum class Source : std::uint8_t {
    borrowed,  // one channel of the group's first query head, after q_norm and before RoPE
    adapter,   // a probe of the layer's input
  };

  int window = 512;      // w: a marked key is visible for w more steps
  float scale = 100.0F;  // logit = scale * x - offset
  float offset = 5.0F;
  Source source = Source::adapter;
  bool per_layer = false;         // KV head 0 decides for all heads of its layer
  int shift = 1;                  // the decision read at token t concerns key t - shift; <= w + 1
  int channel = -1;               // borrowed: index in the head, -1 = last
  bool rezero_after_rope = true;  // borrowed: clear the channel again after RoPE
  bool evict = true;              // false: dms_disable_eviction, decisions are read and ignored
  double target_cr = 0.0;         // the ratio of the training; 0 = unknown
  AdapterSpec adapter = {};       // adapter: what it computes
  int keeps_first = 0;            // first tokens, which are never evicted

  bool operator==(const DmsConfig&) const = default;
};

/// A DMC model: alpha = 1 (merge) iff k[0] - offset > 0, omega = sigmoid(q[0]).
struct DmcConfig {
  float offset = 5.0F;
  bool per_layer = false;    // KV head 0 decides and weighs for all heads of its layer
  std::uint16_t pooled = 0;  // > 0: no decisions, this many tokens make an entry
  double target_cr = 0.0;    // what it was trained for; 0 = not said

  bool operator==(const DmcConfig&) const = default;
};

}  // namespace winnow::model
