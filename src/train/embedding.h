// Looks up a table's row for each token of a batch.
#pragma once

#include "ops/matrix.h"
#include "ops/weight.h"
#include "train/batch.h"

namespace winnow::train {

/// out [T, columns] = the rows of the batch's tokens.
void embed(const ops::Weight& table, const Batch& batch, ops::Matrix<float> out);

/// dtable += the gradient of the rows; does nothing if dtable is empty.
void embed_backward(ops::Matrix<float> dtable, const Batch& batch,
                    ops::Matrix<const float> gradient);

}  // namespace winnow::train
