// A model's tensors in device memory.
#pragma once

#include "base/cuda/device.h"
#include "train/backend.h"
#include "train/cuda/muon.h"
#include "train/parameters.h"
#include "train/tensors.h"

namespace winnow::train::cuda {

/// Matrices in bf16, vectors in fp32. Of a layer q, k and v lie one after another, weights and
/// biases, and so do gate and up: `query` and `gate` point to all of theirs. `decision` and `omega`
/// have zeros behind their rows, up to padded_decisions().
using DeviceWeights = Tensors<const bf16*, const float*>;
using DeviceLayerWeights = LayerTensors<const bf16*, const float*>;
/// In fp32; null: not computed.
using DeviceGradients = Tensors<float*, float*>;
using DeviceLayerGradients = LayerTensors<float*, float*>;

/// Columns that decisions of a token take in products.
int padded_decisions(const model::ModelSpec& spec);

/// Weights that stay as they are: of a teacher, and of a student whose decisions alone are trained.
class FrozenWeights {
 public:
  /// Copies what `find` has to the device.
  FrozenWeights(const model::ModelSpec& spec, const FindTensor& find);
  /// Bytes that it takes.
  static std::size_t bytes(const model::ModelSpec& spec);

  [[nodiscard]] const bf16* matrix(const std::string& name) const;
  [[nodiscard]] const float* vector(const std::string& name) const;
  [[nodiscard]] DeviceWeights view(const model::ModelSpec& spec) const;

 private:
  ParameterList list_;
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<float> vectors_;
};

/// The trained tensors, their gradients and moments: fp32 in the order of Parameters, and matrices
/// rounded to bf16 for products.
class TrainedWeights {
 public:
  /// Parameters as they are in host memory.
  TrainedWeights(const model::ModelSpec& spec, const Parameters& parameters, cudaStream_t stream);
  static std::size_t bytes(const model::ModelSpec& spec, const ParameterList& list);

  /// What is not trained comes from `frozen`, if there is one.
  [[nodiscard]] DeviceWeights view(const FrozenWeights* frozen) const;
  [[nodiscard]] DeviceGradients gradients(bool with_omegas) const;

  /// One update of part of the flat array.
  void apply(const AdamWOptions& options, const AdamW::Update& update, cudaStream_t stream);

  /// Where Muon finds what it changes.
  [[nodiscard]] MuonArrays muon_arrays() const;

  /// The moments, in host memory of this object. Nothing may be under way on the device.
  Moments fetch_moments();
  /// Takes over values, and the moments from where fetch_moments() left them.
  void store(std::span<const float> host_values, cudaStream_t stream);

  winnow::cuda::DeviceBuffer<float> values;
  winnow::cuda::DeviceBuffer<float> gradient;
  winnow::cuda::DeviceBuffer<float> first_moments;
  winnow::cuda::DeviceBuffer<float> second_moments;

 private:
  /// The rounded copies of elements [begin, end) of the flat array, which have changed.
  void round(std::size_t begin, std::size_t end, cudaStream_t stream);
  /// Where the rounded copy of the flat array's element `offset` is; null behind the matrices.
  [[nodiscard]] bf16* rounded(std::size_t offset) const;
  [[nodiscard]] const bf16* rows_of(const std::string& name) const;

  model::ModelSpec spec_;
  ParameterList list_;
  winnow::cuda::DeviceBuffer<bf16> matrices_;
  winnow::cuda::DeviceBuffer<bf16> rows_;  // padded, of every decision matrix
  std::map<std::string, std::size_t> row_offsets_;
  Buffer<float> host_first_moments_;
  Buffer<float> host_second_moments_;
};

}  // namespace winnow::train::cuda
