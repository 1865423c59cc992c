// Brings the entries that a chunk sees into the form that the attention kernels read: 16 bits a
// number, rows one after another. Each entry is converted once here and read by many tiles there.
#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/kv_codes.cuh"
#include "ops/cuda/page_codes.cuh"
#include "ops/cuda/prefill_attention_kernels.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocksPerMultiprocessor = 8;

// Eight codes of an entry times its scale.
template <class Codes>
__device__ uint4 to_16_bits(const std::uint32_t (&codes)[2 * Codes::kBytes], const bf16* scale) {
  std::uint32_t x[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    x[i] = Codes::pair(codes, i);
    if constexpr (Codes::kScaled) {
      typename Codes::Pair pair;
      memcpy(&pair, &x[i], sizeof(pair));
      const float2 code = unpack(pair);
      const float factor = __uint_as_float(std::uint32_t{scale->bits} << 16);
      x[i] = bits_of(Codes::round(code.x * factor, code.y * factor));
    }
  }
  return {x[0], x[1], x[2], x[3]};
}

// Channels 8 chunk ... of the key (part 0) or value (part 1) in a slot of a page.
template <class Codes, int D>
__device__ uint4 from_page(const std::byte* page, int slot, int part, int chunk) {
  std::uint32_t codes[2 * Codes::kBytes];
  if (part == 0) {
    load_page_key<D, Codes::kBytes>(page, slot, 8 * chunk, codes);
  } else {
    load_page_value<D, Codes::kBytes>(page, slot, 8 * chunk, codes);
  }
  return to_16_bits<Codes>(codes, page_scale<D, Codes::kBytes>(page, slot, part));
}

template <class Codes, int D>
__device__ uint4 from_band(const PrefillChunk& chunk, int head, int entry, int part, int first) {
  const std::size_t row = std::size_t(head) * chunk.band_stride + entry;
  const std::byte* codes = part == 0 ? chunk.band_keys : chunk.band_values;
  std::uint32_t words[2 * Codes::kBytes];
  constexpr int kBytes = 8 * Codes::kBytes;
  memcpy(words, __builtin_assume_aligned(codes + row * D * Codes::kBytes + first * kBytes, kBytes),
         kBytes);
  return to_16_bits<Codes>(
      words, chunk.band_scales + (std::size_t(head) * 2 + part) * chunk.band_stride + entry);
}

// Blocks (x, head) take a page's worth of rows of that head at a time: first those of the archive,
// then those of the band.
template <class Codes, int D>
__global__ void __launch_bounds__(kThreads)
    gather_kernel(const __grid_constant__ PrefillArguments arguments) {
  constexpr int kChunks = D / 8;
  const PrefillChunk& chunk = arguments.chunk;
  const GatheredRows& rows = arguments.rows;
  const int head = static_cast<int>(blockIdx.y);
  if (blockIdx.x == 0 && head == 0 && threadIdx.x == 0) {
    *arguments.next_tile = 0;
  }
  const int archived = chunk.archive_counts[std::size_t(head + 1) * chunk.tokens - 1];
  const int pages = (archived + kPageEntries - 1) / kPageEntries;
  const int band = chunk.lead + chunk.tokens;
  for (int unit = blockIdx.x; unit < pages + rows.band_rows / kPageEntries; unit += gridDim.x) {
    const std::byte* page =
        unit < pages ? chunk.pool + chunk.archive_pages[head * chunk.archive_stride + unit] *
                                        arguments.page_bytes
                     : nullptr;
    const int first = (unit < pages ? unit : unit - pages) * kPageEntries;
    const int first_row = unit < pages ? first : rows.archive_rows + first;
#pragma unroll
    for (int i = threadIdx.x; i < 2 * kPageEntries * kChunks; i += kThreads) {
      const int c = i % kChunks;
      const int slot = i / kChunks % kPageEntries;
      const int part = i / kChunks / kPageEntries;
      uint4 x{};
      if (first + slot < (page != nullptr ? archived : band)) {
        x = page != nullptr ? from_page<Codes, D>(page, slot, part, c)
                            : from_band<Codes, D>(chunk, head, first + slot, part, c);
      }
      const int row = first_row + slot;
      std::byte* slab =
          rows.memory + ((std::size_t(head) * 2 + part) * kSlabs<D> + c / 8) * rows.slab_bytes();
      *reinterpret_cast<uint4*>(slab + std::size_t(row) * kSlabBytes + (c % 8 ^ row % 8) * 16) = x;
    }
  }
}

template <class Codes, int D>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  const int units = (arguments.rows.archive_rows + arguments.rows.band_rows) / kPageEntries;
  const int most = winnow::cuda::multiprocessor_count() * kBlocksPerMultiprocessor;
  const int wide = std::clamp(most / arguments.kv_heads, 1, units);
  gather_kernel<Codes, D><<<dim3(wide, arguments.kv_heads), kThreads, 0, stream>>>(arguments);
  winnow::cuda::check_launch("gather of prefill attention");
}

template <class Codes>
void launch(int head_dim, const PrefillArguments& arguments, cudaStream_t stream) {
  switch (head_dim) {
    case 64:
      return launch<Codes, 64>(arguments, stream);
    case 80:
      return launch<Codes, 80>(arguments, stream);
    case 96:
      return launch<Codes, 96>(arguments, stream);
    default:
      return launch<Codes, 128>(arguments, stream);
  }
}

}  // namespace

void launch_gather(const DevicePageLayout& layout, const PrefillArguments& arguments,
                   cudaStream_t stream) {
  switch (layout.format()) {
    case DType::bf16:
      return launch<Bf16Codes>(layout.head_dim(), arguments, stream);
    case DType::f8e4m3:
      return launch<F8Codes>(layout.head_dim(), arguments, stream);
    default:
      return launch<I8Codes>(layout.head_dim(), arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
