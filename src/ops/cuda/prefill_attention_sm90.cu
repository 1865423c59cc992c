// Prefill attention with Hopper's own instructions (sm_90a). Blocks stay and take tiles as they
// come free, the longest first. In a block
//   warpgroups 0 .. Consumers - 1 hold 64 query rows each: scores and outputs are products of whole
//     warpgroups (wgmma), and while one warpgroup takes exponentials another one multiplies;
//   the last warpgroup feeds them: a thread copies gathered rows, kStages blocks ahead, and three
//     warps bring the queries of the next tile.
// A warpgroup multiplies the queries with the next block's keys while it takes exponentials of
// none, then the weights with values while it takes exponentials of the next (FlashAttention-3's
// scheme: Shah et al. 2024).
#include <cuda_pipeline.h>

#include <algorithm>

#include "base/cuda/device.h"
#include "ops/cuda/hopper.cuh"
#include "ops/cuda/prefill_tile.cuh"

namespace winnow::ops::cuda {
namespace {

constexpr int kWarpgroup = 128;
constexpr int kLoaders = 96;  // threads that bring queries

enum NamedBarrier { kLoaderBarrier = 1, kFirstTurn };

template <class Pair_, int D_>
struct Shape {
  using Pair = Pair_;
  static constexpr int D = D_;
  static constexpr int kConsumers = D == 64 ? 3 : 2;
  static constexpr int kBlock = 128;  // places of the list at a time
  static constexpr int kStages = D == 64 ? 4 : 2;
  static constexpr int kRows = 64 * kConsumers;
  static_assert(kRows == prefill_tile_rows(D, PrefillKernel::best));
  static constexpr int kThreads = (kConsumers + 1) * kWarpgroup;
  // Registers per thread, together at most 512 for a thread of each warpgroup.
  static constexpr int kConsumerRegisters = kConsumers == 2 ? 224 : 160;
  static constexpr int kProducerRegisters = kConsumers == 2 ? 56 : 32;
  static constexpr int kQueryBytes = kSlabs<D> * kRows * kSlabBytes;
  static constexpr int kPartBytes = kSlabs<D> * kBlock * kSlabBytes;
};

/// What is in shared memory besides matrices.
template <class S>
struct Control {
  Barrier query_full[2];
  Barrier query_empty[2];
  Barrier key_full[S::kStages];
  Barrier key_empty[S::kStages];
  Barrier value_full[S::kStages];
  Barrier value_empty[S::kStages];
  PrefillTile tile[2];  // head -1: there are no more
};

template <class S>
struct Shared {
  std::byte* memory;
  __device__ std::byte* query(int slot) const { return memory + slot * S::kQueryBytes; }
  __device__ std::byte* keys(int stage) const { return query(2) + 2 * stage * S::kPartBytes; }
  __device__ std::byte* values(int stage) const { return keys(stage) + S::kPartBytes; }
  __device__ Control<S>& control() const {
    return *reinterpret_cast<Control<S>*>(keys(S::kStages));
  }
  static constexpr int kAlignment = 1024;
  static constexpr int kBytes = 2 * S::kQueryBytes + 2 * S::kStages * S::kPartBytes +
                                static_cast<int>(sizeof(Control<S>)) + kAlignment;
};

/// A place in a ring of `Size` stages, as the one who waits for full ones sees it.
template <int Size>
struct Turn {
  int stage = 0;
  int parity = 0;
  __device__ void next() {
    if (++stage == Size) {
      stage = 0;
      parity ^= 1;
    }
  }
};

/// Brings a tile's queries into shared memory, all on their way at a time. Each loader then turns
/// what it has brought into operands.
template <class S>
__device__ void load_query_tile(const PrefillArguments& arguments, const PrefillTile& tile,
                                int thread, std::byte* to) {
  constexpr int kChunks = S::D / 8;
  constexpr int kStep = kLoaders / kChunks;  // rows from a loader's chunk to its next
  static_assert(kLoaders % kChunks == 0);
  const int group = arguments.group;
  const int inverse = (1 << 16) / group + 1;
  const int rows = tile.tokens * group;
  const int c = thread % kChunks;
  const bf16* from = arguments.chunk.query + QueryRow(arguments, tile, 0, S::D).offset + 8 * c;
  to += c / 8 * (S::kRows * kSlabBytes);
  const auto place_of = [&](int row) { return to + row * kSlabBytes + (c % 8 ^ row % 8) * 16; };
#pragma unroll 4
  for (int i = thread / kChunks; i < S::kRows; i += kStep) {
    const int row = min(i, rows - 1);       // rows too many repeat the last
    const int token = row * inverse >> 16;  // row / group
    const int offset = (token * (arguments.kv_heads - 1) * group + row) * S::D;
    __pipeline_memcpy_async(place_of(i), from + offset, 16);
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  using Pair = typename S::Pair;
  if constexpr (std::is_same_v<Pair, __half2>) {
#pragma unroll 4
    for (int i = thread / kChunks; i < S::kRows; i += kStep) {
      auto& x = *reinterpret_cast<uint4*>(place_of(i));
      x = {from_bf16<Pair>(x.x), from_bf16<Pair>(x.y), from_bf16<Pair>(x.z), from_bf16<Pair>(x.w)};
    }
  }
}

/// The loaders: take tiles and bring their queries.
template <class S>
__device__ void load_queries(const PrefillArguments& arguments, const Shared<S>& shared) {
  Control<S>& control = shared.control();
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroup - (kWarpgroup - kLoaders);
  for (Turn<2> turn;; turn.next()) {
    control.query_empty[turn.stage].wait(turn.parity ^ 1);
    if (thread == 0) {
      PrefillTile& taken = control.tile[turn.stage];
      const int index = atomicAdd(arguments.next_tile, 1);
      if (index < arguments.tiles) {
        taken = PrefillTile(arguments, arguments.tile_order[index]);
      } else {
        taken.head = -1;
      }
    }
    sync_named(kLoaderBarrier, kLoaders);
    const PrefillTile tile = control.tile[turn.stage];
    if (tile.head >= 0) {
      load_query_tile<S>(arguments, tile, thread, shared.query(turn.stage));
      fence_async_proxy();
    }
    control.query_full[turn.stage].arrive();
    if (tile.head < 0) {
      return;
    }
  }
}

/// Rows [first, first + count) of `from`, all slabs, into rows of a stage from `to_row` on.
template <class S>
__device__ void copy_rows(Barrier& barrier, std::byte* to, int to_row, const std::byte* from,
                          int first, int count, std::size_t slab_bytes) {
#pragma unroll
  for (int slab = 0; slab < kSlabs<S::D>; ++slab) {
    barrier.copy(to + (slab * S::kBlock + to_row) * kSlabBytes,
                 from + slab * slab_bytes + std::size_t(first) * kSlabBytes, count * kSlabBytes);
  }
}

/// The places [place, place + kBlock) of a tile's list: rows of the archive, of the band, or both.
template <class S>
__device__ void copy_part(const PrefillArguments& arguments, const PrefillTile& tile, int part,
                          int place, std::byte* to, Barrier& barrier) {
  const GatheredRows& rows = arguments.rows;
  const std::byte* from =
      rows.memory + std::size_t(tile.head * 2 + part) * kSlabs<S::D> * rows.slab_bytes();
  const int archived = min(max(tile.archive - place, 0), S::kBlock);
  barrier.arrive_expecting(S::kPartBytes);
  if (archived > 0) {
    copy_rows<S>(barrier, to, 0, from, place, archived, rows.slab_bytes());
  }
  if (archived < S::kBlock) {
    copy_rows<S>(barrier, to, archived, from, tile.row_at(place + archived, rows),
                 S::kBlock - archived, rows.slab_bytes());
  }
}

/// One thread: keeps the stages filled. Blocks of a list come last first.
template <class S>
__device__ void load_entries(const PrefillArguments& arguments, const Shared<S>& shared) {
  Control<S>& control = shared.control();
  Turn<S::kStages> turn;
  for (Turn<2> query;; query.next()) {
    control.query_full[query.stage].wait(query.parity);
    const PrefillTile tile = control.tile[query.stage];
    control.query_empty[query.stage].arrive();
    if (tile.head < 0) {
      return;
    }
    for (int block = (tile.length - 1) / S::kBlock; block >= 0; --block, turn.next()) {
      const int place = block * S::kBlock;
      control.key_empty[turn.stage].wait(turn.parity ^ 1);
      copy_part<S>(arguments, tile, 0, place, shared.keys(turn.stage),
                   control.key_full[turn.stage]);
      control.value_empty[turn.stage].wait(turn.parity ^ 1);
      copy_part<S>(arguments, tile, 1, place, shared.values(turn.stage),
                   control.value_full[turn.stage]);
    }
  }
}

/// Zeros, and not before what was written above.
template <int Size>
__device__ void clear(float (&x)[Size]) {
#pragma unroll
  for (float& y : x) {
    asm volatile("mov.f32 %0, 0f00000000;" : "=f"(y)::"memory");
  }
}

/// A warp has read what `barrier` guards.
__device__ void release(Barrier& barrier) {
  __syncwarp();
  if (threadIdx.x % 32 == 0) {
    barrier.arrive();
  }
}

/// scores = queries x keys, begun.
template <class S>
__device__ void begin_scores(float (&scores)[S::kBlock / 2], const std::byte* query,
                             const std::byte* keys) {
  begin_products();
#pragma unroll
  for (int step = 0; step < S::D / 16; ++step) {
    const int slab = step / 4;
    const auto a = matrix_descriptor(query + slab * S::kRows * kSlabBytes + step % 4 * 32, 0);
    const auto b = matrix_descriptor(keys + slab * S::kBlock * kSlabBytes + step % 4 * 32, 0);
    if (step == 0) {
      multiply_shared<false>(scores, a, b, typename S::Pair{});
    } else {
      multiply_shared<true>(scores, a, b, typename S::Pair{});
    }
  }
  commit_products();
}

/// out += weights x values, begun.
template <class S>
__device__ void begin_outputs(float (&out)[S::D / 2], const std::uint32_t (&weights)[S::kBlock / 4],
                              const std::byte* values) {
  begin_products();
#pragma unroll
  for (int step = 0; step < S::kBlock / 16; ++step) {
    const auto b = matrix_descriptor(values + step * 16 * kSlabBytes, S::kBlock * kSlabBytes);
    multiply_registers(out, &weights[4 * step], b, typename S::Pair{});
  }
  commit_products();
}

/// A warpgroup's attention of its 64 rows of a tile. `turn` is that of the next block.
template <class S>
class Consumer {
 public:
  __device__ Consumer(const PrefillArguments& arguments, const Shared<S>& shared)
      : arguments_(arguments), shared_(shared), warpgroup_(threadIdx.x / kWarpgroup) {
    if (warpgroup_ == S::kConsumers - 1) {
      pass_turn();
    }
  }

  // Products are issued a block ahead of what is weighed, across tiles as well: the last one of a
  // tile's outputs is followed by the first one of the next tile's scores.
  __device__ void run() {
    if (!await_tile()) {
      return;
    }
    control().key_full[turn_.stage].wait(turn_.parity);
    float scores[S::kBlock / 2];
    begin_block_scores(scores);
    for (bool more = true; more;) {
      const TileView view(arguments_, control().tile[query_.stage], warpgroup_);
      std::uint32_t weights[S::kBlock / 4];
      SoftmaxRows softmax;
      wait_for_products<0>(scores);
      float out[S::D / 2];
      clear(out);
      attend(view, scores, weights, out, softmax);
      release(control().query_empty[query_.stage]);
      query_.next();
      more = await_tile();
      const Turn<S::kStages> before = turn_;
      turn_.next();
      if (more) {
        control().key_full[turn_.stage].wait(turn_.parity);
      }
      control().value_full[before.stage].wait(before.parity);
      await_turn();
      begin_outputs<S>(out, weights, shared_.values(before.stage));
      begin_block_scores(scores);  // of anything when there is no next tile: a branch costs more
      pass_turn();
      wait_for_products<1>(out);
      release(control().value_empty[before.stage]);
      float factor[2];
      softmax.reciprocals(factor);
      store_rows<S::D>(out, factor, view.rows, arguments_.chunk.out);
    }
    wait_for_products<0>(scores);
  }

 private:
  // Warpgroups issue products in turn, so that they do not all take exponentials at a time.
  __device__ void await_turn() const { sync_named(kFirstTurn + warpgroup_, 2 * kWarpgroup); }
  __device__ void pass_turn() const {
    arrive_named(kFirstTurn + (warpgroup_ + 1) % S::kConsumers, 2 * kWarpgroup);
  }

  // A tile as the rows of a lane see it.
  struct TileView {
    PrefillTile tile;
    QueryRow rows[2];
    VisiblePlaces visible[2];

    __device__ TileView(const PrefillArguments& arguments, const PrefillTile& of, int warpgroup)
        : tile(of),
          rows{{arguments, of, first_row(warpgroup), S::D},
               {arguments, of, first_row(warpgroup) + 8, S::D}},
          visible{{arguments, of, rows[0].token}, {arguments, of, rows[1].token}} {}
    static __device__ int first_row(int warpgroup) {
      const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
      return warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4;
    }
  };

  __device__ Control<S>& control() const { return shared_.control(); }

  // False when there are no more.
  __device__ bool await_tile() const {
    control().query_full[query_.stage].wait(query_.parity);
    return control().tile[query_.stage].head >= 0;
  }

  // The scores of the next block in turn.
  __device__ __forceinline__ void begin_block_scores(float (&scores)[S::kBlock / 2]) const {
    begin_scores<S>(scores, shared_.query(query_.stage) + warpgroup_ * 64 * kSlabBytes,
                    shared_.keys(turn_.stage));
  }

  // A tile from its first block's scores to its last block's weights.
  __device__ __forceinline__ void attend(const TileView& view, float (&scores)[S::kBlock / 2],
                                         std::uint32_t (&weights)[S::kBlock / 4],
                                         float (&out)[S::D / 2], SoftmaxRows& softmax) {
    float factor[2];
    int place = (view.tile.length - 1) / S::kBlock * S::kBlock;
    release(control().key_empty[turn_.stage]);
    mask_block(view, place, scores);  // all do not see the newest token
    softmax.weigh(scores, arguments_.scale, factor);
    to_operands<typename S::Pair>(scores, weights);
    for (place -= S::kBlock; place >= 0; place -= S::kBlock) {
      attend_block(view, place, scores, weights, out, softmax);
    }
  }

  // The scores and weights of one block, and the outputs of the one before, whose products are
  // under way while the exponentials are taken. No branch comes between: the compiler waits for
  // products where paths meet.
  __device__ __forceinline__ void attend_block(const TileView& view, int place,
                                               float (&scores)[S::kBlock / 2],
                                               std::uint32_t (&weights)[S::kBlock / 4],
                                               float (&out)[S::D / 2], SoftmaxRows& softmax) {
    const Turn<S::kStages> before = turn_;
    turn_.next();
    control().value_full[before.stage].wait(before.parity);
    control().key_full[turn_.stage].wait(turn_.parity);
    await_turn();
    begin_block_scores(scores);
    begin_outputs<S>(out, weights, shared_.values(before.stage));
    pass_turn();
    wait_for_products<1>(scores);
    release(control().key_empty[turn_.stage]);
    if (!all_see(arguments_, view.tile, place, S::kBlock)) {
      mask_block(view, place, scores);
    }
    float factor[2];
    const bool grown = softmax.weigh(scores, arguments_.scale, factor);
    // ptxas would wait for the outputs before it takes exponentials: what stops it is a branch that
    // depends on their sums. None is negative, so nobody waits here.
    const bool negative = fminf(softmax.sum[0], softmax.sum[1]) < 0.0F;
    control().key_full[turn_.stage].wait(negative ? turn_.parity ^ 1 : turn_.parity);
    wait_for_products<0>(out);
    release(control().value_empty[before.stage]);
    if (grown) {
      multiply_rows(out, factor);
    }
    to_operands<typename S::Pair>(scores, weights);
  }

  static __device__ __forceinline__ void mask_block(const TileView& view, int place,
                                                    float (&scores)[S::kBlock / 2]) {
    mask(scores, {columns_seen<S::kBlock>(view.visible[0], place),
                  columns_seen<S::kBlock>(view.visible[1], place)});
  }

  const PrefillArguments& arguments_;
  const Shared<S>& shared_;
  int warpgroup_;
  Turn<2> query_;          // of the tile
  Turn<S::kStages> turn_;  // of the block whose scores were begun last
};

template <class S>
__device__ void init(Control<S>& control) {
  for (int i = 0; i < 2; ++i) {
    control.query_full[i].init(kLoaders);
    control.query_empty[i].init(4 * S::kConsumers + 1);
  }
  for (int i = 0; i < S::kStages; ++i) {
    control.key_full[i].init(1);
    control.key_empty[i].init(4 * S::kConsumers);
    control.value_full[i].init(1);
    control.value_empty[i].init(4 * S::kConsumers);
  }
  fence_async_proxy();
}

template <class S>
__global__ void __launch_bounds__(S::kThreads, 1)
    prefill_kernel(const __grid_constant__ PrefillArguments arguments) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ std::byte memory[];
  const Shared<S> shared{memory +
                         (Shared<S>::kAlignment - shared_address(memory)) % Shared<S>::kAlignment};
  if (threadIdx.x == 0) {
    init(shared.control());
  }
  __syncthreads();
  if (threadIdx.x >= S::kConsumers * kWarpgroup) {
    give_registers<S::kProducerRegisters>();
    const int thread = static_cast<int>(threadIdx.x) % kWarpgroup;
    cudaGridDependencySynchronize();  // the gathered rows and the tiles' order are there
    if (thread >= kWarpgroup - kLoaders) {
      load_queries<S>(arguments, shared);
    } else if (thread == 0) {
      load_entries<S>(arguments, shared);
    }
  } else {
    take_registers<S::kConsumerRegisters>();
    Consumer<S>(arguments, shared).run();
  }
#endif
}

template <class S>
void launch(const PrefillArguments& arguments, cudaStream_t stream) {
  constexpr int kBytes = Shared<S>::kBytes;
  winnow::cuda::check(
      cudaFuncSetAttribute(prefill_kernel<S>, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes),
      "shared memory of prefill attention");
  const int blocks = std::min(winnow::cuda::multiprocessor_count(), arguments.tiles);
  // The block may begin while the gathering ends: it waits where it must.
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  const cudaLaunchConfig_t config{.gridDim = static_cast<unsigned>(blocks),
                                  .blockDim = S::kThreads,
                                  .dynamicSmemBytes = kBytes,
                                  .stream = stream,
                                  .attrs = &early,
                                  .numAttrs = 1};
  winnow::cuda::check(cudaLaunchKernelEx(&config, prefill_kernel<S>, arguments),
                      "prefill attention");
}

template <class Pair>
void launch(int head_dim, const PrefillArguments& arguments, cudaStream_t stream) {
  if (head_dim == 64) {
    launch<Shape<Pair, 64>>(arguments, stream);
  } else {
    launch<Shape<Pair, 128>>(arguments, stream);
  }
}

}  // namespace

void launch_prefill_sm90(DType format, int head_dim, const PrefillArguments& arguments,
                         cudaStream_t stream) {
  if (format == DType::bf16) {
    launch<__nv_bfloat162>(head_dim, arguments, stream);
  } else {
    launch<__half2>(head_dim, arguments, stream);
  }
}

}  // namespace winnow::ops::cuda
