#include "ops/cuda/linear/linear.h"

#include <cublasLt.h>

#include <limits>
#include <vector>

#include "base/error.h"
#include "ops/cuda/linear/fp8_support.h"

namespace winnow::ops::cuda {
namespace {

constexpr std::size_t kScratchBytes = std::size_t{32} << 20;  // cuBLAS's recommendation for Hopper
constexpr int kChoices = 8;                                   // timed by a search
constexpr std::uint32_t kAlignment = 16;                      // of rows, in bytes

void check_blas(cublasStatus_t status, std::string_view what) {
  require(status == CUBLAS_STATUS_SUCCESS, "cuBLASLt: {}: {}", what,
          cublasLtGetStatusString(status));
}

// The descriptors of cuBLASLt, each destroyed by its own function.
template <class T, cublasStatus_t (*destroy)(T)>
struct Destroy {
  using pointer = T;
  void operator()(T descriptor) const { destroy(descriptor); }
};
using Operation =
    std::unique_ptr<cublasLtMatmulDesc_t, Destroy<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy>>;
using MatrixLayout = std::unique_ptr<cublasLtMatrixLayout_t,
                                     Destroy<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy>>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreference_t,
                    Destroy<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy>>;

// Column-major, as in cuBLAS: a row-major matrix [rows, cols] is [cols, rows] to it.
MatrixLayout layout_of(cudaDataType_t type, int rows, int cols, int stride, int batch) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(cols),
                                        static_cast<std::uint64_t>(rows), stride),
             "describe a matrix");
  MatrixLayout result(layout);
  if (batch > 1) {
    const std::int64_t distance = std::int64_t{rows} * stride;
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                sizeof(batch)),
               "describe a batch");
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                &distance, sizeof(distance)),
               "describe a batch");
  }
  return result;
}

}  // namespace

struct Linear::Handle {
  Handle() { check_blas(cublasLtCreate(&lt), "start"); }
  ~Handle() { cublasLtDestroy(lt); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasLtHandle_t lt = nullptr;
};

// In cuBLAS's terms the product is out^T = first^T second^T, with the matrices as stored or
// transposed.
struct Linear::Plan {
  Plan(cublasLtHandle_t handle, const Shape& shape, const Operands& operands, int choices)
      : beta(shape.kind == Kind::add || shape.kind == Kind::input_gradient_add ||
                     shape.kind == Kind::weight_gradient || shape.kind == Kind::fp8_add
                 ? 1.0F
                 : 0.0F),
        algorithms(static_cast<std::size_t>(choices)) {
    const Kind kind = shape.kind;
    const bool fp8 = kind >= Kind::fp8_bf16;
    const bool forward = fp8 || kind == Kind::bf16 || kind == Kind::f32 || kind == Kind::add;
    const cudaDataType_t input = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const auto matrix_x = [&] {
      return layout_of(input, shape.rows, shape.inputs, shape.inputs, shape.batch);
    };
    const auto matrix_y = [&](cudaDataType_t type) {
      return layout_of(type, shape.rows, shape.outputs, shape.stride, shape.batch);
    };
    const auto weight = [&](cudaDataType_t type) {
      return layout_of(type, shape.outputs, shape.inputs, shape.inputs, shape.batch);
    };
    if (forward) {
      first = weight(input);
      second = matrix_x();
      out = matrix_y(kind == Kind::bf16 || kind == Kind::fp8_bf16 ? CUDA_R_16BF : CUDA_R_32F);
    } else if (kind == Kind::weight_gradient) {
      first = matrix_x();
      second = matrix_y(CUDA_R_16BF);
      out = weight(CUDA_R_32F);
    } else {
      first = weight(CUDA_R_16BF);
      second = matrix_y(CUDA_R_16BF);
      out = matrix_x();
    }
    describe(forward, kind == Kind::weight_gradient);
    if (fp8) {
      scale_rows();
      set_scales(operands);  // cuBLASLt chooses algorithms only if scales are set
    }
    choose(handle, shape);
  }

  // fp8: a scale for each row of both operands.
  void set_scales(const Operands& operands) const {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, operands.first_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, operands.second_scales);
  }

  Operation operation;
  MatrixLayout first;
  MatrixLayout second;
  MatrixLayout out;
  float beta;
  std::vector<cublasLtMatmulHeuristicResult_t> algorithms;  // the first one is used

 private:
  void describe(bool transpose_first, bool transpose_second) {
    cublasLtMatmulDesc_t description = nullptr;
    check_blas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describe a product");
    operation.reset(description);
    set(CUBLASLT_MATMUL_DESC_TRANSA, transpose_first ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, transpose_second ? CUBLAS_OP_T : CUBLAS_OP_N);
  }

