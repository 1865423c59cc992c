// Linear layers of a few rows (decode) on the device, at the speed of its memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <span>

#include "ops/cuda/linear/device_weight.h"
#include "parallel/cuda/rank_sums.h"

namespace winnow::ops::cuda {

/// Rows that one call takes at most, and layers.
inline constexpr int kMostSkinnyRows = 16;
inline constexpr int kMostChainedGemms = 4;

/// Rows that one call takes on this device: inputs of fewer fit a small shared memory.
int most_skinny_rows();

/// y = x weight^T + bias.
struct GemmWeight {
  DeviceWeightView weight = {};  // [N, K]
  const float* bias = nullptr;   // [N] or null
};

/// The input of a linear layer, [rows, K], 16-byte aligned. RMSNorm scales a row, which commutes
/// with the product, so who makes a row leaves it unscaled with its squares summed in `parts`
/// parts, and the product is multiplied by 1 / sqrt(sum / K + eps). No parts: a plain input.
struct SkinnyInput {
  const bf16* x = nullptr;
  const float* square_sums = nullptr;  // [parts, rows]
  int parts = 0;
  float eps = 0.0F;
};

/// The residual stream [rows, N] and what the layer after it reads: hidden * norm_weight, and the
/// sums of the squares of hidden.
struct ResidualStream {
  float* hidden = nullptr;
  const float* norm_weight = nullptr;  // [N]; of an embedding's rows null stands for ones
  bf16* normed = nullptr;              // [rows, N]
  float* square_sums = nullptr;        // [residual_parts(N), rows]
};

/// Parts of the sums of squares that a layer of this width leaves.
constexpr int residual_parts(int width) {
  return (width + 15) / 16;
}

/// Of a layer of whose result each rank has a part (parallel/cuda/rank_sums.h): the sum's number in
/// its pass.
struct RankedSum {
  const parallel::cuda::RowInboxes* inboxes = nullptr;  // in device memory; null: one rank
  std::uint32_t number = 0;
};

/// A linear layer and what becomes of its result; made by one of the functions below. What a layer
/// writes must not be an input of the same layer, but for `hidden`. Results never have the bits of
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

/// residual.hidden += linear(x), or the sum of what all ranks have of it, and what follows from it.
SkinnyGemm added(const GemmWeight& linear, const SkinnyInput& x, const ResidualStream& residual,
                 const RankedSum& ranks = {});

/// y [rows, N / 2] = silu(gate) * up, where linear(x) = [gate, up] and the weight is paired.
SkinnyGemm gated(const GemmWeight& linear, const SkinnyInput& x, bf16* y);

/// tokens [rows] = the largest of linear(x), the lowest index of equals, or kNoToken; the logits
/// [rows, N] too unless null. The last layer of its call.
SkinnyGemm chosen(const GemmWeight& linear, const SkinnyInput& x, std::int32_t* tokens,
                  float* logits);

/// How far a block is with the memories that hold published results: skinny_gemm_kernels.h.
struct alignas(16) PublishPhase {
  std::uint32_t memory;   // that the next kernel takes: 0 or 1
  std::uint32_t used[2];  // bytes of each that do not hold kUnpublished
  std::uint32_t unused;
};

/// Device memory that calls on one stream need.
class SkinnyScratch {
 public:
  /// For calls whose layers publish at most `columns` values a row in all; 0: calls of one layer.
  explicit SkinnyScratch(int columns = 0);
  /// For calls whose layers publish at most so many bytes.
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

/// How a kernel is put into a stream. With `overlap` (compute capability 9.0 and later) it begins
/// to fetch weights while the kernel before it in the stream finishes, and touches everything else
/// only when that one is done (programmatic dependent launch).
struct SkinnyLaunch {
  cudaStream_t stream = nullptr;
  bool overlap = false;
};

/// Computes up to kMostChainedGemms layers of the same weight format, one after another, for up to
/// most_skinny_rows() rows. The input of each but the first is what the layer before it has made;
/// that stays within the call, and only the last layer writes its result (and all that have one
/// `hidden`) where it says. One kernel of a block per multiprocessor: the weights of a layer are on
/// their way while the one before it is still computed. Reads each weight once. Sums are in float,
/// in an order that depends on the shape of the weight alone: not on the other rows, nor on the
/// device. (One row of int4 is multiplied differently than several, and in an order that depends
/// on how much of a block's shared memory is left to the weights, too.)
void skinny_gemm(std::span<const SkinnyGemm> layers, int rows, const SkinnyScratch& scratch,
                 const SkinnyLaunch& launch);

/// residual.hidden[i] = table[tokens[i] - first_token] for any number of rows, zeros where the
/// table has no such row, and what follows from it, its square sums in one part.
void embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                const ResidualStream& residual, const SkinnyLaunch& launch, int first_token = 0);

}  // namespace winnow::ops::cuda
