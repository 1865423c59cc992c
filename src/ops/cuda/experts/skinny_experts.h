// Experts of very few tokens, which rarely share experts: pairs do not wait for each other.
#pragma once

#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// The experts of a layer and the rows that use them.
struct SkinnyExperts {
  Router router;
  const float* logits = nullptr;  // [rows, count], of norm_and_score()
  const bf16* x = nullptr;        // [rows, inputs]
  GatedActivation activation;
  ExpertsMatrix gate_up;
  ExpertsMatrix down;
  bf16* activated = nullptr;  // scratch [rows * active, inner]
  ResidualStream residual;    // the experts' outputs are added to it
};

/// Whether skinny_experts() supports these experts. Whether it is fast for a number of rows is a
/// separate question.
bool takes_skinny_experts(const Router& router, const GatedActivation& activation,
                          const ExpertsMatrix& gate_up);

/// residual.hidden += the sum of each row's experts, each times its weight; also computes the next
/// layer's input. Two kernels: every block chooses experts itself, so that only logits must be
/// complete. Reads an expert's weights, in storage format, once per row that uses it.
void skinny_experts(const SkinnyExperts& experts, int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
