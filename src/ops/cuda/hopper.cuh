// Hopper-specific instructions: bulk copies from shared memory, and products by a warpgroup (128
// threads).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "ops/cuda/mbarrier.cuh"

namespace winnow::ops::cuda {

/// fence_async_proxy() for all memory, including other threads' writes visible to this thread.
inline __device__ void fence_async_proxy_everywhere() {
  asm volatile("fence.proxy.async;" ::: "memory");
}

/// Copies `bytes` (a multiple of 16) from shared to global memory, or adds floats to those there.
inline __device__ void copy_bulk(void* to, const void* from, int bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to),
               "r"(shared_address(from)), "r"(bytes)
               : "memory");
}
inline __device__ void add_bulk(float* to, const float* from, int bytes) {
  asm volatile(
      "cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%0], [%1], %2;" ::"l"(to),
      "r"(shared_address(from)), "r"(bytes)
      : "memory");
}
/// Ends a group of these copies.
inline __device__ void commit_copies() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
/// Wait for this thread's groups: until shared memory may be overwritten, or until all writes are
/// done and precede later writes of this thread.
inline __device__ void wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
inline __device__ void wait_until_written() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
  fence_async_proxy_everywhere();
}

/// Arrives at a barrier of sync_named() without waiting.
inline __device__ void arrive_named(int number, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(threads) : "memory");
}

template <int Registers>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Registers));
}
template <int Registers>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Registers));
}

/// Describes an operand of wgmma in shared memory: slabs of rows of 128 bytes, swizzled, aligned to
/// 1024. `slab_stride` is the bytes from slab to slab, for operands whose rows run along the sum.
inline __device__ std::uint64_t matrix_descriptor(const std::byte* x, int slab_stride) {
  constexpr std::uint64_t kSwizzle128 = std::uint64_t{1} << 62;
  constexpr std::uint64_t kEightRows = std::uint64_t{1024 / 16} << 32;
  return kSwizzle128 | kEightRows | std::uint64_t(slab_stride / 16) << 16 |
         (shared_address(x) & 0x3FFFF) / 16;
}

/// Begins products whose registers were written before.
inline __device__ void begin_products() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
inline __device__ void commit_products() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
/// Keeps computations of x before this point and uses of x after it: otherwise the compiler would
/// move arithmetic that could overlap with a wait to after the wait.
template <int Size>
__device__ __forceinline__ void pin(float (&x)[Size]) {
  static_assert(Size % 8 == 0);
#pragma unroll
  for (int i = 0; i < Size; i += 8) {  // longer loops are not always unrolled
    asm volatile(""
                 : "+f"(x[i]), "+f"(x[i + 1]), "+f"(x[i + 2]), "+f"(x[i + 3]), "+f"(x[i + 4]),
                   "+f"(x[i + 5]), "+f"(x[i + 6]), "+f"(x[i + 7])::"memory");
  }
}

/// Waits until at most `Pending` committed groups are in flight.
template <int Pending>
__device__ __forceinline__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
}
/// The same; `result` is then complete.
template <int Pending, int Size>
__device__ __forceinline__ void wait_for_products(float (&result)[Size]) {
  wait_for_products<Pending>();
  pin(result);
}

// The instructions by the width of the right operand; d is [64, 2 * Size] over the warpgroup.
// clang-format off
#define WINNOW_REGISTERS_16 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define WINNOW_RESULTS_16                                                                          \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),              \
  "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),          \
  "+f"(d[14]), "+f"(d[15])
#define WINNOW_REGISTERS_32                                                                        \
  "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23"          \
  ",%24,%25,%26,%27,%28,%29,%30,%31"
#define WINNOW_RESULTS_32                                                                          \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),              \
  "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),          \
  "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]),                    \
  "+f"(d[20]), "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]),                    \
  "+f"(d[26]), "+f"(d[27]), "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
#define WINNOW_REGISTERS_40                                                                        \
  WINNOW_REGISTERS_32                                                                              \
  ",%32,%33,%34,%35,%36,%37,%38,%39"
#define WINNOW_RESULTS_40                                                                          \
  WINNOW_RESULTS_32,                                                                               \
  "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]), "+f"(d[36]), "+f"(d[37]),                    \
  "+f"(d[38]), "+f"(d[39])
