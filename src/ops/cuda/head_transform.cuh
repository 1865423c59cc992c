// The steps for a query or a key of one head between its product and attention. Bias is added
// when a vector is loaded. Training has the same steps for its heads (training/training_heads.cu).
#pragma once

#include <vector_types.h>

namespace winnow::ops::cuda {

/// 1 / RMS of `channels` channels with this sum of squares.
inline __device__ float inverse_rms(float squares, float channels, float eps) {
  return rsqrtf(squares / channels + eps);
}

/// RoPE of one pair of channels.
inline __device__ void rotate_plane(float& low, float& high, float cosine, float sine) {
  const float before = low;
  low = before * cosine - high * sine;
  high = high * cosine + before * sine;
}

/// Q/K norm.
struct HeadNorm {
  bool exists = false;
  const float* weight = nullptr;  // [head_dim]
  float eps = 0.0F;
  bool centers = false;  // LayerNorm, for vectors that have center(); else RMSNorm
};

template <class Vector>
__device__ void apply_norm(Vector& x, const HeadNorm& norm) {
  if (!norm.exists) {
    return;
  }
  if constexpr (requires { x.center(); }) {
    if (norm.centers) {
      x.center();
    }
  }
  x.norm(norm.weight, norm.eps);
}

/// No channel carries a decision.
struct NoChannel {
  template <class Vector>
  __device__ void before_rope(Vector& /*x*/) const {}
  template <class Vector>
  __device__ void after_rope(Vector& /*x*/) const {}
};

/// If `borrowed`, `source.channel` carries a decision: it is zeroed, and again after RoPE if
/// `source.clear_after_rope`. read(x) receives the vector before that.
template <class Source, class Read>
struct ClearedChannel {
  bool borrowed;
  const Source& source;
  Read read;

  template <class Vector>
  __device__ void before_rope(Vector& x) const {
    read(x);
    if (borrowed) {
      x.clear(source.channel);
    }
  }
  template <class Vector>
  __device__ void after_rope(Vector& x) const {
    if (borrowed && source.clear_after_rope) {
      x.clear(source.channel);
    }
  }
};

/// RoPE of whole heads by a token's angles, for vectors that have apply_rope().
struct WholeRope {
  const float2* angles;
  template <class Vector>
  __device__ void operator()(Vector& x) const {
    x.apply_rope(angles);
  }
};

/// Applies a vector's norm(), reads the channel with the decision, then applies rope(x). The vector
/// type decides how it is held in registers (HeadVector: one warp per head).
template <class Vector, class Rope, class Channel>
__device__ void transform_head(Vector& x, const HeadNorm& norm, const Rope& rope,
                               const Channel& channel) {
  apply_norm(x, norm);
  channel.before_rope(x);
  rope(x);
  channel.after_rope(x);
}

/// The value of the channel that carries a decision, in all lanes.
template <class Vector>
__device__ float decision_channel(Vector& x, const HeadNorm& norm, int channel) {
  apply_norm(x, norm);
  return x.channel(channel);
}

}  // namespace winnow::ops::cuda
