// A sequence of launches that is recorded once and replayed as a whole.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <memory>

#include "base/cuda/device.h"

namespace winnow::cuda {

class Graph {
 public:
  /// Records what `work` puts into `stream`. It does not run now.
  Graph(const Stream& stream, const std::function<void()>& work);
  void launch(const Stream& stream) const;

 private:
  struct Destroy {
    using pointer = cudaGraphExec_t;
    void operator()(cudaGraphExec_t graph) const { cudaGraphExecDestroy(graph); }
  };
  std::unique_ptr<cudaGraphExec_t, Destroy> executable_;
};

}  // namespace winnow::cuda
