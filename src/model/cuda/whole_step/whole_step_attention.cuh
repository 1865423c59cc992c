// Attention of one token of each sequence between linear layers of one kernel (whole_step.h). The
// warps that multiply run it; they would otherwise wait for its output.
#pragma once

#include <cuda_bf16.h>

#include "model/cuda/whole_step/whole_step_entries.cuh"
#include "model/cuda/whole_step/whole_step_memory.cuh"
#include "ops/cuda/linear/skinny_gemm_fetch.cuh"

namespace winnow::model::cuda {

/// The entries of a sequence's KV head are split between `parts` blocks of the program, and within
/// a block between its warps. Each block adds up its warps' outputs and publishes this part to the
/// head's blocks. Each of these adds up some channels of all parts and publishes the sums to all
/// blocks.
///
/// Entries are read as the last step left them: nothing is appended before all layers are
/// done. The token's own entry is read from shared memory, rounded as it will be stored.
template <ops::EntryFormat kType, int D, bool kLongRows, bool kSeveral>
class WholeStepAttention {
 public:
  /// Called by all warps that multiply, and only by them. `published`: the published memory.
  template <class Program>
  __device__ WholeStepAttention(const Program& program, std::byte* published, std::byte* memory)
      : memory_(memory),
        a_(*reinterpret_cast<const WholeStepArguments*>(memory + Memory::kArguments)),
        sequence_(kSeveral ? row(program.attention) / program.attention.cache.kv_heads : 0),
        head_(row(program.attention) - sequence_ * program.attention.cache.kv_heads),
        entries_(a_, *at<const WholeStepSequence>(Memory::kSequence), head_,
                 static_cast<int>(blockIdx.x) % program.attention.parts * kWarps + warp(),
                 pages_of(warp()),
                 reinterpret_cast<State*>(memory + Memory::kStates) + warp() * Shape::kStages,
                 *at<WholeStepShare>(Memory::kShares + warp() * int{sizeof(WholeStepShare)}),
                 program.attention.cache.pool) {
    fill_memory(program.attention, published);
    if (takes_part()) {
      entries_.begin();
    }
  }

  /// Whether the block has a part of a row.
  [[nodiscard]] __device__ bool takes_part() const {
    return kSeveral ? sequence_ < a_.sequences : head_ < a_.cache.kv_heads;
  }
  /// Whether attention of all layers is done.
  [[nodiscard]] __device__ bool is_over() const { return layer_ == a_.layers; }

  /// Requests the next layer's page numbers and norm weights.
  __device__ void look_up() {
    entries_.look_up(layer_);
    bring_norms();
  }
  /// Starts to copy the pages of the last look_up() to shared memory.
  __device__ void fetch() { entries_.fetch(); }
  /// Computes the block's part of the next layer's attention, then its channels of the output.
  __device__ void attend() {
    take_token();
    typename Shape::Attention attention;
    attention.begin(at<const uint4>(Memory::kOperands));
    entries_.attend(attention, memory_ + Memory::kNewEntry);
    attention.write(outs_of(warp()), sums_of(warp()), a_.group);
    synchronize();
    publish_part();
    synchronize();  // all warps' parts have been read
    publish_output();
    ++layer_;
  }

 private:
  using Shape = WholeStepShape<kType, D, kLongRows>;
  using Memory = WholeStepMemory<kType, D, kLongRows>;
  using Codes = typename Shape::Codes;
  using Format = typename Shape::Format;
  using Code = typename Format::Code;
  using State = typename Shape::StreamState;
  static constexpr unsigned kAll = 0xFFFFFFFFU;
  static constexpr int kWarps = Shape::kWarps;
  static constexpr int kThreads = Shape::kThreads;
  static_assert(kWarps == ops::cuda::kProductWarps);
  static constexpr int kQuads = D / 4;

  static __device__ void synchronize() {
    ops::cuda::sync_named(ops::cuda::kAttentionBarrier, kThreads);
  }

