#include "base/cuda/graph.h"

namespace winnow::cuda {

Graph::Graph(const Stream& stream, const std::function<void()>& work) {
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "begin a graph");
  cudaGraph_t graph = nullptr;
  try {
    work();
  } catch (...) {
    cudaStreamEndCapture(stream.get(), &graph);
    if (graph != nullptr) {
      cudaGraphDestroy(graph);
    }
    throw;
  }
  check(cudaStreamEndCapture(stream.get(), &graph), "end a graph");
  cudaGraphExec_t executable = nullptr;
  const cudaError_t code = cudaGraphInstantiate(&executable, graph, 0);
  cudaGraphDestroy(graph);
  check(code, "instantiate a graph");
  executable_.reset(executable);
}

void Graph::launch(const Stream& stream) const {
  check(cudaGraphLaunch(executable_.get(), stream.get()), "launch a graph");
}

}  // namespace winnow::cuda
