#include "ops/cpu/linear_onednn.h"

#include <omp.h>

#include <compare>
#include <dnnl.hpp>
#include <map>
#include <type_traits>

namespace winnow::ops::cpu {
namespace {

using dnnl::memory;
using Dims = memory::dims;

memory::dim dim(std::size_t n) {
  return static_cast<memory::dim>(n);
}

const dnnl::engine& engine() {
  static const dnnl::engine instance(dnnl::engine::kind::cpu, 0);
  return instance;
}

dnnl::matmul make_matmul(const memory::desc& x, const memory::desc& weight,
                         const memory::desc& out) {
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine(), x, weight, out));
#else
  return dnnl::matmul(dnnl::matmul::primitive_desc(dnnl::matmul::desc(x, weight, out), engine()));
#endif
}

/// The shapes, strides and element type of a product.
struct Shape {
  std::size_t rows;
  std::size_t cols;
  std::size_t out_cols;
  std::size_t x_stride;
  std::size_t weight_stride;
  std::size_t out_stride;
  memory::data_type type;

  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): misread
};

/// The primitive made for a shape, and what its operands look like.
struct Matmul {
  explicit Matmul(const Shape& shape)
      : x({dim(shape.rows), dim(shape.cols)}, shape.type, Dims{dim(shape.x_stride), 1}),
        weight({dim(shape.cols), dim(shape.out_cols)}, shape.type,
               Dims{1, dim(shape.weight_stride)}),
        out({dim(shape.rows), dim(shape.out_cols)}, memory::data_type::f32,
            Dims{dim(shape.out_stride), 1}),
        primitive(make_matmul(x, weight, out)) {}

  memory::desc x;
  memory::desc weight;
  memory::desc out;
  dnnl::matmul primitive;
};

/// Making a primitive costs about as much as a small product, so a model's few shapes are kept; by
/// each thread, as oneDNN's scratch memory belongs to the thread that made the primitive.
const Matmul& cached_matmul(const Shape& shape) {
  constexpr std::size_t kMostEntries = 256;
  thread_local std::map<Shape, Matmul> cache;
  if (const auto found = cache.find(shape); found != cache.end()) {
    return found->second;
  }
  if (cache.size() == kMostEntries) {
    cache.clear();
  }
  return cache.emplace(shape, Matmul(shape)).first->second;
}

/// While it lives, oneDNN, which asks OpenMP for its threads, stays on the calling one.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

template <class T>
constexpr auto kType = std::is_same_v<T, float> ? memory::data_type::f32 : memory::data_type::bf16;

}  // namespace

bool has_fast_bf16() {
  static const bool fast = [] {
    constexpr unsigned kNeeded = dnnl_cpu_isa_avx512_core_bf16;  // ISA values are sets of bits
    return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & kNeeded) == kNeeded;
  }();
  return fast;
}

template <class T>
void onednn_matmul(Matrix<const T> x, Matrix<const T> weight, Matrix<float> out) {
  const OneThread one_thread;
  const Matmul& matmul =
      cached_matmul({x.rows, x.cols, weight.rows, x.stride, weight.stride, out.stride, kType<T>});
  thread_local dnnl::stream stream(engine());
  // oneDNN takes no pointers to const, but only reads its sources.
  const auto view = [](const memory::desc& desc, const void* data) {
    return memory(desc, engine(), const_cast<void*>(data));
  };
  matmul.primitive.execute(stream, {{DNNL_ARG_SRC, view(matmul.x, x.data)},
                                    {DNNL_ARG_WEIGHTS, view(matmul.weight, weight.data)},
                                    {DNNL_ARG_DST, view(matmul.out, out.data)}});
  stream.wait();
}

template void onednn_matmul(Matrix<const float> x, Matrix<const float> weight, Matrix<float> out);
template void onednn_matmul(Matrix<const bf16> x, Matrix<const bf16> weight, Matrix<float> out);

}  // namespace winnow::ops::cpu