#define WINNOW_REGISTERS_48                                                                        \
  WINNOW_REGISTERS_40                                                                              \
  ",%40,%41,%42,%43,%44,%45,%46,%47"
#define WINNOW_RESULTS_48                                                                          \
  WINNOW_RESULTS_40,                                                                               \
  "+f"(d[40]), "+f"(d[41]), "+f"(d[42]), "+f"(d[43]), "+f"(d[44]), "+f"(d[45]),                    \
  "+f"(d[46]), "+f"(d[47])
#define WINNOW_REGISTERS_64                                                                        \
  WINNOW_REGISTERS_48                                                                              \
  ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define WINNOW_RESULTS_64                                                                          \
  WINNOW_RESULTS_48,                                                                               \
  "+f"(d[48]), "+f"(d[49]), "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]),                    \
  "+f"(d[54]), "+f"(d[55]), "+f"(d[56]), "+f"(d[57]), "+f"(d[58]), "+f"(d[59]),                    \
  "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define WINNOW_REGISTERS_96                                                                        \
  WINNOW_REGISTERS_64                                                                              \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85"       \
  ",%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define WINNOW_RESULTS_96                                                                          \
  WINNOW_RESULTS_64,                                                                               \
  "+f"(d[64]), "+f"(d[65]), "+f"(d[66]), "+f"(d[67]), "+f"(d[68]), "+f"(d[69]),                    \
  "+f"(d[70]), "+f"(d[71]), "+f"(d[72]), "+f"(d[73]), "+f"(d[74]), "+f"(d[75]),                    \
  "+f"(d[76]), "+f"(d[77]), "+f"(d[78]), "+f"(d[79]), "+f"(d[80]), "+f"(d[81]),                    \
  "+f"(d[82]), "+f"(d[83]), "+f"(d[84]), "+f"(d[85]), "+f"(d[86]), "+f"(d[87]),                    \
  "+f"(d[88]), "+f"(d[89]), "+f"(d[90]), "+f"(d[91]), "+f"(d[92]), "+f"(d[93]),                    \
  "+f"(d[94]), "+f"(d[95])
#define WINNOW_REGISTERS_128                                                                       \
  WINNOW_REGISTERS_96                                                                              \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113"         \
  ",%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define WINNOW_RESULTS_128                                                                         \
  WINNOW_RESULTS_96,                                                                               \
  "+f"(d[96]), "+f"(d[97]), "+f"(d[98]), "+f"(d[99]), "+f"(d[100]), "+f"(d[101]),                  \
  "+f"(d[102]), "+f"(d[103]), "+f"(d[104]), "+f"(d[105]), "+f"(d[106]), "+f"(d[107]),              \
  "+f"(d[108]), "+f"(d[109]), "+f"(d[110]), "+f"(d[111]), "+f"(d[112]), "+f"(d[113]),              \
  "+f"(d[114]), "+f"(d[115]), "+f"(d[116]), "+f"(d[117]), "+f"(d[118]), "+f"(d[119]),              \
  "+f"(d[120]), "+f"(d[121]), "+f"(d[122]), "+f"(d[123]), "+f"(d[124]), "+f"(d[125]),              \
  "+f"(d[126]), "+f"(d[127])

