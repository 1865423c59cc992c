// The mixers of recurrent layers (RecurrentSpec).
#pragma once

#include <span>
#include <vector>

#include "model/mixer_parts.h"
#include "model/model.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// What the mixer of a layer gives for `input`, all steps' tokens one after another, before its
/// output projection: out [T, value width]. The states of all sequences go on.
void recurrent_mixer(ops::Context& context, const ModelSpec& spec, int layer,
                     const RecurrentWeights& w, std::span<const SequenceStep> steps,
                     ops::Matrix<const float> input, ops::Matrix<float> out);

namespace detail {

// Of single kinds, with the same arguments.
void delta_net(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
               std::span<const SequenceStep> steps, ops::Matrix<const float> input,
               ops::Matrix<float> out);
void short_conv(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
                std::span<const SequenceStep> steps, ops::Matrix<const float> input,
                ops::Matrix<float> out);
void state_space(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
                 std::span<const SequenceStep> steps, ops::Matrix<const float> input,
                 ops::Matrix<float> out);

/// The last inputs of each sequence's convolution go on: mixed [T, channels] gets what it gives for
/// projected.input. The chunk of each sequence of the delta rule behind it, whose results go to
/// `out` [T, value width].
std::vector<ops::DeltaRuleChunk> convolve(const ModelSpec& spec, int layer,
                                          const RecurrentWeights& w,
                                          std::span<const SequenceStep> steps,
                                          const RecurrentProjections& projected,
                                          ops::Matrix<float> mixed, ops::Matrix<float> out);

/// A matrix of the workspace, uninitialised.
inline ops::Matrix<float> take(ops::Workspace& workspace, std::size_t rows, std::int64_t cols) {
  const auto width = static_cast<std::size_t>(cols);
  return {workspace.take<float>(rows * width).data(), rows, width};
}

}  // namespace detail
}  // namespace winnow::model
