#include <immintrin.h>
#include <chrono>
#include <cstdio>
#include <thread>
#include <vector>
double run(int which) {
  __m512 a[12];
  for (auto& x : a) x = _mm512_setzero_ps();
  __m512i b = _mm512_set1_epi32(0x3f803f80);
  __m512bh c = (__m512bh)b;
  __m512i ai[12];
  for (auto& x : ai) x = _mm512_setzero_si512();
  auto t = std::chrono::steady_clock::now();
  long n = 30000000;
  if (which == 0)
    for (long i = 0; i < n; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < 12; j++) {
        a[j] = _mm512_dpbf16_ps(a[j], c, c);
        asm volatile("" ::"v"(a[j]));
      }
    }
  else if (which == 1)
    for (long i = 0; i < n; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < 12; j++) {
        ai[j] = _mm512_dpbusd_epi32(ai[j], b, b);
        asm volatile("" ::"v"(ai[j]));
      }
    }
  else
    for (long i = 0; i < n; i++) {
#pragma GCC unroll 12
      for (int j = 0; j < 12; j++) {
        a[j] = _mm512_fmadd_ps(a[j], a[11], a[11]);
        asm volatile("" ::"v"(a[j]));
      }
    }
  double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
  return 12.0 * n / s / 1e9;
}
int main() {
  for (int w = 0; w < 3; w++)
    for (int T = 1; T <= 2; T++) {
      std::vector<std::thread> th;
      double r[2];
      for (int i = 0; i < T; i++) th.emplace_back([&, i] { r[i] = run(w); });
      for (auto& x : th) x.join();
      double s = 0;
      for (int i = 0; i < T; i++) s += r[i];
      printf("which %d threads %d: %.2f Ginstr/s\n", w, T, s);
    }
}
