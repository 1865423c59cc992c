// Shared by the benchmarks of kernels on a device: `NAME [--json FILE]`.
#pragma once

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/cuda/device.h"
#include "base/error.h"

namespace winnow {

inline std::string device_name() {
  cudaDeviceProp properties{};
  cuda::check(cudaGetDeviceProperties(&properties, 0), "device properties");
  return properties.name;
}

/// The body of main(): calls `run`, which prints and returns its figures, and writes them to the
/// FILE of --json. Returns the exit code.
inline int benchmark_main(int argc, char** argv, nlohmann::json (*run)()) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  try {
    require(argc == 1 || (argc == 3 && std::string_view(argv[1]) == "--json"),
            "usage: {} [--json FILE]", name);
    require(cuda::device_count() > 0, "no CUDA device");
    const nlohmann::json results = run();
    if (argc == 3) {
      std::ofstream(argv[2]) << results.dump(1) << "\n";
    }
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "{}: error: {}\n", name, error.what());
    return 1;
  }
}

}  // namespace winnow
