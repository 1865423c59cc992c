// A whole step from top to bottom. One kernel, that of skinny GEMMs
// (ops/cuda/linear/skinny_gemm.cuh), runs a program of four GEMMs for each layer of the model and
// one for the head; results go from one to the next through published memory:
//
//   step_kernels.cu: begin_kernel    embeddings and RoPE's angles, in a kernel of its own
//   of each layer
//     GEMM 4 l                       q, k, v
//     WholeStepAttention::attend     norm and RoPE of q and k; entries and the token's own; output
//     GEMM 4 l + 1                   output projection, added to the residual stream
//     GEMM 4 l + 2                   gate and up, SiLU
//     GEMM 4 l + 3                   down, added to the residual stream
//   GEMM 4 layers                    the head
//   WholeStepAppend::run             meanwhile: the token into the cache of all layers
//   ArgmaxAcrossBlocks               the most likely tokens, by the last block
//   end_sequence                     lengths move on, and the host is told
//
// What follows says which of it happens where in the kernel.
#pragma once

#include "model/cuda/whole_step/whole_step_append.cuh"
#include "model/cuda/whole_step/whole_step_attention.cuh"

namespace winnow::model::cuda {

/// What the kernel of skinny GEMMs calls between its GEMMs: its `Attention`. Constructed, and
/// asked before and after each GEMM, by the warps that multiply.
template <ops::EntryFormat kType, int D, bool kLongRows, bool kSeveral>
class WholeStepOrder {
 public:
  static int shared_bytes(const WholeStepArguments& arguments) {
    return Memory::bytes(arguments.group);
  }

  template <class Program>
  __device__ WholeStepOrder(const Program& program, std::byte* published, std::byte* memory)
      : attention_(program, published, memory) {}

  /// Before the block's products of GEMM `number`.
  __device__ void before(int number) {
    if (attention_.takes_part() && number % kGemmsOfLayer == kOutput) {
      attention_.attend();
    }
  }
  /// After them, while the others' results are awaited.
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

  /// Appends the tokens in all layers, when these are done. By the warps that fetch inputs.
  template <class Program>
  static __device__ void append(const Program& program, const std::byte* published,
                                std::byte* memory) {
    auto* places = reinterpret_cast<kvcache::cuda::Places*>(memory + Memory::kAppended);
    WholeStepAppend<ops::cuda::FormatOf<kType>, D, kSeveral>(program.attention, published, places)
        .run(program);
  }

  /// By one thread of each sequence, when all blocks have appended.
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
