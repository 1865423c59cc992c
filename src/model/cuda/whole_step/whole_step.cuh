// A whole step, from the embeddings to the tokens. The kernel of skinny GEMMs
// (ops/cuda/linear/skinny_gemm.cuh) runs a program of four GEMMs for each layer of the model and
// one for the head; each reads its input from published memory, where the one before wrote it:
//
//   step_kernels.cu: begin_kernel    embeddings and RoPE's angles, in a kernel of its own
//   for each layer l
//     GEMM 4 l                       q, k, v
//     WholeStepAttention::attend     norm and RoPE of q and k; attention; its output
//     GEMM 4 l + 1                   output projection, added to the residual stream
//     GEMM 4 l + 2                   gate and up, SiLU
//     GEMM 4 l + 3                   down, added to the residual stream
//   GEMM 4 layers                    the head
//   WholeStepAppend::run             at the same time: the token into the cache of all layers
//   ArgmaxAcrossBlocks               the most likely tokens, by the last block
//   end_sequence                     the lengths grow, and the host is signalled
//
// The class below calls these parts between the GEMMs.
#pragma once

#include "model/cuda/whole_step/whole_step_append.cuh"
#include "model/cuda/whole_step/whole_step_attention.cuh"

namespace winnow::model::cuda {

/// The `Attention` of the kernel of skinny GEMMs, which calls it between its GEMMs. The warps that
/// multiply construct it, and call before() and after().
template <ops::EntryFormat kType, int D, bool kLongRows, bool kSeveral>
class WholeStepOrder {
 public:
  static int shared_bytes(const WholeStepArguments& arguments) {
    return Memory::bytes(arguments.group);
  }

  template <class Program>
  __device__ WholeStepOrder(const Program& program, std::byte* published, std::byte* memory)
      : attention_(program, published, memory) {}

  /// Called before the block's products of GEMM `number`.
  __device__ void before(int number) {
    if (attention_.takes_part() && number % kGemmsOfLayer == kOutput) {
      attention_.attend();
    }
  }
  /// Called after them, while the block waits for the other blocks' results.
  __device__ void after(int number) {
    if (!attention_.takes_part() || attention_.is_over()) {
      return;
    }
    if (number % kGemmsOfLayer == kOutput || number == 0) {
      attention_.look_up();
    }
    if (number % kGemmsOfLayer == kDown || number == 0) {
      attention_.fetch();
    }
  }

  /// Appends the tokens in all layers, after the last layer. Called by the warps that fetch inputs.
  template <class Program>
  static __device__ void append(const Program& program, const std::byte* published,
                                std::byte* memory) {
    auto* places = reinterpret_cast<kvcache::cuda::Places*>(memory + Memory::kAppended);
    WholeStepAppend<ops::cuda::FormatOf<kType>, D, kSeveral>(program.attention, published, places)
        .run(program);
  }

  /// Called by one thread of each sequence, after all blocks have appended.
  template <class Program>
  static __device__ void end_step(const Program& program, int sequence, std::int32_t token) {
    if (program.attention.end.tokens != nullptr) {
      end_sequence(program.attention, sequence, token);
    }
  }

 private:
  using Memory = WholeStepMemory<kType, D, kLongRows>;
  // The GEMMs of a layer: q k v, output, gate and up, down.
  static constexpr int kGemmsOfLayer = 4;
  static constexpr int kOutput = 1;
  static constexpr int kDown = 3;

  WholeStepAttention<kType, D, kLongRows, kSeveral> attention_;
};

}  // namespace winnow::model::cuda
