// The mixer of recurrent layers: a gated delta net (RecurrentSpec).
#pragma once

#include <span>

#include "model/model.h"
#include "model/spec.h"
#include "model/weights.h"
#include "ops/context.h"
#include "ops/matrix.h"

namespace winnow::model {

/// What the mixer of a layer gives for `input`, all steps' tokens one after another, before its
/// output projection: out [T, value width]. The states of all sequences go on.
void delta_net(ops::Context& context, const ModelSpec& spec, int layer, const RecurrentWeights& w,
               std::span<const SequenceStep> steps, ops::Matrix<const float> input,
               ops::Matrix<float> out);

}  // namespace winnow::model
