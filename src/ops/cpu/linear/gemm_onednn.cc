#include "ops/cpu/linear/gemm_onednn.h"

#include <omp.h>

#include <cassert>
#include <compare>
#include <dnnl.hpp>
#include <map>
#include <type_traits>

#include "base/no_signals.h"

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

/// The key of a primitive. One stride of each operand is 1.
struct Shape {
  std::size_t rows;
  std::size_t depth;
  std::size_t cols;
  std::size_t a_strides[2];
  std::size_t b_strides[2];
  std::size_t out_stride;
  memory::data_type type;
  Write write;

  auto operator<=>(const Shape&) const = default;  // NOLINT(modernize-use-nullptr): misread
};

Dims dims(const std::size_t (&strides)[2]) {
  return {dim(strides[0]), dim(strides[1])};
}

dnnl::matmul make_matmul(const memory::desc& a, const memory::desc& b, const memory::desc& out,
                         Write write) {
  dnnl::primitive_attr attributes;
  if (write == Write::add) {
    dnnl::post_ops sum;
    sum.append_sum(1.0F);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul(dnnl::matmul::primitive_desc(engine(), a, b, out, attributes));
#else
  return dnnl::matmul(
      dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, out), attributes, engine()));
#endif
}

/// The primitive made for a shape, and the descriptions of its operands.
struct Matmul {
  explicit Matmul(const Shape& shape)
      : a({dim(shape.rows), dim(shape.depth)}, shape.type, dims(shape.a_strides)),
        b({dim(shape.depth), dim(shape.cols)}, shape.type, dims(shape.b_strides)),
        out({dim(shape.rows), dim(shape.cols)}, memory::data_type::f32,
            Dims{dim(shape.out_stride), 1}),
        primitive(make_matmul(a, b, out, shape.write)) {}

  memory::desc a;
  memory::desc b;
  memory::desc out;
  dnnl::matmul primitive;
};

/// Creating a primitive costs about as much as a small product, so a model's few shapes are cached,
/// per thread, as oneDNN's scratch memory belongs to the thread that created the primitive.
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

/// While it exists, oneDNN, which gets its threads from OpenMP, stays on the calling one.
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

bool has_isa(unsigned needed) {  // ISA values are sets of bits
  return (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) & needed) == needed;
}

}  // namespace

bool has_fast_bf16() {
  static const bool has = has_isa(dnnl_cpu_isa_avx512_core_bf16);
  return has;
}

template <class T>
void onednn_product(const Operand<T>& a, const Operand<T>& b, Matrix<float> out, Write write) {
  assert(a.cols == b.rows && a.rows == out.rows && b.cols == out.cols);
  const OneThread one_thread;
  // A kernel may keep values below its stack pointer, farther than the ABI allows. A signal handler
  // of the host program would overwrite them, and the kernel would write to wrong addresses.
  const NoSignals no_signals;
  const Shape shape{
      a.rows,     a.cols,   b.cols, {a.row_stride, a.col_stride}, {b.row_stride, b.col_stride},
      out.stride, kType<T>, write};
  const Matmul& matmul = cached_matmul(shape);
  thread_local dnnl::stream stream(engine());
  // oneDNN accepts no pointers to const, but only reads its sources.
  const auto view = [](const memory::desc& desc, const void* data) {
    return memory(desc, engine(), const_cast<void*>(data));
  };
  matmul.primitive.execute(stream, {{DNNL_ARG_SRC, view(matmul.a, a.data)},
                                    {DNNL_ARG_WEIGHTS, view(matmul.b, b.data)},
                                    {DNNL_ARG_DST, view(matmul.out, out.data)}});
  stream.wait();
}

template void onednn_product(const Operand<float>& a, const Operand<float>& b, Matrix<float> out,
                             Write write);
template void onednn_product(const Operand<bf16>& a, const Operand<bf16>& b, Matrix<float> out,
                             Write write);

}  // namespace winnow::ops::cpu
