// Parts of a row's attention: what a softmax over some of its entries gives, not yet divided.
#pragma once

#include "ops/cuda/decode_attention_kernels.h"

namespace winnow::ops::cuda {

/// The runs that hold tiles of a row, and where their parts of it lie among all parts.
struct RowParts {
  int count;
  int first;

  __device__ RowParts(const DecodePlan::Row& planned, int row, int each) {
    const int first_run = planned.begin / each;
    count = (planned.begin + planned.tiles - 1) / each - first_run + 1;
    first = place(first_run, row);
  }
  /// Of run `run`'s part of row `row`. Runs and rows both ascend, so no two parts share a place.
  static __device__ int place(int run, int row) { return run + row; }
};

}  // namespace winnow::ops::cuda
