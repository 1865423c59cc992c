// The interface between the host code of linear layers of few rows and their kernels.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>
#include <vector>

#include "ops/cuda/linear/skinny_gemm.h"

namespace winnow::ops::cuda {

/// Layers of a kernel publish rows (bf16) and their sums of squares (float) through memory that is
/// filled with this value beforehand, a NaN that no instruction produces: a reader that finds any
/// other value has read a result. So blocks need not wait for each other or for their writes to
/// become visible. Kernels alternate between two memories, and each refills the other one, whose
/// readers and writers are in other kernels.
inline constexpr std::uint32_t kUnpublished = 0xFFFFFFFFU;

/// Columns that are fetched together (SkinnyChunk), and the bytes of a row of them in shared
/// memory: chosen so that eight lanes that read 16 bytes at four places in two rows access all
/// banks.
constexpr int chunk_columns(DeviceWeightFormat format) {
  return format == DeviceWeightFormat::bf16 ? 512 : 1024;
}
constexpr int chunk_pitch(DeviceWeightFormat format) {
  return 2 * chunk_columns(format) + 64;
}
/// Bytes of rows that are published to layers of a format. Several rows are stored chunk by chunk
/// in the layout of shared memory, [chunks][rows][chunk_pitch], so that one copy moves a chunk.
constexpr std::size_t published_row_bytes(int rows, int cols, DeviceWeightFormat format) {
  const int chunks = (cols + chunk_columns(format) - 1) / chunk_columns(format);
  return rows == 1 ? (std::size_t{2} * static_cast<std::size_t>(cols) + 15) / 16 * 16
                   : static_cast<std::size_t>(chunks * rows * chunk_pitch(format));
}

/// A block's shared memory that is enough for kMostSkinnyRows rows of any format and weights; with
/// less, the limit is kRowsOfLittleMemory rows. Every device has at least kSmallestSharedMemory.
inline constexpr int kSharedMemoryOfMostRows = 128 * 1024;
inline constexpr int kSmallestSharedMemory = 99 * 1024;
inline constexpr int kRowsOfLittleMemory = 8;

/// Throws if `rows` leave no stage for weights in a block's `bytes` of shared memory.
void check_stages(int stages, int rows, int bytes);

/// Placeholder for attention and its arguments in kernels without attention.
struct NoAttention {
  static constexpr int shared_bytes(const NoAttention&) { return 0; }
};

/// A kernel's work: up to kLayers layers, each after the previous one.
/// Tiles are numbered across layers and assigned to the blocks round-robin, so that all blocks
/// get the same share; but residual layers start at the first block, so that a value of
/// the residual stream belongs to one thread. Layers without an input take the output of the
/// kernel's attention, whose input is the output of the layer before them.
template <int kLayers, class AttentionArguments = NoAttention>
struct SkinnyProgramOf {
  static constexpr bool kAttends = !std::is_same_v<AttentionArguments, NoAttention>;

  int rows = 0;
  int count = 0;
  SkinnyGemm layers[kLayers] = {};
  int blocks = 0;
  std::uint32_t* arrived = nullptr;  // [1] blocks that have chosen tokens, zero between kernels
  std::uint64_t* best = nullptr;     // [blocks, rows that the kernel is made for]

  PublishPhase* phases = nullptr;     // [blocks]
  std::byte* published = nullptr;     // [2, published_bytes]
  std::uint32_t published_bytes = 0;  // multiples of 16, like all of these
  std::uint32_t published_used = 0;   // by this kernel
  std::uint32_t rows_at[kLayers]{};   // in a memory: offsets of the rows and sums of squares that
  std::uint32_t sums_at[kLayers]{};   // the layer reads; the first layer's are elsewhere

  AttentionArguments attention = {};
};
using SkinnyProgram = SkinnyProgramOf<kMostChainedGemms>;

/// Whether a layer's input is the output of the kernel's attention.
constexpr bool takes_attention(const SkinnyGemm& layer) {
  return layer.input.x == nullptr;
}

/// The offsets of data published to layers, [layers] in a memory, and the total bytes:
/// SkinnyProgramOf. For a layer that takes attention, the sums are replaced by attention's inputs,
/// the values of the layer before (float), then `part_bytes` for attention's parts. Throws Error if
/// a layer's input is not the output of the layer before it.
struct PublishedLayout {
  std::vector<std::uint32_t> rows;
  std::vector<std::uint32_t> sums;
  std::size_t bytes = 0;
};
PublishedLayout lay_out_published(std::span<const SkinnyGemm> layers, int rows,
                                  std::size_t part_bytes);

/// Throw Error for layers that no kernel supports, and if there is not enough room.
void check_layers(std::span<const SkinnyGemm> layers);
void check_room(const PublishedLayout& places, const SkinnyScratch& scratch);

/// The whole program except its attention. Throws Error.
template <class Program>
void fill(Program& program, std::span<const SkinnyGemm> layers, int rows,
          const SkinnyScratch& scratch, std::size_t part_bytes) {
  check_layers(layers);
  const PublishedLayout places = lay_out_published(layers, rows, part_bytes);
  check_room(places, scratch);
  program.rows = rows;
  program.count = static_cast<int>(layers.size());
  std::ranges::copy(layers, program.layers);
  program.blocks = winnow::cuda::multiprocessor_count();
  program.arrived = scratch.arrived();
  program.best = scratch.best();
  program.phases = scratch.phases();
  program.published = scratch.published();
  program.published_bytes = static_cast<std::uint32_t>(scratch.published_bytes());
  program.published_used = static_cast<std::uint32_t>(places.bytes);
  std::ranges::copy(places.rows, program.rows_at);
  std::ranges::copy(places.sums, program.sums_at);
}

/// One per format, each in its own source file.
void launch_skinny_gemm_bf16(const SkinnyProgram& program, const SkinnyLaunch& launch);
void launch_skinny_gemm_fp8(const SkinnyProgram& program, const SkinnyLaunch& launch);
void launch_skinny_gemm_int8(const SkinnyProgram& program, const SkinnyLaunch& launch);
void launch_skinny_gemm_int4(const SkinnyProgram& program, const SkinnyLaunch& launch);

void launch_embed_rows(const DeviceWeightView& table, const std::int32_t* tokens, int rows,
                       const ResidualStream& residual, const SkinnyLaunch& launch, int first_token);

}  // namespace winnow::ops::cuda