/// multiply_shared: d (+)= a b for a [64, 16] and b [N, 16], both in shared memory.
/// multiply_shared_along: d (+)= a^T b for a [16, 64] (its rows are summed over) and b [16, N],
/// both in shared memory.
/// multiply_registers: d += a b for a [64, 16] in registers and b [16, N] in shared memory;
/// multiply_registers_by_rows: d += a b^T for b [N, 16].
#define WINNOW_PRODUCTS(N, COUNT, PAIR, TYPE, I0, I1, I2, I3, I4)                                  \
  template <bool Accumulate>                                                                       \
  __device__ __forceinline__ void multiply_shared(float (&d)[COUNT], std::uint64_t a, std::uint64_t b, PAIR) {     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WINNOW_REGISTERS_##COUNT "}, %" #I0 ", %" #I1 ", %" #I2 ", 1, 1, 0, 0;"           \
                 : WINNOW_RESULTS_##COUNT                                                          \
                 : "l"(a), "l"(b), "n"(Accumulate));                                               \
  }                                                                                                \
  template <bool Accumulate>                                                                       \
  __device__ __forceinline__ void multiply_shared_along(float (&d)[COUNT], std::uint64_t a, std::uint64_t b,       \
                                        PAIR) {                                                    \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WINNOW_REGISTERS_##COUNT "}, %" #I0 ", %" #I1 ", %" #I2 ", 1, 1, 1, 1;"           \
                 : WINNOW_RESULTS_##COUNT                                                          \
                 : "l"(a), "l"(b), "n"(Accumulate));                                               \
  }                                                                                                \
  __device__ __forceinline__ void multiply_registers(float (&d)[COUNT], const std::uint32_t* a,             \
                                            std::uint64_t b, PAIR) {                               \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WINNOW_REGISTERS_##COUNT "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4     \
                 ", 1, 1, 1, 1;"                                                                   \
                 : WINNOW_RESULTS_##COUNT                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }                                                                                                \
  __device__ __forceinline__ void multiply_registers_by_rows(                                      \
      float (&d)[COUNT], const std::uint32_t (&a)[4], std::uint64_t b, PAIR) {                     \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {"              \
                 WINNOW_REGISTERS_##COUNT "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4     \
                 ", 1, 1, 1, 0;"                                                                   \
                 : WINNOW_RESULTS_##COUNT                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
WINNOW_PRODUCTS(32, 16, __nv_bfloat162, "bf16", 16, 17, 18, 19, 20)
WINNOW_PRODUCTS(64, 32, __half2, "f16", 32, 33, 34, 35, 36)
WINNOW_PRODUCTS(64, 32, __nv_bfloat162, "bf16", 32, 33, 34, 35, 36)
WINNOW_PRODUCTS(80, 40, __half2, "f16", 40, 41, 42, 43, 44)
WINNOW_PRODUCTS(80, 40, __nv_bfloat162, "bf16", 40, 41, 42, 43, 44)
WINNOW_PRODUCTS(96, 48, __half2, "f16", 48, 49, 50, 51, 52)
WINNOW_PRODUCTS(96, 48, __nv_bfloat162, "bf16", 48, 49, 50, 51, 52)
WINNOW_PRODUCTS(128, 64, __half2, "f16", 64, 65, 66, 67, 68)
WINNOW_PRODUCTS(128, 64, __nv_bfloat162, "bf16", 64, 65, 66, 67, 68)
#undef WINNOW_PRODUCTS

/// multiply_codes_by_rows: d += a b^T for e4m3 codes, a [64, 32] in registers and b [N, 32] in
/// shared memory. Sums have about 14 significant bits.
#define WINNOW_FP8_PRODUCTS(N, COUNT, I0, I1, I2, I3, I4)                                          \
  __device__ __forceinline__ void multiply_codes_by_rows(                                          \
      float (&d)[COUNT], const std::uint32_t (&a)[4], std::uint64_t b) {                           \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #N "k32.f32.e4m3.e4m3 {"                      \
                 WINNOW_REGISTERS_##COUNT "}, {%" #I0 ", %" #I1 ", %" #I2 ", %" #I3 "}, %" #I4     \
                 ", 1, 1, 1;"                                                                      \
                 : WINNOW_RESULTS_##COUNT                                                          \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                            \
  }
WINNOW_FP8_PRODUCTS(128, 64, 64, 65, 66, 67, 68)
WINNOW_FP8_PRODUCTS(192, 96, 96, 97, 98, 99, 100)
WINNOW_FP8_PRODUCTS(256, 128, 128, 129, 130, 131, 132)
#undef WINNOW_FP8_PRODUCTS
#undef WINNOW_REGISTERS_16
#undef WINNOW_RESULTS_16
#undef WINNOW_REGISTERS_32
#undef WINNOW_RESULTS_32
#undef WINNOW_REGISTERS_40
#undef WINNOW_RESULTS_40
#undef WINNOW_REGISTERS_48
#undef WINNOW_RESULTS_48
#undef WINNOW_REGISTERS_64
#undef WINNOW_RESULTS_64
#undef WINNOW_REGISTERS_96
#undef WINNOW_RESULTS_96
#undef WINNOW_REGISTERS_128
#undef WINNOW_RESULTS_128
// clang-format on

}  // namespace winnow::ops::cuda
