// Computations of recurrent mixers, document by document: no state passes between documents.
// Private to the mixers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ops/delta_rule.h"
#include "ops/matrix.h"

namespace winnow::train::detail {

/// Rows [first, last) of a batch.
struct Document {
  std::size_t first;
  std::size_t last;
};
std::vector<Document> documents_of(std::span<const std::int32_t> first_key);

/// ops::causal_conv() of each document.
void convolve(std::span<const Document> documents, ops::Matrix<float> out,
              ops::Matrix<const float> x, std::span<const float> taps, std::span<const float> bias);

/// Backward of convolve(): adds to dx and dtaps.
void convolve_backward(std::span<const Document> documents, ops::Matrix<float> dx,
                       std::span<float> dtaps, ops::Matrix<const float> dout,
                       ops::Matrix<const float> x, std::span<const float> taps);

/// ops::delta_rule() of each document: `batch` has the rows of all documents, and no state.
void scan(const ops::DeltaRuleShape& heads, std::span<const Document> documents,
          const ops::DeltaRuleChunk& batch);

/// Backward of scan(): writes the rows of `gradients`.
void scan_backward(const ops::DeltaRuleShape& heads, std::span<const Document> documents,
                   const ops::DeltaRuleChunk& batch, ops::Matrix<const float> dout,
                   const ops::DeltaRuleGradients& gradients);

}  // namespace winnow::train::detail
