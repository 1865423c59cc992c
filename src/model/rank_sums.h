// Where the parts that ranks compute of a model become one (shard.h).
#pragma once

#include <cassert>

#include "ops/context.h"
#include "ops/matrix.h"
#include "parallel/communicator.h"

namespace winnow::model {

/// x becomes the sum of all ranks' x; it stays as it is where there is one rank. Rows lie without
/// gaps.
inline void sum_over_ranks(const ops::Context& context, ops::Matrix<float> x) {
  assert(x.stride == x.cols);
  if (context.ranks != nullptr && x.rows > 0) {
    context.ranks->sum({x.data, x.rows * x.cols});
  }
}

}  // namespace winnow::model
