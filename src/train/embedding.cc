#include "train/embedding.h"

#include <cassert>

#include "base/threads.h"

namespace winnow::train {

void embed(const ops::Weight& table, const Batch& batch, ops::Matrix<float> out) {
  for (std::size_t t = 0; t < batch.size(); ++t) {
    assert(batch.tokens[t] >= 0 && batch.tokens[t] < table.rows);
    ops::dequantize_row(table, batch.tokens[t], out.row(t).data());
  }
}

// Each thread takes some of the columns, so a token's rows are added in the order of the text.
void embed_backward(ops::Matrix<float> dtable, const Batch& batch,
                    ops::Matrix<const float> gradient) {
  if (dtable.data == nullptr) {
    return;
  }
  parallel_ranges(gradient.cols, [&](std::size_t begin, std::size_t end, int) {
    for (std::size_t t = 0; t < batch.size(); ++t) {
      float* target = dtable.row(static_cast<std::size_t>(batch.tokens[t])).data();
      const float* source = gradient.row(t).data();
      for (std::size_t i = begin; i < end; ++i) {
        target[i] += source[i];
      }
    }
  });
}

}  // namespace winnow::train
