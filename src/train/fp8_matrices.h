// The layers' matrices whose products are in fp8, and the memory that their copies take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "train/options.h"

namespace winnow::train {

/// Widths of matrices in fp8 products are multiples of this.
inline constexpr int kFp8Width = 16;

/// A matrix of a layer [outputs, inputs] that has a copy in fp8.
struct Fp8Matrix {
  enum class Place : std::uint8_t {
    projections,  // of attention's q, k and v, or of a recurrent mixer's inputs
    output,       // of the mixer
    first,        // gate and up, or up alone, of a dense network or a shared expert
    down,
  };

  int layer = 0;
  Place place = Place::projections;
  int outputs = 0;
  int inputs = 0;
  bool trained = false;     // the student's, whose values change; else the teacher's
  bool transposed = false;  // there is a transposed copy, too: gradients of inputs read it
};

/// The matrices of a run: of attention, recurrent mixers, dense networks and shared experts, if
/// both sides are multiples of kFp8Width. The student of an adapter has the teacher's.
std::vector<Fp8Matrix> fp8_matrices(const TrainingOptions& options, const model::ModelSpec& base);

/// Throws Error if products are to be in fp8, and the width that all matrices share forbids it.
void require_fp8_widths(const TrainingOptions& options, const model::ModelSpec& spec);

/// Elements of the arrays that a run's products in fp8 need.
struct Fp8Memory {
  std::size_t codes = 0;          // of all copies
  std::size_t scales = 0;         // of all copies
  std::size_t row_codes = 0;      // a product's rows: one for each token, as wide as any matrix
  std::size_t row_scales = 0;     // of these rows
  std::size_t column_maxima = 0;  // scratch of a transposed copy

  Fp8Memory(const TrainingOptions& options, const std::vector<Fp8Matrix>& matrices);
  [[nodiscard]] std::size_t bytes() const;
};

/// Bytes that a run's products in fp8 take on each device.
std::size_t fp8_bytes(const TrainingOptions& options, const model::ModelSpec& base);

}  // namespace winnow::train
