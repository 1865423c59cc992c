// Matrices that Muon on a device updates together. Kernels read this header.
#pragma once

#include <cstddef>

namespace winnow::train::cuda {

/// A matrix in the flat arrays of parameters.
struct MuonMatrix {
  std::size_t offset = 0;
  int rows = 0;
  int cols = 0;
  float scale = 0.0F;  // muon_scale()
};

/// Matrices that are updated together: as rows by columns or transposed, small by large.
struct MuonBatch {
  const MuonMatrix* matrices = nullptr;
  int count = 0;
  int small = 0;  // rows of the orthogonalised matrix
  int large = 0;  // its columns
};

}  // namespace winnow::train::cuda
