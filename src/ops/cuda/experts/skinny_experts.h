// Experts of very few tokens, which share hardly any: no pair waits for another.
#pragma once

#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// The experts of a layer and the rows that take them.
struct SkinnyExperts {
  Router router;
  const float* logits = nullptr;  // [rows, count], of norm_and_score()
  const bf16* x = nullptr;        // [rows, inputs]
  GatedActivation activation;
  ExpertsMatrix gate_up;
  ExpertsMatrix down;
  bf16* activated = nullptr;  // scratch [rows * active, inner]
  ResidualStream residual;    // what the experts make is added to
};

/// Whether skinny_experts() takes such experts; whether it is fast for so many rows is another
/// question.
bool takes_skinny_experts(const Router& router, const GatedActivation& activation,
                          const ExpertsMatrix& gate_up);

/// residual.hidden += the sum of each row's experts, each times its weight, and what the next layer
/// reads of it, in two kernels: every block chooses for itself, so that only logits must be
/// complete. Reads an expert's weights once per row that takes it, as they lie.
void skinny_experts(const SkinnyExperts& experts, int rows, cudaStream_t stream);

}  // namespace winnow::ops::cuda