  // The block's row among the rows of all sequences.
  static __device__ int row(const WholeStepArguments& arguments) {
    return static_cast<int>(blockIdx.x) / arguments.parts;
  }
  [[nodiscard]] __device__ std::byte* published() const {
    return *at<std::byte*>(Memory::kPublished);
  }
  // The block with the last part has the token's own entry.
  [[nodiscard]] __device__ bool has_new_entry() const { return part() + 1 == a_.parts; }

  static __device__ int thread() { return static_cast<int>(threadIdx.x); }
  static __device__ int warp() { return thread() / 32; }
  static __device__ int lane() { return thread() % 32; }
  [[nodiscard]] __device__ int part() const {
    return static_cast<int>(blockIdx.x) - (sequence_ * a_.cache.kv_heads + head_) * a_.parts;
  }

  template <class T>
  [[nodiscard]] __device__ T* at(int place) const {
    return reinterpret_cast<T*>(memory_ + place);
  }
  [[nodiscard]] __device__ std::byte* pages_of(int warp) const {
    return memory_ + Memory::kPages + warp * Memory::kWarpPages;
  }
  [[nodiscard]] __device__ float4* outs_of(int warp) const {
    return reinterpret_cast<float4*>(pages_of(warp));
  }
  [[nodiscard]] __device__ float2* sums_of(int warp) const {
    return reinterpret_cast<float2*>(pages_of(warp) + a_.group * D * sizeof(float));
  }

  __device__ void fill_memory(const WholeStepArguments& arguments, std::byte* published) const {
    const auto* words = reinterpret_cast<const std::uint32_t*>(&arguments);
    for (int i = thread(); i < int{sizeof(WholeStepArguments) / 4}; i += kThreads) {
      at<std::uint32_t>(Memory::kArguments)[i] = words[i];
    }
    const int sequence = kSeveral ? min(sequence_, arguments.sequences - 1) : 0;
    if (thread() < D / 2) {
      at<float2>(Memory::kAngles)[thread()] =
          __ldcg(arguments.angles + sequence * (D / 2) + thread());
    }
    if (thread() == 0) {
      *at<WholeStepSequence>(Memory::kSequence) = WholeStepSequence(arguments, sequence);
      *at<std::byte*>(Memory::kPublished) = published;
    }
    synchronize();
  }

  // Copies the norm weights of the layer's queries and keys, [2, D].
  __device__ void bring_norms() const {
    const WholeStepLayer& layer = a_.of_layer[layer_];
    const float* from = warp() == 0 ? layer.query_norm : layer.key_norm;
    if (warp() < 2 && from != nullptr && 4 * lane() < D) {
      ops::cuda::copy_16(at<float>(Memory::kNorms) + warp() * D + 4 * lane(), from + 4 * lane(),
                         16);
    }
  }

  // Copies the token's q, and the k and v of its entry, from the previous GEMM's output to shared
  // memory.
  __device__ void take_token() {
    const auto* qkv =
        reinterpret_cast<const float*>(published() + a_.of_layer[layer_].products_at) +
        (kSeveral ? a_.products_of(sequence_) * D : 0);
    const int vectors = a_.group + (has_new_entry() ? 2 : 0);
    // Few requests at a time: polling slows down the data that it waits for.
    for (int i = 4 * thread(); i < vectors * D; i += 4 * kThreads) {
      const auto* from = reinterpret_cast<const float4*>(qkv + column(i / D) * D + i % D);
      float4 x = ops::cuda::read_published(from);
      while (ops::cuda::unpublished(x)) {
        x = ops::cuda::read_published(from);
      }
      *reinterpret_cast<float4*>(at<float>(Memory::kRaw) + i) = x;
    }
    ops::cuda::wait_for_copies();  // bring_norms()
    synchronize();
#pragma unroll 1
    for (int vector = warp(); vector < vectors; vector += kWarps) {
      project(vector);
    }
    synchronize();
#pragma unroll 1
    for (int step = warp(); step < ops::cuda::kQuerySteps<D>; step += kWarps) {
      at<uint4>(Memory::kOperands)[step * 32 + lane()] = ops::cuda::query_operand<Codes, D>(
          at<float>(Memory::queries(a_.group)), a_.group, a_.scale, step);
    }
    synchronize();
  }