  void scale_rows() {
#if CUBLAS_VERSION >= 120900
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F);
#endif
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, std::int8_t{1});
  }

  template <class T>
  void set(cublasLtMatmulDescAttributes_t which, const T& value) const {
    check_blas(cublasLtMatmulDescSetAttribute(operation.get(), which, &value, sizeof(value)),
               "describe a product");
  }

  void choose(cublasLtHandle_t handle, const Shape& shape) {
    cublasLtMatmulPreference_t created = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&created), "preferences");
    const Preference preference(created);
    check_blas(
        cublasLtMatmulPreferenceSetAttribute(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kScratchBytes, sizeof(kScratchBytes)),
        "scratch memory");
    for (const auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      check_blas(
          cublasLtMatmulPreferenceSetAttribute(created, which, &kAlignment, sizeof(kAlignment)),
          "alignment");
    }
    int found = 0;
    check_blas(cublasLtMatmulAlgoGetHeuristic(
                   handle, operation.get(), first.get(), second.get(), out.get(), out.get(),
                   created, static_cast<int>(algorithms.size()), algorithms.data(), &found),
               "choose an algorithm");
    algorithms.resize(static_cast<std::size_t>(found));
    std::erase_if(algorithms,
                  [](const auto& choice) { return choice.state != CUBLAS_STATUS_SUCCESS; });
    require(!algorithms.empty(), "cuBLASLt: no algorithm for {} rows of {} inputs and {} outputs",
            shape.rows, shape.inputs, shape.outputs);
  }
};

bool has_fp8_products() {
  return Fp8Support::here().problem().empty();
}

Linear::Linear() : handle_(std::make_unique<Handle>()), scratch_(kScratchBytes) {}
Linear::~Linear() = default;

void Linear::run(Shape shape, const Operands& operands, cudaStream_t stream) {
  if (shape.rows == 0) {
    return;
  }
  if (shape.stride == 0) {
    shape.stride = shape.outputs;
  }
  auto& plan = plans_[shape];
  if (!plan) {
    plan = std::make_unique<Plan>(handle_->lt, shape, operands, searching_ ? kChoices : 1);
    if (plan->algorithms.size() > 1) {
      time_algorithms(*plan, operands, stream);
    }
  }
  multiply(*plan, operands, stream);
}

void Linear::multiply(const Plan& plan, const Operands& operands, cudaStream_t stream) const {
  const float one = 1.0F;
  if (operands.first_scales != nullptr) {
    plan.set_scales(operands);
  }
  check_blas(cublasLtMatmul(handle_->lt, plan.operation.get(), &one, operands.first,
                            plan.first.get(), operands.second, plan.second.get(), &plan.beta,
                            operands.c, plan.out.get(), operands.out, plan.out.get(),
                            &plan.algorithms.front().algo, scratch_.data(), kScratchBytes, stream),
             "linear layer");
}

void Linear::time_algorithms(Plan& plan, const Operands& operands, cudaStream_t stream) const {
  constexpr int kRuns = 3;
  auto candidates = plan.algorithms;
  double best = std::numeric_limits<double>::infinity();
  cublasLtMatmulHeuristicResult_t fastest{};
  winnow::cuda::Event begin;
  winnow::cuda::Event end;
  for (const auto& candidate : candidates) {
    plan.algorithms = {candidate};
    multiply(plan, operands, stream);
    begin.record(stream);
    for (int run = 0; run < kRuns; ++run) {
      multiply(plan, operands, stream);
    }
    end.record(stream);
    const double time = end.milliseconds_since(begin);
    if (time < best) {
      best = time;
      fastest = candidate;
    }
  }
  plan.algorithms = {fastest};
}

void Linear::multiply(bf16* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                      cudaStream_t stream, int batch) {
  run({Kind::bf16, rows, outputs, inputs, 0, batch}, {y, y, weight, x}, stream);
}

void Linear::multiply(float* y, const bf16* x, const bf16* weight, int rows, int outputs,
                      int inputs, cudaStream_t stream, int stride) {
  run({Kind::f32, rows, outputs, inputs, stride}, {y, y, weight, x}, stream);
}

void Linear::multiply_add(float* y, const float* c, const bf16* x, const bf16* weight, int rows,
                          int outputs, int inputs, cudaStream_t stream) {
  run({Kind::add, rows, outputs, inputs, 0}, {y, c, weight, x}, stream);
}

void Linear::multiply(bf16* y, const Fp8Rows& x, const Fp8Rows& weight, int rows, int outputs,
                      int inputs, cudaStream_t stream) {
  run({Kind::fp8_bf16, rows, outputs, inputs, 0},
      {y, y, weight.codes, x.codes, weight.scales, x.scales}, stream);
}

void Linear::multiply(float* y, const Fp8Rows& x, const Fp8Rows& weight, int rows, int outputs,
                      int inputs, cudaStream_t stream, int stride) {
  run({Kind::fp8_f32, rows, outputs, inputs, stride},
      {y, y, weight.codes, x.codes, weight.scales, x.scales}, stream);
}

void Linear::multiply_add(float* y, const float* c, const Fp8Rows& x, const Fp8Rows& weight,
                          int rows, int outputs, int inputs, cudaStream_t stream) {
  run({Kind::fp8_add, rows, outputs, inputs, 0},
      {y, c, weight.codes, x.codes, weight.scales, x.scales}, stream);
}

void Linear::input_gradient(bf16* dx, const bf16* dy, const bf16* weight, int rows, int outputs,
                            int inputs, bool add, cudaStream_t stream, int stride, int batch) {
  run({add ? Kind::input_gradient_add : Kind::input_gradient, rows, outputs, inputs, stride, batch},
      {dx, dx, weight, dy}, stream);
}

void Linear::weight_gradient(float* dweight, const bf16* dy, const bf16* x, int rows, int outputs,
                             int inputs, cudaStream_t stream, int stride) {
  run({Kind::weight_gradient, rows, outputs, inputs, stride}, {dweight, dweight, x, dy}, stream);
}

}  // namespace winnow::ops::cuda
