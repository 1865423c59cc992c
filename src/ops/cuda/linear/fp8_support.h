// What products of rows of e4m3 codes need of a device and of cuBLASLt.
#pragma once

#include <cstddef>
#include <string>

namespace winnow::ops::cuda {

struct Fp8Support {
  int major = 0;  // the device's compute capability
  int minor = 0;
  std::size_t cublaslt = 0;  // its version: 120905 is 12.9.5

  /// Of the current device, and the older of two versions: that of the headers and that which runs.
  static Fp8Support here();
  /// What such products lack, naming what was found; empty: nothing.
  [[nodiscard]] std::string problem() const;
};

}  // namespace winnow::ops::cuda
