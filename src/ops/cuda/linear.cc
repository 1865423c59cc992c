#include "ops/cuda/linear.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace winnow::ops::cuda {
namespace {

constexpr int kMostCandidates = 8;
constexpr std::size_t kScratchBytes = std::size_t{32} << 20;  // what cuBLAS advises for Hopper

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

// Column-major, as cuBLAS counts: a row-major matrix [rows, cols] is [cols, rows] to it.
MatrixLayout layout_of(cudaDataType_t type, int rows, int cols, int stride) {
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(cols),
                                        static_cast<std::uint64_t>(rows), stride),
             "describe a matrix");
  return MatrixLayout(layout);
}

}  // namespace

struct Linear::Handle {
  Handle() { check_blas(cublasLtCreate(&lt), "start"); }
  ~Handle() { cublasLtDestroy(lt); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  cublasLtHandle_t lt = nullptr;
};

struct Linear::Plan {
  Plan(cublasLtHandle_t handle, Kind kind, const Shape& shape)
      : weight(layout_of(CUDA_R_16BF, shape.outputs, shape.inputs, shape.inputs)),
        x(layout_of(CUDA_R_16BF, shape.rows, shape.inputs, shape.inputs)),
        y(layout_of(kind == Kind::bf16 ? CUDA_R_16BF : CUDA_R_32F, shape.rows, shape.outputs,
                    shape.stride)),
        beta(kind == Kind::add ? 1.0F : 0.0F) {
    cublasLtMatmulDesc_t description = nullptr;
    check_blas(cublasLtMatmulDescCreate(&description, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describe a product");
    operation.reset(description);
    const cublasOperation_t transposed = CUBLAS_OP_T;
    check_blas(cublasLtMatmulDescSetAttribute(description, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                              sizeof(transposed)),
               "transpose the weight");
    cublasLtMatmulPreference_t created = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&created), "preferences");
    const Preference preference(created);
    check_blas(
        cublasLtMatmulPreferenceSetAttribute(created, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kScratchBytes, sizeof(kScratchBytes)),
        "scratch memory");
    std::array<cublasLtMatmulHeuristicResult_t, kMostCandidates> results{};
    int found = 0;
    check_blas(
        cublasLtMatmulAlgoGetHeuristic(handle, description, weight.get(), x.get(), y.get(), y.get(),
                                       created, kMostCandidates, results.data(), &found),
        "choose an algorithm");
    require(found > 0, "cuBLASLt: no algorithm for {} rows of {} inputs and {} outputs", shape.rows,
            shape.inputs, shape.outputs);
    for (int i = 0; i < found; ++i) {
      candidates.push_back(results[static_cast<std::size_t>(i)].algo);
    }
    algorithm = candidates.front();
  }

  Operation operation;
  MatrixLayout weight;
  MatrixLayout x;
  MatrixLayout y;
  float beta;
  std::vector<cublasLtMatmulAlgo_t> candidates;  // the best guess first
  cublasLtMatmulAlgo_t algorithm{};
};

struct Linear::Operands {
  void* y;
  const bf16* x;
  const bf16* weight;
};

Linear::Linear(AlgorithmChoice choice)
    : choice_(choice), handle_(std::make_unique<Handle>()), scratch_(kScratchBytes) {}
Linear::~Linear() = default;

void Linear::run(Kind kind, void* y, const bf16* x, const bf16* weight, const Shape& shape,
                 cudaStream_t stream) {
  if (shape.rows == 0) {
    return;
  }
  auto& plan = plans_[{kind, shape}];
  if (!plan) {
    plan = std::make_unique<Plan>(handle_->lt, kind, shape);
    if (choice_ == AlgorithmChoice::tried) {
      choose_by_trial(*plan, {y, x, weight}, stream);
    }
  }
  launch(*plan, {y, x, weight}, stream);
}

void Linear::launch(const Plan& plan, const Operands& operands, cudaStream_t stream) const {
  const float one = 1.0F;
  check_blas(
      cublasLtMatmul(handle_->lt, plan.operation.get(), &one, operands.weight, plan.weight.get(),
                     operands.x, plan.x.get(), &plan.beta, operands.y, plan.y.get(), operands.y,
                     plan.y.get(), &plan.algorithm, scratch_.data(), kScratchBytes, stream),
      "linear layer");
}

// The operands come from memory each time, as in a model, whose other layers' lie between.
void Linear::choose_by_trial(Plan& plan, const Operands& operands, cudaStream_t stream) const {
  constexpr int kTrials = 5;
  constexpr double kWorthwhile = 0.97;  // less would be noise
  const winnow::cuda::DeviceBuffer<std::byte> elsewhere(std::size_t{128} << 20);
  const auto time = [&] {
    std::array<double, kTrials> times{};
    for (double& milliseconds : times) {
      winnow::cuda::check(cudaMemsetAsync(elsewhere.data(), 0, elsewhere.size(), stream),
                          "empty the cache");
      winnow::cuda::Event begin;
      winnow::cuda::Event end;
      begin.record(stream);
      launch(plan, operands, stream);
      end.record(stream);
      milliseconds = end.milliseconds_since(begin);
    }
    std::ranges::nth_element(times, times.begin() + kTrials / 2);
    return times[kTrials / 2];
  };
  time();  // the first launches of a kernel load it
  double best = time() * kWorthwhile;
  for (std::size_t i = 1; i < plan.candidates.size(); ++i) {
    const auto chosen = plan.algorithm;
    plan.algorithm = plan.candidates[i];
    if (const double milliseconds = time(); milliseconds < best) {
      best = milliseconds;
    } else {
      plan.algorithm = chosen;
    }
  }
}

void Linear::multiply(bf16* y, const bf16* x, const bf16* weight, int rows, int outputs, int inputs,
                      cudaStream_t stream) {
  run(Kind::bf16, y, x, weight, {rows, outputs, inputs, outputs}, stream);
}

void Linear::multiply(float* y, const bf16* x, const bf16* weight, int rows, int outputs,
                      int inputs, cudaStream_t stream) {
  run(Kind::f32, y, x, weight, {rows, outputs, inputs, outputs}, stream);
}

void Linear::multiply(float* y, int stride, const bf16* x, const bf16* weight, int rows,
                      int outputs, int inputs, cudaStream_t stream) {
  run(Kind::f32, y, x, weight, {rows, outputs, inputs, stride}, stream);
}

void Linear::multiply_add(float* y, const bf16* x, const bf16* weight, int rows, int outputs,
                          int inputs, cudaStream_t stream) {
  run(Kind::add, y, x, weight, {rows, outputs, inputs, outputs}, stream);
}

}  // namespace winnow::ops::cuda