  // The column of a vector of the head in the product, in units of D: queries, the key, the value.
  [[nodiscard]] __device__ int column(int vector) const {
    const int heads = a_.cache.kv_heads;
    return vector < a_.group ? head_ * a_.group + vector
                             : heads * a_.group + (vector - a_.group) * heads + head_;
  }

  // As project() in projection.cuh, but the decision is taken when the token is appended.
  __device__ void project(int number) const {
    const WholeStepLayer& layer = a_.of_layer[layer_];
    ops::cuda::HeadVector<D> vector;
    vector.load(at<float>(Memory::kRaw) + number * D,
                layer.bias != nullptr ? layer.bias + column(number) * D : nullptr);
    const bool key = number == a_.group;
    if (number <= a_.group) {
      const ops::cuda::HeadNorm norm{(key ? layer.key_norm : layer.query_norm) != nullptr,
                                     at<float>(Memory::kNorms) + (key ? D : 0), a_.eps};
      const bool borrowed =
          number == 0 && a_.decision.kind == kvcache::cuda::DecisionSource::Kind::channel;
      const auto nothing = [](const auto& /*x*/) {};  // WholeStepAppend takes the decision
      ops::cuda::transform_head(vector, norm,
                                ops::cuda::WholeRope{at<const float2>(Memory::kAngles)},
                                ops::cuda::ClearedChannel{borrowed, a_.decision, nothing});
    }
    if (number < a_.group) {
      vector.store(at<float>(Memory::queries(a_.group)) + number * D);
      return;
    }
    const kvcache::cuda::EntryPlace<Code, D> place(memory_ + Memory::kNewEntry, 0);
    const float scale = vector.template encode<Format>(
        [&](int d, Code code) { (key ? place.key(d) : place.value(d)) = code; });
    if (Codes::kScaled && lane() == 0) {
      (key ? place.key_scale() : place.value_scale()) = __float2bfloat16_rn(scale);
    }
  }

  // A published part: references and sums of the group, then its output [group, D].
  [[nodiscard]] __device__ float2* sums_of_part(int number) const {
    return reinterpret_cast<float2*>(published() + a_.of_layer[layer_].parts_at) +
           ((sequence_ * a_.cache.kv_heads + head_) * a_.parts + number) *
               (part_sums(a_.group) + a_.group * D / 2);
  }
  [[nodiscard]] __device__ float2* out_of_part(int number) const {
    return sums_of_part(number) + part_sums(a_.group);
  }

  // Publishes the sum of the warps' parts to the head's blocks. A thread has two channels.
  __device__ void publish_part() {
    static_assert(kMostGroupChannels / 2 <= kThreads);
    if (const int i = thread(); i < a_.group * D / 2) {
      const int quad = i / 2;                                         // numbered as in part_place()
      const int outer = quad / 4 * a_.group_inverse >> kInverseBits;  // quad / (4 group)
      const int head = quad / 4 - outer * a_.group;
      float2 of_warp[kWarps];
      float reference = -INFINITY;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        of_warp[w] = sums_of(w)[head];
        reference = fmaxf(reference, of_warp[w].x);
      }
      float sum = 0.0F;
      float2 out{};
#pragma unroll
      for (int w = 0; w < kWarps; ++w) {
        const float2 own = reinterpret_cast<const float2*>(outs_of(w))[i];
        const float factor = weight(of_warp[w].x, reference);
        sum += of_warp[w].y * factor;
        out.x += own.x * factor;
        out.y += own.y * factor;
      }
      const int channel = (quad % 4 * (kQuads / 4) + outer) * 4 + i % 2 * 2;
      ops::cuda::publish(out_of_part(part()) + (head * D + channel) / 2, out);
      if (channel == 0) {
        ops::cuda::publish(sums_of_part(part()) + head, {reference, sum});
      }
    }
  }

