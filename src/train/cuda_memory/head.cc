#include "train/cuda_memory/head.h"

#include <algorithm>

#include "base/dtype.h"

namespace winnow::train::cuda {
namespace {

int stride_of(const model::ModelSpec& spec) {
  return (spec.vocab + 7) / 8 * 8;
}

std::size_t rows_of_chunk(std::size_t tokens, std::size_t logits, int stride) {
  constexpr std::size_t kFewest = 256;
  const std::size_t rows = logits / static_cast<std::size_t>(stride);
  return std::min(tokens, std::max(rows / kFewest * kFewest, kFewest));
}

}  // namespace

HeadSizes::HeadSizes(const model::ModelSpec& spec, std::size_t tokens, bool distilled,
                     std::size_t chunk)
    : stride(stride_of(spec)),
      chunk(static_cast<int>(rows_of_chunk(tokens, chunk, stride))),
      stream(tokens * static_cast<std::size_t>(spec.hidden)),
      teacher_stream(distilled ? stream : 0),
      logits(static_cast<std::size_t>(this->chunk) * static_cast<std::size_t>(stride)),
      teacher_logits(distilled ? logits : 0) {}

std::size_t HeadSizes::bytes() const {
  return (2 * stream + teacher_stream) * sizeof(bf16) + (logits + teacher_logits) * sizeof(float) +
         logits * sizeof(bf16);
}

}  // namespace winnow::train::cuda
