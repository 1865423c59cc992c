// Experts in training on the device, forward and backward (ops/experts.h): operands of products in
// bf16, sums in float. Rows of the experts' tokens are gathered, expert by expert, in the order of
// places (RoutesView). Nothing waits for the host, and the same operands give the same bits.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <type_traits>

#include "base/dtype.h"
#include "ops/cuda/experts/experts.h"

namespace winnow::ops::cuda {

/// The tokens of some experts, and their routes.
struct RoutedTokens {
  Router router;
  RoutesView routes;
  int rows = 0;  // tokens

  [[nodiscard]] int places() const { return rows * router.active; }
};

/// The same matrix [outputs, inputs] for every expert, `stride` elements from one expert to the
/// next; both widths and the stride are multiples of 8. The same for its bias [outputs], if there
/// is one. T: bf16 for weights, float for gradients.
template <class T>
struct ExpertMatrices {
  T* weight = nullptr;
  std::size_t stride = 0;
  int outputs = 0;
  int inputs = 0;
  std::conditional_t<std::is_const_v<T>, const float, float>* bias = nullptr;
  std::size_t bias_stride = 0;
};

/// out [places, cols]: the row of each place's token in x [rows, cols], times its route's weight if
/// it is `weighted`. cols is a multiple of 8.
void gather_expert_rows(const RoutedTokens& tokens, bf16* out, const bf16* x, bool weighted,
                        int cols, cudaStream_t stream);

/// y [places, outputs] = x [places, inputs] weight^T + bias, with each place's expert.
void multiply_expert_rows(const RoutedTokens& tokens, bf16* y, const bf16* x,
                          const ExpertMatrices<const bf16>& matrices, cudaStream_t stream);

/// dx [places, inputs] = dy [places, outputs] weight.
void expert_input_gradients(const RoutedTokens& tokens, bf16* dx, const bf16* dy,
                            const ExpertMatrices<const bf16>& matrices, cudaStream_t stream);

/// For each expert: weight += dy^T x, bias += the sum of the rows of dy.
void add_expert_gradients(const RoutedTokens& tokens, const ExpertMatrices<float>& gradients,
                          const bf16* dy, const bf16* x, cudaStream_t stream);

/// products [rows * active], in the order of pairs: the dot product of each place's rows of x
/// and y [places, cols].
void expert_row_products(const RoutedTokens& tokens, float* products, const bf16* x, const bf16* y,
                         int cols, cudaStream_t stream);
/// products += the dot product of each place's row of dy [places, outputs] and the bias of its
/// expert, if there is one.
void add_expert_bias_products(const RoutedTokens& tokens, float* products, const bf16* dy,
                              const ExpertMatrices<const bf16>& matrices, cudaStream_t stream);

/// Backward of route(): dlogits [rows, stride], padded with zeros, from the product of each
/// route's weight and its gradient, in the order of pairs. Logits have the layout of dlogits;
/// `bias` [count] or null, as in route().
void route_backward(const RoutedTokens& tokens, bf16* dlogits, const float* products,
                    const float* logits, const float* bias, int stride, cudaStream_t stream);

/// logits [rows] = x [rows, cols] . gate [cols].
void row_logits(float* logits, const bf16* x, const bf16* gate, int rows, int cols,
                cudaStream_t stream);
/// x.row(t) *= sigmoid(logits[t]).
void gate_rows(bf16* x, const float* logits, int rows, int cols, cudaStream_t stream);
/// Backward of gate_rows(), in place: dout becomes the gradient of its input. x [rows, cols]:
/// its result. dlogits [rows, stride]: the gradient of the logits, padded with zeros.
void gate_rows_backward(bf16* dlogits, int stride, bf16* dout, const bf16* x, const float* logits,
                        int rows, int cols, cudaStream_t stream);
/// dx [rows, cols] += the product of the first of each row's dlogits [rows, stride], and gate.
void add_row_logits_gradient(bf16* dx, const bf16* dlogits, int stride, const bf16* gate, int rows,
                             int cols, cudaStream_t stream);

}  // namespace winnow::ops::cuda