  // A lane's values of a part.
  struct Share {
    float2 sums{-INFINITY, 0.0F};
    float4 out[2]{};

    __device__ bool unpublished() const {
      return ops::cuda::unpublished(sums) || ops::cuda::unpublished(out[0]) ||
             ops::cuda::unpublished(out[1]);
    }
  };

  // Adds up the parts of all blocks, and publishes this block's channels, eight at a time: lane l
  // has the values of part l % parts.
  __device__ void publish_output() const {
    const int own = lane() & (a_.parts - 1);
    const int together = 32 >> a_.parts_log2;
    for (int i = warp() * together; part() + i * a_.parts < a_.group * D / 8;
         i += kWarps * together) {
      // The first of eight channels of the group.
      const int first = 8 * (part() + (i + (lane() >> a_.parts_log2)) * a_.parts);
      const bool inside = first < a_.group * D;
      const Share share = inside ? await_part(own, first) : Share{};
      __syncwarp();
      float reference = share.sums.x;
      for (int step = a_.parts / 2; step > 0; step /= 2) {
        reference = fmaxf(reference, __shfl_xor_sync(kAll, reference, step));
      }
      const float factor = weight(share.sums.x, reference);
      const auto& [low, high] = share.out;
      float x[9] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w, share.sums.y};
#pragma unroll
      for (float& value : x) {
        value *= factor;
      }
      for (int step = a_.parts / 2; step > 0; step /= 2) {
#pragma unroll
        for (float& value : x) {
          value += __shfl_xor_sync(kAll, value, step);
        }
      }
      if (inside && own == 0) {
        const float inverse = x[8] == 0.0F ? 0.0F : __fdividef(1.0F, x[8]);
        auto* to = reinterpret_cast<bf16*>(published() + a_.of_layer[layer_].output_at);
        const int channel = head_ * a_.group * D + first;
        ops::cuda::publish(
            to + (kSeveral ? a_.place_of(sequence_, channel) : channel),
            uint4{pair_of(x[0] * inverse, x[1] * inverse), pair_of(x[2] * inverse, x[3] * inverse),
                  pair_of(x[4] * inverse, x[5] * inverse),
                  pair_of(x[6] * inverse, x[7] * inverse)});
      }
    }
  }

  // Waits for eight channels of a part, from channel `first` of the group on.
  __device__ Share await_part(int number, int first) const {
    const float2* sums = sums_of_part(number) + first / D;
    const auto* out = reinterpret_cast<const float4*>(out_of_part(number) + first / 2);
    // With wide heads, no channels are requested until the sums are there.
    while (D > 64 && ops::cuda::unpublished(ops::cuda::read_published(sums))) {
    }
    Share share;
    do {
      share = {ops::cuda::read_published(sums),
               {ops::cuda::read_published(out), ops::cuda::read_published(out + 1)}};
    } while (share.unpublished());
    return share;
  }

  // The factor of values relative to `own` in a sum relative to `reference`; 0 without entries.
  static __device__ float weight(float own, float reference) {
    return own == -INFINITY ? 0.0F : ops::cuda::exp2_fast(own - reference);
  }
  static __device__ std::uint32_t pair_of(float a, float b) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(a, b);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
  }

  std::byte* memory_;
  const WholeStepArguments& a_;
  int sequence_;
  int head_;
  WholeStepEntries<kType, D, kLongRows> entries_;
  int layer_ = 0;  // the next layer
};

}  // namespace winnow::model::cuda
