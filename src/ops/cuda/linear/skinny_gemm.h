// Linear layers of a few rows (decode) on the device, at the speed of its memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "ops/cuda/linear/device_weight.h"
#include "parallel/cuda/rank_sums.h"

namespace winnow::ops::cuda {

/// The largest number of rows and of layers per call.
inline constexpr int kMostSkinnyRows = 16;
inline constexpr int kMostChainedGemms = 4;

/// The largest number of rows per call on this device: a small shared memory holds fewer inputs.
int most_skinny_rows();

/// y = x weight^T + bias.
struct GemmWeight {
  DeviceWeightView weight = {};  // [N, K]
  const float* bias = nullptr;   // [N] or null
};

/// The input of a linear layer, [rows, K], 16-byte aligned. RMSNorm scales a row, which commutes
/// with the product. So the layer that computes a row stores it unscaled, with the sum of its
/// squares in `parts` parts; the product is multiplied by 1 / sqrt(sum / K + eps). No parts: none.
struct SkinnyInput {
  const bf16* x = nullptr;
  const float* square_sums = nullptr;  // [parts, rows]
  int parts = 0;
  float eps = 0.0F;
};

/// The residual stream [rows, N] and the input of the next layer: hidden * norm_weight, and the
/// sums of the squares of hidden. `kept`, if it is set, receives a
/// copy of hidden from layers made by added().
struct ResidualStream {
  float* hidden = nullptr;
  const float* norm_weight = nullptr;  // [N]; for rows of an embedding, null means ones
  bf16* normed = nullptr;              // [rows, N]
  float* square_sums = nullptr;        // [residual_parts(N), rows]
  float* kept = nullptr;               // optional: [rows, kept_stride]
  std::int32_t kept_stride = 0;
};

/// The number of partial sums of squares that a layer of this width stores.
constexpr int residual_parts(int width) {
  return (width + 15) / 16;
}

/// For a layer whose result is the sum of all ranks' parts (parallel/cuda/rank_sums.h): the sum's
/// number in its pass.
struct RankedSum {
  const parallel::cuda::RowInboxes* inboxes = nullptr;  // in device memory; null: one rank
  std::uint32_t number = 0;
};

/// A linear layer and the use of its result; made by one of the functions below. A layer's outputs
/// must not be inputs of the same layer, except `hidden`. Results never have the bits of
/// kUnpublished (skinny_gemm_kernels.h).
struct SkinnyGemm {
  enum class Epilogue : std::uint8_t { store, residual, silu, argmax };

  GemmWeight linear = {};
  SkinnyInput input = {};
  Epilogue epilogue = Epilogue::store;
  float* values = nullptr;
  bf16* activated = nullptr;
  ResidualStream residual = {};
  RankedSum ranks = {};
  std::int32_t* tokens = nullptr;
};

/// y [rows, N] = linear(x).
SkinnyGemm stored(const GemmWeight& linear, const SkinnyInput& x, float* y);

/// residual.hidden += linear(x), summed over ranks if there are several; also writes normed, sums.
SkinnyGemm added(const GemmWeight& linear, const SkinnyInput& x, const ResidualStream& residual,
                 const RankedSum& ranks = {});

/// y [rows, N / 2] = silu(gate) * up, where linear(x) = [gate, up] and the weight is paired.
SkinnyGemm gated(const GemmWeight& linear, const SkinnyInput& x, bf16* y);

/// tokens [rows] = the index of the largest of linear(x), the lowest on a tie, or kNoToken; also
/// the logits [rows, N] unless null. Must be the last layer of its call.
SkinnyGemm chosen(const GemmWeight& linear, const SkinnyInput& x, std::int32_t* tokens,
                  float* logits);

/// A block's state of the memories that hold published results: skinny_gemm_kernels.h.
struct alignas(16) PublishPhase {
  std::uint32_t memory;   // the next kernel's: 0 or 1
  std::uint32_t used[2];  // bytes of each memory that are not kUnpublished
  std::uint32_t unused;
};

/// Device memory that calls on one stream need.
class SkinnyScratch {
 public:
  /// For calls whose layers publish at most `columns` values per row in all; 0: calls of one layer.
  explicit SkinnyScratch(int columns = 0);
  /// For calls whose layers publish at most this many bytes.
  explicit SkinnyScratch(std::size_t published_bytes);

  [[nodiscard]] std::uint32_t* arrived() const { return arrived_.data(); }
  [[nodiscard]] std::uint64_t* best() const { return best_.data(); }
  [[nodiscard]] PublishPhase* phases() const { return phases_.data(); }
  /// Two memories of published_bytes() each.
  [[nodiscard]] std::byte* published() const { return published_.data(); }
  [[nodiscard]] std::size_t published_bytes() const { return published_.size() / 2; }

 private:
  winnow::cuda::DeviceBuffer<std::uint32_t> arrived_;
  winnow::cuda::DeviceBuffer<std::uint64_t> best_;
  winnow::cuda::DeviceBuffer<PublishPhase> phases_;
  winnow::cuda::DeviceBuffer<std::byte> published_;
};

/// How a kernel is launched into a stream. With `overlap` (compute capability 9.0 and later) it
/// starts to fetch weights while the preceding kernel in the stream finishes, and accesses all
/// other memory only when that kernel is complete (programmatic dependent launch).
struct SkinnyLaunch {
  cudaStream_t stream = nullptr;
  bool overlap = false;
};

/// Computes up to kMostChainedGemms layers of the same weight format, one after another, for up to
/// most_skinny_rows() rows. Each layer but the first takes the previous layer's result as input.
/// Results stay within the call: only the last layer, and all layers with one `hidden`, write their
/// outputs. One kernel, with a block per multiprocessor: the next layer's weights are already being
/// loaded while a layer is computed. Reads each weight once. Sums are in float,
/// in an order that depends only on the weight's shape: not on the other rows, nor on the
/// device. (One row of int4 is multiplied differently from several, and its order also depends
/// on how much of a block's shared memory is left for the weights.)
void skinny_gemm(std::span<const SkinnyGemm> layers, int rows, const SkinnyScratch& scratch,
                 const SkinnyLaunch& launch);

/// residual.hidden[i] = table[tokens[i] - first_token] for any number of rows, or zeros if the
/// table has no such row; also writes normed, and square_sums in one part.
void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualStream& residual, const SkinnyLaunch& launch, int first_token = 0);

}  // namespace winnow::ops::cuda
